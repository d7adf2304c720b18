package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// A durableReader is a Durable that runs, and what it was given.
type durableReader struct {
	*bus.Durable
	got   chan bus.Delivery
	begun chan bus.Turn
	stop  func()

	mu   sync.Mutex
	mark bus.Mark
}

func (r *durableReader) last() bus.Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mark
}

// readDurable reads a log until stop, or the test's end.
func readDurable(tb testing.TB, b *bus.Bus, cfg bus.DurableConfig) *durableReader {
	tb.Helper()
	r := &durableReader{got: make(chan bus.Delivery), begun: make(chan bus.Turn, 100), mark: cfg.Mark}
	if cfg.Name == "" {
		cfg.Name = "cbcast-test"
	}
	cfg.Save = func(m bus.Mark) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mark = m
	}
	cfg.Begin = func(_ bus.Place, turn bus.Turn) { r.begun <- turn }
	r.Durable = b.Durable(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func(ctx context.Context, d bus.Delivery) error {
			select {
			case r.got <- d:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(r.stop)
	return r
}

// take returns the next n messages.
func (r *durableReader) take(tb testing.TB, n int) (all []bus.Delivery) {
	tb.Helper()
	for range n {
		select {
		case d := <-r.got:
			all = append(all, d)
		case <-time.After(2 * time.Minute):
			tb.Fatalf("%d of %d messages came; %+v", len(all), n, r.Status())
		}
	}
	return all
}

func (r *durableReader) settle(tb testing.TB, at bus.Place) {
	tb.Helper()
	r.Ack(at)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Settle(ctx); err != nil {
		tb.Fatal(err)
	}
}

// seqs are the stream sequences of messages.
func seqs(all []bus.Delivery) (list []uint64) {
	for _, d := range all {
		list = append(list, d.At.Seq)
	}
	return list
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

// What was not acked comes again, in order, and what was does not: for the process
// that comes after, and for one without a memory of its own.
func TestDurableGivesAgain(t *testing.T) {
	b := open(t, serve(t, natsd.Options{DontListen: true}))
	publish(t, b, "r1", newMemory(evs("r1", 20)...).end())

	r := readDurable(t, b, bus.DurableConfig{})
	first := r.take(t, 12)
	same(t, "first", row(1, 12), seqs(first))
	if e := first[4].Event; e == nil || e.Seq != 5 || e.Run != "r1" || len(first[4].Raw.Data) == 0 {
		t.Errorf("the fifth is %+v", first[4])
	}
	r.settle(t, first[6].At)
	r.stop()

	r = readDurable(t, b, bus.DurableConfig{Mark: r.last()})
	again := r.take(t, 13)
	same(t, "behind the ack", row(8, 20), seqs(again))
	r.settle(t, again[1].At)
	r.stop()

	begun := time.Now()
	r = readDurable(t, b, bus.DurableConfig{}) // another directory: waits for the pin's end
	same(t, "without a mark", row(10, 20), seqs(r.take(t, 11)))
	t.Logf("taken over after %v", time.Since(begun).Round(time.Millisecond))
}
