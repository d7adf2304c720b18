package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// How long each rung of an escalation may take, where the configuration says
// nothing.
const (
	// Claude Code obeys an interrupt within 50 ms, and needs 1.5 s more for a tool
	// that ignores SIGTERM; a stopped shell the same.
	rungClaude = 3 * time.Second
	// A turn of CodeBuddy with a live workflow takes a second interrupt, half a
	// second after the first has killed the tasks.
	rungCBC = 5 * time.Second
	// Of tasks that it killed between turns CodeBuddy tells 28 to 30 s later.
	rungIdleCBC = 45 * time.Second
	// After SIGTERM Claude Code leaves within 2.5 s, the others within 1 s.
	rungTerm = 5 * time.Second
	// A process that was sent SIGKILL is gone at once, unless the kernel holds it.
	rungKill = 5 * time.Second
)

// The rungs, as they stand in the facts.
const (
	rungInterrupt = "interrupt"
	rungStopTask  = "stop_task"
	rungSIGTERM   = "sigterm"
	rungSIGKILL   = "sigkill"
)

// escalation is an interrupt that climbs until what was open has ended: the
// interrupt itself, stop_task for the tasks that outlive one, SIGTERM, and SIGKILL
// for the child and all its descendants. Where there is no control channel it
// begins with the signal. Each step is a fact of its own.
type escalation struct {
	interrupt
	rung  string
	moved chan struct{}       // judge saw a line
	stops map[*request]string // the task of each stop_task
	asked *request            // the interrupt
	heard bool                // it was answered, or there was nothing to interrupt
	wrong string              // with this error
}

func (a *escalation) refuse() string {
	if a.args.Turn == keepTurn {
		return "bad_arguments: an escalation ends the turn"
	}
	a.moved, a.stops = make(chan struct{}, 1), map[*request]string{}
	return a.interrupt.refuse()
}

// hold keeps the commander from writing it: climb does.
func (a *escalation) hold() bool { return true }

func (a *escalation) detail(r *request) map[string]string {
	d := a.ending.detail(r)
	if t := a.stops[r]; t != "" {
		d["task "+t] = "open"
	}
	d["rung"] = a.rung
	return d
}

// look notes everything that is open, shells included, but for tasks that never
// tell their end.
func (a *escalation) look() {
	st := a.state()
	a.turn, a.turns, a.tasks = st.TurnOpen(), st.TurnsEnded(), nil
	for _, t := range st.OpenTasks() {
		if !st.TaskSilent(t) {
			a.tasks = append(a.tasks, t)
		}
	}
}

func (a *escalation) passed(r *request) {
	if r == a.requests[0] {
		a.look() // it may have waited for the child to read
	}
}

func (a *escalation) acked(r *request, _ dialect.Response) {
	a.heard = a.heard || r == a.asked
	for _, t := range a.tasks {
		if a.state().TaskStatus(t) == "ended" && !slices.Contains(a.left, t) {
			a.left = append(a.left, t)
		}
	}
	a.judge()
}

func (a *escalation) failed(r *request, text string) string {
	if r == a.asked {
		a.heard, a.wrong = true, text
	}
	a.judge()
	return ""
}

