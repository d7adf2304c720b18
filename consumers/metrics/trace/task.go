package trace

import (
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

// taskOut sends off a task: a workflow with its phases and agents, a sub-agent, or
// what runs in the background. final says that nothing follows in this run.
func (b *Builder) taskOut(t run.TaskView, tv run.TurnView, final bool) {
	if _, out := b.tasksOut.get(t.ID); out {
		return
	}
	b.tasksOut.set(t.ID, true)
	switch {
	case b.st.Dialect() == dialect.Codex && t.Type == "agent":
		b.threadOut(t, tv, final)
	case isAgent(t.Type, t.ID):
		b.agentTaskOut(t, final)
	case t.Type == "command":
		if _, seen := b.calls.get(t.ID); !seen {
			b.backgroundOut(t, final) // its call is the span otherwise
		}
	case t.Type == "local_workflow":
		b.workflowOut(t, final)
	default:
		b.backgroundOut(t, final)
	}
}

// agentTaskOut sends off a sub-agent that has a task.
func (b *Builder) agentTaskOut(t run.TaskView, final bool) {
	key := t.ToolUseID
	a, ok := b.agents.get(key)
	if !ok {
		if key == "" {
			key = t.ID
		}
		a = &agent{key: key, by: b.callerOf(t), start: start(t, b.now), last: b.now}
		if c, seen := b.calls.get(t.ToolUseID); seen {
			a.attached, a.name, a.desc = true, c.agent, c.desc
		}
	}
	b.agents.del(key)
	b.agentOut(a, t, nil, final)
}

// threadOut sends off a sub-agent of codex.
func (b *Builder) threadOut(t run.TaskView, tv run.TurnView, final bool) {
	a, ok := b.agents.get(t.ID)
	if !ok {
		a = &agent{key: t.ID, start: start(t, b.now), last: b.now}
	}
	b.agents.del(t.ID)
	a.by, a.attached, a.session, a.name = b.callerOf(t), true, t.ID, clip(t.Name, maxName)
	a.desc = b.content(t.Description)
	var v *run.AgentView
	for i := range tv.Agents {
		if tv.Agents[i].AgentID == t.ID {
			v = &tv.Agents[i]
		}
	}
	b.agentOut(a, t, v, final)
}

// callerOf is who started a task: the sub-agent or turn that made its call, else the
// turn that it is counted to.
func (b *Builder) callerOf(t run.TaskView) owner {
	if c, ok := b.calls.get(t.ToolUseID); ok {
		return c.by
	}
	if t.Turn > 0 {
		return turnOwner(t.Turn)
	}
	return owner{path: runPath}
}

func taskPath(id string) string { return "task/" + id }

func start(t run.TaskView, other time.Time) time.Time {
	if t.StartedAt != nil {
		return *t.StartedAt
	}
	return other
}

func (b *Builder) end(t run.TaskView) time.Time {
	if t.EndedAt != nil {
		return *t.EndedAt
	}
	return b.now
}

// statusWord is a task's status; that of one whose end nothing told is unknown.
func statusWord(t run.TaskView, final bool) string {
	if final && t.EndedAt == nil {
		return endUnknown
	}
	return t.Status
}

// taskAttrs tells what the fold has of a task.
func (b *Builder) taskAttrs(a *attrs, t run.TaskView) {
	if t.ID == "" {
		return
	}
	a.str("cbcast.task.id", t.ID)
	a.str("cbcast.task.type", t.Type)
	a.str("cbcast.task.ended_by", t.By)
	a.yes("cbcast.task.synthesised", t.Synthesised)
	a.int("cbcast.task.late_frames", int64(t.Late))
	if u := t.Usage; u != nil {
		a.int("cbcast.task.tokens", u.Tokens)
		a.int("cbcast.task.tool_calls", u.ToolUses)
	}
	if t.Error != "" {
		a.num("cbcast.task.error.length", int64(len(t.Error)))
		a.content("cbcast.task.error", b.content(t.Error))
	}
	a.content("cbcast.task.summary", b.content(t.Summary))
}

// judgeTask writes how a task or an agent ended. Only what failed is an error; what
// was stopped, or never told its end, is neither that nor well.
func (b *Builder) judgeTask(s *Span, a *attrs, how string) {
	a.str("cbcast.outcome", how)
	if how == "failed" || how == "error" || how == endDenied {
		a.str("error.type", "task_"+how)
		s.Status, s.Message = Error, how
	}
}

func (b *Builder) backgroundOut(t run.TaskView, final bool) {
	var a attrs
	b.taskAttrs(&a, t)
	by := b.callerOf(t)
	if _, seen := b.calls.get(t.ToolUseID); seen {
		by = owner{toolPath(t.ToolUseID), by.turn}
		a.str("gen_ai.tool.call.id", t.ToolUseID)
	}
	a.content("cbcast.task.description", b.content(t.Description))
	s := Span{Path: taskPath(t.ID), Name: strings.TrimSpace("background " + t.Type), Kind: Internal, Start: start(t, b.now), End: b.end(t)}
	b.judgeTask(&s, &a, statusWord(t, final))
	s.Attrs = a
	b.emit(s, by.path, false)
}

// workflowOut sends off a workflow, its phases, and its agents below them.
func (b *Builder) workflowOut(t run.TaskView, final bool) {
	name := t.Label
	if name == "" {
		name = t.Name
	}
	by := b.callerOf(t)
	var a attrs
	a.str("gen_ai.operation.name", "invoke_workflow")
	a.str("gen_ai.provider.name", b.provider())
	a.str("gen_ai.workflow.name", name)
	a.str("gen_ai.tool.call.id", t.ToolUseID)
	b.taskAttrs(&a, t)
	a.num("cbcast.workflow.phases", int64(len(t.Phases)))
	a.num("cbcast.workflow.agents", int64(len(t.Agents)))
	s := Span{Path: taskPath(t.ID), Name: strings.TrimSpace("invoke_workflow " + clip(name, maxName)), Kind: Internal, Start: start(t, b.now), End: b.end(t)}
	b.judgeTask(&s, &a, statusWord(t, final))
	s.Attrs = a
	b.emit(s, by.path, false)
	within := window{s.Start, s.End}
	phases := map[int64]bool{}
	for _, p := range t.Phases {
		if !phases[p.Index] {
			phases[p.Index] = true
			b.phaseOut(t.ID, p, within)
		}
	}
	for i := range t.Agents {
		v := &t.Agents[i]
		parent := s.Path
		if v.PhaseIndex != nil && phases[*v.PhaseIndex] {
			parent = phasePath(t.ID, *v.PhaseIndex)
		}
		b.workflowAgentOut(t.ID, v, parent, within)
	}
}

func phasePath(task string, index int64) string {
	return taskPath(task) + "/phase/" + strconv.FormatInt(index, 10)
}

func (b *Builder) phaseOut(task string, p run.PhaseView, w window) {
	var a attrs
	a.str("cbcast.phase.title", p.Title)
	a.num("cbcast.phase.index", p.Index)
	a.num("cbcast.phase.agents", int64(p.Agents))
	a.num("cbcast.phase.agents_ended", int64(p.Ended))
	s := Span{Path: phasePath(task, p.Index), Name: strings.TrimSpace("phase " + p.Title), Kind: Internal, Attrs: a}
	s.Start, s.End = w.from(p.StartedMS), w.to(p.EndedMS)
	if p.Agents == 0 {
		s.End = s.Start // nothing of it is known to have begun
	}
	b.emit(s, taskPath(task), false)
}

// workflowAgentOut sends off an agent of a workflow. Only snapshots tell of it, by
// the child's clock; the workflow's own times bound that.
func (b *Builder) workflowAgentOut(task string, v *run.AgentView, parent string, w window) {
	name := v.Label
	if name == "" {
		name = v.Key
	}
	var a attrs
	a.str("gen_ai.operation.name", "invoke_agent")
	a.str("gen_ai.provider.name", b.provider())
	a.str("gen_ai.agent.name", name)
	a.str("gen_ai.agent.id", v.AgentID)
	agentAttrs(&a, v)
	if v.Error != "" {
		a.num("cbcast.task.error.length", int64(len(v.Error)))
		a.content("cbcast.task.error", b.content(v.Error))
	}
	s := Span{Path: taskPath(task) + "/agent/" + v.Key, Name: "invoke_agent " + clip(name, maxName), Kind: Internal}
	s.Start, s.End = w.from(v.StartedMS), w.to(v.EndedMS)
	how := v.State
	switch {
	case v.Cached:
		s.End = s.Start // it did not run
	case !v.Over():
		how = endUnknown
		if v.StartedMS <= 0 {
			s.Start = s.End // it never began
		}
	}
	b.judgeTask(&s, &a, how)
	s.Attrs = a
	b.emit(s, parent, false)
}

// window is the time that something took by our clock.
type window struct{ start, end time.Time }

// from is when something within began by the child's clock: w's own start where that
// tells no time, or one outside.
func (w window) from(ms int64) time.Time {
	if t := time.UnixMilli(ms); ms > 0 && t.After(w.start) && t.Before(w.end) {
		return t.UTC()
	}
	return w.start
}

// to is the same for an end.
func (w window) to(ms int64) time.Time {
	if t := time.UnixMilli(ms); ms > 0 && t.After(w.start) && t.Before(w.end) {
		return t.UTC()
	}
	return w.end
}
