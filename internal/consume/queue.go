package consume

import (
	"context"
	"sync"

	"github.com/cbcast/cbcast/internal/bus"
)

const (
	// queueEntries and queueBytes bound what was read and not taken yet.
	queueEntries = 2000
	queueBytes   = 8 << 20
)

// An item is an entry, or the word that reading begins behind a place.
type item struct {
	from  *reader
	entry *Entry

	after   bus.Place
	turn    bus.Turn
	rebuilt uint64 // how often the log was another one, with this
}

// A queue is what readers have read. One goroutine takes.
type queue struct {
	ready chan struct{} // has one while there is something

	mu    sync.Mutex // guards the rest
	items []item
	bytes int64
	room  chan struct{} // closed and replaced when there is room again
}

func newQueue() *queue {
	return &queue{ready: make(chan struct{}, 1), room: make(chan struct{})}
}

// push adds an item, when there is room. What is no entry is added at once.
func (q *queue) push(ctx context.Context, it item) error {
	for {
		q.mu.Lock()
		if it.entry == nil || len(q.items) == 0 || len(q.items) < queueEntries && q.bytes < queueBytes {
			q.items = append(q.items, it)
			if it.entry != nil {
				q.bytes += it.entry.size()
			}
			first := len(q.items) == 1
			q.mu.Unlock()
			if first {
				select {
				case q.ready <- struct{}{}:
				default:
				}
			}
			return nil
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take returns all items. spare is a slice to use for the next ones.
func (q *queue) take(spare []item) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.items
	q.items, q.bytes = spare[:0], 0
	close(q.room)
	q.room = make(chan struct{})
	return all
}
