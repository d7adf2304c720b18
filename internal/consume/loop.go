package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A loop is the one goroutine of a consumer that handles and commits.
type loop struct {
	c       *Consumer
	readers map[bus.Log]*reader
	parked  map[string]*park // by run; those without one by log
	bytes   int64            // parked

	total     uint64    // entries handled
	handled   int       // since the last commit
	weight    int64     // their bytes
	due       time.Time // of the next commit; zero: nothing to commit
	failed    int       // commits in a row
	commitErr error
	pressed   bool // the last commit was
	spare     []item
}

func newLoop(c *Consumer) *loop {
	l := &loop{c: c, readers: map[bus.Log]*reader{}, parked: map[string]*park{}}
	for _, r := range c.readers {
		l.readers[r.log] = r
	}
	return l
}

// run works until ctx ends.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if l.waiting() { // a log that has nothing new may not begin
		l.later(l.c.cfg.Every)
	}
	for ctx.Err() == nil {
		ready := l.c.q.ready
		if l.bytes > l.c.cfg.Parked || l.failed > 0 && l.full() {
			ready = nil // nothing more is read until there is room
		}
		timer.Reset(l.patience())
		select {
		case <-ready:
			l.takeAll(ctx)
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.retry(ctx)
		if !l.due.IsZero() && !now().Before(l.due) || l.failed == 0 && (l.full() || l.press() && !l.pressed) {
			l.commit(ctx, l.press())
		}
		l.report()
	}
}

// full says that enough was handled for a commit.
func (l *loop) full() bool { return l.handled >= l.c.cfg.Events || l.weight >= l.c.cfg.Bytes }

// press says that the server gives soon no more.
func (l *loop) press() bool {
	for _, r := range l.c.readers {
		if r.src.Status().Unacked >= l.c.cfg.Window/4*3 {
			return true
		}
	}
	return false
}

// patience is how long nothing needs to be done.
func (l *loop) patience() time.Duration {
	const long = time.Hour
	next := now().Add(long)
	if !l.due.IsZero() && l.due.Before(next) {
		next = l.due
	}
	for _, p := range l.parked {
		if p.next.Before(next) {
			next = p.next
		}
	}
	return max(0, next.Sub(now()))
}

// takeAll handles what was read.
func (l *loop) takeAll(ctx context.Context) {
	items := l.c.q.take(l.spare)
	for i := range items {
		it := items[i]
		if it.entry == nil {
			l.begin(it)
			continue
		}
		if it.entry.At.Seq <= it.from.read.Seq {
			continue // handled, or parked
		}
		if ctx.Err() != nil {
			break // it comes again after a restart
		}
		it.from.read = it.entry.At
		l.take(ctx, it.entry)
		if l.failed == 0 && l.full() {
			l.commit(ctx, l.press())
		}
	}
	clear(items)
	l.spare = items
}

// begin is told that a log is given from behind a place.
func (l *loop) begin(it item) {
	it.from.rebuilt = it.rebuilt
	if it.turn != bus.Rebuilt {
		if it.from.read.Seq < it.after.Seq {
			it.from.read = it.after
		}
		if it.turn == bus.Kept {
			// Another instance has read on, and what it acked is done.
			it.from.acked = max(it.from.acked, it.after.Seq)
			l.forget(func(e *Entry) bool { return e.Log == it.from.log && e.At.Seq <= it.after.Seq })
		}
		if b, ok := l.c.h.(Beginner); ok {
			b.Begun(it.from.log, it.after)
		}
		if l.waiting() {
			l.later(l.c.cfg.Every)
		}
		return
	}
	it.from.read, it.from.acked = it.after, it.after.Seq
	l.forget(func(e *Entry) bool { return e.Log == it.from.log })
	if r, ok := l.c.h.(Rebuilder); ok {
		r.Rebuilt(it.from.log, it.after)
	}
	l.c.rebuilt(it.from.log)
	if l.waiting() {
		l.later(l.c.cfg.Every)
	}
}

