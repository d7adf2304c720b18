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
// prompt of a one-shot run) nothing but the count.
func (r *recorder) stdinLine(at time.Time, f frame.Frame, cls dialect.Class, injected bool) bool {
	if injected {
		return true
	}
	r.red.Stdin(f.Data)
	fr, ok := dialect.Parse(f.Data)
	ok = ok && cls.Frame
	if ok && fr.Type == "control_request" {
		r.controlled.Store(true)
	}
	switch {
	case r.allStdin:
		return true
	case !ok:
		return false
	}
	switch fr.Type {
	case "control_request", "control_response", "control_cancel_request":
		return true
	}
	in := event.Input{
		Bytes: len(f.Data), Hash: r.red.Hash(f.Data), Type: "other",
		UUID: bound(fr.Get("uuid").Text(), 64), Session: bound(r.published(fr.Get("session_id").Text(), false), 64),
	}
	if fr.Type == "user" {
		in.Type = "user"
	}
	r.factLocked(at, event.TypeInput, event.Msg, in, false)
	return false
}

// bound keeps ids and texts that others made up from growing an event.
func bound(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
