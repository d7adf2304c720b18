package trace

import (
	"encoding/json"
	"slices"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// edge takes a fact of the run's edge.
func (b *Builder) edge(e *event.Event) {
	switch e.Type {
	case event.TypeStalled:
		var d event.Stalled
		if json.Unmarshal(e.Data, &d) == nil {
			var a attrs
			a.str("cbcast.stalled", d.What)
			a.int("cbcast.seconds", int64(d.Seconds))
			a.str("cbcast.ask.id", d.Ask)
			b.happen(e.Session, "cbcast.stalled", a)
		}
	case event.TypeGap:
		var d event.Gap
		if json.Unmarshal(e.Data, &d) == nil {
			var a attrs
			a.str("cbcast.reason", d.Reason)
			a.int("cbcast.frames", d.Frames)
			a.int("cbcast.bytes", d.Bytes)
			b.root.add("cbcast.gap", b.now, a)
		}
	case event.TypeConflict:
		var a attrs
		a.str("gen_ai.conversation.id", e.Session)
		b.root.add("cbcast.session_conflict", b.now, a)
	case event.TypeSession:
		var d event.Session
		if json.Unmarshal(e.Data, &d) == nil && d.Previous != "" {
			var a attrs
			a.str("gen_ai.conversation.id", d.Session)
			a.str("cbcast.session.previous", d.Previous)
			b.root.add("cbcast.session_changed", b.now, a)
		}
	case event.TypeCommand:
		b.commandFact(e)
	}
}

// commandFact notes one step of a command's life on the run.
func (b *Builder) commandFact(e *event.Event) {
	var d event.CommandFact
	if json.Unmarshal(e.Data, &d) != nil || d.Command == "" {
		return
	}
	var a attrs
	a.str("cbcast.command.id", d.Command)
	a.str("cbcast.command.name", d.Name)
	a.str("cbcast.command.fact", string(d.Fact))
	a.str("cbcast.reason", d.Reason)
	a.str("cbcast.task.id", d.Task)
	if d.Fact.Final() || d.Fact == event.Written {
		who := b.actor(run.BoundID(d.Command))
		a.str("cbcast.command.actor", who.name)
		a.str("cbcast.command.on_behalf_of", who.behalf)
	}
	b.root.add("cbcast.command", e.Time, a)
}

// interrupts notes what an event tells of an interrupt or stop_task: that it was
// asked for, acknowledged, and took effect, each a fact of its own.
func (b *Builder) interrupts(e *event.Event) {
	if _, any := b.st.LastInterrupt(); !any {
		return
	}
	for _, in := range b.st.Interrupts() {
		var what []string
		for _, f := range []struct {
			seq  uint64
			word string
		}{{in.AskedSeq, "asked"}, {in.AckedSeq, "acked"}, {in.EndedSeq, "ended"}} {
			if f.seq == e.Seq {
				what = append(what, f.word)
			}
		}
		for _, w := range what {
			var a attrs
			a.str("cbcast.interrupt.id", in.ID)
			a.str("cbcast.interrupt.what", in.What)
			a.str("cbcast.interrupt.fact", w)
			a.str("cbcast.interrupt.by", in.By)
			a.str("cbcast.task.id", in.Task)
			if w == "ended" {
				a.str("cbcast.interrupt.effect", in.Effect)
			}
			if w == "acked" {
				a.str("cbcast.interrupt.error", in.Error)
			}
			b.happen(e.Session, "cbcast.interrupt", a)
		}
	}
}

// codexTools are the items of Codex that are calls.
var codexTools = []string{
	"commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch", "imageView", "imageGeneration", "collabAgentToolCall",
}

// codex takes a frame of codex app-server.
func (b *Builder) codex(e *event.Event, m *dialect.RPC) {
	switch m.Method {
	case dialect.MethodItemStarted, dialect.MethodItemCompleted:
		b.item(e, m)
	case dialect.MethodPlan:
		b.plan(m)
	case dialect.MethodTurnCompleted:
		path := b.thread(e, m).path
		if c, ok := b.chats.get(path); ok {
			c.end = b.now // the model was cut off
		}
		b.chatOver(path)
	case dialect.MethodError:
		if m.Params.Get("willRetry").True() {
			b.happen(e.Session, "cbcast.api_retry", nil)
		}
	}
}

// plan notes how far a plan has come.
func (b *Builder) plan(m *dialect.RPC) {
	steps, done := int64(0), int64(0)
	for step := range m.Params.Get("plan").Items {
		if steps++; step.Get("status").Text() == "completed" {
			done++
		}
	}
	var a attrs
	a.num("cbcast.plan.steps", steps)
	a.num("cbcast.plan.completed", done)
	b.happen(run.BoundID(m.Thread().Text()), "cbcast.plan", a)
}

// thread is who a frame of codex is of: a turn of a thread of the host's, or a
// sub-agent, which may have no name yet.
func (b *Builder) thread(e *event.Event, m *dialect.RPC) owner {
	id := run.BoundID(m.Thread().Text())
	for _, r := range b.st.Rounds() {
		if r.Session == id {
			return turnOwner(r.Turn)
		}
	}
	if id == "" || id == b.st.Main() {
		return b.main(id)
	}
	return b.agent(id, e).self()
}

// item takes the beginning or the end of an item.
func (b *Builder) item(e *event.Event, m *dialect.RPC) {
	item := m.Params.Get("item")
	id, typ := run.BoundID(item.Get("id").Text()), item.Get("type").Text()
	done := m.Method == dialect.MethodItemCompleted
	switch {
	case id == "":
	case typ == "agentMessage":
		b.message(e, b.thread(e, m), id, item, done)
	case typ == "contextCompaction" && done:
		b.happen(e.Session, "cbcast.compaction", nil)
	case !slices.Contains(codexTools, typ):
	case !done:
		if _, again := b.calls.get(id); !again {
			by := b.thread(e, m)
			b.calls.set(id, call{by: by})
			b.beginTool(b.codexTool(id, typ, by, run.BoundID(m.Thread().Text()), item))
		}
	default:
		t, ok := b.tools.get(id)
		if !ok {
			return
		}
		b.tools.del(id)
		b.toolOut(t, b.now, b.codexOutcome(item))
	}
}

func (b *Builder) codexTool(id, typ string, by owner, thread string, item dialect.Value) *tool {
	t := &tool{id: id, name: typ, by: by, session: thread, start: b.now}
	args := item.Get("arguments")
	switch typ {
	case "mcpToolCall", "dynamicToolCall", "collabAgentToolCall":
		if name := item.Get("tool").Text(); name != "" {
			t.name = clip(name, maxName)
		}
		t.server = clip(item.Get("server").Text(), maxName)
		if typ == "collabAgentToolCall" {
			args = item.Get("prompt")
		}
	case "commandExecution":
		args = item.Get("command")
	case "fileChange":
		args = item.Get("changes")
	case "webSearch":
		args = item.Get("query")
	}
	t.args, t.text = len(args), b.content(string(args))
	return t
}

func (b *Builder) codexOutcome(item dialect.Value) outcome {
	o := outcome{how: endRan}
	for _, k := range []string{"aggregatedOutput", "result", "contentItems"} {
		if v := item.Get(k); !v.Null() {
			o.size, o.text = len(v), b.content(string(v))
			break
		}
	}
	switch item.Get("status").Text() {
	case "failed":
		o.how = endFailed
	case "declined":
		o.how = endDenied
	}
	return o
}

// message is an answer of the model. Codex tells no call of its model; what it says
// is told from its first word to its last.
func (b *Builder) message(e *event.Event, by owner, id string, item dialect.Value, done bool) {
	c := b.chat(e, by, id)
	if c.frames == 0 {
		c.start = b.now // codex tells nothing of the call before it
	}
	c.session = by.session(b, e)
	c.end = b.now
	c.frames++
	if done {
		c.text = len(item.Get("text"))
		b.chatOver(by.path)
	}
}

// session is the conversation of who speaks.
func (o owner) session(b *Builder, e *event.Event) string {
	if t := b.turns[o.turn]; t != nil && o.path == turnPath(o.turn) && t.session != "" {
		return t.session
	}
	return e.Session
}
