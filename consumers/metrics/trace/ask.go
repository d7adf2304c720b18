package trace

import (
	"encoding/json"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// actor is who gave a command: the name of a token, and for whom it spoke.
type actor struct{ name, behalf string }

// fact takes a fact that the run's edge did not write.
func (b *Builder) fact(e *event.Event) {
	switch e.Type {
	case event.TypeAudit:
		var d event.Audit
		if json.Unmarshal(e.Data, &d) == nil && d.Command != "" {
			b.actors.set(run.BoundID(d.Command), actor{clip(d.Actor, maxName), clip(d.For, maxName)})
		}
		return
	case event.TypeLost, event.TypeResumed:
		var d struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal(e.Data, &d) // a lost without a reason is one, too
		var a attrs
		a.str("cbcast.reason", d.Reason)
		name := "cbcast.lost"
		if e.Type == event.TypeResumed {
			name = "cbcast.resumed"
		}
		b.root.add(name, e.Time, a)
	case event.TypeCommandFact:
		b.commandFact(e)
	}
	b.st.Apply(e)
}

// actor finds who gave a command.
func (b *Builder) actor(command string) actor {
	if a, ok := b.actors.get(command); ok || command == "" {
		return a
	}
	if b.o.Facts != nil {
		for _, e := range b.o.Facts(b.tenant, b.run) {
			if e.Type == event.TypeAudit {
				b.fact(e)
			}
		}
	}
	a, ok := b.actors.get(command)
	if !ok {
		b.actors.set(command, a) // it is not asked for again
	}
	return a
}

// asksClosed sends off the asks that have closed, once it is known what came of them.
func (b *Builder) asksClosed() {
	if b.st.AsksClosed() == b.closed && b.waiting == 0 {
		return
	}
	b.closed, b.waiting = b.st.AsksClosed(), 0
	for _, a := range b.st.Asks() {
		if a.State != run.AskShut {
			continue
		}
		if a.Outcome == "" {
			b.waiting++
			continue
		}
		b.askOut(a)
	}
}

// asksOver sends off all that is left when the run ends.
func (b *Builder) asksOver() {
	for _, a := range b.st.Asks() {
		b.askOut(a)
	}
}

// askOut sends off an ask: from the request to the answer's effect, or to what took
// it away.
func (b *Builder) askOut(v run.AskView) {
	if _, out := b.asksOut.get(v.ID); out {
		return
	}
	b.asksOut.set(v.ID, true)
	var a attrs
	a.str("cbcast.ask.id", v.ID)
	a.str("cbcast.ask.class", v.Class)
	a.str("cbcast.ask.kind", v.Kind)
	a.str("cbcast.ask.state", v.State)
	a.str("gen_ai.tool.name", v.Tool)
	a.str("gen_ai.tool.call.id", v.ToolUseID)
	a.str("gen_ai.conversation.id", v.Session)
	a.num("cbcast.ask.title.length", int64(len(v.Title)))
	a.content("cbcast.ask.title", b.content(v.Title))
	a.yes("cbcast.ask.ambiguous", v.Ambiguous)
	a.int("cbcast.ask.repeats", int64(v.Repeats))
	if d := v.Decided; d != nil {
		who := b.actor(d.Command)
		a.str("cbcast.ask.decision", d.Decision)
		a.str("cbcast.ask.decided_by", d.By)
		a.str("cbcast.ask.actor", who.name)
		a.str("cbcast.ask.on_behalf_of", who.behalf)
		a.str("cbcast.ask.rule", d.Rule)
		a.str("cbcast.ask.cause", d.Cause)
		a.str("cbcast.command.id", d.Command)
	}
	s := Span{Path: "ask/" + v.ID, Name: strings.TrimSpace("ask " + v.Kind), Kind: Internal, Start: b.now, End: b.now}
	if v.OpenedAt != nil {
		s.Start = *v.OpenedAt
	}
	if v.Closed != nil {
		a.str("cbcast.ask.closed", v.Closed.Reason)
		if v.Closed.At != nil {
			s.End = *v.Closed.At
		}
	}
	a.str("cbcast.outcome", v.Outcome)
	s.Attrs = a
	b.emit(s, b.askOf(v), true)
}

// askOf is the span that an ask belongs to: the call that it is about, else the task
// or the turn that asks.
func (b *Builder) askOf(v run.AskView) string {
	if _, ok := b.calls.get(v.ToolUseID); ok {
		return toolPath(v.ToolUseID)
	}
	if a, ok := b.agents.get(v.Task); ok {
		return a.self().path
	}
	if t, ok := b.st.Task(v.Task); ok {
		if isAgent(t.Type, t.ID) && t.ToolUseID != "" {
			return agentPath(t.ToolUseID)
		}
		if t.Type == "agent" {
			return agentPath(t.ID)
		}
		return taskPath(t.ID)
	}
	return b.main(v.Session).path
}
