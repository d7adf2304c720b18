package workflow

import (
	"path"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// endTasks ends the tasks whose end the event tells. task_updated and
// task_notification both tell it, the first with the status that holds, the second
// with the file that the task left: where the first comes alone so far, the end
// waits for the second, until anything else than a frame about tasks comes.
func (m *Mapper) endTasks(e *event.Event, f *dialect.Frame) {
	exit := m.state.Ended()
	about := e.Stream != event.Out || f == nil // stdin, facts of the edge and stray lines may stand between the two
	if f != nil && f.Type == "system" {
		switch f.Subtype {
		case "task_updated", "task_progress", "task_started", "background_tasks_changed", "task_notification":
			about = true
		}
	}
	for _, id := range m.taskOrder {
		t := m.tasks[id]
		if t.over {
			continue
		}
		st, ok := m.state.TaskState(id)
		if ok && !st.Settled && !exit {
			continue
		}
		told := e.Stream == event.Out && f != nil && f.Type == "system" && f.Subtype == "task_notification" &&
			run.BoundID(f.Get("task_id").Text()) == id
		if told {
			m.artifactsOf(t, f)
		}
		if ok && !told && !exit && about {
			continue
		}
		m.endTask(t)
		if m.over {
			return
		}
	}
}

// endTask closes what is open of a task, and its stream.
func (m *Mapper) endTask(t *task) {
	v, ok := m.state.Task(t.id)
	if !ok {
		v.Status, v.Synthesised = "unknown", true // the fold has forgotten it
	}
	if m.id.Task == t.id && !m.created {
		v.ID = t.id
		m.createTask(v)
	}
	code := statusCode(v.Status)
	if v.Status == "unknown" && v.By != "" {
		code = CodeNodeStopped // an interrupt, and the child ended
	}
	how := ending{status: clip(v.Status, MaxTitle), code: code}
	m.closeAll(func(n *node) bool { return n.task == t.id && n != t.body }, how.inside())
	how.reported, how.output, how.message = !v.Synthesised, v.Summary, v.Error
	if code == CodeNodeFailed {
		how.message = firstOf(v.Error, v.Summary)
	}
	if v.Usage != nil {
		how.tokens, how.calls = v.Usage.Tokens, v.Usage.ToolUses
	}
	if t.body != nil {
		m.closeNode(t.body, how)
	}
	t.over = true
	t.agents, t.phases, t.attempts = map[string]*node{}, map[int64]*node{}, map[string]int{}
	if m.id.Task == t.id {
		m.finish(how, v.Summary)
	}
}

// inside is how a node ends that is closed with what is around it: nothing tells
// what came of it.
func (e ending) inside() ending {
	in := ending{status: e.status, code: e.code}
	if in.code != "" && in.code != CodeNodeStopped {
		in.code = CodeNodeNotReported
	}
	return in
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// artifactsOf tells the files that the end of a task names.
func (m *Mapper) artifactsOf(t *task, f *dialect.Frame) {
	for _, o := range dialect.OutputFiles(f) {
		a := Artifact{
			ArtifactID: token(t.id) + "/" + string(o.Stream), Stream: string(o.Stream), Task: t.id,
			Path: clip(o.Path, MaxSummary), Name: clip(path.Base(strings.ReplaceAll(o.Path, `\`, "/")), MaxTitle),
		}
		if len(m.artifacts) < maxArtifacts {
			m.artifacts = append(m.artifacts, a)
		}
		m.emit(ArtifactCreated, t.body, ArtifactCreatedData{Artifact: a})
	}
}

// end ends the stream of a run with its exit, and that of a task that was not over.
func (m *Mapper) end(e *event.Event) {
	if m.over || e.Type != event.TypeExited || !m.state.Ended() {
		return
	}
	m.over = true
	if m.id.Task != "" {
		return // the task was never there
	}
	j := m.state.Verdict()
	how := ending{status: string(j.Verdict), reported: true}
	switch j.Verdict {
	case run.Success:
	case run.Interrupted:
		how.code = CodeNodeStopped
	case run.Denied:
		how.code = CodeRunDenied
	case run.Failed:
		how.code = CodeRunFailed
	case run.Incomplete, run.Lost:
		how.code = CodeRunIncomplete
	}
	for _, ev := range j.Evidence {
		how.message = firstOf(how.message, strings.TrimSpace(ev.What+" "+ev.Text))
	}
	m.closeAll(func(*node) bool { return true }, how.inside())
	var output string
	if r, ok := m.state.LastResult(); ok {
		output = r.Text
	}
	m.finish(how, output)
}

// finish tells the end of the stream.
func (m *Mapper) finish(how ending, output string) {
	if !m.started {
		m.start()
	}
	m.over = true
	m.asked, m.cancel = nil, nil
	switch {
	case how.code == CodeNodeStopped:
		if !m.cancelTold {
			m.emit(RunCancelRequested, nil, m.whoCancelled())
		}
		m.status = StatusCancelled
		m.emit(RunCancelled, nil, RunCancelledData{FinishedAt: m.at, Status: how.status, Reported: how.reported})
	case how.code == "":
		m.status = StatusCompleted
		d := RunCompletedData{
			FinishedAt: m.at, Status: how.status, Reported: how.reported, Output: summary(output, MaxOutput), Artifacts: m.artifacts,
		}
		if d.Artifacts == nil {
			d.Artifacts = []Artifact{}
		}
		if r, ok := m.state.LastResult(); ok && m.id.Task == "" && shallow(r.Structure) {
			d.Structured = r.Structure
		}
		m.emit(RunCompleted, nil, d)
	default:
		m.status = StatusFailed
		d := RunFailedData{FinishedAt: m.at, Status: how.status, Reported: how.reported}
		switch how.code {
		case CodeNodeFailed:
			how.code = CodeRunFailed
		case CodeNodeNotReported:
			how.code = CodeRunIncomplete
		}
		if m.failed != "" {
			d.FailedNodeID = &m.failed
		}
		d.Error = newError(how.code, how.message, m.failed)
		m.emit(RunFailed, nil, d)
	}
}
