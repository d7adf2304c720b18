package run

import (
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// resultFrame ends a round.
func (s *State) resultFrame(e *event.Event, f *dialect.Frame) {
	if s.repeated(f) {
		return
	}
	r := s.rounds[e.Session]
	if r == nil || r.turn == nil {
		if r == nil && s.spurious(f) {
			s.warn(e.Seq, "result_without_turn", resultText(f))
			return
		}
		r = s.opening(e.Session, e.Seq)
		s.begin(r)
	}
	t := r.turn
	delete(s.rounds, e.Session)
	if e.Session == s.main {
		delete(s.rounds, "")
	}
	s.results++
	s.lastResult, s.woke = e.Seq, 0
	t.results++
	t.endedSeq, t.endedAt = e.Seq, s.now
	s.judgeResult(e.Seq, f, r)
	s.count(e.Session, f, t)
	s.keepResult(e.Seq, f)
	s.questionsAtResult(e.Seq, f, t.n)
	s.askResult(e.Session, e.Seq)
}

// spurious reports whether a result belongs to no turn: one that did nothing,
// right after another.
func (s *State) spurious(f *dialect.Frame) bool {
	return s.results > 0 && len(s.pending) == 0 && f.Get("num_turns").Int() == 0
}

// judgeResult adds what a result says to its turn.
func (s *State) judgeResult(seq uint64, f *dialect.Frame, r *round) {
	t := r.turn
	reason, isError := f.Get("terminal_reason").Text(), f.Get("is_error").True()
	text := resultText(f)
	t.abortedLast = false
	declined := strings.HasPrefix(text, "Permission denied for tool(s)") // CodeBuddy: deny with interrupt
	aborted := strings.HasPrefix(reason, "aborted_")
	stopped := r.intr != 0 && (f.Subtype == "error_during_execution" || r.cut && !r.text || text == "")
	switch {
	case aborted || stopped:
		t.abortedLast = true
		t.ev.add(Interrupted, Evidence{seq, byAborted, reason})
		if r.intr != 0 {
			asked := s.fresh(r.intr)
			t.ev.add(Interrupted, Evidence{asked, byInterrupt, ""})
			s.took(asked, seq, "turn")
		}
	case isError && declined:
		t.abortedLast = true
		t.ev.add(Interrupted, Evidence{seq, byAborted, text})
	case isError && f.Subtype == "success":
		t.ev.add(Failed, Evidence{seq, byAPI, text})
	case isError || strings.HasPrefix(f.Subtype, "error"):
		t.ev.add(Failed, Evidence{seq, byError, f.Subtype + ": " + text})
	default:
		t.ev.add(Success, Evidence{seq, byResult, ""})
	}
	n := 0
	for d := range f.Get("permission_denials").Items {
		id := d.Get("tool_use_id").Text()
		if id != "" && s.denials.has(id) { // CodeBuddy lists those of earlier turns, too
			continue
		}
		s.denials.set(id, "")
		n++
		t.ev.add(Denied, Evidence{seq, byDenial, d.Get("tool_name").Text()})
	}
	s.counts.Denied += n
}

// resultText is the text of a result, or its first error.
func resultText(f *dialect.Frame) string {
	if v := f.Get("result"); v.IsString() && len(v) > 2 {
		return v.Text()
	}
	for item := range f.Get("errors").Items {
		if item.IsString() {
			return item.Text()
		}
		return string(item)
	}
	return ""
}

func (s *State) keepResult(seq uint64, f *dialect.Frame) {
	v := &ResultView{Seq: seq, Subtype: clip(f.Subtype, maxText), IsError: f.Get("is_error").True()}
	text := f.Get("result").Text()
	v.Text, v.Truncated = clip(text, maxResultText), len(text) > maxResultText
	for item := range f.Get("errors").Items {
		if len(v.Errors) < maxEvidence {
			v.Errors = append(v.Errors, clip(item.Text(), maxText))
		}
	}
	if so := f.Get("structured_output"); !so.Null() && len(so) <= maxStructured {
		v.Structure = append([]byte(nil), so...)
	}
	s.result = v
}

// errorFrame reads CodeBuddy's answer to a line it could not use: no JSON for it,
// no message in it, no session to resume. A user message that waits is taken to
// be that line; it gets a turn without a result, which a
// round that nothing else explains takes over.
func (s *State) errorFrame(e *event.Event, f *dialect.Frame) {
	text := f.Get("error").Text()
	s.warn(e.Seq, "error", text)
	n := len(s.pending)
	if n == 0 || s.dialect != dialect.CBC {
		return
	}
	t := s.newTurn(s.pending[n-1].seq, "user")
	t.inputs = append(t.inputs, s.pending[n-1].seq)
	t.rejected = true
	t.ev.add(Incomplete, Evidence{e.Seq, byRejected, text})
	s.pending = s.pending[: n-1 : n-1]
}
