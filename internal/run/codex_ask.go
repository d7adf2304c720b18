package run

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// codexAsk links an ask to what its end and its outcome are told by.
type codexAsk struct {
	ask          *ask
	thread, turn string
	item         string // "" where there is none
}

// codexRequest reads a request of the child. Codex sends an open one again on
// thread/resume.
func (s *State) codexRequest(e *event.Event, f *dialect.Frame, m *dialect.RPC) {
	if !dialect.IsAskMethod(m.Method) {
		return
	}
	if m.ID == nil {
		s.counts.Ambiguous++
		s.warn(e.Seq, "ask_without_id", m.Method)
		return
	}
	q := s.codexAsked(m)
	q.key, q.method, q.ambiguous = m.ID, m.Method, f.AmbiguousRPC(m)
	before := len(s.asks) + s.dropped.Asks
	a := s.openAsk(e, q)
	if len(s.asks)+s.dropped.Asks == before {
		return
	}
	x := s.cx()
	if len(x.asks) >= maxAsks {
		i := max(0, slices.IndexFunc(x.asks, func(c *codexAsk) bool { return c.ask.shut() }))
		x.asks = slices.Delete(x.asks, i, i+1)
	}
	x.asks = append(x.asks, &codexAsk{a, boundID(m.Thread().Text()), boundID(m.Turn().Text()), q.call})
}

// codexAsked reads the request of an ask.
func (s *State) codexAsked(m *dialect.RPC) asked {
	p := m.Params
	q := asked{class: Approval, call: boundID(p.Get("itemId").Text()), form: &AskForm{Message: clip(p.Get("reason").Text(), maxText)}}
	item := s.openItem(m, q.call)
	switch m.Method {
	case dialect.MethodCommandApproval:
		q.kind, q.tool, q.title = "command", "commandExecution", p.Get("command").Text()
		if q.input = p.Get("command"); q.title == "" {
			q.title = item.text
		}
		q.form.keep(p, "command", "cwd", "networkApprovalContext", "additionalPermissions")
		q.form.Session = true
		for d := range p.Get("availableDecisions").Items {
			if len(q.form.Choices) < maxOptions && len(d) <= maxInput {
				q.form.Choices = append(q.form.Choices, slices.Clone(json.RawMessage(d)))
			}
		}
	case dialect.MethodFileApproval:
		q.kind, q.tool, q.title = "file_change", "fileChange", item.text
		q.input, q.form.Input, q.form.InputLeftOut = dialect.Value(item.text), item.changes, item.long
		q.form.Session = true
	case dialect.MethodPermissionsApproval:
		q.kind, q.tool, q.title, q.input = "permissions", "permissions", p.Get("reason").Text(), p.Get("permissions")
		q.form.keep(p, "permissions", "cwd")
		q.form.Session = true
	case dialect.MethodUserInput:
		q.class, q.kind, q.tool = Question, "question", "requestUserInput"
		q.input = p.Get("questions")
		if q.form.Questions = codexQuestions(q.input); len(q.form.Questions) > 0 {
			q.title = q.form.Questions[0].Text
		}
	case dialect.MethodElicitation:
		s.elicitation(m, &q)
	}
	return q
}

// elicitation reads what an MCP server asks: for its own sake, or because Codex
// wants its tool to be approved.
func (s *State) elicitation(m *dialect.RPC, q *asked) {
	p := m.Params
	q.title, q.tool = p.Get("message").Text(), p.Get("serverName").Text()
	q.form.Message = clip(q.title, maxText)
	meta := p.Get("_meta")
	if meta.Get("codex_approval_kind").Null() {
		q.class, q.kind, q.input = Question, "elicitation", p.Get("requestedSchema")
		q.form.keep(p, "requestedSchema", "mode", "url")
		return
	}
	q.kind, q.input = "permission", meta.Get("tool_params")
	q.form.keep(meta, "tool_params", "tool_description")
	for v := range meta.Get("persist").Items {
		q.form.Session = q.form.Session || v.Text() == "session"
	}
	// The request does not name the call; it is the latest one of that server.
	if ct := s.codexTurn(m); ct != nil {
		for _, id := range slices.Backward(ct.order) {
			if it := ct.open[id]; it.typ == "mcpToolCall" && it.process == q.tool {
				q.call, q.tool = id, q.tool+"/"+it.text
				return
			}
		}
	}
}

// openItem is the item that a request is about, the zero one where it is not known.
func (s *State) openItem(m *dialect.RPC, id string) openItem {
	if ct := s.codexTurn(m); ct != nil {
		return ct.open[id]
	}
	return openItem{}
}

// keep takes the named members of an object as the input, if they are not too long.
func (f *AskForm) keep(v dialect.Value, names ...string) {
	b := []byte{'{'}
	for _, name := range names {
		m := v.Get(name)
		if m.Null() {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, name), ':')
		if b = append(b, m...); len(b) > maxInput {
			f.InputLeftOut = true
			return
		}
	}
	f.Input = append(b, '}')
}

