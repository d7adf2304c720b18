package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/event"
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

// behindTries is how often the stream is asked again when it has less than it had
// acknowledged: the replica that answered may be behind.
const behindTries = 3

// recover asks the stream what it has of the run, and believes it.
func (r *shipper) recover(ctx context.Context) error {
	r.p.stats.recovers.Add(1)
	at, sseq, err := r.has(ctx)
	for n := 1; err == nil && at.less(r.high) && n < behindTries; n++ {
		select {
		case <-time.After(behindWait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		at, sseq, err = r.has(ctx)
	}
	if err != nil {
		return err
	}
	r.at, r.sseq = at, sseq
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

// behindWait is how long a replica is given to catch up.
const behindWait = 50 * time.Millisecond

// has asks for the run's last message.
func (r *shipper) has(ctx context.Context) (pos, uint64, error) {
	e, sseq, err := r.p.Bus.LastOwn(ctx, r.p.Ref)
	switch {
	case errors.Is(err, ErrNotFound):
		return pos{}, 0, nil
	case errors.Is(err, ErrForeign) && sseq > 0:
		// It cannot be undone. The run goes on behind it, from what we know.
		r.log.Warn("a message that is no event is under this run", "run", r.p.Ref.Run, "stream_seq", sseq, "error", err)
		return r.high, sseq, nil
	case err != nil:
		return pos{}, 0, err
	}
	if e.Seq == 1 && e.Part.I <= 1 {
		r.p.first.Store(sseq)
	}
	return pos{e.Seq, e.Part.I, e.Part.N}, sseq, r.mine(e)
}

// mine reports [ErrRunUsed] unless e, which the stream has, is the source's own: a
// run id that is given from outside may be given twice.
func (r *shipper) mine(e *event.Event) error {
	own, ok, err := r.p.Source.Event(e.Seq)
	switch {
	case err != nil:
		return &sourceError{err}
	case !ok && r.p.Resumed: // what the disk lost after the bus had it
		return nil
	case !ok, own.Type != event.TypeGap && !own.Time.Equal(e.Time):
		return fmt.Errorf("%w: its event %d of %s is not ours", ErrRunUsed, e.Seq, e.Time.Format(time.RFC3339Nano))
	}
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