// judge looks whether all has ended, and lets climb look what is left. After a
// signal only the child's end counts.
func (a *escalation) judge() {
	if a.rung == rungInterrupt || a.rung == rungStopTask {
		a.conclude(a.view())
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// climb carries the escalation out. It ends with the final fact, or with the child.
func (a *escalation) climb(ctx context.Context) {
	c := a.c
	if by := a.cmd.DeliverBy; !by.IsZero() && time.Now().After(by) {
		c.finish(a.pending, event.Expired, "delivered too late")
		return
	}
	// A full disk keeps nobody from ending a child: what an escalation does twice is
	// done once. Without an entry a crash leaves its last fact to the relay.
	err := c.journal.Intent(a.cmd.ID, mustJSON(journalled{Name: a.cmd.Name}))
	if errors.Is(err, spool.ErrKnown) {
		c.finish(a.pending, event.Refused, "journal: "+err.Error())
		return
	}
	if err != nil {
		c.log.Warn("journal an escalation; it goes on", "command", a.cmd.ID, "error", err)
	}
	c.rec.mu.Lock()
	a.journal = err == nil
	a.look()
	limits := a.limits()
	c.rec.mu.Unlock()
	why := "there is no control channel"
	if c.channel() {
		why = a.control(ctx, limits)
	}
	c.rec.mu.Lock()
	over := a.final
	c.rec.mu.Unlock()
	if why != "" && !over {
		a.signal(why, limits[2])
	}
}

// limits are the times of the interrupt, of stop_task and of SIGTERM.
func (a *escalation) limits() [3]time.Duration {
	d := [3]time.Duration{rungClaude, rungClaude, rungTerm}
	if a.dialect() == dialect.CBC {
		d[0] = rungCBC
		if !a.turn && len(a.state().InterruptibleTasks()) > 0 {
			d[0] = rungIdleCBC
		}
	}
	copy(d[:], a.c.rungs)
	return d
}

// control tries the rungs that the child has a hand in. It returns why the next
// one is due, "" when none is.
func (a *escalation) control(ctx context.Context, limits [3]time.Duration) (why string) {
	ictx, cancel := context.WithTimeout(ctx, limits[0])
	defer cancel()
	if err := a.say(ictx, rungInterrupt, a.first); err != nil {
		return unsaid(err, limits[0])
	}
	if why = a.await(ictx, limits[0]); why == "" {
		return ""
	}
	sctx, cancel := context.WithTimeout(ctx, limits[1])
	defer cancel()
	tasks := a.stoppable()
	for _, t := range tasks {
		err := a.say(sctx, rungStopTask, func() *request { return a.stop(t, "escalated to stop_task: "+why) })
		if err != nil {
			return unsaid(err, limits[1])
		}
	}
	if len(tasks) == 0 {
		return why
	}
	return a.await(sctx, limits[1])
}

// say makes a request and writes it. Where there is none to make it does nothing.
func (a *escalation) say(ctx context.Context, rung string, mk func() *request) error {
	a.c.rec.mu.Lock()
	a.rung = rung
	r := mk()
	if r == nil {
		a.c.rec.mu.Unlock()
		return nil
	}
	place := a.c.queue.enter()
	a.c.rec.mu.Unlock()
	return a.c.send(ctx, a.pending, r, place)
}

// first makes the interrupt, if there is something to interrupt: Codex wants to be
// told which turn.
func (a *escalation) first() *request {
	if _, err := a.interruptLine(""); err != nil {
		a.heard = true
		return nil
	}
	a.asked = a.ask("")
	return a.asked
}

// stop makes the request that ends one task, if it goes on.
func (a *escalation) stop(task, reason string) *request {
	id := newRequestID()
	line, err := a.stopLine(id, task)
	if err != nil {
		return nil
	}
	r := a.request(&request{id: id, line: line, reason: reason, replies: true})
	a.stops[r] = task
	return r
}

// unsaid is why a line that was not written makes the next rung due.
func unsaid(err error, limit time.Duration) string {
	switch {
	case errors.Is(err, child.ErrExited):
		return ""
	case errors.Is(err, child.ErrStdinClosed):
		return "its stdin is closed"
	case errors.Is(err, child.ErrNoStdin):
		return "it has no stdin"
	}
	return fmt.Sprintf("it did not take the line in %s", limit)
}

// stoppable lists the open tasks that stop_task can end: with a turn that goes on
// there is no use in it.
func (a *escalation) stoppable() []string {
	a.c.rec.mu.Lock()
	defer a.c.rec.mu.Unlock()
	v := a.view()
	st := a.state()
	if v.turn || !dialect.Supports(a.dialect(), st.ChildVersion(), rungStopTask) || st.Lacks(rungStopTask) != "" {
		return nil
	}
	return v.tasks
}

// await waits for the effect. It returns why the next rung is due, "" when the
// command has its final fact or the child has left.
func (a *escalation) await(ctx context.Context, limit time.Duration) (why string) {
	for {
		a.c.rec.mu.Lock()
		v := a.view()
		over := a.conclude(v)
		outlived := a.rung == rungInterrupt && a.heard && v.onlyShells
		why = a.why(v, limit)
		a.c.rec.mu.Unlock()
		switch {
		case over:
			return ""
		case outlived:
			return why
		}
		select {
		case <-a.moved:
		case <-ctx.Done():
			return why
		case <-a.c.proc.Exited():
			return ""
		}
	}
}

// view is what is left of what was open.
type view struct {
	detail     map[string]string
	turn, open bool     // the turn goes on; a task does, or how it ended is not told yet
	stopped    bool     // something was stopped
	tasks      []string // that go on
	onlyShells bool     // all of them are such as outlive an interrupt, and the turn has ended
}

func (a *escalation) view() view {
	var v view
	v.detail, v.open, v.stopped = a.ends()
	st := a.state()
	if a.turn {
		switch ended := st.TurnsEnded() != a.turns; {
		case ended && st.LastTurnAborted():
			v.detail["turn"], v.stopped = "aborted", true
		case ended:
			v.detail["turn"] = "ended"
		default:
			v.detail["turn"], v.turn = "open", true
			if v.stopped && !v.open {
				a.again()
			}
		}
	}
	ending := st.InterruptibleTasks()
	for _, t := range a.tasks {
		if v.detail["task "+t] == "open" {
			v.tasks = append(v.tasks, t)
		}
	}
	v.onlyShells = !v.turn && len(v.tasks) > 0 && !slices.ContainsFunc(v.tasks, func(t string) bool { return slices.Contains(ending, t) })
	return v
}

// conclude gives the final fact when nothing is left.
func (a *escalation) conclude(v view) bool {
	if a.final {
		return true
	}
	nothing := !a.turn && len(a.tasks) == 0
	v.detail["rung"] = a.rung
	switch {
	case v.turn || v.open || nothing && !a.heard:
		return false
	case nothing && a.wrong != "":
		a.c.finishLocked(a.pending, event.Refused, a.plain.failed(nil, a.wrong), v.detail)
	case nothing:
		a.c.finishLocked(a.pending, event.NoEffect, "nothing was open", v.detail)
	case v.stopped:
		a.c.finishLocked(a.pending, event.Settled, "", v.detail)
	default:
		a.c.finishLocked(a.pending, event.NoEffect, "it ended by itself", v.detail)
	}
	return true
}

// why says what makes the next rung due.
func (a *escalation) why(v view, limit time.Duration) string {
	switch {
	case v.turn && a.wrong != "":
		return "to the interrupt the child said: " + a.wrong
	case v.turn && !a.heard:
		return fmt.Sprintf("no answer to the interrupt in %s", limit)
	case v.turn:
		return fmt.Sprintf("the turn goes on %s after the interrupt", limit)
	case v.onlyShells && a.rung == rungInterrupt:
		return "tasks outlive the interrupt"
	case len(v.tasks) > 0:
		return fmt.Sprintf("%d tasks go on %s after %s", len(v.tasks), limit, a.rung)
	}
	return fmt.Sprintf("no answer to the interrupt in %s", limit)
}
