package run

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// task is one unit of work that the child announced.
type task struct {
	id, typ, name, label, desc string
	status                     string
	ended                      bool
	soft                       bool // ended by absence only: a frame may still say how
	synth                      bool
	by                         string
	turn                       int
	toolUse                    string
	startedSeq, endedSeq       uint64
	startedAt, endedAt         time.Time
	summary, err               string
	progress, late             int
	usage                      *TaskUsage
	phases                     []PhaseView
	agents                     []AgentView
	thread, process            string // of Codex
}

// end makes a task terminal. What ended stays ended.
func (t *task) end(status string, seq uint64, at time.Time, synth bool) {
	t.status, t.ended, t.synth = status, true, synth
	t.endedSeq, t.endedAt = seq, at
	t.settleAgents()
}

// settleAgents marks agents whose end no frame told.
func (t *task) settleAgents() {
	if !t.ended {
		return
	}
	for i := range t.agents {
		if a := &t.agents[i]; a.State != "done" && a.State != "error" && a.State != "cached" {
			a.State = "not_reported"
		}
	}
}

// taskFor finds or makes the task that a frame names.
func (s *State) taskFor(e *event.Event, f *dialect.Frame) *task {
	id := boundID(f.Get("task_id").Text())
	if id == "" {
		return nil
	}
	t := s.tasks[id]
	if t == nil {
		t = &task{id: id, status: "running", startedSeq: e.Seq, startedAt: s.now}
		if turn := s.current(e.Session); turn != nil {
			t.turn = turn.n
			if len(turn.tasks) < maxTasks {
				turn.tasks = append(turn.tasks, id)
			}
		}
		s.keepTask(t)
	}
	if v := f.Get("tool_use_id"); len(v) > 2 && t.toolUse == "" {
		t.toolUse = boundID(v.Text())
		t.label = s.labels.get(v.Text())
	}
	if t.toolUse == "" {
		t.toolUse = s.agentCalls.get(id)
	}
	if d := f.Get("description"); len(d) > 2 && t.desc == "" {
		t.desc = clip(d.Text(), maxText)
	}
	return t
}

// keepTask adds a task and forgets the oldest ended one past the bound (the
// oldest at all, where none has ended).
func (s *State) keepTask(t *task) {
	if len(s.taskOrder) >= maxTasks {
		drop := 0
		for i, id := range s.taskOrder {
			if s.tasks[id].ended {
				drop = i
				break
			}
		}
		delete(s.tasks, s.taskOrder[drop])
		s.taskOrder = append(s.taskOrder[:drop:drop], s.taskOrder[drop+1:]...)
		s.dropped.Tasks++
	}
	s.tasks[t.id] = t
	s.taskOrder = append(s.taskOrder, t.id)
}

func (s *State) taskList() []*task {
	list := make([]*task, 0, len(s.taskOrder))
	for _, id := range s.taskOrder {
		list = append(list, s.tasks[id])
	}
	return list
}

func (s *State) taskStarted(e *event.Event, f *dialect.Frame) {
	s.spoke(e.Seq, e.Session, "")
	t := s.taskFor(e, f)
	if t == nil {
		return
	}
	if v := f.Get("task_type").Text(); v != "" {
		t.typ = clip(v, maxText)
	}
	if v := f.Get("workflow_name").Text(); v != "" {
		t.name = clip(v, maxText)
	}
	if t.label == "" {
		t.label = workflowLabel(f.Get("prompt").Text())
	}
	s.lateFrame(t)
}

// lateFrame counts a frame of a task that has ended.
func (s *State) lateFrame(t *task) {
	if t.ended && !t.soft {
		t.late++
		s.counts.Late++
	}
}

