package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// edgeSpec is the publishing half of an edge in a process of its own: events go
// into a spool and from there to the bus, until the process is killed.
type edgeSpec struct {
	Root, Run, URL string
}

func (s *edgeSpec) run(ctx context.Context) error {
	sp, err := spool.Create(s.Root, spool.Meta{Run: s.Run, Tenant: tenant, Created: time.Now()}, spool.Options{})
	if err != nil {
		return err
	}
	b, err := bus.Open(bus.Config{URL: s.URL}, nil)
	if err != nil {
		return err
	}
	p := bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: s.Run}, Source: spooled{sp}}
	ctx, stop := context.WithCancelCause(ctx)
	go func() { stop(p.Run(ctx)) }() // ends with the process
	for seq := uint64(1); ctx.Err() == nil; seq++ {
		e := frame(s.Run, seq)
		if _, err := sp.Append(event.AppendMeta(nil, e), e.Data); err != nil {
			return err
		}
		fmt.Println("spooled", seq)
		if seq%8 == 0 {
			pause(ctx, rand.N(8*time.Millisecond))
		}
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// spooled is a spool as a publisher's source.
type spooled struct{ *spool.Spool }

func (s spooled) Event(n uint64) (*event.Event, bool, error) {
	meta, data, ok, err := s.Record(n)
	if !ok || err != nil {
		return nil, false, err
	}
	e := &event.Event{Tenant: s.Meta().Tenant, Run: s.Meta().Run, Seq: n}
	if err := event.DecodeMeta(meta, e); err != nil {
		return nil, false, err
	}
	e.Data = data
	return e, true, nil
}

func (s spooled) Wait(ctx context.Context, n uint64) error {
	err := s.Spool.Wait(ctx, n)
	if errors.Is(err, spool.ErrDone) {
		return bus.ErrDone
	}
	return err
}

// flush ships what a dead edge left and says that it died. It returns the run's
// last event.
func flush(ctx context.Context, root, run string, b *bus.Bus) (uint64, error) {
	sp, err := spool.Open(root, run, spool.Options{})
	if err != nil {
		return 0, err
	}
	defer sp.Close()
	e := event.Event{
		Tenant: tenant, Run: run, Time: time.Now(), Type: event.TypeExited, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON,
	}
	if _, err := sp.AppendReserved(event.AppendMeta(nil, &e), []byte(`{"reason":"edge_died"}`)); err != nil {
		return 0, err
	}
	if err := sp.End(); err != nil {
		return 0, err
	}
	p := bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: run}, Source: spooled{sp}, Resumed: true}
	return sp.Last(), p.Run(ctx)
}
