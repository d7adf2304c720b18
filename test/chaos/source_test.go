package chaos_test

import (
	"context"
	"sync"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A generator is a source whose events exist as soon as it is told so.
type generator struct {
	run string

	mu    sync.Mutex // guards the rest
	have  uint64
	ended bool
	grown chan struct{} // closed at the next change
	acked uint64
}

func newGenerator(run string) *generator { return &generator{run: run, grown: make(chan struct{})} }

// grow adds n events, or ends the source.
func (g *generator) grow(n uint64, end bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.have, g.ended = g.have+n, end
	close(g.grown)
	g.grown = make(chan struct{})
}

// behind is how many events are not acknowledged.
func (g *generator) behind() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.have - g.acked
}

func (g *generator) last() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.have
}

func (g *generator) Event(n uint64) (*event.Event, bool, error) {
	if n > g.last() {
		return nil, false, nil
	}
	return frame(g.run, n), true, nil
}

func (g *generator) Wait(ctx context.Context, n uint64) error {
	for {
		g.mu.Lock()
		have, ended, grown := g.have, g.ended, g.grown
		g.mu.Unlock()
		switch {
		case n <= have:
			return nil
		case ended:
			return bus.ErrDone
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *generator) Acked(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acked = n
}
