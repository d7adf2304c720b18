package run

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// applyEdge folds a fact of the edge.
func (s *State) applyEdge(e *event.Event) {
	switch e.Type {
	case event.TypeStarted:
		s.applyStarted(e)
	case event.TypeSession:
		var d event.Session
		if json.Unmarshal(e.Data, &d) == nil {
			s.setMain(boundID(d.Session), e.Seq)
		}
	case event.TypeInput:
		var d event.Input
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		switch {
		case d.Ask != "":
			s.secretAnswered(e, boundID(d.Ask))
		case d.Type == "user" && s.dialect == dialect.Codex:
			s.codexInput(e.Seq, boundID(d.UUID), d.Request)
		case d.Type == "user":
			s.inputSeen(e.Seq, boundID(d.UUID))
		case d.Request != "":
			s.requests.set(d.Request, "")
		}
	case event.TypeGap:
		var d event.Gap
		if json.Unmarshal(e.Data, &d) == nil {
			s.counts.GapFrames += d.Frames
			s.counts.GapBytes += d.Bytes
		}
	case event.TypeStalled:
		var d event.Stalled
		if json.Unmarshal(e.Data, &d) == nil {
			s.warn(e.Seq, "stalled", d.What)
		}
	case event.TypeCapabilities:
		var d event.Capabilities
		if json.Unmarshal(e.Data, &d) == nil {
			s.caps = &d
		}
	case event.TypeConflict:
		var d event.Conflict
		_ = json.Unmarshal(e.Data, &d) // a conflict without a run is one, too
		s.warn(e.Seq, "session_conflict", d.Run)
	case event.TypeIncompatible:
		var d event.Incompatible
		_ = json.Unmarshal(e.Data, &d)
		s.warn(e.Seq, "incompatible", d.Request)
	case event.TypeCommand:
		s.commandFact(e)
	case event.TypeAsk:
		s.askClosed(e)
	case event.TypeDecision:
		s.askDecision(e)
	case event.TypeExited:
		s.applyExited(e)
	}
}

func (s *State) applyStarted(e *event.Event) {
	var d event.Started
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	s.started, s.startedAt, s.caps = d, e.Time, d.Capabilities
	if n := dialect.Name(d.Dialect); n == dialect.Claude || n == dialect.CBC || n == dialect.Codex {
		s.dialect = n
	}
	if s.started.Output == "" {
		if o := dialect.OutputOf(d.Argv); o == dialect.OutputText || o == dialect.OutputJSON {
			s.started.Output = string(o)
		}
	}
}

// resume is what the run was told to go on with, as it is shown.
func (s *State) resume() *event.Resume {
	r := s.started.Resume
	if r == nil {
		return nil
	}
	return &event.Resume{Session: boundID(r.Session), Run: boundID(r.Run), Fork: r.Fork}
}

func (s *State) applyExited(e *event.Event) {
	var d event.Exited
	if s.exit != nil || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	x := &ExitView{
		Seq: e.Seq, Code: d.Code, Signal: clip(d.Signal, maxText), Ended: clip(d.Ended, maxText), Reason: clip(d.Reason, maxText),
		Complete: d.Complete, Leftovers: d.Leftovers, DurationMS: d.DurationMS,
	}
	for _, sig := range d.Forwarded {
		if len(x.Signals) < maxEvidence {
			x.Signals = append(x.Signals, SignalView{clip(sig.Signal, maxText), clip(sig.From, maxText), at(sig.Time)})
		}
	}
	if s.lost != nil {
		s.lost.Resumed = true
	}
	s.exit = x
	s.readDocument(e.Seq)
	s.judgeExit()
	s.doc = nil
}

// applyCTL folds a fact that the run's edge did not write.
func (s *State) applyCTL(e *event.Event) {
	switch e.Type {
	case event.TypeLost:
		var d struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(e.Data, &d) // a lost without a reason is one, too
		s.lost = &LostView{Reason: clip(d.Reason, maxText), At: at(e.Time), Resumed: s.exit != nil}
	case event.TypeResumed:
		if s.lost != nil {
			s.lost.Resumed = true
		}
	case event.TypeCommandFact:
		s.commandFact(e)
	}
}

// readDocument takes the result out of a one-shot run's document.
func (s *State) readDocument(seq uint64) {
	if s.frames > 0 || len(s.doc) == 0 {
		return
	}
	f, ok := dialect.FinalResult(s.doc)
	if !ok {
		return
	}
	s.frames++ // its tail is no cut line
	s.tail = 0
	if id := f.Get("session_id").Text(); id != "" && s.main == "" {
		s.setMain(boundID(id), seq)
	}
	s.resultFrame(&event.Event{Seq: seq, Session: s.main, Time: s.now}, &f)
}

// Run is the run's id.
func (s *State) Run() string { return s.run }

// Dialect is the dialect as far as known.
func (s *State) Dialect() dialect.Name { return s.dialect }

// LastSeq is the seq of the last event applied.
func (s *State) LastSeq() uint64 { return s.last }

// Main is the main session id, "" while unknown.
func (s *State) Main() string { return s.main }

