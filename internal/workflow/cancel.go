package workflow

import (
	"github.com/cbcast/cbcast/internal/event"
)

// cancel is an interrupt that was asked for, and what it is to end.
type cancel struct {
	rounds, tasks []string // that were open: sessions, ids
	turnOver      bool     // a round began after it
}

// cancelAsked looks for an interrupt on the child's stdin: of the run, where it is
// the session's; of a task, where it ends that one.
func (m *Mapper) cancelAsked(e *event.Event) {
	in, ok := m.state.LastInterrupt()
	if !ok || in.AskedSeq != e.Seq || m.cancel != nil {
		return
	}
	c := &cancel{}
	by := "host"
	if in.By == "cbcast" {
		by = "command"
	}
	d := RunCancelRequestedData{RequestedBy: by, What: in.What, RequestID: clip(in.ID, MaxTitle)}
	switch own := m.id.Task; {
	case own == "" && (in.What != "interrupt" || in.Task != ""):
		m.stopped = &d // it may be what the verdict rests on
		return
	case own == "":
		for _, r := range m.state.Rounds() {
			c.rounds = append(c.rounds, r.Session)
		}
		c.tasks = m.state.InterruptibleTasks()
	case !m.created || in.Task != own && (in.Task != "" || in.What != "interrupt" || !m.state.TaskTakesInterrupt(own)):
		return
	default:
		c.tasks = []string{own}
	}
	if len(c.rounds) > 0 || len(c.tasks) > 0 {
		m.cancel = c
	}
	if !m.started {
		m.start()
	}
	m.cancelTold = true
	m.emit(RunCancelRequested, nil, d)
}

// settleCancel forgets an interrupt that has nothing more to end.
func (m *Mapper) settleCancel() {
	c := m.cancel
	if c == nil {
		return
	}
	for _, r := range m.state.Rounds() {
		for _, s := range c.rounds {
			if r.Session == s && !c.turnOver {
				return
			}
		}
	}
	for _, id := range c.tasks {
		if st, ok := m.state.TaskState(id); ok && !st.Ended {
			return
		}
	}
	m.cancel = nil
}

// whoCancelled says what ended a stream that no interrupt on stdin was to end: a
// signal or the stop of a task, where that is known by now.
func (m *Mapper) whoCancelled() RunCancelRequestedData {
	if m.stopped != nil {
		return *m.stopped
	}
	if v, ok := m.state.Exit(); ok && len(v.Signals) > 0 {
		by := "signal"
		if v.Signals[0].From == "command" {
			by = "command"
		}
		return RunCancelRequestedData{RequestedBy: by, What: firstOf(clip(v.Signals[0].Signal, MaxTitle), "signal")}
	}
	return RunCancelRequestedData{RequestedBy: "unknown", What: "stop"}
}
