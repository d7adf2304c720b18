package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a safety net: nothing here takes that long.
const long = 2 * time.Minute

// testLog prints when the tests run with CONSUME_TEST_LOG set.
func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("CONSUME_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A rows is a Source of events made up.
type rows struct {
	run string
	n   uint64
}

func ev(run string, n uint64) *event.Event {
	return &event.Event{
		Tenant: "acme", Run: run, Seq: n, Time: time.Unix(1e9, int64(n)).UTC(),
		Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, ContentType: event.JSON,
		Data: fmt.Appendf(nil, `{"run":%q,"n":%d}`, run, n),
	}
}

func (r rows) Event(n uint64) (*event.Event, bool, error) {
	if n > r.n {
		return nil, false, nil
	}
	return ev(r.run, n), true, nil
}

func (r rows) Wait(_ context.Context, n uint64) error {
	if n > r.n {
		return bus.ErrDone
	}
	return nil
}
func (r rows) Acked(uint64) {}

func publish(tb testing.TB, b *bus.Bus, run string, n uint64) {
	tb.Helper()
	p := &bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: "acme", Run: run}, Source: rows{run, n}}
	ctx, cancel := context.WithTimeout(tb.Context(), long)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		tb.Fatal(err)
	}
}

// A recorder is a handler that keeps what is committed: by run the numbers, each once.
type recorder struct {
	fail func(run string, n uint64) error

	mu      sync.Mutex // guards the rest
	pending map[string][]uint64
	have    map[string][]uint64
	grown   chan struct{}
}

func newRecorder() *recorder {
	return &recorder{pending: map[string][]uint64{}, have: map[string][]uint64{}, grown: make(chan struct{})}
}

func (r *recorder) Handle(_ context.Context, e *consume.Entry) error {
	if e.Event == nil {
		return nil
	}
	run, n := e.Event.Run, e.Event.Seq
	if r.fail != nil {
		if err := r.fail(run, n); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := append(r.have[run], r.pending[run]...); len(all) > 0 && all[len(all)-1] >= n {
		return nil
	}
	r.pending[run] = append(r.pending[run], n)
	return nil
}

func (r *recorder) Commit(context.Context, bool) (map[bus.Log]bus.Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run, list := range r.pending {
		r.have[run] = append(r.have[run], list...)
	}
	clear(r.pending)
	close(r.grown)
	r.grown = make(chan struct{})
	return nil, nil
}

// wait waits until n numbers are committed.
func (r *recorder) wait(tb testing.TB, n int) map[string][]uint64 {
	tb.Helper()
	deadline := time.After(long)
	for {
		r.mu.Lock()
		got, grown := 0, r.grown
		for _, list := range r.have {
			got += len(list)
		}
		r.mu.Unlock()
		if got >= n {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.have
		}
		select {
		case <-grown:
		case <-deadline:
			tb.Fatalf("%d of %d committed", got, n)
		}
	}
}

// start runs a consumer until the returned function is called, or the test ends.
func start(tb testing.TB, cfg consume.Config, h consume.Handler) (*consume.Consumer, func()) {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "cbcast-test"
	}
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.Logs == nil {
		cfg.Logs = consume.Logs(1)
	}
	if cfg.Every == 0 {
		cfg.Every = 20 * time.Millisecond
	}
	cfg.Log = testLog(tb)
	c, err := consume.New(cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(stop)
	return c, stop
}

func row(from, to uint64) (list []uint64) {
	for ; from <= to; from++ {
		list = append(list, from)
	}
	return list
}

func same(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("%s (-want +got):\n%s", what, d)
	}
}

var errNo = errors.New("no")
