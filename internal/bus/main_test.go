package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is a safety net, far longer than anything takes on a busy machine.
const patience = 3 * time.Minute

// serve starts a server on a directory of the test.
func serve(tb testing.TB, o natsd.Options) *natsd.Server {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(tb.TempDir(), "js")
	}
	s, err := natsd.Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s
}

// open connects in process, with small streams.
func open(tb testing.TB, s *natsd.Server) *bus.Bus {
	tb.Helper()
	b := connect(tb, bus.Config{InProcess: s})
	ensure(tb, b)
	return b
}

func connect(tb testing.TB, cfg bus.Config) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), cfg, testLog(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

func ensure(tb testing.TB, b *bus.Bus) {
	tb.Helper()
	drift, err := b.Ensure(tb.Context(), topology)
	if err != nil {
		tb.Fatal(err)
	}
	if len(drift) > 0 {
		tb.Fatalf("drift: %v", drift)
	}
}

var topology = bus.Topology{MaxBytes: 512 << 20}

// testLog prints everything when the tests run with BUS_TEST_LOG set.
func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("BUS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A memory is a Source in memory.
type memory struct {
	mu     sync.Mutex // guards the rest
	events []*event.Event
	ended  bool
	grown  chan struct{}
	acked  uint64
	asked  func(n uint64) // called for each Event
	ack    func(n uint64) // called for each Acked
}

func newMemory(events ...*event.Event) *memory {
	return &memory{events: events, grown: make(chan struct{})}
}

func (m *memory) add(events ...*event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, events...)
	close(m.grown)
	m.grown = make(chan struct{})
}

func (m *memory) end() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	close(m.grown)
	m.grown = make(chan struct{})
	return m
}

func (m *memory) Event(n uint64) (*event.Event, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked != nil {
		m.asked(n)
	}
	if n > uint64(len(m.events)) {
		return nil, false, nil
	}
	return m.events[n-1], true, nil
}

func (m *memory) Wait(ctx context.Context, n uint64) error {
	for {
		m.mu.Lock()
		have, ended, grown := n <= uint64(len(m.events)), m.ended, m.grown
		m.mu.Unlock()
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

func (m *memory) Acked(n uint64) {
	m.mu.Lock()
	m.acked = n
	f := m.ack
	m.mu.Unlock()
	if f != nil {
		f(n)
	}
}

// ref is the place of a test's run.
func ref(run string) bus.Ref { return bus.Ref{Tenant: "acme", Run: run} }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// ev is event n of run, its data naming both.
func ev(run string, n uint64) *event.Event {
	return &event.Event{
		Tenant: "acme", Run: run, Seq: n, Time: epoch.Add(time.Duration(n) * time.Millisecond),
		Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, Session: "s1", ContentType: event.JSON,
		Data: fmt.Appendf(nil, `{"run":%q,"n":%d}`, run, n),
	}
}

func evs(run string, n uint64) []*event.Event {
	var all []*event.Event
	for i := range n {
		all = append(all, ev(run, i+1))
	}
	return all
}

// publish ships all of src and fails the test if that takes too long.
func publish(tb testing.TB, b *bus.Bus, run string, src bus.Source) bus.Stats {
	tb.Helper()
	p := &bus.Publisher{Bus: b, Ref: ref(run), Source: src, Log: testLog(tb)}
	return runPublisher(tb, p)
}

func runPublisher(tb testing.TB, p *bus.Publisher) bus.Stats {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		tb.Fatalf("publish: %v; %+v", err, p.Stats())
	}
	return p.Stats()
}

// history collects a run.
func history(tb testing.TB, b *bus.Bus, r bus.Ref, after uint64) []*event.Event {
	tb.Helper()
	var all []*event.Event
	for e, err := range b.History(tb.Context(), r, after) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// whole checks that the stream has exactly events 1..n of run, in order.
func whole(tb testing.TB, b *bus.Bus, run string, n uint64) {
	tb.Helper()
	want := uint64(0)
	for e, err := range b.History(tb.Context(), ref(run), 0) {
		if err != nil {
			tb.Fatal(err)
		}
		if want++; e.Seq != want {
			dump(tb, b, run)
			tb.Fatalf("%s: event %d comes where %d should", run, e.Seq, want)
		}
		if got, want := string(e.Data), string(ev(run, want).Data); got != want {
			tb.Fatalf("%s: event %d has data %q, want %q", run, e.Seq, got, want)
		}
	}
	if want != n {
		tb.Fatalf("%s: %d events, want %d", run, want, n)
	}
}

// dump prints where the stream has the events of a run, by its own sequence.
func dump(tb testing.TB, b *bus.Bus, run string) {
	for seq := range uint64(400) {
		m, err := b.Conn().RequestWithContext(tb.Context(), "$JS.API.DIRECT.GET.EV_0", fmt.Appendf(nil, `{"seq":%d}`, seq+1))
		if err != nil {
			return
		}
		tb.Logf("%d: %s %s %s", seq+1, m.Header.Get("ce-id"), m.Header.Get("Nats-Msg-Id"), m.Header.Get("Nats-Time-Stamp"))
	}
}
