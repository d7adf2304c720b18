package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

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
