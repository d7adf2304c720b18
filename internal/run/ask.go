package run

import (
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// ask is something that the child waits for.
type ask struct {
	AskView
	id    string // exact text of the request id
	agent bool   // a sub-agent of a task asks
}

func (a *ask) open() bool { return a.State == "open" }

// childRequest reads a control_request of the child.
func (s *State) childRequest(e *event.Event, f *dialect.Frame) {
	if !dialect.IsAsk(f.Subtype) {
		return
	}
	s.openAsk(e, f.Get("request"), f.ControlID(), f.Subtype, f.AmbiguousControl())
}

func (s *State) openAsk(e *event.Event, req dialect.Value, id dialect.Value, subtype string, ambiguous bool) {
	if a := s.askByID(id); a != nil {
		return // told again after a second initialize
	}
	a := &ask{id: boundID(string(id))}
	a.AskView = AskView{
		ID: boundID(idText(id)), Kind: askKind(subtype, req), Tool: clip(req.Get("tool_name").Text(), maxText),
		ToolUseID: boundID(req.Get("tool_use_id").Text()), Session: e.Session, Task: e.Task,
		State: "open", Ambiguous: ambiguous, OpenedSeq: e.Seq, OpenedAt: at(s.now),
	}
	if ambiguous {
		s.counts.Ambiguous++
	}
	a.agent = !req.Get("agent_id").Null()
	if len(s.asks) >= maxAsks {
		drop := 0
		for i, old := range s.asks {
			if old.State == "closed" {
				drop = i
				break
			}
		}
		s.asks = append(s.asks[:drop:drop], s.asks[drop+1:]...)
		s.dropped.Asks++
	}
	s.asks = append(s.asks, a)
}

// idText is a request id for people: a string's text, a number's digits.
func idText(id dialect.Value) string {
	if id.IsString() {
		return id.Text()
	}
	return string(id)
}

func askKind(subtype string, req dialect.Value) string {
	if subtype != "can_use_tool" {
		return "elicitation"
	}
	name := req.Get("tool_name").Text()
	if name == "DeferExecuteTool" {
		name = req.Get("input").Get("toolName").Text()
	}
	switch name {
	case "AskUserQuestion":
		return "question"
	case "ExitPlanMode":
		return "plan"
	}
	return "permission"
}

func (s *State) askByID(id dialect.Value) *ask {
	key := boundID(string(id))
	for _, a := range s.asks {
		if key != "" && a.id == key {
			return a
		}
	}
	return nil
}

func (s *State) cancelAsk(e *event.Event, f *dialect.Frame) {
	if a := s.askByID(f.ControlID()); a != nil {
		reason := "cancelled"
		if in := s.interruptSince(a.OpenedSeq); in != nil && a.open() {
			s.interruptedAsk(a, in, e.Seq)
			reason = "interrupt"
		}
		s.closeAsk(a, reason, e.Seq)
	}
}

// interruptedAsk notes that an interrupt took an ask away.
func (s *State) interruptedAsk(a *ask, in *interrupt, seq uint64) {
	s.took(in.AskedSeq, seq, "ask")
	if t := s.askTurn(a); t != nil {
		t.ev.add(Interrupted, Evidence{seq, byAskCut, a.Tool})
		t.ev.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, ""})
	}
}

// askTurn is the turn that an ask belongs to: its task's, else the current one.
func (s *State) askTurn(a *ask) *turn {
	if t := s.tasks[a.Task]; t != nil {
		if turn := s.turn(t.turn); turn != nil {
			return turn
		}
	}
	return s.current(a.Session)
}

// askAnswered reads a control_response of the parent.
func (s *State) askAnswered(e *event.Event, f *dialect.Frame) {
	resp := f.Get("response")
	body := resp.Get("response")
	a := s.askByID(f.ControlID())
	if a == nil {
		s.hookAnswered(e, body)
		return
	}
	if !a.open() {
		s.warn(e.Seq, "answered_again", a.ID)
		return
	}
	a.State, a.AnsweredSeq, a.Decision = "answered", e.Seq, s.decision(f.Subtype, body)
	if a.Decision == "deny" || a.Decision == "error" {
		if t := s.askTurn(a); t != nil {
			t.ev.add(Denied, Evidence{e.Seq, byDecline, a.Tool})
			if body.Get("interrupt").True() {
				t.ev.add(Interrupted, Evidence{e.Seq, byInterrupt, "deny"})
			}
		}
	}
	if a.Kind == "elicitation" {
		s.closeAsk(a, "answer", e.Seq)
	}
}

// decision reads an answer as the dialect does: CodeBuddy wants "allowed" and
// takes anything else as no; Claude Code wants "behavior".
func (s *State) decision(subtype string, body dialect.Value) string {
	if subtype == "error" {
		return "error"
	}
	if v := body.Get("action"); !v.Null() { // an elicitation
		if v.Text() == "accept" {
			return "allow"
		}
		return "deny"
	}
	yes := body.Get("behavior").Text() == "allow"
	if s.dialect == dialect.CBC {
		yes = body.Get("allowed").True()
	}
	if yes {
		return "allow"
	}
	return "deny"
}

// hookAnswered looks for a hook that says no.
func (s *State) hookAnswered(e *event.Event, body dialect.Value) {
	out := body.Get("hookSpecificOutput")
	no := out.Get("permissionDecision").Text() == "deny" || body.Get("decision").Text() == "block" ||
		string(body.Get("continue")) == "false"
	if !no {
		return
	}
	s.hookDenied(e.Seq, out.Get("hookEventName").Text())
}

func (s *State) hookDenied(seq uint64, hook string) {
	s.counts.Denied++
	if t := s.current(s.main); t != nil {
		t.ev.add(Denied, Evidence{seq, byHook, hook})
	}
}

// askToolResult closes the ask of a call whose result is there.
func (s *State) askToolResult(call string, seq uint64) {
	for _, a := range s.asks {
		if a.State == "closed" || a.ToolUseID == "" || a.ToolUseID != call {
			continue
		}
		reason := "tool_result"
		if in := s.interruptSince(a.OpenedSeq); in != nil && a.open() {
			s.interruptedAsk(a, in, seq)
			reason = "interrupt"
		}
		s.closeAsk(a, reason, seq)
	}
}

// askResult closes what the result of a session's round leaves behind. The asks
// of sub-agents in the background stay: their tasks go on.
func (s *State) askResult(session string, seq uint64) {
	live := len(s.OpenTasks()) > 0
	for _, a := range s.asks {
		if a.State == "closed" || a.Session != session && a.Session != "" {
			continue
		}
		if a.open() && live && (a.agent || !s.calls.has(a.ToolUseID)) {
			continue
		}
		reason := "result"
		if a.open() {
			if in := s.interruptSince(a.OpenedSeq); in != nil {
				reason = "interrupt"
			}
		}
		s.closeAsk(a, reason, seq)
	}
}

func (s *State) closeAsk(a *ask, reason string, seq uint64) {
	if a.State == "closed" {
		return
	}
	a.State, a.Reason, a.ClosedSeq, a.ClosedAt = "closed", reason, seq, at(s.now)
}

// waitingFor says what the oldest open ask wants: approval or input.
func (s *State) waitingFor() string {
	for _, a := range s.asks {
		if a.open() {
			if a.Kind == "question" || a.Kind == "elicitation" {
				return "input"
			}
			return "approval"
		}
	}
	return ""
}
