package ingest

import (
	"context"
	"errors"
	"testing"
)

// The right goes on in order, also over places that were left before their turn.
func TestQueue(t *testing.T) {
	var q queue
	a, b, c, d := q.enter(), q.enter(), q.enter(), q.enter()
	due := func(p *place) bool {
		select {
		case <-p.due:
			return true
		default:
			return false
		}
	}
	if !due(a) || due(b) || due(c) {
		t.Fatal("the first place alone has the right")
	}
	gone, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := b.wait(gone); !errors.Is(err, why) {
		t.Errorf("waiting ended with %v", err)
	}
	if err := a.wait(gone); err != nil {
		t.Errorf("the right that is here was not taken: %v", err)
	}
	b.leave()
	if due(c) {
		t.Error("leaving from the middle gave the right away")
	}
	a.leave()
	if !due(c) || due(d) {
		t.Error("the right did not come to the next that waits")
	}
	c.leave()
	d.leave()
	if !due(q.enter()) {
		t.Error("an empty queue kept the right")
	}
}
