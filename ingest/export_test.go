package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/event"
)

// SetSecondAfter shortens the wait before a second interrupt for one test.
func SetSecondAfter(tb testing.TB, d time.Duration) { set(tb, &secondAfter, d) }

// SetKillStep shortens the steps of ending a child for one test.
func SetKillStep(tb testing.TB, d time.Duration) { set(tb, &killStep, d) }

func set(tb testing.TB, p *time.Duration, d time.Duration) {
	old := *p
	*p = d
	tb.Cleanup(func() { *p = old })
}

// AwaitQuiet lets the time pass after which a held EOF could be passed on: that
// nothing happens has no event.
func AwaitQuiet(tb testing.TB) {
	tb.Helper()
	<-time.After(quiet + quiet/4)
}

// Watched is a recorder under a watchdog, without a process.
type Watched struct {
	tb testing.TB
	e  *edge
	w  *watchdog
}

// NewWatched starts the watch over p.
func NewWatched(tb testing.TB, o Options, p endable) *Watched {
	tb.Helper()
	e, err := newEdge(o)
	if err != nil {
		tb.Fatal(err)
	}
	e.started(1)
	w := newWatchdog(e.rec, p, &e.o)
	w.start(context.Background())
	return &Watched{tb, e, w}
}

// Run is the run's id.
func (w *Watched) Run() string { return w.e.id }

// Say records a line of the child.
func (w *Watched) Say(line string) {
	at, injected := time.Now(), false
	w.e.rec.chunk(func() {
		_, _ = w.e.rec.splitters(&at, &injected)[child.Out].Write([]byte(line + "\n"))
	})
}

// Drop records a half line, a hole behind it and the rest of a line.
func (w *Watched) Drop(half string, n, lines int64) {
	at, injected := time.Now(), false
	s := w.e.rec.splitters(&at, &injected)[child.Out]
	w.e.rec.chunk(func() {
		_, _ = s.Write([]byte(half))
		s.Drop(n, lines)
		_, _ = s.Write([]byte("rest\n"))
	})
}

// Idle reports whether a held EOF may be passed on, once the parent has ended.
func (w *Watched) Idle() bool {
	w.e.rec.chunk(func() { w.e.rec.stdinEnded(time.Now()) })
	return w.e.rec.idle()
}

// Close records the end of the run.
func (w *Watched) Close() {
	w.e.close(event.Exited{}, true)
	w.Stop()
}

// Stop ends the watch and the spool.
func (w *Watched) Stop() string {
	ended := w.w.stop()
	if err := w.e.spool.Close(); err != nil {
		w.tb.Fatal(err)
	}
	return ended
}
