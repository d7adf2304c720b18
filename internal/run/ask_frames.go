package run

import (
	"bytes"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// childRequest reads a control_request of the child.
func (s *State) childRequest(e *event.Event, f *dialect.Frame) {
	if !dialect.IsAsk(f.Subtype) {
		return
	}
	if !f.Answerable() {
		s.counts.Ambiguous++
		s.warn(e.Seq, "ask_without_id", f.Get("request").Get("tool_name").Text())
		return
	}
	s.openAsk(e, askedIn(f.Get("request"), f.ControlID(), f.Subtype, f.AmbiguousControl()))
}

// pendingAsks reads the list of open asks in Claude Code's answer to initialize.
func (s *State) pendingAsks(e *event.Event, f *dialect.Frame) {
	ids := dialect.SplitAsks(e.Ext["ask"])
	for i, p := range f.PendingAsks() {
		q := askedIn(p.Get("request"), p.Get("request_id"), p.Get("request").Get("subtype").Text(), f.AmbiguousControl())
		if i < len(ids) {
			q.id = ids[i]
		}
		s.openAsk(e, q)
	}
}

// askedIn reads the request of an ask.
func askedIn(req, id dialect.Value, subtype string, ambiguous bool) asked {
	q := asked{
		key: id, method: subtype, tool: req.Get("tool_name").Text(), call: req.Get("tool_use_id").Text(),
		input: req.Get("input"), ambiguous: ambiguous, agent: !req.Get("agent_id").Null(), class: Question,
	}
	if subtype != "can_use_tool" {
		q.kind, q.title = "elicitation", req.Get("message").Text()
		q.input = req.Get("requested_schema")
		if q.input.Null() {
			q.input = req.Get("payload")
		}
		q.form = newForm(q.input)
		q.form.Message = clip(q.title, maxText)
		return q
	}
	tool, input := dialect.EffectiveTool(q.tool, q.input)
	q.form = newForm(input)
	switch tool {
	case "AskUserQuestion":
		q.kind = "question"
		q.form = &AskForm{Questions: questionsOf(input)}
		if len(q.form.Questions) > 0 {
			q.title = q.form.Questions[0].Text
		}
	case "ExitPlanMode":
		q.kind, q.title = "plan", input.Get("plan").Text()
	default:
		q.kind, q.class = "permission", Approval
		q.title = titleOf(tool, input)
		q.form.Message = clip(req.Get("description").Text(), maxText)
		q.form.Session = dialect.SessionRules(req) != nil
	}
	return q
}

// Bounds of what is kept of one request: while it is open, and only then.
const (
	maxInput     = 8 << 10
	maxQuestions = 16
	maxOptions   = 32
	maxForm      = 32 << 10 // bytes of all options; further ones are left out
)

// newForm keeps a tool's input, if it is not too long.
func newForm(input dialect.Value) *AskForm {
	switch {
	case input.Null():
		return &AskForm{}
	case len(input) > maxInput:
		return &AskForm{InputLeftOut: true}
	}
	return &AskForm{Input: bytes.ToValidUTF8(input, []byte("\ufffd"))}
}

// titleOf is the part of a tool's input that says best what it is about.
func titleOf(tool string, input dialect.Value) string {
	for _, k := range [...]string{"command", "file_path", "path", "notebook_path", "url", "query", "pattern", "description", "prompt"} {
		if t := input.Get(k).Text(); t != "" {
			return t
		}
	}
	return tool
}

// questionsOf reads the questions of an AskUserQuestion. Their text is their id;
// where it is not here whole their place is, see [dialect.QuestionAt].
func questionsOf(input dialect.Value) (list []AskQuestion) {
	size := 0
	for item := range input.Get("questions").Items {
		if len(list) == maxQuestions {
			break
		}
		text := item.Get("question").Text()
		q := AskQuestion{
			ID: text, Text: clip(text, 4*maxText), Header: clip(item.Get("header").Text(), maxText),
			Multi: item.Get("multiSelect").True(), Other: true,
		}
		if q.Text != text || strings.Contains(text, event.MaskBegins) {
			q.ID = dialect.QuestionAt(len(list))
		}
		for o := range item.Get("options").Items {
			if len(q.Options) == maxOptions || size > maxForm {
				break
			}
			opt := AskOption{clip(o.Get("label").Text(), maxText), clip(o.Get("description").Text(), maxText)}
			size += len(opt.Label) + len(opt.Description)
			q.Options = append(q.Options, opt)
		}
		list = append(list, q)
	}
	return list
}

// cancelAsk reads a control_cancel_request of the child.
func (s *State) cancelAsk(e *event.Event, f *dialect.Frame) {
	a := s.askByKey(f.ControlID())
	if a == nil || a.shut() {
		return
	}
	reason := ReasonWithdrawn
	if in := s.interruptSince(a.OpenedSeq); in != nil {
		s.interruptedAsk(a, in, e.Seq)
		reason = ReasonCleared
	}
	s.closeAsk(a, reason, OutcomeNone, e.Seq)
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

// askAnswered reads a control_response on the child's stdin.
func (s *State) askAnswered(e *event.Event, f *dialect.Frame) {
	resp := f.Get("response")
	body := resp.Get("response")
	a := s.askByKey(f.ControlID())
	if a == nil {
		s.hookAnswered(e, body)
		return
	}
	decision := s.decision(f.Subtype, body)
	if !s.answerAsk(e, a, decision) {
		return
	}
	if decision == event.Deny || decision == "error" {
		s.declined(e.Seq, a, body.Get("interrupt").True())
	}
	if a.Kind == "elicitation" { // nothing else tells its end
		s.endAsk(a, "", a.follows(), e.Seq)
	}
}

// declined notes for the verdict that an ask was answered with no.
func (s *State) declined(seq uint64, a *ask, interrupt bool) {
	t := s.askTurn(a)
	if t == nil {
		return
	}
	t.ev.add(Denied, Evidence{seq, byDecline, a.Tool})
	if interrupt {
		t.ev.add(Interrupted, Evidence{seq, byInterrupt, "deny"})
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
			return event.Allow
		}
		return event.Deny
	}
	yes := body.Get("behavior").Text() == "allow" || body.Get("behavior").Text() == "completed"
	if s.dialect == dialect.CBC {
		yes = body.Get("allowed").True()
	}
	if yes {
		return event.Allow
	}
	return event.Deny
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
func (s *State) askToolResult(call string, failed bool, seq uint64) {
	for _, a := range s.asks {
		if a.shut() || a.ToolUseID == "" || a.ToolUseID != call {
			continue
		}
		if in := s.interruptSince(a.OpenedSeq); in != nil && a.open() {
			s.interruptedAsk(a, in, seq)
		}
		outcome := a.follows()
		if outcome == OutcomeUnknown {
			if outcome = OutcomeRan; failed {
				outcome = OutcomeFailed
			}
		}
		s.endAsk(a, ReasonCleared, outcome, seq)
	}
}

// askResult closes what the result of a session's round leaves behind. The asks
// of sub-agents in the background stay: their tasks go on.
func (s *State) askResult(session string, seq uint64) {
	live := len(s.OpenTasks()) > 0
	for _, a := range s.asks {
		if a.shut() || a.Session != session && a.Session != "" {
			continue
		}
		if a.open() && live && (a.agent || !s.calls.has(a.ToolUseID)) {
			continue
		}
		s.endAsk(a, ReasonCleared, a.follows(), seq)
	}
}

// askTaskOver closes the asks of a task that has ended.
func (s *State) askTaskOver(id string, seq uint64) {
	for _, a := range s.asks {
		if a.Task != "" && a.Task == id {
			s.endAsk(a, ReasonCleared, a.follows(), seq)
		}
	}
}

// idText is a request id for people: a string's text, a number's digits.
func idText(id dialect.Value) string {
	if id.IsString() {
		return id.Text()
	}
	return string(id)
}
