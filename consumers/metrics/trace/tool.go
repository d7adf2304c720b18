package trace

import (
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// tool is a call that has begun.
type tool struct {
	id, name, server string
	by               owner
	session          string
	start            time.Time
	args             int
	text             string // the arguments, where content is asked for
}

// toolUse begins a call of claude or cbc.
func (b *Builder) toolUse(e *event.Event, by owner, item dialect.Value) {
	id := run.BoundID(item.Get("id").Text())
	if _, again := b.calls.get(id); again || id == "" {
		return
	}
	name, input := dialect.EffectiveTool(item.Get("name").Text(), item.Get("input"))
	c := call{by: by}
	if name == "Agent" || name == "Task" {
		if c.agent = clip(input.Get("subagent_type").Text(), maxName); c.agent == "" {
			c.agent = "general-purpose"
		}
		c.desc = b.content(input.Get("description").Text())
	}
	b.calls.set(id, c)
	b.beginTool(&tool{id: id, name: clip(name, maxName), by: by, session: e.Session, start: b.now, args: len(input), text: b.content(string(input))})
}

// content is a text of the conversation, "" where it is not asked for.
func (b *Builder) content(text string) string {
	if !b.o.Content {
		return ""
	}
	return clip(text, maxContent)
}

func (b *Builder) beginTool(t *tool) {
	if gone, out := b.tools.set(t.id, t); out {
		b.toolOut(gone, b.now, outcome{how: endUnknown})
	}
}

// How a tool, task or agent ended, beside the words of the child.
const (
	endRan     = "ran"
	endFailed  = "failed"
	endDenied  = "denied"
	endUnknown = "unknown" // no frame told its end
)

// outcome is how a call ended.
type outcome struct {
	how    string
	size   int    // of the result, in bytes as the child wrote it
	text   string // the result, where content is asked for
	result dialect.Value
}

// toolResult ends a call of claude or cbc.
func (b *Builder) toolResult(item dialect.Value) {
	id := run.BoundID(item.Get("tool_use_id").Text())
	content := item.Get("content")
	o := outcome{how: endRan, size: len(content), text: b.content(string(content)), result: content}
	if item.Get("is_error").True() {
		if o.how = endFailed; b.denied(id) {
			o.how = endDenied
		}
	}
	b.agentReturned(id, o)
	t, ok := b.tools.get(id)
	if !ok {
		return
	}
	b.tools.del(id)
	b.toolOut(t, b.now, o)
}

// denied reports whether somebody said no to a call.
func (b *Builder) denied(id string) bool {
	for _, a := range b.st.Asks() {
		if a.ToolUseID == id && a.Decided != nil && a.Decided.Decision == event.Deny {
			return true
		}
	}
	return false
}

func (b *Builder) toolOut(t *tool, end time.Time, o outcome) {
	var a attrs
	a.str("gen_ai.operation.name", "execute_tool")
	a.str("gen_ai.tool.name", t.name)
	a.str("gen_ai.tool.call.id", t.id)
	a.str("gen_ai.tool.type", "function")
	a.str("gen_ai.conversation.id", t.session)
	a.str("cbcast.tool.server", t.server)
	a.num("cbcast.tool.arguments.length", int64(t.args))
	if o.how != endUnknown {
		a.num("cbcast.tool.result.length", int64(o.size))
	}
	a.content("gen_ai.tool.call.arguments", t.text)
	a.content("gen_ai.tool.call.result", o.text)
	a.str("cbcast.outcome", o.how)
	s := Span{Path: toolPath(t.id), Name: "execute_tool " + t.name, Kind: Internal, Start: t.start, End: end}
	if o.how == endFailed || o.how == endDenied {
		a.str("error.type", "tool_"+o.how)
		s.Status, s.Message = Error, o.how
	}
	s.Attrs = a
	b.emit(s, t.by.path, true)
}

func toolPath(id string) string { return "tool/" + id }

// toolsOver closes the calls of a turn whose end nothing told.
func (b *Builder) toolsOver(turn int, at time.Time) {
	for id, t := range b.tools.all {
		if t.by.turn == turn || turn < 0 {
			b.tools.del(id)
			b.toolOut(t, at, outcome{how: endUnknown})
		}
	}
}
