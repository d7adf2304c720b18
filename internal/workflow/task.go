package workflow

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// task is a task of the run, as far as the stream is about it.
type task struct {
	id, typ  string
	prefix   string // of its nodes' ids
	body     *node  // what the task does itself; nil of a workflow in its own stream, until it says something
	runs     int    // of the body
	over     bool   // what comes now maps to nothing
	ending   bool   // its end was told by task_updated; its task_notification follows
	agents   map[string]*node
	phases   map[int64]*node
	attempts map[string]int
	subs     int
}

// startTasks starts the tasks that the event announces.
func (m *Mapper) startTasks(e *event.Event, f *dialect.Frame) {
	if f != nil && f.Type == "system" && f.Subtype == "task_started" && f.Get("task_type").Text() == "local_workflow" {
		m.script("\x00"+run.BoundID(f.Get("task_id").Text()), f.Get("prompt").Text()) // Claude Code's is the whole source
	}
	for st := range m.state.TaskStates {
		if !m.mine(st.ID) {
			continue
		}
		t := m.tasks[st.ID]
		switch {
		case t == nil:
			t = m.newTask(st)
		case t.over && m.id.Task == "" && !st.Ended && m.state.Dialect() == dialect.Codex:
			t.over, t.ending, t.body = false, false, nil // a sub-agent has a further turn
		case t.over || t.body != nil && t.body.isStarted || t.body == nil && m.started && m.id.Task != "":
			continue
		}
		if st.Status != "pending" || st.Type != "" { // else task_started follows and says what it is
			m.startTask(t, st)
		}
	}
	if f != nil && e.Stream == event.Out && f.Type == "system" && f.Subtype == "task_progress" {
		m.taskProgress(run.BoundID(f.Get("task_id").Text()), f)
	}
}

func (m *Mapper) newTask(st run.TaskState) *task {
	t := &task{id: st.ID, typ: st.Type, agents: map[string]*node{}, phases: map[int64]*node{}, attempts: map[string]int{}}
	if m.id.Task == "" {
		t.prefix = "task/" + token(st.ID)
	}
	if len(m.taskOrder) >= maxOver {
		if i := slices.IndexFunc(m.taskOrder, func(id string) bool { return m.tasks[id].over }); i >= 0 {
			delete(m.tasks, m.taskOrder[i])
			m.taskOrder = slices.Delete(m.taskOrder, i, i+1)
		}
	}
	m.tasks[st.ID] = t
	m.taskOrder = append(m.taskOrder, st.ID)
	return t
}

// startTask tells that a task is known, and that it works once it does.
func (m *Mapper) startTask(t *task, st run.TaskState) {
	v, _ := m.state.Task(t.id)
	waits := st.Status == "pending"
	own := m.id.Task != ""
	if own && !m.created {
		m.createTask(v)
		if waits {
			m.emit(RunQueued, nil, RunQueuedData{Queue{Reason: "pending"}})
		}
	}
	if own && !waits && !m.started {
		m.start()
	}
	if own && (waits || v.Type == "local_workflow") {
		return
	}
	m.startBody(t, v, waits)
}

func (m *Mapper) createTask(v run.TaskView) {
	m.created = true
	m.nameTask(v)
	m.emit(RunCreated, nil, RunCreatedData{
		Kind: taskKind(v.Type), Run: m.id.Run, Task: v.ID, Name: clip(taskName(v), MaxTitle),
		Input: summary(v.Description, MaxSummary), Version: m.versions(),
	})
}

// startBody starts the node of what a task does itself.
func (m *Mapper) startBody(t *task, v run.TaskView, waits bool) bool {
	if t.body == nil {
		if len(m.open) >= maxNodes {
			return false
		}
		t.runs++
		id, info := nodeMain, NodeInfo{Kind: taskKind(v.Type), Label: taskName(v)}
		if t.prefix != "" {
			id, info.Task = t.prefix, t.id
		}
		t.body = newNode(id, t.runs, info, t.id)
	}
	if waits {
		return slices.Contains(m.open, t.body) || m.queue(t.body)
	}
	return t.body.isStarted || m.startNode(t.body, summary(v.Description, MaxSummary), 0)
}

// nameTask finds what a task's stream is of: its workflow and the script's hash,
// else the dialect and the child's version.
func (m *Mapper) nameTask(v run.TaskView) {
	m.workflow = string(m.state.Dialect())
	if c := m.state.ChildVersion(); c != "" {
		m.version = clip(c, MaxTitle)
	}
	if v.Type != "local_workflow" {
		return
	}
	if name := taskName(v); name != "" {
		m.workflow = clip(name, MaxTitle)
	}
	for _, key := range []string{v.ToolUseID, "\x00" + v.ID} {
		if h := m.scripts[key]; h != "" {
			m.version = h
			return
		}
	}
}

// taskName is the best name that a task has.
func taskName(v run.TaskView) string {
	for _, s := range []string{v.Label, v.Name, v.Description, v.Type} {
		if s != "" {
			return s
		}
	}
	return ""
}

func taskKind(typ string) string {
	switch typ {
	case "local_workflow":
		return "workflow"
	case "local_agent", "Agent", "agent":
		return "agent"
	case "local_bash", "Bash", "PowerShell", "command":
		return "command"
	}
	return "task"
}

// taskProgress tells what a task_progress changed.
func (m *Mapper) taskProgress(id string, f *dialect.Frame) {
	t := m.tasks[id]
	if t == nil || t.over {
		return
	}
	v, ok := m.state.Task(id)
	if !ok {
		return
	}
	if t.body != nil {
		d := NodeProgressData{Message: f.Get("description").Text()}
		if v.Usage != nil {
			d.Tokens, d.ToolCalls = v.Usage.Tokens, v.Usage.ToolUses
		}
		if d.Message != v.Description || d.Tokens > 0 || d.ToolCalls > 0 {
			m.progress(t.body, d)
		}
	}
	if f.Get("workflow_progress").IsArray() {
		m.snapshot(t, &v)
	}
}

// nodeID is the id of a node inside a task.
func (t *task) nodeID(kind, rest string) string {
	id := kind + "/" + rest
	if t.prefix != "" {
		id = t.prefix + "/" + id
	}
	return id
}

// agentID is the id of an agent's node, from the key that the fold gives it: phase
// and index, or the index alone.
func (t *task) agentID(key string) string {
	key = strings.TrimPrefix(key, "/")
	parts := strings.Split(key, "/")
	for i, p := range parts {
		base, n, many := strings.Cut(p, "#")
		if parts[i] = token(base); many {
			parts[i] += "." + token(n)
		}
	}
	return t.nodeID("agent", strings.Join(parts, "/"))
}

func phaseID(index int64) string { return strconv.FormatInt(index, 10) }
