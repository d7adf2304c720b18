package workflow

import (
	"slices"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// nodeMain is the main loop in a run's stream, and what a task does itself in its own.
const nodeMain = "main"

// startRounds starts a node for each round of the main loop that has begun.
func (m *Mapper) startRounds() {
	if m.id.Task != "" {
		return
	}
	for _, r := range m.state.Rounds() {
		n := m.rounds[r.Session]
		if n != nil && n.first == r.First {
			continue
		}
		if n != nil {
			m.endRound(n, r.Session, run.Incomplete)
		}
		m.startRound(r)
	}
}

func (m *Mapper) startRound(r run.Round) {
	if len(m.open) >= maxNodes {
		return
	}
	m.attempts[nodeMain]++
	n := newNode(nodeMain, m.attempts[nodeMain], NodeInfo{Kind: "main", Model: m.state.Model()}, "")
	n.first, n.turn = r.First, r.Turn
	m.startNode(n, nil, 0)
	m.rounds[r.Session] = n
	if m.cancel != nil {
		m.cancel.turnOver = true // what was asked for before does not end it
	}
}

// endRounds ends the nodes of the rounds that are over. A result of a round that
// nothing announced has a node from its start to its end.
func (m *Mapper) endRounds(e *event.Event) {
	if m.id.Task != "" {
		return
	}
	going := m.state.Rounds()
	for _, n := range slices.Clone(m.open) {
		session, ok := m.sessionOf(n)
		if ok && !slices.ContainsFunc(going, func(r run.Round) bool { return r.Session == session && r.First == n.first }) {
			m.endRound(n, session, m.state.RoundVerdict(n.turn, e.Seq))
		}
	}
	if res, ok := m.state.LastResult(); ok && res.Seq == e.Seq && m.told != e.Seq {
		turn, _ := m.state.LastTurn()
		r := run.Round{First: e.Seq, Turn: turn}
		m.startRound(r)
		if n := m.rounds[""]; n != nil && n.first == e.Seq {
			m.endRound(n, "", m.state.RoundVerdict(turn, e.Seq))
		}
	}
}

func (m *Mapper) sessionOf(n *node) (string, bool) {
	if n.info.Kind != "main" || n.task != "" {
		return "", false
	}
	for session, have := range m.rounds {
		if have == n {
			return session, true
		}
	}
	return "", false
}

func (m *Mapper) endRound(n *node, session string, v run.Verdict) {
	delete(m.rounds, session)
	how := ending{status: string(v), code: statusCode(string(v))}
	if res, ok := m.state.LastResult(); ok && res.Seq == m.seq {
		m.told = m.seq
		how.output, how.reported = res.Text, true
		if how.message = res.Text; len(res.Errors) > 0 {
			how.message = res.Errors[0]
		}
	}
	m.closeAll(func(k *node) bool { return k.round == n }, how.inside())
	m.closeNode(n, how)
}
