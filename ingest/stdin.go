package ingest

import (
	"time"

	"github.com/cbcast/cbcast/ingest/frame"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// stdinLine decides what becomes of a line on the child's stdin, and reports
// whether it is recorded as it is. Control messages are; of any other frame only
// its length and a keyed hash, unless prompts are captured; of plain text (the
// prompt of a one-shot run) nothing but the count. injected says that it is ours.
func (r *recorder) stdinLine(at time.Time, f frame.Frame, cls dialect.Class, injected bool) bool {
	said := r.track.Input()
	if injected && said.Control {
		return true
	}
	r.red.Stdin(f.Data) // a prompt, whoever wrote it
	fr := r.track.Frame()
	if !injected && (fr.Type == "control_request" || said.Request != "") {
		r.controlled.Store(true)
	}
	switch {
	case r.allStdin:
		return true
	case !cls.Frame:
		return false
	case said.Control:
		return true
	}
	r.factLocked(at, event.TypeInput, event.Msg, event.Input{
		Bytes: len(f.Data), Hash: r.red.Hash(f.Data), Type: said.Type,
		UUID: bound(said.UUID, 64), Session: bound(r.published(said.Session, false), 64), Request: bound(said.Request, 64),
		Ask: cls.Ask,
	}, false)
	return false
}

// bound keeps ids and texts that others made up from growing an event.
func bound(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
