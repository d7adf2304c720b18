package run

import (
	"cmp"
	"slices"
	"strconv"
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
	// Of Codex: exact text of the request's id, and the turn its answer names.
	request, turn string
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
	rejected    bool // the child could not read the message
	abortedLast bool // the last result was an aborted one
	codex       *codexTurn
	agents      []*thread // of Codex, that work for it
}

// round is what one result ends: from the init frame to the result, in one
// session. A turn has one, and one more for each wake-up. CodeBuddy writes init
// frames after a result, too, and its sub-agents write some with ids of their
// own: a round counts from the first frame that only a round has.
type round struct {
	session string
	first   uint64 // seq of its first frame
	turn    *turn  // nil until the round is sure
	cut     bool   // an assistant frame said that it was interrupted
	text    bool   // an assistant frame came after that
	intr    uint64 // seq of an interrupt while it was open
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
	s.assumeMain(session, seq)
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
		// A message that finds the child idle starts a turn, those that come
		// while it works wait and become one turn. CodeBuddy opens a session for
		// each message until a first turn has ended.
		take := len(s.pending)
		if !s.pending[0].mid || s.dialect == dialect.CBC && s.results == 0 {
			take = 1
		}
		r.turn = s.newTurn(r.first, "user")
		for _, in := range s.pending[:take] {
			r.turn.inputs = append(r.turn.inputs, in.seq)
		}
		s.pending = append([]input(nil), s.pending[take:]...)
		for i := range s.pending {
			s.pending[i].mid = s.pending[i].mid || s.dialect != dialect.CBC || s.results > 0
		}
		return
	}
	if n := len(s.turns); n > 0 && s.turns[n-1].rejected {
		r.turn = s.turns[n-1]
		r.turn.rejected, r.turn.ev = false, nil
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
	for _, r := range s.openRounds() {
		if session == "" || r.session == s.main {
			return r.turn
		}
	}
	if n := len(s.turns); n > 0 {
		return s.turns[n-1]
	}
	return nil
}

// openRounds lists the rounds that are sure, in the order they began.
func (s *State) openRounds() []*round {
	var open []*round
	for _, r := range s.rounds {
		if r.turn != nil {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *round) int {
		return cmp.Or(cmp.Compare(a.first, b.first), strings.Compare(a.session, b.session))
	})
	return open
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
	s.inputNoted(seq, uuid)
	if uuid != "" && s.dialect == dialect.Claude {
		if s.messages.has(uuid) {
			s.counts.InputsRepeated++ // Claude Code runs a uuid once
			return
		}
		s.messages.set(uuid, "")
	}
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
		s.pending = append(s.pending, input{seq: seq, uuid: uuid, mid: s.working()})
	}
}

// inputNoted remembers a message by its uuid, the first one with it.
func (s *State) inputNoted(seq uint64, uuid string) {
	if !s.inputs.has(uuid) {
		s.inputs.set(uuid, strconv.FormatUint(seq, 10))
	}
}

// lifecycle reads Claude Code's acknowledgement of a message with a uuid.
func (s *State) lifecycle(e *event.Event, f *dialect.Frame) {
	id := boundID(f.Get("command_uuid").Text())
	if s.messages.has(id) {
		s.messages.set(id, clip(f.Get("state").Text(), maxText))
	}
	switch f.Get("state").Text() {
	case "completed", "cancelled", "discarded":
	case "started":
		if s.messages.has(id) {
			s.reachable(e, id)
		}
		return
	default:
		return
	}
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
