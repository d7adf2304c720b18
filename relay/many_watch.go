package relay

import "github.com/cbcast/cbcast/internal/bus"

// maxDirty bounds the changed runs that a manyWatch has not taken. Past it the list
// is told again.
const maxDirty = 8192

// A manyWatch is told which entries of the registry changed.
type manyWatch struct {
	poke func() // must not block

	// Guarded by registry.mu.
	dirty map[string]struct{}
	again bool // anything may have changed
}

// watch adds a manyWatch, which unwatch takes away. It begins with everything to be
// told, once the mirror is whole.
func (g *registry) watch(poke func()) *manyWatch {
	w := &manyWatch{poke: poke, dirty: map[string]struct{}{}, again: true}
	g.mu.Lock()
	g.watchers[w] = struct{}{}
	g.mu.Unlock()
	return w
}

func (g *registry) unwatch(w *manyWatch) {
	g.mu.Lock()
	delete(g.watchers, w)
	g.mu.Unlock()
}

// changed tells the watchers of a run; g.mu is held.
func (g *registry) changed(run string) {
	for w := range g.watchers {
		if w.again {
			continue
		}
		if len(w.dirty) >= maxDirty {
			w.retell()
			continue
		}
		w.dirty[run] = struct{}{}
		w.poke()
	}
}

// retell has everything told again; registry.mu is held.
func (w *manyWatch) retell() {
	w.again = true
	clear(w.dirty)
	w.poke()
}

// again has everything told again to one.
func (g *registry) again(w *manyWatch) {
	g.mu.Lock()
	w.retell()
	g.mu.Unlock()
}

// A change is one entry as it is now; info is nil where it is gone.
type change struct {
	run   string
	info  *bus.RunInfo
	alive bool
}

// take returns what changed, at most limit entries. again says that the list has
// to be told first; it is reported once, and only while the mirror is whole.
func (g *registry) take(w *manyWatch, limit int) (changes []change, again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known != 2 {
		return nil, false
	}
	if w.again {
		w.again = false
		return nil, true
	}
	for run := range w.dirty {
		if len(changes) == limit {
			break
		}
		delete(w.dirty, run)
		changes = append(changes, change{run, g.runs[run], g.presence[run] == bus.Alive})
	}
	return changes, false
}
