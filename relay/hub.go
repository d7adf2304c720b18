package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// maxFolds bounds the folded runs kept for the next question. A long run's state
// is some 100 KiB.
const maxFolds = 64

// A hub reads each partition and the control facts once, and hands every event
// to those who follow its run.
type hub struct {
	r    *Relay
	wg   sync.WaitGroup // followers
	away atomic.Int32   // readers that do not read now
	logs []*wide        // the control facts, then the partitions

	mu      sync.RWMutex // guards the rest
	follows map[runKey][]*follower
	feeds   map[runKey]*feed
	folds   map[runKey]*fold
	uses    uint64 // counts the uses of folds, to find the oldest
	manys   map[*manyOut]struct{}
	hot     map[*feed]time.Time // of those in feeds that nobody watches, since when
}

type runKey struct{ tenant, run string }

func keyOf(ref bus.Ref) runKey { return runKey{ref.Tenant, ref.Run} }

func newHub(r *Relay) *hub {
	h := &hub{
		r: r, follows: map[runKey][]*follower{}, feeds: map[runKey]*feed{}, folds: map[runKey]*fold{},
		manys: map[*manyOut]struct{}{}, hot: map[*feed]time.Time{},
	}
	h.logs = append(h.logs, newWide(bus.ControlLog, r.cfg.QueueBytes))
	for p := range r.partitions {
		h.logs = append(h.logs, newWide(bus.Log(p), r.cfg.QueueBytes))
	}
	return h
}

// run reads until ctx ends.
func (h *hub) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range h.logs {
		wg.Go(func() { h.read(ctx, l) })
	}
	wg.Go(func() { h.cool(ctx) })
	wg.Wait()
}

// read keeps the reader of one log going. Whenever it begins, everyone looks for
// what was stored before.
func (h *hub) read(ctx context.Context, l *wide) {
	h.away.Add(1)
	for failed := 0; ; failed++ {
		reading := false
		err := h.r.bus.TailLog(ctx, l.log, func(at bus.Place) {
			reading = true
			l.started(at)
			h.r.met.placed(int(l.log), at.Seq)
			h.away.Add(-1)
			h.each((*follower).miss)
		}, func(e *event.Event, at bus.Place) {
			h.dispatch(e)
			l.take(e, at)
			h.r.met.events.Inc()
			h.r.met.placed(int(l.log), at.Seq)
		})
		l.stopped()
		if reading {
			failed = 0
			h.away.Add(1)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, bus.ErrEpoch) {
			h.r.log.Warn("a stream began anew", "error", err)
		} else {
			h.r.log.Debug("reader goes on", "error", err)
		}
		if !pause(ctx, failed) {
			return
		}
	}
}

// dispatch hands e to its run's followers. It does not block.
func (h *hub) dispatch(e *event.Event) {
	switch e.Type {
	case event.TypeExited, event.TypeLost, event.TypeResumed:
		h.r.keeper.look(e.Run, settleDelay)
		if e.Type != event.TypeResumed {
			h.r.clerk.ended(e.Run)
		}
	case event.TypeAudit:
		h.r.clerk.audited(e)
	}
	h.mu.RLock()
	for _, f := range h.follows[runKey{e.Tenant, e.Run}] {
		f.push(e)
	}
	h.mu.RUnlock()
}

func (h *hub) each(fn func(*follower)) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, list := range h.follows {
		for _, f := range list {
			fn(f)
		}
	}
}

// ready reports whether every reader reads, and the end has not begun.
func (h *hub) ready() bool { return h.away.Load() == 0 && h.r.staying() }

// begin starts f; h.mu is held. The returned function stops it.
func (h *hub) begin(ctx context.Context, key runKey, f *follower) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	h.follows[key] = append(h.follows[key], f)
	h.wg.Go(func() { f.run(ctx) }) // ends with ctx
	return func() {
		cancel()
		list := slices.DeleteFunc(h.follows[key], func(o *follower) bool { return o == f })
		if len(list) == 0 {
			delete(h.follows, key)
		} else {
			h.follows[key] = list
		}
	}
}

// subscribe returns the run's feed, which leave gives back, for a client that has
// the events up to pos of those up to head.
func (h *hub) subscribe(ctx context.Context, ref bus.Ref, pos, head uint64) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := keyOf(ref)
	f := h.feeds[key]
	if f == nil {
		f = newFeed(h.r, ref, pos, head)
		h.feeds[key] = f
		f.stop = h.begin(ctx, key, f.follower)
	}
	f.users++
	delete(h.hot, f)
	return f
}

// fold returns the run's fold once it is up to date. It stays and is kept up to
// date until others are asked for.
func (h *hub) fold(ctx context.Context, ref bus.Ref) (*fold, error) {
	bg := h.r.background()
	if bg == nil {
		return nil, bus.ErrClosed
	}
	h.mu.Lock()
	key := keyOf(ref)
	f := h.folds[key]
	if f == nil {
		f = newFold(h.r, ref)
		h.folds[key] = f
		f.stop = h.begin(bg, key, f.follower)
	}
	h.uses++
	f.used = h.uses
	for len(h.folds) > maxFolds {
		old := key
		for k, o := range h.folds {
			if o.used < h.folds[old].used {
				old = k
			}
		}
		h.folds[old].stop()
		delete(h.folds, old)
	}
	h.mu.Unlock()
	select {
	case <-f.ready:
		return f, nil
	case <-f.done:
		return nil, bus.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// sync brings every feed up to date, as far as ctx lasts.
func (h *hub) sync(ctx context.Context) {
	for _, f := range h.allFeeds() {
		if f.sync(ctx) != nil {
			return
		}
	}
}

// kick ends every write to a stream that is under way.
func (h *hub) kick() {
	h.mu.RLock()
	for o := range h.manys {
		o.kick()
	}
	h.mu.RUnlock()
	for _, f := range h.allFeeds() {
		f.mu.Lock()
		for s := range f.subs {
			s.kick()
		}
		for _, s := range f.idle {
			s.sub.kick()
		}
		f.mu.Unlock()
	}
}

func (h *hub) allFeeds() []*feed {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var all []*feed
	for _, f := range h.feeds {
		all = append(all, f)
	}
	return all
}

// join counts a client of many runs in, which part counts out.
func (h *hub) join(o *manyOut) {
	h.mu.Lock()
	h.manys[o] = struct{}{}
	h.mu.Unlock()
}

func (h *hub) part(o *manyOut) {
	h.mu.Lock()
	delete(h.manys, o)
	h.mu.Unlock()
}

// wait returns when every follower has ended.
func (h *hub) wait() { h.wg.Wait() }

// settleDelay leaves an edge the time to write the registry itself.
const settleDelay = 2 * time.Second