// Sessions lists the ids of all sessions seen, the main one first.
func (s *State) Sessions() []string {
	var ids []string
	for _, v := range s.sessions {
		if v.ID == s.main {
			ids = slices.Insert(ids, 0, v.ID)
		} else {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// Ended reports whether the exit of the child was seen.
func (s *State) Ended() bool { return s.exit != nil }

// Lost reports whether the run's edge is gone and has not come back.
func (s *State) Lost() bool { return s.exit == nil && s.lost != nil && !s.lost.Resumed }

// Open counts what has begun and not ended. A user message that no turn covers
// yet is an open turn.
func (s *State) Open() Open { return s.open() }

func (s *State) open() Open {
	var o Open
	for _, r := range s.rounds {
		if r.turn != nil {
			o.Turns++
		}
	}
	for _, in := range s.pending {
		if !in.mid || s.lastResult < in.seq {
			o.Turns++
		}
	}
	if s.oneShot() {
		o.Turns++
	}
	for _, t := range s.tasks {
		if t.ended {
			continue
		}
		o.Tasks++
		if s.silent(t) {
			o.Silent++
		}
	}
	for _, a := range s.asks {
		switch {
		case !a.open():
			continue
		case a.Class == Approval:
			o.Approvals++
		default:
			o.Questions++
		}
		o.Asks++
	}
	return o
}

// oneShot reports whether the child runs to write one text or document: it works
// from its start to its end, and nothing else tells.
func (s *State) oneShot() bool {
	return s.exit == nil && s.frames == 0 && s.started.Output != "" && s.started.Output != string(dialect.OutputStream)
}

// silent reports whether waiting for the task's end is no use between turns.
func (s *State) silent(t *task) bool { return s.neverReports(t) && !s.working() }

// Phase is the run's state word: starting, working, waiting, idle, done, lost.
func (s *State) Phase() string {
	switch {
	case s.exit != nil:
		return "done"
	case s.Lost():
		return "lost"
	}
	o := s.open()
	switch {
	case o.Asks > 0:
		return "waiting"
	case o.Turns > 0 || o.Tasks > 0:
		return "working"
	case s.frames == 0 && !s.inputsSeen && s.counts.Frames["out"] == 0:
		return "starting"
	}
	return "idle"
}

// TurnsEnded counts the results so far that ended a turn or a wake-up, and the
// turns that a next message showed to have ended without one.
func (s *State) TurnsEnded() int { return s.results + s.closed }

// LastTurnAborted reports whether the last result was an aborted one.
func (s *State) LastTurnAborted() bool {
	for _, t := range slices.Backward(s.turns) {
		if t.results > 0 {
			return t.abortedLast
		}
	}
	return false
}

// TurnOpen reports whether a turn is being worked on.
func (s *State) TurnOpen() bool { return s.working() }

// OpenTasks lists the tasks that have not ended, oldest first.
func (s *State) OpenTasks() []string {
	var ids []string
	for _, t := range s.taskList() {
		if !t.ended {
			ids = append(ids, t.id)
		}
	}
	return ids
}

// InterruptibleTasks lists the open tasks that an interrupt ends: all but
// background shells, which outlive it in both dialects.
func (s *State) InterruptibleTasks() []string {
	var ids []string
	for _, t := range s.taskList() {
		if !t.ended && !survives(t) {
			ids = append(ids, t.id)
		}
	}
	return ids
}

// TaskEnded reports whether a task of that id is known, and whether it has ended.
func (s *State) TaskEnded(id string) (known, ended bool) {
	t := s.tasks[id]
	return t != nil, t != nil && t.ended
}

// TaskStatus is the status of a task, "" where it is not known.
func (s *State) TaskStatus(id string) string {
	if t := s.tasks[id]; t != nil {
		return t.status
	}
	return ""
}

// Idle reports whether the child has nothing open that will tell its end: no
// turn, task or ask, no user message without a turn. [Open.Silent] tasks may run.
func (s *State) Idle() bool { return !s.open().Any() }

// A Summary is what a registry shows of a run.
type Summary struct {
	Dialect  string
	State    string            // see [View]
	Waiting  string            // for what, see [View]
	Asks     int               // that are open then
	Verdict  string            // "" while the run lives
	Sessions []string          // the main one first
	Resume   *event.Resume     // what it was told to go on with, nil for nothing
	Updated  time.Time         // of the last event
	Ended    time.Time         // zero while the run lives
	Versions map[string]string // cbcast, child
	Commands []string          // that the child obeys
	// Capabilities is nil where no fact said them.
	Capabilities *event.Capabilities
}

// Summary returns the short form of the state.
func (s *State) Summary() Summary {
	v := Summary{
		Dialect: string(s.dialect), State: s.Phase(), Sessions: s.Sessions(), Resume: s.resume(), Updated: s.now,
		Versions: s.versions(), Commands: s.obeys(),
		Capabilities: s.Capabilities(),
	}
	switch {
	case v.State == "waiting":
		v.Waiting, v.Asks = s.waitingFor(), s.open().Asks
	case s.waits() != nil:
		v.Waiting = waitingForResume
	}
	if j := s.Verdict(); j != nil {
		v.Verdict = string(j.Verdict)
	}
	if s.exit != nil {
		v.Ended = s.now
	}
	return v
}

// Capabilities is what the child can do as the edge has found out, nil where it
// has not said so. The list of commands is short: dialects bound it.
func (s *State) Capabilities() *event.Capabilities {
	if s.caps == nil {
		return nil
	}
	c := *s.caps
	c.Level = clip(c.Level, maxText)
	c.Commands = slices.Clone(c.Commands[:min(len(c.Commands), maxCommands)])
	return &c
}

func (s *State) versions() map[string]string {
	m := map[string]string{}
	for name, version := range map[string]string{"cbcast": s.started.Version, "child": s.childVer} {
		if version != "" {
			m[name] = version
		}
	}
	return m
}
