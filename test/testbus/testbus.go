// Package testbus gives tests a bus: a real NATS server in their process, with empty
// streams, and events to put there.
package testbus

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/subject"
)

// Long is a safety net: nothing in a test takes that long.
const Long = 3 * time.Minute

// Streams are how large the streams are unless a test says something else.
var Streams = bus.Topology{MaxBytes: 512 << 20}

// Start starts a server, which nobody outside of the process reaches, and connects to it.
// Both end with the test.
func Start(tb testing.TB, t bus.Topology) (*natsd.Server, *bus.Bus) {
	tb.Helper()
	s := Serve(tb, natsd.Options{DontListen: true})
	return s, Connect(tb, bus.Config{InProcess: s}, t)
}

// Serve starts a server that ends with the test. Its store is in a directory of the test's
// where o names none.
func Serve(tb testing.TB, o natsd.Options) *natsd.Server {
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

// Connect connects until the test ends, and makes the streams.
func Connect(tb testing.TB, c bus.Config, t bus.Topology) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), c, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	if _, err := b.Ensure(tb.Context(), t); err != nil {
		tb.Fatal(err)
	}
	return b
}

// Events are a [bus.Source] of one run's events that are all there.
type Events []*event.Event

func (s Events) Event(n uint64) (*event.Event, bool, error) {
	if n > uint64(len(s)) {
		return nil, false, nil
	}
	return s[n-1], true, nil
}

func (s Events) Wait(_ context.Context, n uint64) error {
	if n > uint64(len(s)) {
		return bus.ErrDone
	}
	return nil
}

func (Events) Acked(uint64) {}

// Publish puts one run's events on the bus, from the first on; those that are there already
// stay. partitions are those of the streams, 0 the default.
func Publish(tb testing.TB, b *bus.Bus, partitions int, list Events) {
	tb.Helper()
	ref := bus.Ref{Tenant: list[0].Tenant, Run: list[0].Run, Partition: subject.Partition(list[0].Run, max(1, partitions))}
	ctx, cancel := context.WithTimeout(tb.Context(), Long)
	defer cancel()
	if err := (&bus.Publisher{Bus: b, Ref: ref, Source: list}).Run(ctx); err != nil {
		tb.Errorf("publish %s: %v", ref.Run, err)
	}
}
