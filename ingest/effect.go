package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// secondAfter is how long a turn may go on after an interrupt killed its tasks
// before the second interrupt is sent: cbc feeds the stop notice into the same
// turn and calls the model again. The late frames of the killed tasks come
// within 0.1 s (measured with 2.163.0).
var secondAfter = 500 * time.Millisecond // shortened by tests

// sent notes that the pipe has the request.
func (c *commander) sent(p *pending, r *request) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if r.sent = true; r.passed {
		c.written(p, r)
	}
}

// passed notes that the request stands among the recorded lines.
func (c *commander) passed(p *pending, r *request) {
	if r.passed = true; r == p.requests[0] {
		c.lookAt(p) // it may have waited for the child to read
	}
	if r.sent {
		c.written(p, r)
	}
}

// written records the fact once a request.
func (c *commander) written(p *pending, r *request) {
	if r.written || p.final && !r.sent {
		return
	}
	r.written = true
	detail := map[string]string{}
	if r == p.requests[0] {
		if p.turn {
			detail["turn"] = "open"
		}
		for _, t := range p.tasks {
			detail["task "+t] = "open"
		}
	}
	c.factLocked(p, event.Written, r.reason, r.id, detail)
}

// await ends the wait for p's effect in time.
func (c *commander) await(p *pending) {
	c.wg.Go(func() { // ends with p's final fact, at the latest with the run
		<-p.ctx.Done()
		if errors.Is(p.ctx.Err(), context.DeadlineExceeded) {
			c.finish(p, event.UnknownF, "no effect seen in time")
		}
	})
}

// watch is told of every recorded line, under the recorder's lock.
func (c *commander) watch(l line) {
	if len(c.open) == 0 || l.eof {
		return
	}
	switch {
	case l.injected:
		if f, ok := dialect.Parse(l.data); ok {
			if p, r := c.find(f.ControlID()); r != nil {
				c.passed(p, r)
			}
		}
		return
	case l.stream == event.Out && l.class.Frame:
		if resp, ok := dialect.ResponseOf(l.data); ok {
			if p, r := c.find(resp.ID); r != nil && !r.acked {
				c.answer(p, r, resp.Error)
			}
		}
	}
	for _, p := range slices.Clone(c.open) {
		c.judge(p)
	}
}

// find looks for the request with this id, as its exact text.
func (c *commander) find(id dialect.Value) (*pending, *request) {
	for _, p := range c.open {
		for _, r := range p.requests {
			if string(id) == string(dialect.RequestID(r.id)) {
				return p, r
			}
		}
	}
	return nil, nil
}

func (c *commander) answer(p *pending, r *request, failed string) {
	c.written(p, r)
	r.acked = true
	switch {
	case failed != "" && r == p.requests[0]:
		c.finishLocked(p, event.Refused, "the child said: "+bound(failed, maxReason), nil)
	case failed != "":
		c.finishLocked(p, event.Refused, "the tasks were stopped; to the second interrupt the child said: "+bound(failed, maxReason), nil)
	default:
		c.factLocked(p, event.Acked, "", r.id, nil)
		for _, t := range p.tasks {
			if c.rec.state.TaskStatus(t) == "ended" {
				p.left = append(p.left, t)
			}
		}
		if !p.turn && len(p.tasks) == 0 {
			c.finishLocked(p, event.NoEffect, "nothing was open", nil)
		}
	}
	c.drop(p)
}

// judge looks for the effect of p in the fold: the turn that was open was aborted,
// or what was open has ended.
func (c *commander) judge(p *pending) {
	if p.final || len(p.requests) == 0 || !p.requests[0].passed || !p.turn && len(p.tasks) == 0 {
		return
	}
	st := c.rec.state
	detail, open, stopped := c.ends(p)
	if p.turn && p.args.Turn != keepTurn {
		switch ended := st.TurnsEnded() != p.turns; {
		case ended && st.LastTurnAborted():
			// A task that is still open may never tell its end, as a background
			// agent of cbc.
			detail["turn"], stopped, open = "aborted", true, false
		case ended:
			detail["turn"] = "ended"
		case !open && stopped:
			c.sendSecond(p)
			return
		default:
			return
		}
	}
	if open {
		return
	}
	c.written(p, p.requests[0]) // what is seen has a cause
	if stopped {
		c.finishLocked(p, event.Settled, "", detail)
	} else {
		c.finishLocked(p, event.NoEffect, "it ended by itself", detail)
	}
}

