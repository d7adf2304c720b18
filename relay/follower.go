package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// pendingBytes bounds what a follower holds that it has not applied. Past
	// it everything held is let go and read again from the bus.
	pendingBytes = 4 << 20

	// perEvent is what an event costs beside its data, roughly.
	perEvent = 512

	// maxRefs bounds the control facts of one run remembered against doubles:
	// lost, resumed and a few for each command.
	maxRefs = 4096

	// retryMax bounds the pause between attempts to read while the bus is away.
	retryMax = 2 * time.Second
)

// A follower gives a run's events to apply, each once, in the order of their
// seq, from a start on, and the run's control facts as they come. The hub's
// readers push what is new; what they may have missed is read from the bus.
type follower struct {
	bus reader
	ref bus.Ref
	log *slog.Logger

	// start says behind which seq to begin.
	start func(ctx context.Context) (after uint64, err error)
	// apply takes an event, on the follower's goroutine. early marks control
	// facts from before ready.
	apply func(e *event.Event, early bool)
	// settled, which may be nil, is called after each batch of them, likewise.
	settled func()

	ready chan struct{} // closed when everything stored before was applied once
	wake  chan struct{} // capacity 1
	done  chan struct{} // closed when run has returned

	mu      sync.Mutex // guards the rest
	pending []*event.Event
	bytes   int
	missed  bool            // events may be missing from pending
	waiters []chan struct{} // closed after the next full catch-up

	// Of the follower's goroutine.
	last uint64
	part event.Part
	refs map[string]bool
}

func newFollower(b reader, ref bus.Ref, log *slog.Logger) *follower {
	return &follower{
		bus: b, ref: ref, log: log, missed: true,
		ready: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}), refs: map[string]bool{},
	}
}

// push hands over a new event. It does not block.
func (f *follower) push(e *event.Event) {
	f.mu.Lock()
	if f.bytes > pendingBytes {
		f.pending, f.bytes, f.missed = nil, 0, true
	}
	if !f.missed {
		f.pending = append(f.pending, e)
		f.bytes += len(e.Data) + perEvent
	}
	f.mu.Unlock()
	f.poke()
}

// miss says that events may not have been pushed.
func (f *follower) miss() {
	f.mu.Lock()
	f.missed = true
	f.mu.Unlock()
	f.poke()
}

// sync returns when everything stored before the call has been applied, or when
// ctx ends.
func (f *follower) sync(ctx context.Context) error {
	ch := make(chan struct{})
	f.mu.Lock()
	f.missed = true
	f.waiters = append(f.waiters, ch)
	f.mu.Unlock()
	f.poke()
	select {
	case <-ch:
		return nil
	case <-f.done:
		return bus.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *follower) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	for failed := 0; ; failed++ {
		after, err := f.start(ctx)
		if err == nil {
			f.last = after
			break
		}
		if !pause(ctx, failed) {
			return
		}
	}
	for failed := 0; ; {
		f.mu.Lock()
		batch, missed, waiters := f.pending, f.missed, f.waiters
		f.pending, f.bytes, f.missed, f.waiters = nil, 0, false, nil
		f.mu.Unlock()
		err := f.batch(ctx, batch)
		if missed && err == nil {
			err = f.catchUp(ctx)
		}
		if f.settled != nil {
			f.settled()
		}
		if err != nil {
			f.mu.Lock()
			f.missed, f.waiters = true, append(waiters, f.waiters...)
			f.mu.Unlock()
			if !pause(ctx, failed) {
				return
			}
			f.log.Debug("run not read, trying again", "run", f.ref.Run, "error", err)
			failed++
			continue
		}
		failed = 0
		for _, ch := range waiters {
			close(ch)
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
	}
}

// pause waits a little longer each time, and reports false when ctx has ended.
func pause(ctx context.Context, n int) bool {
	d := min(retryMax, 50*time.Millisecond<<min(n, 10))
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// batch applies pushed events. Where one is ahead, the bus has those between.
func (f *follower) batch(ctx context.Context, events []*event.Event) error {
	for _, e := range events {
		if f.ahead(e) {
			if err := f.history(ctx); err != nil {
				return err
			}
		}
		f.step(e)
	}
	return nil
}

// catchUp applies what the bus has.
func (f *follower) catchUp(ctx context.Context) error {
	if err := f.history(ctx); err != nil {
		return err
	}
	for e, err := range f.bus.Controls(ctx, f.ref) {
		if err != nil {
			return err
		}
		f.step(e)
	}
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	return nil
}

func (f *follower) history(ctx context.Context) error {
	after := f.last
	if !f.part.IsZero() && f.part.I < f.part.N {
		after-- // its other parts
	}
	for e, err := range f.bus.History(ctx, f.ref, after) {
		if err != nil {
			return err
		}
		f.step(e)
	}
	return nil
}

// ahead reports whether events are missing before e.
func (f *follower) ahead(e *event.Event) bool {
	switch {
	case e.Seq == 0 || e.Seq < f.last:
		return false
	case e.Seq == f.last:
		return e.Part.I > f.part.I+1
	default:
		return e.Seq > f.last+1 || e.Part.I > 1 || f.part.I < f.part.N
	}
}

// step applies e unless it was applied before.
func (f *follower) step(e *event.Event) {
	if e.Seq == 0 {
		if f.refs[e.Ref] {
			return
		}
		if len(f.refs) >= maxRefs {
			clear(f.refs)
		}
		f.refs[e.Ref] = true
		early := true
		select {
		case <-f.ready:
			early = false
		default:
		}
		f.apply(e, early)
		return
	}
	if e.Seq < f.last || e.Seq == f.last && e.Part.I <= f.part.I {
		return
	}
	f.last, f.part = e.Seq, e.Part
	f.apply(e, false)
}

// lastFrame is the start of a follower that begins with the run's last frame.
func lastFrame(b reader, ref bus.Ref) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		e, _, err := b.Last(ctx, ref)
		if errors.Is(err, bus.ErrNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		after := e.Seq - 1
		if e.Chunk.I > 1 {
			after -= min(after, uint64(e.Chunk.I-1))
		}
		return after, nil
	}
}

// beginning is the start of a follower that takes everything.
func beginning(context.Context) (uint64, error) { return 0, nil }
