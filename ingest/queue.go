package ingest

import (
	"context"
	"slices"
	"sync"
)

// A queue hands out one right in the order in which it was asked for: lines for
// the child's stdin are written in the order of their commands, while each may
// give up in its own time. The zero queue is ready.
type queue struct {
	mu      sync.Mutex
	waiting []*place // the first has the right
}

// A place in a queue is left exactly once, whether the right came or not.
type place struct {
	q   *queue
	due chan struct{} // closed when the right is here
}

// enter takes the last place.
func (q *queue) enter() *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &place{q: q, due: make(chan struct{})}
	if q.waiting = append(q.waiting, p); len(q.waiting) == 1 {
		close(p.due)
	}
	return p
}

// wait waits for the right, or for ctx to end: then it returns its cause.
func (p *place) wait(ctx context.Context) error {
	select {
	case <-p.due:
		return nil
	default:
	}
	select {
	case <-p.due:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the place, and the right with it, to the next.
func (p *place) leave() {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, p)
	if q.waiting = slices.Delete(q.waiting, i, i+1); i == 0 && len(q.waiting) > 0 {
		close(q.waiting[0].due)
	}
}