// ends says how p's tasks ended, whether one is open, and whether one was stopped.
func (c *commander) ends(p *pending) (detail map[string]string, open, stopped bool) {
	detail = map[string]string{}
	for _, t := range p.tasks {
		known, ended := c.rec.state.TaskEnded(t)
		status := c.rec.state.TaskStatus(t)
		switch {
		case !known:
			status = "ended" // too long ago to be remembered
		case !ended:
			status, open = "open", true
		case status == "ended" && !slices.Contains(p.left, t):
			open = true // how it ended comes next
		case status == "ended", status == "killed", status == "stopped", status == "cancelled":
			stopped = true
		}
		detail["task "+t] = status
	}
	return detail, open, stopped
}

// sendSecond interrupts the turn that goes on after its tasks were killed: cbc
// does that (reference: measured with 2.163.0, a mid-turn interrupt with a live
// workflow writes no result).
func (c *commander) sendSecond(p *pending) {
	if p.second || c.ended || c.rec.track.Dialect() != dialect.CBC {
		return
	}
	p.second = true
	c.wg.Go(func() { // ends after secondAfter and one write, or with p
		t := time.NewTimer(secondAfter)
		defer t.Stop()
		select {
		case <-p.ctx.Done():
			return
		case <-t.C:
		}
		c.rec.mu.Lock()
		if p.final || c.rec.state.TurnsEnded() != p.turns {
			c.rec.mu.Unlock()
			return
		}
		line, err := c.line(p)
		r := p.requests[len(p.requests)-1]
		r.reason = "the tasks were stopped and the turn went on: second interrupt"
		c.rec.mu.Unlock()
		if err == nil {
			c.proc.Hide(r.id)
			err = c.proc.Inject(p.ctx, line)
		}
		if err != nil {
			c.log.Warn("second interrupt", "command", p.cmd.ID, "error", err)
			return // what follows decides, or the time
		}
		c.sent(p, r)
	})
}

func (c *commander) finish(p *pending, f event.Fact, reason string) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	c.finishLocked(p, f, reason, nil)
}

// finishLocked records p's final fact, once, and closes its journal entry.
func (c *commander) finishLocked(p *pending, f event.Fact, reason string, detail map[string]string) {
	if p.final {
		return
	}
	p.final = true
	var request string
	if len(p.requests) > 0 {
		request = p.requests[0].id
	}
	c.factLocked(p, f, reason, request, detail)
	p.cancel()
	if p.journal {
		if err := c.journal.Done(p.cmd.ID); err != nil {
			c.log.Error("journal a command", "command", p.cmd.ID, "error", err)
		}
	}
	if f == event.UnknownF {
		c.forget(p)
		return
	}
	c.drop(p)
}

// drop forgets p when nothing of it is awaited any more. An answer that is still
// out is: it is a fact of its own.
func (c *commander) drop(p *pending) {
	out := slices.ContainsFunc(p.requests, func(r *request) bool { return r.written && !r.acked })
	if p.final && !out {
		c.forget(p)
	}
}

func (c *commander) forget(p *pending) {
	c.open = slices.DeleteFunc(slices.Clone(c.open), func(q *pending) bool { return q == p })
}

func (c *commander) factLocked(p *pending, f event.Fact, reason, request string, detail map[string]string) {
	c.rec.factLocked(time.Now(), event.TypeCommand, event.Cmd, event.CommandFact{
		Command: p.cmd.ID, Name: bound(p.cmd.Name, maxArgument), Fact: f, Reason: reason, RequestID: request,
		Task: bound(p.args.Task, maxArgument), Detail: detail,
	}, true)
}

// end gives every open command its last fact and refuses those that come later.
// The child is gone: nothing that writes to it waits any more.
func (c *commander) end() {
	c.rec.mu.Lock()
	c.ended = true
	c.rec.mu.Unlock()
	c.flight.Wait()
	c.rec.mu.Lock()
	for _, p := range c.open {
		c.finishLocked(p, event.UnknownF, "the run ended first", nil)
	}
	c.open = nil
	c.stop()
	c.rec.mu.Unlock()
	c.wg.Wait()
}