// take handles a new entry, or parks it behind those of its run.
func (l *loop) take(ctx context.Context, e *Entry) {
	key := keyOf(e)
	if p := l.parked[key]; p != nil {
		l.hold(p, e)
		return
	}
	if err := l.handle(ctx, e); err != nil {
		l.park(key, e, err)
	}
}

// handle calls the handler.
func (l *loop) handle(ctx context.Context, e *Entry) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			l.c.cfg.Log.Error("handler panicked", "log", e.Log, "stream_seq", e.At.Seq, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if err := l.c.h.Handle(ctx, e); err != nil {
		return err
	}
	l.handled++
	l.total++
	l.weight += e.size()
	l.later(l.c.cfg.Every)
	return nil
}

// later sees to it that there is a commit after d.
func (l *loop) later(d time.Duration) {
	if l.due.IsZero() {
		l.due = now().Add(d)
	}
}

// commit makes durable what was handled, and acks it.
func (l *loop) commit(ctx context.Context, pressed bool) bool {
	begin := now()
	upTo, err := l.callCommit(ctx, pressed)
	l.c.committed(now().Sub(begin), err)
	if l.commitErr = err; err != nil {
		l.failed++
		l.due = now().Add(l.c.cfg.pause(l.failed))
		l.c.cfg.Log.Warn("commit failed, nothing is acked", "tries", l.failed, "error", err)
		return false
	}
	l.failed, l.handled, l.weight, l.due, l.pressed = 0, 0, 0, time.Time{}, pressed
	l.ack(upTo)
	if l.outstanding() > 0 || l.waiting() {
		l.later(l.c.cfg.Every)
	}
	return true
}

func (l *loop) callCommit(ctx context.Context, pressed bool) (upTo map[bus.Log]bus.Place, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			l.c.cfg.Log.Error("commit panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	return l.c.h.Commit(ctx, pressed)
}

// waiting says that the handler has something to commit by itself.
func (l *loop) waiting() bool {
	w, ok := l.c.h.(Waiter)
	return ok && w.Waiting()
}

// ack acks each log up to what is committed, but not what is parked. A place from before
// what was read last, with a sequence behind it, is one of a log that was there earlier.
func (l *loop) ack(upTo map[bus.Log]bus.Place) {
	first := l.firstParked()
	for _, r := range l.c.readers {
		at := r.read
		if p := upTo[r.log]; upTo != nil && p.Seq < at.Seq {
			at = p
		} else if !p.Time.IsZero() && p.Time.Before(at.Time) {
			continue
		}
		if e := first[r.log]; e != nil && e.At.Seq <= at.Seq {
			at = bus.Place{Seq: e.At.Seq - 1}
		}
		if at.Seq > r.acked {
			r.acked = at.Seq
			r.src.AckOf(r.rebuilt, at) // the log may be another one by now
		}
	}
}

// outstanding is how many logs have something read and not acked.
func (l *loop) outstanding() (n int) {
	for _, r := range l.c.readers {
		if r.read.Seq > r.acked {
			n++
		}
	}
	return n
}

// firstParked is the first entry of each log that waits.
func (l *loop) firstParked() map[bus.Log]*Entry {
	var first map[bus.Log]*Entry
	for _, p := range l.parked {
		for _, e := range p.entries {
			if f := first[e.Log]; f == nil || e.At.Seq < f.At.Seq {
				if first == nil {
					first = map[bus.Log]*Entry{}
				}
				first[e.Log] = e
			}
		}
	}
	return first
}

// runsParked lists the keys of what is parked, the one that waits longest first.
func (l *loop) runsParked() []string {
	return slices.SortedFunc(maps.Keys(l.parked), func(a, b string) int {
		return l.parked[a].next.Compare(l.parked[b].next)
	})
}

// notItsFault reports whether an error is no fault of the entry.
func notItsFault(err error) bool {
	return errors.Is(err, ErrAgain) || errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrClosed) ||
		errors.Is(err, context.Canceled)
}
