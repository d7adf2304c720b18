package trace

import (
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// agent is a sub-agent: what the frames with its parent_tool_use_id tell, of codex
// those of its thread.
type agent struct {
	key         string // the call that made it, of codex its thread
	by          owner  // who called it
	attached    bool   // the call was seen
	name, desc  string
	session     string
	task        string // its task, "" while none is known
	start, last time.Time
	frames      int
	model       string
	how         string // of a call that returned with what it came to
	end         time.Time
}

func (a *agent) self() owner { return owner{agentPath(a.key), a.by.turn} }

func agentPath(key string) string { return "agent/" + key }

// agent finds the sub-agent that a call made, or begins it with a frame of it. One
// whose call was never seen belongs to the run, and to no turn.
func (b *Builder) agent(key string, e *event.Event) *agent {
	a, ok := b.agents.get(key)
	if !ok {
		a = &agent{key: key, session: e.Session, start: b.now, by: owner{path: runPath}}
		if c, seen := b.calls.get(key); seen {
			a.by, a.attached, a.name, a.desc, a.task = c.by, true, c.agent, c.desc, c.task
		}
		if gone, out := b.agents.set(key, a); out {
			b.agentOut(gone, run.TaskView{}, nil, false)
		}
	}
	a.frames++
	a.last = b.now
	return a
}

// agentTask notes that a task is the work of a sub-agent.
func (b *Builder) agentTask(e *event.Event, f *dialect.Frame) {
	id := run.BoundID(f.Get("task_id").Text())
	t, ok := b.st.TaskState(id)
	if !ok || !isAgent(t.Type, id) || t.ToolUseID == "" {
		return
	}
	a := b.agent(t.ToolUseID, e)
	a.frames-- // it is none of the agent's own
	a.task = id
}

// isAgent reports whether a task of claude or cbc is a sub-agent.
func isAgent(typ, id string) bool {
	return typ == "local_agent" || typ == "Agent" || strings.HasPrefix(id, "agent-")
}

// agentReturned notes the result of a call that made a sub-agent: what it came to,
// or, of one in the background, only that it works.
func (b *Builder) agentReturned(id string, o outcome) {
	a, ok := b.agents.get(id)
	if c, seen := b.calls.get(id); seen && c.agent != "" && b.st.Dialect() == dialect.CBC {
		if task := dialect.AgentTask(o.result); task != "" { // its frames may be still to come
			if c.task = run.BoundID(task); ok {
				a.task = c.task
			}
			b.calls.set(id, c)
			return
		}
	}
	if !ok {
		return
	}
	if t, known := b.st.TaskState(a.task); known && !t.Ended {
		return
	}
	a.how, a.end = o.how, b.now
	b.chatOver(a.self().path)
}

// agentsOver sends off the sub-agents of a turn, all for -1.
func (b *Builder) agentsOver(turn int, final bool) {
	for key, a := range b.agents.all {
		if a.by.turn != turn && turn >= 0 {
			continue
		}
		b.agents.del(key)
		v, _ := b.st.Task(a.task)
		b.agentOut(a, v, nil, final)
	}
}

// agentOut sends off a sub-agent, with its task and, of codex, what the turn tells
// of it.
func (b *Builder) agentOut(a *agent, t run.TaskView, v *run.AgentView, final bool) {
	if t.ID != "" {
		b.tasksOut.set(t.ID, true)
	}
	b.chatOver(a.self().path)
	end, how := a.end, a.how
	switch {
	case t.EndedAt != nil && t.Status != "running":
		end, how = *t.EndedAt, statusWord(t, final)
	case t.ID != "":
		end, how = b.now, statusWord(t, final)
	case how == "":
		end, how = a.last, endUnknown
	}
	start := a.start
	if t.StartedAt != nil && t.StartedAt.Before(start) {
		start = *t.StartedAt
	}
	name := a.name
	switch {
	case name != "":
	case v != nil:
		name = v.Key
	case !a.attached && t.ID == "":
		name = "unattached"
	}
	var at attrs
	at.str("gen_ai.operation.name", "invoke_agent")
	at.str("gen_ai.provider.name", b.provider())
	at.str("gen_ai.agent.name", name)
	at.str("gen_ai.agent.id", a.key)
	at.str("gen_ai.conversation.id", a.session)
	at.str("gen_ai.request.model", a.model)
	at.content("gen_ai.agent.description", a.desc)
	at.is("cbcast.agent.attached", a.attached || t.ID != "")
	at.num("cbcast.frames", int64(a.frames))
	b.taskAttrs(&at, t)
	agentAttrs(&at, v)
	s := Span{Path: a.self().path, Name: strings.TrimSpace("invoke_agent " + name), Kind: Internal, Start: start, End: end}
	b.judgeTask(&s, &at, how)
	s.Attrs = at
	b.emit(s, a.by.path, false)
}

// agentAttrs tells what a snapshot says of an agent.
func agentAttrs(at *attrs, v *run.AgentView) {
	if v == nil {
		return
	}
	at.str("gen_ai.request.model", v.Model)
	at.str("cbcast.agent.key", v.Key)
	at.str("cbcast.agent.state", v.State)
	at.int("cbcast.agent.attempt", v.Attempt)
	at.int("cbcast.agent.tokens", v.Tokens)
	at.int("cbcast.agent.tool_calls", v.ToolCalls)
	at.str("cbcast.agent.last_tool", v.LastTool)
	at.yes("cbcast.agent.cached", v.Cached)
}
