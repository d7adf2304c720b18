package relay

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A registry mirrors the bus's list of runs and of living edges. It is as large
// as the list, which the bus bounds.
type registry struct {
	r *Relay

	mu       sync.RWMutex            // guards the rest
	runs     map[string]*bus.RunInfo // what they point to does not change
	order    byAge                   // of the same
	presence map[string]bus.Presence
	known    int // watches that have told everything there was: 2 when the mirror is whole
	watchers map[*manyWatch]struct{}
}

func newRegistry(r *Relay) *registry {
	return &registry{
		r: r, runs: map[string]*bus.RunInfo{}, presence: map[string]bus.Presence{}, watchers: map[*manyWatch]struct{}{},
	}
}

// run keeps the mirror up to date until ctx ends.
func (g *registry) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		g.follow(ctx, func(ready func()) error {
			g.mu.Lock()
			clear(g.runs)
			g.order = byAge{}
			g.mu.Unlock()
			return g.r.bus.WatchRuns(ctx, ready, g.ran)
		})
	})
	wg.Go(func() {
		g.follow(ctx, func(ready func()) error {
			g.mu.Lock()
			clear(g.presence)
			g.mu.Unlock()
			return g.r.bus.WatchPresence(ctx, ready, g.present)
		})
	})
	wg.Wait()
}

func (g *registry) follow(ctx context.Context, watch func(ready func()) error) {
	for failed := 0; ; failed++ {
		reading := false
		err := watch(func() {
			reading = true
			g.count(1)
		})
		if reading {
			failed = 0
			g.count(-1)
		}
		if ctx.Err() != nil {
			return
		}
		g.r.log.Debug("watch goes on", "error", err)
		if !pause(ctx, failed) {
			return
		}
	}
}

func (g *registry) count(n int) {
	g.mu.Lock()
	g.known += n
	whole := g.known == 2
	if whole {
		g.order.build(g.runs)
		for w := range g.watchers {
			w.retell()
		}
	}
	g.mu.Unlock()
	if whole {
		g.suspects()
	}
}

func (g *registry) ran(i bus.RunInfo, gone bool) {
	g.mu.Lock()
	old := g.runs[i.Run]
	if gone {
		delete(g.runs, i.Run)
		g.order.remove(old)
	} else {
		g.runs[i.Run] = &i
		g.order.put(old, &i)
	}
	g.changed(i.Run)
	suspect := g.known == 2 && !gone && !over(i) && g.presence[i.Run] != bus.Alive
	g.mu.Unlock()
	if suspect {
		g.r.keeper.look(i.Run, g.r.cfg.LostGrace)
	}
}

// over reports whether a registry entry is final.
func over(i bus.RunInfo) bool {
	return i.State == stateDone && i.Verdict != "" && i.Verdict != string(run.Lost)
}

// States of a run in the registry that the relay writes or looks for.
const (
	stateDone    = "done"
	stateLost    = "lost"
	stateWaiting = "waiting"
)

func (g *registry) present(run string, p bus.Presence) {
	g.mu.Lock()
	g.presence[run] = p
	if p == bus.Absent {
		delete(g.presence, run)
	}
	g.changed(run)
	whole := g.known == 2
	g.mu.Unlock()
	switch {
	case !whole:
	case p == bus.Expired:
		g.r.keeper.look(run, g.r.cfg.LostGrace)
	case p == bus.Absent:
		g.r.keeper.look(run, settleDelay)
	}
}

// suspects looks at every run that is not over and whose edge is not there, and
// has the earlier commands read of those and of the runs that wait for an answer.
func (g *registry) suspects() {
	g.mu.RLock()
	var list, waiting []bus.RunInfo
	for _, i := range g.runs {
		switch {
		case over(*i):
		case g.presence[i.Run] != bus.Alive:
			list = append(list, *i)
		case i.State == stateWaiting:
			waiting = append(waiting, *i)
		}
	}
	g.mu.RUnlock()
	for _, i := range list {
		g.r.keeper.look(i.Run, g.r.cfg.LostGrace)
	}
	g.r.clerk.recall(append(list, waiting...))
}

// alive is the edge's presence as far as known here.
func (g *registry) alive(run string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.presence[run] == bus.Alive
}

// get returns a run's entry in the mirror, or nil. It must not be changed.
func (g *registry) get(run string) *bus.RunInfo {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.runs[run]
}

// find returns a run's entry. The bus is asked about what the mirror has not.
func (g *registry) find(ctx context.Context, run string) (bus.RunInfo, error) {
	if i := g.get(run); i != nil {
		return *i, nil
	}
	return g.r.bus.Run(ctx, run)
}

// whole reports whether the mirror shows everything.
func (g *registry) whole() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known == 2
}

// list returns the entries that keep accepts, newest first: at most limit, and
// only those behind the entry behind, where it is not nil. more says that there
// are others. keep must not hold on to what it is given.
func (g *registry) list(behind *bus.RunInfo, limit int, keep func(*bus.RunInfo) bool) (all []bus.RunInfo, more bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for i := range g.order.from(behind) {
		if !keep(i) {
			continue
		}
		if len(all) == limit {
			return all, true
		}
		all = append(all, *i)
	}
	return all, false
}

// newer orders entries, the newest first.
func newer(a, b *bus.RunInfo) int {
	return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.Run, a.Run))
}

// correct writes what the fold says into the run's entry.
func (g *registry) correct(ctx context.Context, i bus.RunInfo) error {
	f, err := g.r.hub.fold(ctx, i.Ref())
	if err != nil {
		return err
	}
	if err := f.sync(ctx); err != nil {
		return err
	}
	return g.r.bus.PutRun(ctx, f.entry(i))
}

// entry is a run's registry entry as the book has it.
func (f *book) entry(i bus.RunInfo) bus.RunInfo {
	var s run.Summary
	f.view(func(st *run.State) {
		s = st.Summary()
		i.LastSeq = max(i.LastSeq, st.LastSeq())
	})
	i.State, i.Verdict, i.Sessions, i.Updated, i.Ended = s.State, s.Verdict, s.Sessions, s.Updated, s.Ended
	i.WaitingFor, i.OpenAsks, i.Resume = s.Waiting, s.Asks, s.Resume
	i.Dialect, i.Versions = cmp.Or(s.Dialect, i.Dialect), s.Versions
	if len(s.Commands) > 0 {
		i.Capabilities = s.Commands
	}
	return i
}

// Settle returns a run's registry entry, brought up to date where its edge has
// ended without a last word in the registry. Where no relay runs nobody else does
// that; the entry is written back once the edge's presence is gone.
func Settle(ctx context.Context, b *bus.Bus, i bus.RunInfo) (bus.RunInfo, error) {
	if over(i) {
		return i, nil
	}
	last, _, err := b.Last(ctx, i.Ref())
	if notFoundErr(err) || err == nil && last.Type != event.TypeExited {
		return i, nil
	}
	if err != nil {
		return i, err
	}
	r, err := Read(ctx, b, i)
	if err != nil {
		return i, err
	}
	i = r.book.entry(i)
	alive, err := b.Alive(ctx, i.Run)
	if err != nil || alive {
		return i, err
	}
	return i, b.PutRun(ctx, i)
}

// notFoundErr reports whether the bus has no such thing.
func notFoundErr(err error) bool { return errors.Is(err, bus.ErrNotFound) }
