package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// source gives a spool's records to one publisher as events.
type source struct {
	s    *spool.Spool
	meta event.MetaDecoder
	evs  [2]event.Event // used in turn, as the publisher allows
	turn int
}

var _ bus.Source = (*source)(nil)

// Event returns event n, false when it does not exist yet. A record that is
// gone was acknowledged before, and a bus that has lost it since cannot have it
// again: its number is filled with a gap, so that those behind it can go on.
func (s *source) Event(n uint64) (*event.Event, bool, error) {
	meta, data, ok, err := s.s.Borrow(n)
	m := s.s.Meta()
	s.turn ^= 1
	e := &s.evs[s.turn]
	*e = event.Event{Tenant: m.Tenant, Run: m.Run, Seq: n}
	switch {
	case errors.Is(err, spool.ErrDropped):
		e.Time, e.Type, e.Kind, e.Stream = m.Created, event.TypeGap, event.Life, event.Edge
		e.ContentType, e.Data = event.JSON, mustJSON(event.Gap{Frames: 1, Reason: "dropped", Detail: "the spool no longer has this event"})
		return e, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read event %d: %w", n, err)
	case !ok:
		return nil, false, nil
	}
	if err := s.meta.Decode(meta, e); err != nil {
		return nil, false, fmt.Errorf("read event %d: %w", n, err)
	}
	e.Data = data
	return e, true, nil
}

func (s *source) Wait(ctx context.Context, n uint64) error {
	err := s.s.Wait(ctx, n)
	if errors.Is(err, spool.ErrDone) {
		return bus.ErrDone
	}
	return err
}

func (s *source) Acked(n uint64) { s.s.Acked(n) }
