package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
)

// SetGrace shortens the grace of a driven child for one test, and the waits after
// it; 0 leaves one as it is.
func SetGrace(tb testing.TB, quiet, leave, silent time.Duration) {
	for p, d := range map[*time.Duration]time.Duration{&grace: quiet, &leaveStep: leave, &silentStep: silent} {
		if d > 0 {
			set(tb, p, d)
		}
	}
}

// SetHelloWait shortens the wait for the answer to initialize for one test.
func SetHelloWait(tb testing.TB, d time.Duration) { set(tb, &helloWait, d) }

// Driven children without a process: what a driver says and does to one.
type endableInjector interface {
	injector
	endable
}

// NewLed starts a driver over p, on a recorder of its own.
func NewLed(tb testing.TB, o Options, p endableInjector) (*Watched, func() Driven) {
	tb.Helper()
	e, err := newEdge(o)
	if err != nil {
		tb.Fatal(err)
	}
	e.started(1)
	d := newDriver(e, p)
	e.driver = d
	e.rec.watch = d.watch
	e.rec.busy = func() bool { return true }
	d.run(context.Background())
	return &Watched{tb: tb, e: e}, d.end
}

// Kept ends the spool of a led child and returns how many events it has.
func (w *Watched) Kept() uint64 {
	last := w.e.spool.Last()
	if err := w.e.spool.Close(); err != nil {
		w.tb.Fatal(err)
	}
	return last
}

// Wrote records a line of the driver, as the child's stdin would give it.
func (w *Watched) Wrote(line string) {
	at, injected := time.Now(), true
	w.e.rec.chunk(func() { _, _ = w.e.rec.splitters(&at, &injected)[child.In].Write([]byte(line)) })
}