func (s *State) taskProgress(e *event.Event, f *dialect.Frame) {
	t := s.taskFor(e, f)
	if t == nil {
		return
	}
	s.lateFrame(t)
	t.progress++
	if u := f.Get("usage"); u.IsObject() {
		t.usage = &TaskUsage{u.Get("total_tokens").Int(), u.Get("tool_uses").Int(), u.Get("duration_ms").Int()}
	}
	list := f.Get("workflow_progress")
	if !list.IsArray() {
		return // it brings no snapshot: the old one stays
	}
	if t.typ == "" {
		t.typ = "local_workflow"
	}
	t.snapshot(list)
	t.settleAgents()
}

// snapshot replaces the phases and agents. An empty list says nothing new.
func (t *task) snapshot(list dialect.Value) {
	var phases []PhaseView
	var agents []AgentView
	seen := map[string]int{}
	for item := range list.Items {
		switch item.Get("type").Text() {
		case "workflow_phase":
			if len(phases) < maxAgents {
				phases = append(phases, PhaseView{Index: item.Get("index").Int(), Title: clip(item.Get("title").Text(), maxText)})
			}
		case "workflow_agent":
			if len(agents) >= maxAgents {
				continue
			}
			a := agentOf(item)
			seen[a.Key]++
			if n := seen[a.Key]; n > 1 {
				a.Key += "#" + strconv.Itoa(n)
			}
			agents = append(agents, a)
		}
	}
	if len(phases) > 0 || len(agents) > 0 {
		t.phases, t.agents = phases, agents
		phaseTimes(phases, agents)
	}
}

// phaseTimes counts the agents of each phase, and finds when they worked.
func phaseTimes(phases []PhaseView, agents []AgentView) {
	at := make(map[int64]*PhaseView, len(phases))
	for i := range phases {
		if at[phases[i].Index] == nil {
			at[phases[i].Index] = &phases[i]
		}
	}
	for i := range agents {
		a := &agents[i]
		if a.PhaseIndex == nil || at[*a.PhaseIndex] == nil {
			continue
		}
		p := at[*a.PhaseIndex]
		p.Agents++
		if a.StartedMS > 0 && (p.StartedMS == 0 || a.StartedMS < p.StartedMS) {
			p.StartedMS = a.StartedMS
		}
		if a.Over() {
			p.Ended++
			p.EndedMS = max(p.EndedMS, a.EndedMS)
		}
	}
	for i := range phases {
		if phases[i].Ended < phases[i].Agents {
			phases[i].EndedMS = 0
		}
	}
}

// Over reports whether the child told the agent's end.
func (a *AgentView) Over() bool {
	switch a.State {
	case "done", "error", "cached", "stopped":
		return true
	}
	return false
}

// times fills in what follows from the rest: Claude Code tells how long an agent
// worked and not when it ended, CodeBuddy the other way round.
func (a *AgentView) times() {
	switch {
	case !a.Over() || a.StartedMS <= 0:
	case a.EndedMS == 0 && a.DurationMS > 0 && a.StartedMS <= math.MaxInt64-a.DurationMS:
		a.EndedMS = a.StartedMS + a.DurationMS
	case a.DurationMS == 0 && a.EndedMS > a.StartedMS:
		a.DurationMS = a.EndedMS - a.StartedMS
	}
}

func agentOf(v dialect.Value) AgentView {
	a := AgentView{
		AgentID: clip(v.Get("agentId").Text(), maxText), Label: clip(v.Get("label").Text(), maxText),
		Phase: clip(v.Get("phaseTitle").Text(), maxText), State: clip(v.Get("state").Text(), maxText),
		Cached: v.Get("cached").True(), Model: clip(v.Get("model").Text(), maxText), Attempt: v.Get("attempt").Int(),
		Tokens: v.Get("tokens").Int(), ToolCalls: v.Get("toolCalls").Int(), LastTool: clip(v.Get("lastToolName").Text(), maxText),
		StartedMS: v.Get("startedAt").Int(), EndedMS: v.Get("endedAt").Int(), DurationMS: v.Get("durationMs").Int(),
		Error: clip(v.Get("error").Text(), maxText), Result: clip(v.Get("resultPreview").Text(), maxText),
		QueuedMS: v.Get("queuedAt").Int(),
	}
	a.times()
	index := clip(string(v.Get("index")), 32)
	if p := v.Get("phaseIndex"); !p.Null() {
		index = clip(string(p), 32) + "/" + index
		n := p.Int()
		a.PhaseIndex = &n
	} else {
		index = "/" + index
	}
	a.Key = index
	return a
}

