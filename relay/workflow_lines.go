package relay

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/workflow"
)

const (
	// maxLines bounds the workflow streams that are mapped at once, and idleLines
	// those kept without a client, for the next one. One holds Config.QueueBytes and
	// the fold of its run.
	maxLines, idleLines = 1024, 32
)

type lineKey struct{ tenant, id string }

// lines are the mappings of this relay.
type lines struct {
	r *Relay

	mu   sync.Mutex // guards the rest
	all  map[lineKey]*line
	uses uint64 // counts the uses of lines, to find the oldest

	parked []parked // the oldest first

	// Whoever is behind what a line holds maps for itself while it has one of
	// these; waiting counts who would.
	turns   chan struct{}
	waiting atomic.Int64
}

func newLines(r *Relay) *lines {
	g := &lines{r: r, all: map[lineKey]*line{}, turns: make(chan struct{}, replays)}
	for range replays {
		g.turns <- struct{}{}
	}
	return g
}

// open returns the line of id, which leave gives back. It need not be ready.
func (g *lines) open(ref bus.Ref, id workflow.ID) (*line, *apiErr) {
	bg := g.r.background()
	if bg == nil {
		return nil, fail(CodeUnavailable, "the relay is starting or ending")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := lineKey{ref.Tenant, id.String()}
	l := g.all[key]
	if l == nil {
		if len(g.all) >= maxLines && !g.evict(0) {
			return nil, fail(CodeTooMany, "too many workflow streams")
		}
		l = newLine(g.r, ref, key, id)
		g.all[key] = l
		l.stop = g.r.hub.follow(bg, l.follower)
	}
	g.uses++
	l.used = g.uses
	l.users++
	return l, nil
}

func (g *lines) leave(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.users--
	g.evict(idleLines)
}

// evict ends the lines without a client that were not asked for longest, but for
// keep of them; g.mu is held. It reports whether any ended.
func (g *lines) evict(keep int) (ended bool) {
	var idle []*line
	for _, l := range g.all {
		if l.users == 0 {
			idle = append(idle, l)
		}
	}
	if len(idle) <= keep {
		return false
	}
	sort.Slice(idle, func(i, j int) bool { return idle[i].used < idle[j].used })
	if keep == 0 {
		idle = idle[:1]
	} else {
		idle = idle[:len(idle)-keep]
	}
	for _, l := range idle {
		l.stop()
		delete(g.all, l.key)
	}
	return true
}

// sync brings every line up to date, as far as ctx lasts.
func (g *lines) sync(ctx context.Context) {
	for _, l := range g.list() {
		if l.follower.sync(ctx) != nil {
			return
		}
	}
}

// kick ends every write to a workflow stream that is under way.
func (g *lines) kick() {
	for _, l := range g.list() {
		l.mu.Lock()
		for s := range l.subs {
			s.kick()
		}
		l.mu.Unlock()
	}
}

func (g *lines) list() []*line {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*line
	for _, l := range g.all {
		if l.users > 0 {
			all = append(all, l)
		}
	}
	return all
}

// follow starts f among the run's followers. The returned function stops it.
func (h *hub) follow(ctx context.Context, f *follower) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := h.begin(ctx, keyOf(f.ref), f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		end()
	}
}
