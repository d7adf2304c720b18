package ingest

import (
	"errors"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// keepTurn is the value of an interrupt's turn that ends the tasks alone.
const keepTurn = "keep"

// secondAfter is how long a turn may go on after an interrupt killed its tasks
// before the second interrupt is sent: cbc feeds the stop notice into the same
// turn and calls the model again. The late frames of the killed tasks come
// within 0.1 s (measured with 2.163.0).
var secondAfter = 500 * time.Millisecond // shortened by tests

// interrupt stops what the child does: the turn, and the tasks that go with it.
type interrupt struct {
	ending
	second bool // the second interrupt is due or out
}

func newInterrupt(p plain) action {
	a := interrupt{ending: ending{plain: p}}
	if p.args.Escalate {
		return &escalation{interrupt: a}
	}
	return &a
}

func (a *interrupt) refuse() string {
	switch {
	case a.args.Turn != "" && a.args.Turn != "end" && a.args.Turn != keepTurn:
		return "bad_arguments: turn is end or keep"
	case a.args.Turn == keepTurn && (a.dialect() == dialect.Claude || a.dialect() == dialect.Codex):
		return "unsupported: an interrupt ends the turn of a " + string(a.dialect()) + " child; stop_task ends a task"
	}
	return ""
}

func (a *interrupt) prepare() error {
	a.look()
	if a.over() {
		return errors.New("already_ended: nothing is open")
	}
	if a.idle() {
		return nil
	}
	a.ask("")
	if a.args.Turn == keepTurn && len(a.tasks) == 0 {
		a.c.finishLocked(a.pending, event.NoEffect, "no task is open, and the turn is to go on", nil)
	}
	return nil
}

// over reports whether everything that was begun has ended. An interrupt would end
// nothing then, and CodeBuddy pauses what it has to tell for 30 s after one. Where
// output is missing, or nothing has been begun yet, nobody can know.
func (a *interrupt) over() bool {
	st, open := a.state(), a.state().Open()
	return a.dialect() != dialect.Codex && !a.c.rec.blind && st.TurnsEnded() > 0 && open.Turns+open.Tasks+open.Asks == 0
}

// ask makes the next interrupt.
func (a *interrupt) ask(reason string) *request {
	id := newRequestID()
	line, _ := a.interruptLine(id) // there is a turn: idle
	return a.request(&request{id: id, line: line, reason: reason, replies: true})
}

// look notes what is open for the interrupt to end.
func (a *interrupt) look() {
	st := a.state()
	a.turn, a.turns, a.tasks = st.TurnOpen(), st.TurnsEnded(), st.InterruptibleTasks()
}

func (a *interrupt) passed(r *request) {
	if r == a.requests[0] {
		a.look() // it may have waited for the child to read
	}
}

func (a *interrupt) failed(r *request, text string) string {
	if r == a.requests[0] {
		return a.plain.failed(r, text)
	}
	return "the tasks were stopped; to the second interrupt the child said: " + text
}

func (a *interrupt) judge() {
	detail, open, stopped := a.ends()
	if a.turn && a.args.Turn != keepTurn {
		st := a.state()
		switch ended := st.TurnsEnded() != a.turns; {
		case ended && st.LastTurnAborted():
			// A task that is still open may never tell its end, as a background
			// agent of cbc.
			detail["turn"], stopped, open = "aborted", true, false
		case ended:
			detail["turn"] = "ended"
		case !open && stopped:
			a.again()
			return
		default:
			return
		}
	}
	a.settle(detail, open, stopped)
}

// again interrupts the turn that goes on after its tasks were killed: cbc does
// that (reference: measured with 2.163.0, a mid-turn interrupt with a live
// workflow writes no result).
func (a *interrupt) again() {
	c := a.c
	if a.second || c.ended || a.dialect() != dialect.CBC {
		return
	}
	a.second = true
	c.wg.Go(func() { // ends after secondAfter and one write, or with a
		t := time.NewTimer(secondAfter)
		defer t.Stop()
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		c.rec.mu.Lock()
		if a.final || a.state().TurnsEnded() != a.turns {
			c.rec.mu.Unlock()
			return
		}
		r := a.ask("the tasks were stopped and the turn went on: second interrupt")
		place := c.queue.enter()
		c.rec.mu.Unlock()
		if err := c.send(a.ctx, a.pending, r, place); err != nil {
			c.log.Warn("second interrupt", "command", a.cmd.ID, "error", err)
		} // what follows decides, or the time
	})
}

// ending is the part of interrupt and stop_task that looks how things end.
type ending struct {
	plain
	turn  bool     // a turn was open when the line passed
	turns int      // turns ended by then
	tasks []string // open by then, and to be ended by the command
	// left are those that had left Claude Code's list of running tasks when the
	// answer came. How one ended is told right after that, and what the command
	// ended before the answer; so there is no more to come.
	left []string
}

func (a *ending) detail(r *request) map[string]string {
	if r != a.requests[0] {
		return map[string]string{}
	}
	return a.open()
}

// open is what is open, for the fact that says so.
func (a *ending) open() map[string]string {
	detail := map[string]string{}
	if a.turn {
		detail["turn"] = "open"
	}
	for _, t := range a.tasks {
		detail["task "+t] = "open"
	}
	return detail
}

func (a *ending) acked(*request, dialect.Response) {
	for _, t := range a.tasks {
		if a.state().TaskStatus(t) == "ended" {
			a.left = append(a.left, t)
		}
	}
	if !a.turn && len(a.tasks) == 0 {
		a.c.finishLocked(a.pending, event.NoEffect, "nothing was open", nil)
	}
}

// ends says how the tasks ended, whether one is open, and whether one was stopped.
func (a *ending) ends() (detail map[string]string, open, stopped bool) {
	detail = map[string]string{}
	for _, t := range a.tasks {
		known, ended := a.state().TaskEnded(t)
		status := a.state().TaskStatus(t)
		switch {
		case !known:
			status = "ended" // too long ago to be remembered
		case !ended:
			status, open = "open", true
		case status == "ended" && !slices.Contains(a.left, t):
			open = true // how it ended comes next
		case status == "ended", status == "killed", status == "stopped", status == "cancelled":
			stopped = true
		}
		detail["task "+t] = status
	}
	return detail, open, stopped
}

// settle gives the final fact when nothing is open any more.
func (a *ending) settle(detail map[string]string, open, stopped bool) {
	if open || !a.turn && len(a.tasks) == 0 {
		return
	}
	a.c.written(a.pending, a.requests[0]) // what is seen has a cause
	if stopped {
		a.c.finishLocked(a.pending, event.Settled, "", detail)
	} else {
		a.c.finishLocked(a.pending, event.NoEffect, "it ended by itself", detail)
	}
}
