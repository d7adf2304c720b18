package ingest

import (
	"time"

	"github.com/cbcast/cbcast/ingest/frame"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Bounds of a batch: past them a write costs no less for each line, and the
// first line has waited long enough.
const (
	batchLines = 64
	batchBytes = 64 << 10
)

// A batch is the lines of one read that are to be kept with one write. Nothing
// acts on a line before it is kept, and nobody sees the recorder while lines
// wait: its lock is held until they are committed, at the latest when all of the
// read is split.
type batch struct {
	lines []waiting
	size  int // bytes of data
}

// waiting is a line that is classified and masked, not yet kept nor folded.
type waiting struct {
	ev    event.Event
	frame dialect.Frame // that the line is, if it is one
	line  line
	main  string // the main session, this line included
}

// next returns room for one more line.
func (b *batch) next() *waiting {
	if len(b.lines) < cap(b.lines) {
		b.lines = b.lines[:len(b.lines)+1]
	} else {
		b.lines = append(b.lines, waiting{})
	}
	return &b.lines[len(b.lines)-1]
}

// chunk runs split, which records what one read gave, under the lock, and
// commits it.
func (r *recorder) chunk(split func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	split()
	r.commit()
}

// collected decides whether the line that was added last, f, has to be committed
// now: data that does not stay, a fact that must follow it at once, somebody who
// may act on it, or a bound.
func (r *recorder) collected(f *frame.Frame, w *waiting) {
	r.batch.size += len(w.ev.Data)
	now := w.ev.Stream == event.In || !f.Whole() || w.main != r.main || w.line.class.Ask != "" || r.busy != nil && r.busy()
	if !now && len(r.batch.lines) < batchLines && r.batch.size < batchBytes {
		return
	}
	r.commit()
	r.mu.Unlock() // others get their turn: nothing waits
	r.mu.Lock()
}

// commit keeps and folds the lines that wait, in order, and tells those who
// watch. Where they cannot be kept together each is tried by itself, so that a
// gap says exactly what is missing.
func (r *recorder) commit() {
	lines := r.batch.lines
	if len(lines) == 0 {
		return
	}
	// What is recorded from within is no part of this.
	r.batch = batch{}
	together := len(lines) > 1 && r.lost.Frames == 0 && r.keepAll(lines)
	for i := range lines {
		w := &lines[i]
		if together {
			r.fold(&w.ev, &w.frame)
		} else {
			r.append(&w.ev, &w.frame, false)
		}
		r.after(w.ev.Time, w.line, w.main)
	}
	clear(lines)
	r.batch.lines = lines[:0]
}

// keepAll appends the lines to the spool with one write. It reports false where
// none of them was kept.
func (r *recorder) keepAll(lines []waiting) bool {
	for i := range lines {
		if len(lines[i].ev.Data) > chunkSize {
			return false // it is several events
		}
	}
	r.recs, r.meta = r.recs[:0], r.meta[:0]
	for i := range lines {
		r.record(&lines[i].ev)
	}
	_, err := r.spool.AppendAll(r.recs)
	clear(r.recs) // they keep the read's buffer alive
	return err == nil
}

// record adds e to recs.
func (r *recorder) record(e *event.Event) {
	from := len(r.meta)
	r.meta = event.AppendMeta(r.meta, e)
	r.recs = append(r.recs, spool.Record{Meta: r.meta[from:len(r.meta):len(r.meta)], Data: e.Data})
}

// fold gives e the next number and folds it. The fold counts for itself: it is to
// know what the child does also while there is no room for it. f is the frame
// that e's data is, nil where nobody parsed it.
func (r *recorder) fold(e *event.Event, f *dialect.Frame) {
	r.folded++
	e.Seq = r.folded
	r.state.ApplyParsed(e, f)
}

// after names the main session where it became known or changed with this line,
// and tells those who watch about it.
func (r *recorder) after(at time.Time, l line, main string) {
	if main != r.main {
		prev := r.main
		r.main = main
		nudge(r.named)
		r.factLocked(at, event.TypeSession, event.Life, event.Session{Session: r.published(main, false), Previous: r.published(prev, false)}, true)
	}
	if r.watch != nil {
		r.watch(l)
	}
	for _, c := range [...]chan struct{}{r.changed, r.active, r.watched, r.shown} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
