package run

import (
	"slices"

	"github.com/cbcast/cbcast/internal/event"
)

// What follows is for readers that look at the state after every event, and would
// make a whole [View] for nothing.

// A Round is what one result ends, while it goes on: the work of one conversation
// from its first frame on.
type Round struct {
	Session string
	First   uint64 // seq of its first frame
	Turn    int    // the user turn that it belongs to
}

// Rounds lists the rounds that go on, the oldest first.
func (s *State) Rounds() []Round {
	if len(s.rounds) == 0 {
		return nil
	}
	var list []Round
	for _, r := range s.openRounds() {
		list = append(list, Round{r.session, r.first, r.turn.n})
	}
	return list
}

// RoundVerdict says how the round of a user turn ended that event seq ended:
// success, interrupted, failed, or incomplete where there was no result.
func (s *State) RoundVerdict(turn int, seq uint64) Verdict {
	t := s.turn(turn)
	switch {
	case t == nil || s.result == nil || s.result.Seq != seq:
		if t != nil && len(t.ev[Interrupted]) > 0 {
			return Interrupted // CodeBuddy may end what it was told to stop without a result
		}
		return Incomplete
	case t.abortedLast:
		return Interrupted
	case s.result.IsError:
		return Failed
	}
	return Success
}

// Turn returns one user turn, false where it is not known or no longer kept.
func (s *State) Turn(n int) (TurnView, bool) {
	if t := s.turn(n); t != nil {
		return s.turnView(t), true
	}
	return TurnView{}, false
}

// TaskState is the short form of a task.
type TaskState struct {
	ID, Type, Status, ToolUseID string
	Ended                       bool
	// Settled says that a frame told the end, or nothing will tell it any more: a
	// task that only left the list of background tasks may still say how it ended.
	Settled bool
}

// TaskStates calls yield for each task that is kept, in the order they were
// announced. It is an iterator.
func (s *State) TaskStates(yield func(TaskState) bool) {
	for _, id := range s.taskOrder {
		if !yield(s.tasks[id].short()) {
			return
		}
	}
}

// TaskState returns the short form of one task, false where it is not known.
func (s *State) TaskState(id string) (TaskState, bool) {
	t := s.tasks[id]
	if t == nil {
		return TaskState{}, false
	}
	return t.short(), true
}

func (t *task) short() TaskState {
	return TaskState{ID: t.id, Type: t.typ, Status: t.status, ToolUseID: t.toolUse, Ended: t.ended, Settled: t.ended && !t.soft}
}

// Task returns one task, false where it is not known.
func (s *State) Task(id string) (TaskView, bool) {
	t := s.tasks[id]
	if t == nil {
		return TaskView{}, false
	}
	v := t.view()
	if th := s.agentThread(t); th != nil {
		v.Usage = th.usage()
	}
	return v, true
}

// TaskTakesInterrupt reports whether an interrupt of the whole session ends a task.
func (s *State) TaskTakesInterrupt(id string) bool {
	t := s.tasks[id]
	return t != nil && !t.ended && !survives(t)
}

// OpenAsks lists the ids of the asks that wait for an answer, the oldest first.
func (s *State) OpenAsks() []string {
	var ids []string
	for _, a := range s.asks {
		if a.open() {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// LastInterrupt is the latest interrupt or stop_task on the child's stdin, false
// where there was none.
func (s *State) LastInterrupt() (InterruptView, bool) {
	if n := len(s.interrupts); n > 0 {
		return s.interrupts[n-1].InterruptView, true
	}
	return InterruptView{}, false
}

// LastResult is the latest result, false where there was none.
func (s *State) LastResult() (ResultView, bool) {
	if s.result == nil {
		return ResultView{}, false
	}
	return *s.result, true
}

// Repeats counts the frames so far whose uuid was seen before.
func (s *State) Repeats() int { return s.counts.Repeats }

// Started is what the run was started as; the zero one where that is not kept.
func (s *State) Started() event.Started {
	d := s.started
	d.Argv = slices.Clone(d.Argv)
	return d
}

// BoundID is an id of the child as the state keeps it: a long one is cut and
// carries a hash of the whole.
func BoundID(id string) string { return boundID(id) }

// LastTurn is the number of the latest user turn, false where there was none.
func (s *State) LastTurn() (n int, ok bool) {
	if k := len(s.turns); k > 0 {
		return s.turns[k-1].n, true
	}
	return 0, false
}

// Exit says how the child ended, false while it lives.
func (s *State) Exit() (ExitView, bool) {
	if s.exit == nil {
		return ExitView{}, false
	}
	return *s.exit, true
}

// Interrupts lists the interrupts and stop_tasks on the child's stdin that are kept,
// the oldest first.
func (s *State) Interrupts() []InterruptView {
	list := make([]InterruptView, 0, len(s.interrupts))
	for _, in := range s.interrupts {
		list = append(list, in.InterruptView)
	}
	return list
}
