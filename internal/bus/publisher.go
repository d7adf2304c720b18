package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	// flow is how many messages the server may take before it acknowledges,
	// window how many may be under way. A connection that breaks leaves at most
	// a window of messages whose fate is unknown; more gain nothing measurable.
	flow   = 64
	window = 256

	// windowBytes bounds the same in bytes: far below what makes a server
	// refuse (128 MiB waiting for one stream) and what a slow link clears in time.
	windowBytes = 8 << 20

	// ackWait is how long a batch may stay without any news, loneWait a lone
	// message. Then the stream is asked what it has. A batch is pinged before
	// that, every pingAfter: its last acknowledgement may have got lost.
	ackWait   = 5 * time.Second
	loneWait  = 2 * time.Second
	pingAfter = 500 * time.Millisecond

	// acksHeld bounds answers not looked at: with a window of messages and one
	// answer each at worst, twice that. More are dropped, and ackWait helps.
	acksHeld = 1024

	// retryBatch is how long events go out singly after the server refused a
	// batch because too many are open.
	retryBatch = time.Second
)

// A Source is where a [Publisher] takes a run's events from: the spool. Events
// are numbered 1, 2, 3 … and do not change. One goroutine calls its methods.
type Source interface {
	// Event returns event n. ok is false when it does not exist yet. An error
	// ends the publisher. What it returned stays as it is until the second call
	// after.
	Event(n uint64) (e *event.Event, ok bool, err error)

	// Wait returns nil when event n exists, [ErrDone] when the source ended
	// before it, or ctx's cause.
	Wait(ctx context.Context, n uint64) error

	// Acked says that every event up to n is on the bus. It may fall: when the
	// bus lost what it had acknowledged, those events are asked for again. So
	// they stay until the run ended and the server has synced its disk.
	Acked(n uint64)
}

// A Publisher ships one run's events to the bus: in order, none missing, none
// twice, whatever the bus does meanwhile.
//
// Many events under way form a fast-ingest batch (ADR-50) in which the server
// ends at the first message that is missing or out of order; a lone event is an
// ordinary message. The first message of each batch is fenced: it is stored only
// if the run's last message is the one the publisher thinks. On every
// connection, and after anything unexpected, the leader is asked for the run's
// last event and believed. Events that may have been sent before go out one at
// a time then, because only there a server says that it took one for a
// duplicate, and a duplicate is believed only if the stream has the event.
//
// Its fields must not change once Run was called.
type Publisher struct {
	Bus    *Bus
	Ref    Ref
	Source Source
	Log    *slog.Logger

	// Resumed says that another publisher may have sent events of this run
	// before, as for a spool that an edge left behind.
	Resumed bool

	// Notice, if set, is called with the cause when publishing stops or slows,
	// when the cause changes, and with nil when it goes on. It must not block.
	Notice func(cause error)

	// Flow and Window replace the defaults where they are not 0.
	Flow, Window int

	stats stats
}

// Stats are the publisher's counters so far. Its methods may be called while
// Run runs.
type Stats struct {
	Events   uint64 // acknowledged, the last one's number
	Messages uint64 // handed to a connection, resent ones included
	Batches  uint64
	Singles  uint64 // messages outside batches
	Recovers uint64 // times the stream was asked for the run's last event

	Resent          uint64 // messages sent again
	FenceMisses     uint64 // the stream had moved on
	Gaps            uint64 // batches the server ended at a missing message
	Duplicates      uint64 // messages the server had already
	FalseDuplicates uint64 // messages it only thought to have
	Timeouts        uint64 // no news for too long
	Regressions     uint64 // the stream had lost what it had acknowledged
	Split           uint64 // events sent in parts
	Replaced        uint64 // events that fit no message, sent as a gap
}

type stats struct {
	events, messages, batches, singles, recovers, resent, fenceMisses, gaps, duplicates, falseDuplicates,
	timeouts, regressions, split, replaced atomic.Uint64
}

// Stats returns the counters. It may be called at any time.
func (p *Publisher) Stats() Stats {
	s := &p.stats
	return Stats{
		s.events.Load(), s.messages.Load(), s.batches.Load(), s.singles.Load(), s.recovers.Load(), s.resent.Load(),
		s.fenceMisses.Load(), s.gaps.Load(), s.duplicates.Load(), s.falseDuplicates.Load(), s.timeouts.Load(),
		s.regressions.Load(), s.split.Load(), s.replaced.Load(),
	}
}

// Run publishes until the source is done and everything is acknowledged, and
// returns nil then. It waits for a bus that is away, for as long as ctx allows,
// and keeps trying with growing pauses while the bus refuses. It returns ctx's
// cause, [ErrClosed], or an error of the source.
func (p *Publisher) Run(ctx context.Context) error {
	r := newShipper(p)
	defer r.close()
	for failed := 0; ; {
		before := r.at
		err := r.ship(ctx)
		var fatal *sourceError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrClosed):
			return err
		case errors.As(err, &fatal):
			return fmt.Errorf("publish %s: %w", p.Ref.Run, fatal.err)
		}
		if before.less(r.at) {
			failed = 0
		}
		if failed > 0 {
			r.notice(err)
		}
		r.log.Debug("publisher recovers", "run", p.Ref.Run, "acked", r.at.seq, "error", err)
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		failed++
	}
}

// A sourceError ends the publisher.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

// A pos is the place of a message in the run: an event, or a part of one.
type pos struct {
	seq   uint64
	part  int // 0 is the whole event
	parts int
}

func (a pos) less(b pos) bool { return a.seq < b.seq || a.seq == b.seq && a.part < b.part }

