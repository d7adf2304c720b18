package perm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A tape is a run's events in memory.
type tape struct {
	mu     sync.Mutex // guards the rest
	tenant string
	run    string
	start  time.Time
	n      uint64
	ended  bool
	grown  chan struct{}
	acked  uint64
}

func newTape(tenant, run string, n uint64) *tape {
	return &tape{tenant: tenant, run: run, start: time.Now().UTC(), n: n, grown: make(chan struct{})}
}

func (s *tape) add(n uint64, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.ended = s.n+n, end
	close(s.grown)
	s.grown = make(chan struct{})
}

// secret is what only readers of the run may see.
func secret(run string, n uint64) string { return fmt.Sprintf(`{"secret of":%q,"n":%d}`, run, n) }

func (s *tape) Event(n uint64) (*event.Event, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.n {
		return nil, false, nil
	}
	e := &event.Event{
		Tenant: s.tenant, Run: s.run, Seq: n, Time: s.start.Add(time.Duration(n) * time.Millisecond),
		Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, Session: "s1", ContentType: event.JSON,
		Data: []byte(secret(s.run, n)),
	}
	return e, true, nil
}

func (s *tape) Wait(ctx context.Context, n uint64) error {
	for {
		s.mu.Lock()
		have, ended, grown := n <= s.n, s.ended, s.grown
		s.mu.Unlock()
		switch {
		case have:
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

func (s *tape) Acked(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = n
	close(s.grown)
	s.grown = make(chan struct{})
}

// until waits for n events to be acknowledged.
func (s *tape) until(t *testing.T, n uint64) {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		acked, grown := s.acked, s.grown
		s.mu.Unlock()
		if acked >= n {
			return
		}
		select {
		case <-grown:
		case <-late:
			t.Fatalf("%d events of %d are acknowledged", acked, n)
		}
	}
}

// publish ships a run of n events to its end.
func publish(t *testing.T, b *bus.Bus, tenant, run string, n uint64) {
	t.Helper()
	src := newTape(tenant, run, n)
	src.add(0, true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: run}, Source: src}
	if err := p.Run(ctx); err != nil {
		t.Fatalf("publish %s: %v", run, err)
	}
}

// whole checks that the bus has exactly n events of a run, as a reader sees them.
func whole(t *testing.T, b *bus.Bus, tenant, run string, n uint64) {
	t.Helper()
	want := uint64(0)
	for e, err := range b.History(t.Context(), bus.Ref{Tenant: tenant, Run: run}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if want++; e.Seq != want || string(e.Data) != secret(run, want) {
			t.Fatalf("%s: event %d %s, want %d", run, e.Seq, e.Data, want)
		}
	}
	if want != n {
		t.Errorf("%s has %d events, want %d", run, want, n)
	}
}
