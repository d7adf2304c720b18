package ingest

import (
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Bounds of what is kept with one write.
const (
	BatchLines = batchLines
	BatchBytes = batchBytes
)

// Reader returns what records one read of the child's output after the other.
func (w *Watched) Reader() func(read string) {
	at, injected := time.Now(), false
	s := w.e.rec.splitters(&at, &injected)[child.Out]
	return func(read string) {
		at = time.Now()
		buf := []byte(read)
		w.e.rec.chunk(func() { _, _ = s.Write(buf) })
		for i := range buf {
			buf[i] = '!' // the next read's
		}
	}
}

// Fact records a fact, as other goroutines do.
func (w *Watched) Fact(what string) {
	w.e.rec.fact(event.TypeStalled, event.Life, event.Stalled{What: what})
}

// Watch has f called for each line, with the number of the last event kept and
// the number of the last one folded. busy as the recorder's.
func (w *Watched) Watch(busy func() bool, f func(data string, kept, folded uint64)) {
	w.e.rec.busy = busy
	w.e.rec.watch = func(l line) { f(string(l.data), w.e.spool.Last(), w.e.rec.folded) }
}

// State is what the run's fold has come to.
func (w *Watched) State() *run.State { return w.e.rec.state }