func codexQuestions(list dialect.Value) (questions []AskQuestion) {
	for item := range list.Items {
		if len(questions) == maxQuestions {
			break
		}
		q := AskQuestion{
			ID: clip(item.Get("id").Text(), maxText), Header: clip(item.Get("header").Text(), maxText), Text: clip(item.Get("question").Text(), 4*maxText),
			Secret: item.Get("isSecret").True(), Other: item.Get("isOther").True() || item.Get("options").Null(),
		}
		for o := range item.Get("options").Items {
			if len(q.Options) < maxOptions {
				q.Options = append(q.Options, AskOption{clip(o.Get("label").Text(), maxText), clip(o.Get("description").Text(), maxText)})
			}
		}
		questions = append(questions, q)
	}
	return questions
}

// codexAnswered reads an answer on the child's stdin. One with another id, or the
// same in another JSON type, is none: Codex ignores it, too.
func (s *State) codexAnswered(e *event.Event, m *dialect.RPC) {
	a := s.askByKey(m.ID)
	if a == nil {
		return
	}
	decision, cancel := codexDecision(a, m)
	if !s.answerAsk(e, a, decision) {
		return
	}
	if decision == event.Deny || decision == "error" {
		s.declined(e.Seq, a, cancel)
	}
}

// secretAnswered notes that the host has answered a question with a secret, which
// is recorded nowhere.
func (s *State) secretAnswered(e *event.Event, id string) {
	for _, a := range s.asks {
		if a.ID == id {
			s.answerAsk(e, a, event.Answers)
			return
		}
	}
}

// codexDecision says what an answer decides. What Codex does not know is refused
// by it like an error.
func codexDecision(a *ask, m *dialect.RPC) (decision string, cancel bool) {
	if m.Error != nil {
		return "error", false
	}
	r := m.Result
	switch a.method {
	case dialect.MethodPermissionsApproval:
		for _, v := range r.Get("permissions").Fields {
			if !v.Null() {
				return event.Allow, false
			}
		}
		return event.Deny, false
	case dialect.MethodUserInput:
		for range r.Get("answers").Fields {
			return event.Answers, false
		}
		return event.Deny, false
	case dialect.MethodElicitation:
		switch { // the turn goes on after a cancel, too
		case r.Get("action").Text() != "accept":
			return event.Deny, false
		case a.Class == Question:
			return event.Answers, false
		}
		return event.Allow, false
	}
	d := r.Get("decision")
	switch d.Text() {
	case "accept", "acceptForSession":
		return event.Allow, false
	case "decline":
		return event.Deny, false
	case "cancel":
		return event.Deny, true
	}
	switch rule := d.Get("applyNetworkPolicyAmendment").Get("network_policy_amendment"); {
	case d.Get("acceptWithExecpolicyAmendment").IsObject(), rule.Get("action").Text() == "allow":
		return event.Allow, false
	case rule.Get("action").Text() == "deny":
		return event.Deny, false
	}
	return "error", false
}

// codexResolved reads that a request is open no more. It says so the same whoever
// answered, and what.
func (s *State) codexResolved(e *event.Event, m *dialect.RPC) {
	a := s.askByKey(m.Params.Get("requestId"))
	if a == nil || a.shut() {
		return
	}
	outcome := a.follows()
	switch {
	case outcome != OutcomeUnknown:
	case a.Kind == "permissions":
		outcome = OutcomeAnswered // nothing else tells what came of it
	default:
		outcome = "" // its item will tell
	}
	s.endAsk(a, ReasonWithdrawn, outcome, e.Seq)
}

// untold gives the asks of a turn, of all for nil, the outcome that nothing tells
// any more. A command that works on will tell.
func (s *State) untold(ct *codexTurn) {
	for _, c := range s.cx().asks {
		if ct != nil && (c.turn != ct.id || c.thread != ct.thread) || !c.ask.shut() || c.ask.Outcome != "" {
			continue
		}
		if k := s.tasks[c.item]; ct != nil && k != nil && k.typ == "command" && !k.ended {
			continue
		}
		c.ask.Outcome = OutcomeUnknown
	}
}

// asksOfTurn closes the asks that the end of a turn leaves behind: their resolved
// comes after it, and not because of an answer.
func (s *State) asksOfTurn(ct *codexTurn, status string, seq uint64) {
	for _, c := range s.cx().asks {
		if c.turn != ct.id || c.thread != ct.thread || c.ask.shut() {
			continue
		}
		if status == "interrupted" && ct.work != nil {
			ct.work.ev.add(Interrupted, Evidence{seq, byAskCut, c.ask.Tool})
		}
		s.closeAsk(c.ask, ReasonCleared, OutcomeNone, seq)
	}
	s.untold(ct)
}

// codexOutcome reads from the end of an item what came of the ask about it.
func (s *State) codexOutcome(e *event.Event, m *dialect.RPC, id string, item dialect.Value) {
	for _, c := range s.cx().asks {
		if c.item != id || id == "" || c.thread != boundID(m.Thread().Text()) {
			continue
		}
		outcome := OutcomeUnknown
		switch item.Get("status").Text() {
		case "completed":
			outcome = OutcomeRan
		case "declined":
			outcome = OutcomeDenied
		case "failed":
			outcome = OutcomeFailed
			if d := c.ask.Decided; d != nil && d.Decision == event.Deny {
				outcome = OutcomeDenied // an MCP call has no status for it
			}
		}
		s.endAsk(c.ask, ReasonWithdrawn, outcome, e.Seq)
		if c.ask.Outcome != OutcomeNone {
			c.ask.Outcome = outcome
		}
	}
}
