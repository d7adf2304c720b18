package workflow

import (
	"slices"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// asked is an ask that was told and waits for an answer.
type asked struct {
	id   string
	node *node // that asks, nil where it is not known
}

// asks tells which asks wait since the event, and which do no longer.
func (m *Mapper) asks() {
	if !m.started || m.state.Ended() {
		return
	}
	open := m.state.OpenAsks()
	for _, a := range slices.Clone(m.asked) {
		if !slices.Contains(open, a.id) {
			m.asked = slices.DeleteFunc(m.asked, func(have *asked) bool { return have == a })
			m.resumed(a)
		}
	}
	for _, id := range open {
		if slices.ContainsFunc(m.asked, func(a *asked) bool { return a.id == id }) {
			continue
		}
		if v, ok := m.state.Ask(id); ok {
			m.awaits(&v)
		}
	}
}

// awaits tells that an ask waits, if the stream is about it.
func (m *Mapper) awaits(v *run.AskView) {
	n := m.asker(v)
	task := v.Task
	if n != nil {
		task = n.task
	}
	if !m.mine(task) {
		return
	}
	m.asked = append(m.asked, &asked{v.ID, n})
	d := RunAwaitingInputData{
		AskID: v.ID, Class: v.Class, Kind: v.Kind, Tool: clip(v.Tool, MaxTitle), Task: v.Task, Title: clip(v.Title, MaxTitle),
		FormSchema: formSchema(v), Actions: actions(v), Pending: len(m.asked),
	}
	if f := v.Form; f != nil {
		d.Message = clip(f.Message, MaxSummary)
		if v.Kind != "question" && v.Kind != "elicitation" {
			d.Request = rawSummary(dialect.Value(f.Input))
		}
	}
	if m.Token != nil && len(d.Actions) > 0 {
		d.ResumeToken = m.Token(v.ID)
	}
	m.emit(RunAwaitingInput, n, d)
}

// asker is the node that asks: whose call it is about, or what the task or the
// session does itself.
func (m *Mapper) asker(v *run.AskView) *node {
	for _, key := range []string{v.ToolUseID, v.Session + "\x00" + v.ToolUseID} {
		if c := m.tools[key]; c != nil && v.ToolUseID != "" {
			return c.node
		}
	}
	if t := m.tasks[v.Task]; t != nil {
		if t.body != nil && slices.Contains(m.open, t.body) {
			return t.body
		}
		return nil
	}
	return m.rounds[v.Session]
}

// resumed tells that an ask waits no more.
func (m *Mapper) resumed(a *asked) {
	d := RunResumedData{AskID: a.id, Action: run.ReasonCleared, Pending: len(m.asked)}
	if v, ok := m.state.Ask(a.id); ok {
		switch {
		case v.Decided != nil:
			d.Action, d.By = clip(v.Decided.Decision, MaxTitle), clip(v.Decided.By, MaxTitle)
			if v.Kind == "question" && d.Action == ActionAllow {
				d.Action = ActionAnswer // the line of Claude Code and CodeBuddy does not tell the two apart
			}
		case v.Closed != nil:
			d.Action = clip(v.Closed.Reason, MaxTitle)
		}
	}
	d.Action = firstOf(d.Action, run.ReasonCleared)
	n := a.node
	if n != nil && !slices.Contains(m.open, n) {
		n = nil
	}
	m.emit(RunResumed, n, d)
}
