package workflow

import (
	"slices"

	"github.com/cbcast/cbcast/internal/run"
)

// snapshot tells what the phases and agents of a task's latest snapshot differ in
// from what was told before. Phases begin before their agents, and end after them.
func (m *Mapper) snapshot(t *task, v *run.TaskView) {
	begun := m.startPhases(t, v)
	for i := range v.Agents {
		m.agent(t, &v.Agents[i])
	}
	m.endPhases(t, v, begun)
}

// works reports whether an agent has begun: one that waits for its turn has the
// state start, too, and no time.
func works(a *run.AgentView) bool { return a.Over() || a.State != "start" || a.StartedMS > 0 }

// startPhases starts or queues phases, and returns the place of the last one that
// has begun. A child tells neither the beginning nor the end of a phase: it begins
// with its first agent.
func (m *Mapper) startPhases(t *task, v *run.TaskView) (begun int) {
	working := map[int64]bool{} // phases with an agent that has begun and not ended
	seen := map[int64]bool{}    // phases with an agent that has begun
	for i := range v.Agents {
		if a := &v.Agents[i]; a.PhaseIndex != nil && works(a) {
			seen[*a.PhaseIndex] = true
			working[*a.PhaseIndex] = working[*a.PhaseIndex] || !a.Over()
		}
	}
	begun = -1
	for i, p := range v.Phases {
		if seen[p.Index] {
			begun = i
		}
		n := t.phases[p.Index]
		switch {
		case n == nil && !seen[p.Index]:
			n = m.newInside(t, t.nodeID("phase", phaseID(p.Index)), NodeInfo{Kind: "phase", Label: p.Title})
			if m.queue(n) {
				t.phases[p.Index] = n
			}
		case n == nil, !slices.Contains(m.open, n) && working[p.Index]: // a further one of its agents began
			n = m.newInside(t, t.nodeID("phase", phaseID(p.Index)), NodeInfo{Kind: "phase", Label: p.Title})
			if m.startNode(n, nil, p.StartedMS) {
				t.phases[p.Index] = n
			}
		case !n.isStarted && seen[p.Index]:
			m.startNode(n, nil, p.StartedMS)
		}
	}
	return begun
}

// endPhases ends each phase that has begun, whose agents have all ended, and behind
// which another one has begun.
func (m *Mapper) endPhases(t *task, v *run.TaskView, begun int) {
	for i, p := range v.Phases {
		n := t.phases[p.Index]
		if i >= begun || n == nil || !n.isStarted || p.Agents == 0 || p.Ended < p.Agents {
			continue
		}
		m.closeNode(n, ending{status: "completed", reported: true, duration: p.EndedMS - p.StartedMS})
	}
}

// newInside makes the next run of a node inside a task.
func (m *Mapper) newInside(t *task, id string, info NodeInfo) *node {
	t.attempts[id]++
	if info.ParentNodeID == "" && t.body != nil {
		info.ParentNodeID = t.body.id
	}
	return newNode(id, t.attempts[id], info, t.id)
}

// agent tells what changed about one agent.
func (m *Mapper) agent(t *task, a *run.AgentView) {
	n := t.agents[a.Key]
	open := n != nil && slices.Contains(m.open, n)
	switch {
	case a.State == "not_reported": // the task is over: it is closed with it
		return
	case open && a.Attempt > int64(n.attempt) && a.Attempt < maxAttempt: // the child tries it once more
		m.closeNode(n, ending{status: "retried", reported: true, code: CodeNodeFailed, message: a.Error})
		n, open = nil, false
	case n != nil && !open && a.Over():
		return
	}
	if !open {
		if n = m.newAgent(t, a); n == nil {
			return
		}
	}
	if works(a) && !n.isStarted {
		m.startNode(n, nil, a.StartedMS)
	}
	if a.Over() {
		how := ending{
			status: a.State, reported: true, code: statusCode(a.State), message: a.Error, output: a.Result,
			duration: a.DurationMS, cached: a.Cached || a.State == "cached", tokens: a.Tokens, calls: a.ToolCalls,
		}
		m.closeNode(n, how)
		return
	}
	if a.LastTool != "" || a.Tokens > 0 || a.ToolCalls > 0 {
		m.progress(n, NodeProgressData{Phase: a.Phase, Message: a.LastTool, Tokens: a.Tokens, ToolCalls: a.ToolCalls})
	}
}

// maxAttempt bounds the number of an attempt that a child is believed.
const maxAttempt = 1 << 20

// newAgent makes the node of an agent that was not seen before, or begins again, nil
// where there is no room.
func (m *Mapper) newAgent(t *task, a *run.AgentView) *node {
	if len(m.open) >= maxNodes {
		return nil
	}
	info := NodeInfo{Kind: "agent", Label: a.Label, Phase: a.Phase, Model: a.Model}
	if a.PhaseIndex != nil {
		if p := t.phases[*a.PhaseIndex]; p != nil {
			info.ParentNodeID = p.id
		}
	}
	id := t.agentID(a.Key)
	if n := a.Attempt; n > int64(t.attempts[id])+1 && n < maxAttempt {
		t.attempts[id] = int(n) - 1
	}
	n := m.newInside(t, id, info)
	t.agents[a.Key] = n
	if !works(a) {
		m.queue(n)
	}
	return n
}
