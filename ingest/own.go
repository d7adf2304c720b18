package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/internal/bus"
)

// runID is the id that the run was given, or a new one.
func (c *Config) runID() (string, error) {
	if c.RunID != "" {
		return c.RunID, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make a run id: %w", err)
	}
	return id.String(), nil
}

// An ownSource tells the shipper when the run is known to be ours.
type ownSource struct {
	source
	ship *shipper
}

func (o *ownSource) Acked(n uint64) {
	if n > 0 {
		o.ship.owned()
	}
	o.source.Acked(n)
}

// owned says that the run's id is this run's. One that was given from outside may be
// another's, until the bus has taken the first event.
func (s *shipper) owned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ours:
	default:
		close(s.ours)
	}
}

// isOurs waits for that, false when ctx ends first.
func (s *shipper) isOurs(ctx context.Context) bool {
	select {
	case <-s.ours:
		return true
	case <-ctx.Done():
		return false
	}
}

// place is the stream sequence of the run's first event. The publisher knows it but
// where the answer to that event was lost; an edge with narrow permissions cannot ask.
func (s *shipper) place(ctx context.Context, b *bus.Bus) uint64 {
	if seq := s.pub.First(); seq != 0 || s.noPlace || s.pub.Stats().Events == 0 {
		return seq
	}
	_, seq, err := b.FirstKept(ctx, s.ref)
	s.noPlace = errors.Is(err, bus.ErrDenied)
	return seq
}
