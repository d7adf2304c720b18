package ingest

import (
	"errors"
	"time"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/event"
)

// lose counts an event that could not be kept. A fact of ours counts as a frame
// of no bytes.
func (r *recorder) lose(e *event.Event, cause error) {
	if e.Type == event.TypeGap {
		return // what it tells is counted
	}
	g := event.Gap{Frames: 1, Reason: "spool_full", FromStream: string(e.Stream)}
	if !errors.Is(cause, spool.ErrFull) {
		g.Reason = "disk"
	}
	if e.Stream != event.Edge {
		g.Bytes = int64(len(e.Data))
		if e.RawLen > 0 {
			g.Bytes = int64(e.RawLen)
		}
		if !e.Cut {
			g.Bytes++
		}
	}
	if r.lost.Frames == 0 {
		r.log.Warn("no room in the spool; events are counted, not kept", "reason", g.Reason, "error", cause)
	}
	r.lost = sum(r.lost, g)
	r.gone = sum(r.gone, g)
}

// sum adds two gaps. The stream is named only where both have the same.
func sum(a, b event.Gap) event.Gap {
	if a.Frames == 0 && a.Bytes == 0 {
		return b
	}
	a.Frames, a.Bytes, a.Reason = a.Frames+b.Frames, a.Bytes+b.Bytes, b.Reason
	if a.FromStream != b.FromStream {
		a.FromStream = ""
	}
	return a
}

// gap records that bytes of the child never came to the recorder, within chunk.
func (r *recorder) gap(at time.Time, g event.Gap) {
	r.commit()
	r.gone = sum(r.gone, g)
	r.blind = r.blind || g.FromStream == string(event.Out)
	r.factLocked(at, event.TypeGap, event.Life, g, true)
}
