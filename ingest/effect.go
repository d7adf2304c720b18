package ingest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

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
	r.passed, r.line = true, nil
	p.act.passed(r)
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
	c.factLocked(p, event.Written, r.reason, r.id, p.act.detail(r))
}

// await ends the wait for p's effect in time.
func (c *commander) await(p *pending) {
	effectBy := p.cmd.EffectBy
	if _, ok := p.act.(unhurried); ok && effectBy.IsZero() {
		return
	}
	if effectBy.IsZero() {
		effectBy = time.Now().Add(effectWait)
	}
	c.wg.Go(func() { // ends with p's final fact, at the latest with the run
		ctx, cancel := context.WithDeadline(p.ctx, effectBy)
		defer cancel()
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.inVain(p)
		}
	})
}

// inVain ends a command whose effect was not seen in its time.
func (c *commander) inVain(p *pending) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if a, ok := p.act.(patient); !ok || !a.patient() {
		c.finishLocked(p, event.UnknownF, "no effect seen in time", nil)
	}
}

// watch is told of every recorded line, under the recorder's lock.
func (c *commander) watch(l line) {
	if len(c.open) == 0 {
		return
	}
	switch {
	case l.eof:
		for _, p := range slices.Clone(c.open) {
			c.release(p)
		}
		return
	case l.injected:
		if p, r := c.find(func(r *request) bool { return !r.passed && same(r.line, l.data) }); r != nil {
			c.passed(p, r)
		}
		return
	case l.stream == event.Out && l.class.Frame:
		if resp, ok := dialect.ResponseOf(l.data); ok {
			id := string(resp.ID)
			p, r := c.find(func(r *request) bool { return r.replies && id == string(dialect.RequestID(r.id)) })
			if r != nil && !r.acked {
				c.answer(p, r, resp)
			}
		}
	}
	for _, p := range slices.Clone(c.open) {
		c.release(p)
		if !p.final && len(p.requests) > 0 && p.requests[0].passed {
			p.act.judge()
		}
	}
}

// same reports whether a recorded line is the one that was written with its LF.
func same(written, recorded []byte) bool {
	return len(written) == len(recorded)+1 && bytes.Equal(written[:len(recorded)], recorded)
}

// find looks for a request.
func (c *commander) find(is func(*request) bool) (*pending, *request) {
	for _, p := range c.open {
		for _, r := range p.requests {
			if is(r) {
				return p, r
			}
		}
	}
	return nil, nil
}

func (c *commander) answer(p *pending, r *request, resp dialect.Response) {
	c.written(p, r)
	r.acked = true
	if resp.Error != "" {
		text := bound(resp.Error, maxReason)
		if reason := p.act.failed(r, text); reason != "" {
			c.finishLocked(p, event.Refused, reason, nil)
		}
	} else {
		c.factLocked(p, event.Acked, "", r.id, nil)
		p.act.acked(r, resp)
	}
	c.drop(p)
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
	p.cancel(nil)
	if p.then != nil {
		p.then(f, reason)
	}
	if p.journal {
		if err := c.journal.Done(p.cmd.ID); err != nil {
			c.log.Error("journal a command", "command", p.cmd.ID, "error", err)
		}
	}
	if f == event.UnknownF {
		c.forget(p)
	} else {
		c.drop(p)
	}
	if _, ok := p.act.(*message); ok {
		for _, q := range slices.Clone(c.open) {
			c.release(q) // a message may have waited for this one
		}
	}
}

// drop forgets p when nothing of it is awaited any more. An answer that is still
// out is: it is a fact of its own.
func (c *commander) drop(p *pending) {
	out := slices.ContainsFunc(p.requests, func(r *request) bool { return r.replies && r.written && !r.acked })
	if p.final && !out {
		c.forget(p)
	}
}

func (c *commander) forget(p *pending) {
	c.open = slices.DeleteFunc(slices.Clone(c.open), func(q *pending) bool { return q == p })
}

func (c *commander) factLocked(p *pending, f event.Fact, reason, request string, detail map[string]string) {
	if a := p.args.Answer; a != nil {
		if detail == nil {
			detail = map[string]string{}
		}
		detail["ask"], detail["decision"] = bound(a.Ask, maxArgument), bound(a.Decision, maxArgument)
	}
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
	for _, p := range c.open {
		if len(p.requests) == 0 {
			p.cancel(givenUp("already_ended"))
		}
	}
	c.rec.mu.Unlock()
	c.flight.Wait()
	c.rec.mu.Lock()
	for _, p := range slices.Clone(c.open) {
		if !p.final {
			p.act.ended()
		}
		c.finishLocked(p, event.UnknownF, "the run ended first", nil)
	}
	c.open = nil
	c.stop()
	c.rec.mu.Unlock()
	c.wg.Wait()
}
