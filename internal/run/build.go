package run

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
)

// MarshalJSON writes the state as its [View].
func (s *State) MarshalJSON() ([]byte, error) { return json.Marshal(s.View()) }

func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// View is a copy of the state for showing. It shares nothing with s.
func (s *State) View() View {
	v := View{
		Run: s.run, Tenant: s.tenant, Dialect: string(s.dialect), State: s.Phase(),
		Verdict: s.Verdict(), Provisional: s.Lost(), Session: s.main, Host: s.started.Host, Cwd: s.started.Cwd,
		Argv: slices.Clone(s.started.Argv), Model: s.model, Mode: s.mode, CI: maps.Clone(s.started.CI),
		StartedAt: at(s.startedAt), UpdatedAt: at(s.now), LastSeq: s.last, Open: s.open(), Counts: s.counts,
		Warnings: slices.Clone(s.warnings),
		Sessions: []SessionView{}, Turns: []TurnView{}, Tasks: []TaskView{},
	}
	v.Resume = s.resume()
	if s.codex != nil {
		v.Sandbox = s.codex.sandbox
	}
	if v.State == "waiting" {
		v.WaitingFor = s.waitingFor()
	}
	v.Versions, v.Capabilities = s.versions(), s.Capabilities()
	if v.WaitsForResume = s.waits(); v.WaitsForResume != nil {
		v.WaitingFor = waitingForResume
	}
	v.Counts.Frames, v.Counts.Types = maps.Clone(s.counts.Frames), maps.Clone(s.counts.Types)
	v.Counts.AgentsFailed = 0
	for _, x := range s.sessions {
		v.Sessions = append(v.Sessions, *x)
	}
	for _, t := range s.turns {
		v.Turns = append(v.Turns, s.turnView(t))
	}
	for _, t := range s.taskList() {
		tv := t.view()
		if th := s.agentThread(t); th != nil {
			tv.Usage = th.usage()
		}
		for _, a := range tv.Agents {
			if a.State == "error" {
				v.Counts.AgentsFailed++
			}
		}
		v.Tasks = append(v.Tasks, tv)
	}
	v.Asks, v.Checkpoints = s.Asks(), s.checkpointViews()
	s.viewRest(&v)
	return v
}

func (s *State) viewRest(v *View) {
	for _, call := range s.groupList {
		v.Subagents = append(v.Subagents, *s.groups[call])
	}
	v.Usage = UsageView{CostUSD: s.use.cost, Tokens: s.use.tokens, Models: maps.Clone(s.use.models)}
	v.Usage.IncludesEarlier = s.dialect == dialect.CBC && s.resumed()
	if s.result != nil {
		r := *s.result
		v.Result = &r
	}
	for _, in := range s.interrupts {
		v.Interrupts = append(v.Interrupts, in.InterruptView)
	}
	for _, c := range s.commands {
		cv := *c
		cv.Facts = slices.Clone(c.Facts)
		v.Commands = append(v.Commands, cv)
	}
	if s.exit != nil {
		x := *s.exit
		v.Exit, v.EndedAt = &x, at(s.now)
	}
	if s.lost != nil {
		l := *s.lost
		v.Lost = &l
	}
	if d := s.dropped; d.Turns+d.Tasks+d.Asks+d.Checkpoints > 0 {
		d.Verdicts = maps.Clone(d.Verdicts)
		v.Dropped = &d
	}
}

func (s *State) turnView(t *turn) TurnView {
	v := TurnView{
		N: t.n, State: "done", Inputs: append([]uint64{}, t.inputs...), Origin: t.origin, StartedSeq: t.startedSeq,
		EndedSeq: t.endedSeq, StartedAt: at(t.startedAt), EndedAt: at(t.endedAt), Results: t.results, Wakeups: t.wakeups,
		Tasks: slices.Clone(t.tasks), CostUSD: t.cost, Tokens: t.tokens,
	}
	if t.codex != nil {
		items := t.codex.items
		v.Items, v.Phases = &items, slices.Clone(t.codex.plan)
	}
	for i, th := range t.agents {
		v.Agents = append(v.Agents, th.view(i+1))
	}
	if s.turnOpen(t) {
		v.State = "open"
	} else {
		v.Verdict = t.ev.judge()
	}
	return v
}

// turnOpen reports whether a turn may still change: a round of it is open, or a
// task that it started.
func (s *State) turnOpen(t *turn) bool {
	if s.exit != nil {
		return false
	}
	for _, r := range s.rounds {
		if r.turn == t {
			return true
		}
	}
	for _, k := range s.tasks {
		if k.turn == t.n && !k.ended {
			return true
		}
	}
	return false
}

func (t *task) view() TaskView {
	v := TaskView{
		ID: t.id, Type: t.typ, Name: t.name, Description: t.desc, Status: t.status, Synthesised: t.synth, By: t.by,
		Turn: t.turn, ToolUseID: t.toolUse, StartedSeq: t.startedSeq, EndedSeq: t.endedSeq, StartedAt: at(t.startedAt),
		EndedAt: at(t.endedAt), Summary: t.summary, Error: t.err, Progress: t.progress, Late: t.late,
		Phases: slices.Clone(t.phases), Agents: slices.Clone(t.agents),
	}
	if t.label != t.name {
		v.Label = t.label
	}
	if t.usage != nil {
		u := *t.usage
		v.Usage = &u
	}
	return v
}
