package run

import (
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// input is a user message that no turn covers yet.
type input struct {
	seq  uint64
	uuid string
	mid  bool // it came while a round was open, which may take it in
}

// turn is one user turn.
type turn struct {
	n           int
	origin      string
	inputs      []uint64
	startedSeq  uint64
	endedSeq    uint64
	startedAt   time.Time
	endedAt     time.Time
	results     int
	wakeups     int
	tasks       []string
	cost        float64
	tokens      Tokens
	ev          evidence
	abortedLast bool // the last result was an aborted one
}

// round is what one result ends: from the init frame to the result, in one
// session. A turn has one, and one more for each wake-up. CodeBuddy writes init
// frames after a result, too, and its sub-agents write some with ids of their
// own: a round counts from the first frame that only a round has.
type round struct {
	session string
	first   uint64 // seq of its first frame
	turn    *turn  // nil until the round is sure
	status  bool
	cut     bool   // an assistant frame said that it was interrupted
	text    bool   // an assistant frame came after that
	intr    uint64 // seq of an interrupt while it was open
	asked   bool
}

// opening notes a frame that may open a round in a session.
func (s *State) opening(session string, seq uint64) *round {
	r := s.rounds[session]
	if r == nil {
		if len(s.rounds) >= maxSessions {
			return &round{session: session, first: seq}
		}
		r = &round{session: session, first: seq}
		s.rounds[session] = r
	}
	return r
}

// spoke notes a frame that only an open round has. Frames of sub-agents go on
// after the round's result and open nothing.
func (s *State) spoke(seq uint64, session, parent string) *round {
	if parent != "" {
		s.group(parent, seq)
		return nil
	}
	r := s.opening(session, seq)
	if r.turn == nil {
		s.begin(r)
	}
	return r
}

// status is written by CodeBuddy when the model is called, and around an
// interrupt. Together with an init in a session of its own it is a round.
func (s *State) status(e *event.Event, f *dialect.Frame) {
	if !f.Get("permissionMode").Null() {
		s.mode = clip(f.Get("permissionMode").Text(), maxText)
	}
	r := s.rounds[e.Session]
	if r == nil || r.turn != nil || s.dialect != dialect.CBC {
		return
	}
	r.status = true
	if e.Session != s.main || len(s.pending) > 0 {
		s.begin(r)
	}
}

// begin makes a round sure and finds the turn it belongs to.
func (s *State) begin(r *round) {
	if r.session != s.main && s.main != "" {
		if v := s.sessionSeen(r.session, r.first); v.Role == "agent" {
			v.Role = "concurrent"
		}
	}
	if len(s.pending) > 0 {
		take := len(s.pending)
		if s.dialect == dialect.CBC && s.results == 0 {
			take = 1 // each message opens a session of its own until a first turn has ended
		}
		r.turn = s.newTurn(r.first, "user")
		for _, in := range s.pending[:take] {
			r.turn.inputs = append(r.turn.inputs, in.seq)
		}
		s.pending = append([]input(nil), s.pending[take:]...)
		return
	}
	woken := s.turn(s.woke)
	if woken == nil && len(s.turns) > 0 && s.inputsSeen {
		woken = s.turns[len(s.turns)-1]
	}
	if woken == nil {
		r.turn = s.newTurn(r.first, "child")
		return
	}
	woken.wakeups++
	r.turn = woken
}

func (s *State) newTurn(seq uint64, origin string) *turn {
	s.turnCount++
	t := &turn{n: s.turnCount, origin: origin, startedSeq: seq, startedAt: s.now}
	if len(s.turns) >= maxTurns {
		old := s.turns[0]
		s.turns = append([]*turn(nil), s.turns[1:]...)
		s.dropped.Turns++
		if s.dropped.Verdicts == nil {
			s.dropped.Verdicts = map[string]int{}
		}
		s.dropped.Verdicts[string(old.ev.judge().Verdict)]++
	}
	s.turns = append(s.turns, t)
	return t
}

// turn finds a turn by its number, nil where it is 0 or no longer kept.
func (s *State) turn(n int) *turn {
	for _, t := range s.turns {
		if t.n == n && n > 0 {
			return t
		}
	}
	return nil
}

// current is the turn of the open round of the session (any, for ""), else the
// last turn; nil where there is none.
func (s *State) current(session string) *turn {
	if r := s.rounds[session]; r != nil && r.turn != nil {
		return r.turn
	}
	for _, r := range s.rounds {
		if r.turn != nil && (session == "" || r.session == s.main) {
			return r.turn
		}
	}
	if n := len(s.turns); n > 0 {
		return s.turns[n-1]
	}
	return nil
}

// working reports whether a round is open.
func (s *State) working() bool {
	for _, r := range s.rounds {
		if r.turn != nil {
			return true
		}
	}
	return false
}

// inputSeen notes a user message on stdin.
func (s *State) inputSeen(seq uint64, uuid string) {
	s.inputsSeen = true
	if r := s.rounds[s.main]; r != nil {
		switch {
		case r.turn == nil:
			delete(s.rounds, s.main) // init frames before it belong to what was before
		case r.cut && s.dialect == dialect.CBC:
			// CodeBuddy ends no interrupted turn that had a workflow with a result.
			r.turn.endedSeq, r.turn.endedAt = seq, s.now
			s.closed++
			delete(s.rounds, s.main)
		}
	}
	if len(s.pending) < maxPending {
		s.pending = append(s.pending, input{seq, uuid, s.working()})
	}
}

// lifecycle reads Claude Code's acknowledgement of a message with a uuid.
func (s *State) lifecycle(f *dialect.Frame) {
	switch f.Get("state").Text() {
	case "completed", "cancelled", "discarded":
	default:
		return
	}
	id := f.Get("command_uuid").Text()
	for i, in := range s.pending {
		if in.uuid == "" || in.uuid != id {
			continue
		}
		if f.Get("state").Text() == "completed" {
			s.counts.InputsFolded++
			s.fold(in.seq)
		} else {
			s.counts.InputsDropped++
		}
		s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
		return
	}
}

// fold counts an input to the last turn: the child took it in while it worked.
func (s *State) fold(seq uint64) {
	if t := s.current(s.main); t != nil && len(t.inputs) < maxPending {
		t.inputs = append(t.inputs, seq)
	}
}

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
			t.ev.add(Interrupted, Evidence{r.intr, byInterrupt, ""})
			s.took(r.intr, seq, "turn")
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