// whole is the last event that ends at or before a.
func (a pos) whole() uint64 {
	if a.part < a.parts {
		return a.seq - 1
	}
	return a.seq
}

// A shipper is the state of one Run. One goroutine owns it.
type shipper struct {
	p    *Publisher
	log  *slog.Logger
	feed feed

	link   *link
	nc     *nats.Conn // that acks come from
	prefix string     // of reply subjects
	acks   chan *nats.Msg
	sub    *nats.Subscription
	self   string // unique, begins the ids of batches and lone messages
	ids    uint64 // given so far

	at     pos       // last message that the stream has
	sseq   uint64    // its stream sequence
	high   pos       // highest at so far
	sent   pos       // last message that may have reached the server
	unsure int       // messages from here on that another publisher may have sent
	under  []sentMsg // messages of the batch under way, after at

	single   time.Time // no batches before this
	oneByOne bool      // the server takes no batches, as far as this connection knows
	limit    int       // of a message, where the stream has shown one of its own
	flow     int
	window   int
	cause    error // last notice
}

type sentMsg struct {
	at   pos
	size int
}

func newShipper(p *Publisher) *shipper {
	r := &shipper{p: p, log: p.Log, flow: p.Flow, window: p.Window, limit: maxMessage, self: nuid.Next()}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.flow == 0 {
		r.flow = flow
	}
	if r.window == 0 {
		r.window = window
	}
	if p.Resumed {
		r.unsure = r.window
	}
	r.feed.init(p)
	return r
}

func (r *shipper) close() {
	if r.sub != nil {
		_ = r.sub.Unsubscribe()
	}
}

func (r *shipper) notice(cause error) {
	same := (cause == nil) == (r.cause == nil) && (cause == nil || cause.Error() == r.cause.Error())
	if same {
		return
	}
	r.cause = cause
	if cause != nil {
		r.log.Warn("publisher in trouble", "run", r.p.Ref.Run, "error", cause)
	} else {
		r.log.Info("publisher goes on", "run", r.p.Ref.Run)
	}
	if r.p.Notice != nil {
		r.p.Notice(cause)
	}
}

// ship publishes over one connection until it breaks, something unexpected
// happens, or all is done (nil).
func (r *shipper) ship(ctx context.Context) error {
	if _, err := r.p.Bus.now(); errors.Is(err, ErrUnavailable) {
		r.notice(err)
	}
	l, err := r.p.Bus.link(ctx)
	if err != nil {
		return err
	}
	if err := r.listen(l); err != nil {
		return err
	}
	if err := r.recover(ctx); err != nil {
		return err
	}
	for {
		ok, err := r.feed.load()
		if err == nil && !ok {
			if !r.oneByOne {
				r.notice(nil)
			}
			ok, err = r.wait(ctx)
			if err == nil && !ok {
				return nil
			}
		}
		if err != nil {
			return err
		}
		if r.careful() {
			err = r.one(ctx)
		} else {
			err = r.several(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// wait returns true when the next event exists, false when all is done. The
// connection may come and go meanwhile.
func (r *shipper) wait(ctx context.Context) (bool, error) {
	err := r.p.Source.Wait(ctx, r.feed.next.seq)
	switch {
	case errors.Is(err, ErrDone):
		return false, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		return false, &sourceError{err}
	case r.link.ctx.Err() != nil: // ask first what the stream has
		return false, errBroken
	}
	ok, err := r.feed.load()
	if err == nil && !ok {
		err = &sourceError{fmt.Errorf("event %d was announced and does not exist", r.feed.next.seq)}
	}
	return ok, err
}

// careful reports whether the next message must go out alone.
func (r *shipper) careful() bool {
	return r.oneByOne || r.unsure > 0 || r.at.less(r.sent) || !r.single.IsZero() && time.Now().Before(r.single)
}

// listen makes l the connection, with a subscription for its answers.
func (r *shipper) listen(l *link) error {
	if r.link != l {
		r.oneByOne = false // this may be another server
	}
	r.link = l
	r.feed.limit = min(int(l.nc.MaxPayload()), r.limit)
	if r.nc == l.nc {
		return nil
	}
	r.close()
	r.nc, r.prefix = l.nc, l.nc.NewInbox()
	r.acks = make(chan *nats.Msg, acksHeld)
	var err error
	if r.sub, err = l.nc.ChanSubscribe(r.prefix+".>", r.acks); err != nil {
		r.nc = nil
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

// recover asks the stream what it has of the run, and believes it.
func (r *shipper) recover(ctx context.Context) error {
	r.p.stats.recovers.Add(1)
	e, sseq, err := r.p.Bus.Last(ctx, r.p.Ref)
	switch {
	case errors.Is(err, ErrNotFound):
		r.at, r.sseq = pos{}, 0
	case err != nil:
		return err
	default:
		r.at, r.sseq = pos{e.Seq, e.Part.I, e.Part.N}, sseq
	}
	if r.at.less(r.high) {
		r.p.stats.regressions.Add(1)
		r.log.Warn("the stream lost events that it had acknowledged, sending them again",
			"run", r.p.Ref.Run, "acked", r.high.seq, "stream_has", r.at.seq)
	}
	r.high = r.at
	r.acked()
	r.feed.seek(r.at)
	return nil
}

// advance moves at to a message that was acknowledged.
func (r *shipper) advance(to pos) {
	if !r.at.less(to) {
		return
	}
	r.at = to
	if r.high.less(to) {
		r.high = to
	}
	r.acked()
	if !r.oneByOne {
		r.notice(nil)
	}
}

func (r *shipper) acked() {
	n := r.at.whole()
	r.p.stats.events.Store(n)
	r.p.Source.Acked(n)
}