func (s *State) taskUpdated(e *event.Event, f *dialect.Frame) {
	t := s.taskFor(e, f)
	if t == nil {
		return
	}
	patch := f.Get("patch")
	status := patch.Get("status").Text()
	if status == "" {
		status = f.Get("status").Text()
	}
	if v := patch.Get("error").Text(); v != "" {
		t.err = clip(v, maxText)
	}
	s.taskStatus(e.Seq, t, status)
}

func (s *State) taskNotification(e *event.Event, f *dialect.Frame) {
	t := s.taskFor(e, f)
	if t == nil {
		return
	}
	if v := f.Get("summary").Text(); v != "" {
		t.summary = clip(v, maxText)
	}
	if u := f.Get("usage"); u.IsObject() {
		t.usage = &TaskUsage{u.Get("total_tokens").Int(), u.Get("tool_uses").Int(), u.Get("duration_ms").Int()}
	}
	s.taskStatus(e.Seq, t, f.Get("status").Text())
}

// taskStatus moves a task on. A terminal status comes by task_updated or by
// task_notification, often by both: the first one holds.
func (s *State) taskStatus(seq uint64, t *task, status string) {
	if !dialect.TerminalStatus(status) {
		if status != "" && !t.ended {
			t.status = clip(status, maxText)
		} else {
			s.lateFrame(t)
		}
		return
	}
	if t.ended && !t.soft {
		return
	}
	t.soft = false
	t.end(status, seq, s.now, false)
	s.taskOver(seq, t)
}

// taskOver judges a task's end for its turn.
func (s *State) taskOver(seq uint64, t *task) {
	s.woke = t.turn
	s.askTaskOver(t.id, seq)
	turn := s.turn(t.turn)
	if turn == nil || t.status == "completed" {
		return
	}
	if t.status != "failed" && t.status != "error" {
		if in := s.stopOf(t, seq); in != nil {
			t.by = in.What
			turn.ev.add(Interrupted, Evidence{seq, byKilled, t.id})
			turn.ev.add(Interrupted, Evidence{in.AskedSeq, byInterrupt, stopText(in)})
			return
		}
	}
	turn.ev.add(Incomplete, Evidence{seq, byTask, t.id + " " + t.status})
}

// tasksChanged reads Claude Code's list of running background tasks: what was on
// it and no longer is has ended, also where nothing says how.
func (s *State) tasksChanged(e *event.Event, f *dialect.Frame) {
	list := f.Get("tasks")
	if !list.IsArray() {
		return
	}
	now := map[string]bool{}
	for item := range list.Items {
		id := boundID(item.Get("task_id").Text())
		if len(now) < maxTasks {
			now[id] = true
		}
	}
	for _, id := range s.taskOrder {
		if t := s.tasks[id]; s.hasList[id] && !now[id] && !t.ended {
			t.end("ended", e.Seq, s.now, true)
			t.soft = true
			s.woke = t.turn
		}
	}
	s.hasList = now
}

// neverReports reports whether the end of a task is never told: that of
// CodeBuddy's background Agents, unless a later turn comes.
func (s *State) neverReports(t *task) bool {
	return s.dialect == dialect.CBC && (strings.HasPrefix(t.id, "agent-") || t.typ == "Agent" || t.typ == "local_agent")
}

// survives reports whether an interrupt leaves a task running: background shells,
// and all tasks of Codex, where an interrupt names the turn it ends.
func survives(t *task) bool {
	switch t.typ {
	case "local_bash", "Bash", "PowerShell", "command", "agent": // the last two are of Codex
		return true
	}
	return false
}

// stopText says what asked, where it was no interrupt.
func stopText(in *interrupt) string {
	if in.What == "interrupt" {
		return ""
	}
	return in.What
}
