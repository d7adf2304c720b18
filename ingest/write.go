package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/event"
)

// givenUp is why a line that waits is not written any more.
type givenUp string

func (g givenUp) Error() string { return string(g) }

// release gives p its place in the queue when its action holds it back no more,
// and gives it up when its line must not be written any more.
func (c *commander) release(p *pending) {
	if p.final || len(p.requests) > 0 && p.requests[0].passed {
		return
	}
	if reason := p.act.stale(); reason != "" {
		p.cancel(givenUp(reason))
		return
	}
	if len(p.requests) == 0 && p.place == nil && !p.act.hold() {
		p.place = c.queue.enter()
		close(p.free)
	}
}

// carryOut writes the command's line when its turn has come.
func (c *commander) carryOut(ctx context.Context, p *pending) {
	deadline := p.cmd.DeliverBy
	if deadline.IsZero() {
		deadline = time.Now().Add(deliverWait)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	defer context.AfterFunc(p.ctx, func() { give(context.Cause(p.ctx)) })()
	if time.Now().After(deadline) {
		c.finish(p, event.Expired, "delivered too late")
	}
	for done := false; !done; {
		done = c.turn(ctx, p) && c.write(ctx, p)
		if c.over(p) {
			return
		}
	}
	c.await(p)
}

// turn waits for p's place in the queue and for the right that comes with it. If
// neither comes in time it gives p its final fact.
func (c *commander) turn(ctx context.Context, p *pending) bool {
	c.rec.mu.Lock()
	free := p.free
	c.rec.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
		c.notWritten(p, fmt.Errorf("the child would lose the line: %w", context.Cause(ctx)))
		return false
	}
	if err := p.place.wait(ctx); err != nil {
		c.notWritten(p, fmt.Errorf("a line before it still waits: %w", err))
		return false
	}
	return true
}

// over reports whether p has its final fact. Then it has no place any more.
func (c *commander) over(p *pending) bool {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if p.final && p.place != nil {
		p.place.leave()
		p.place = nil
	}
	return p.final
}

// write journals the intent, writes the line and gives the place back. It is
// false where the command must wait again. The journal's entry is closed by the
// command's final fact: after a crash before that nobody knows what became of
// it, and whoever flushes the spool says so.
func (c *commander) write(ctx context.Context, p *pending) bool {
	c.rec.mu.Lock()
	if p.act.hold() {
		p.place.leave()
		p.place, p.free = nil, make(chan struct{})
		c.rec.mu.Unlock()
		return false
	}
	err := context.Cause(ctx)
	if err == nil {
		if err = p.act.prepare(); err != nil {
			c.finishLocked(p, event.Refused, bound(err.Error(), maxReason), nil)
		}
	}
	final := p.final
	c.rec.mu.Unlock()
	switch {
	case final:
		return true
	case err != nil:
		c.notWritten(p, err)
		return true
	}
	r := p.requests[0]
	if err := c.journal.Intent(p.cmd.ID, mustJSON(noted(p, r))); err != nil {
		c.finish(p, event.Refused, "journal: "+err.Error())
		return true
	}
	c.rec.mu.Lock()
	p.journal = true
	place := p.place
	p.place = nil
	c.rec.mu.Unlock()
	if err := c.send(ctx, p, r, place); err != nil {
		c.notWritten(p, err)
	}
	return true
}

// send writes a request in its turn and leaves its place.
func (c *commander) send(ctx context.Context, p *pending, r *request, place *place) error {
	defer place.leave()
	if err := place.wait(ctx); err != nil {
		return err
	}
	if r.replies {
		c.proc.Hide(r.id)
	}
	if err := c.proc.Inject(ctx, r.line); err != nil {
		if r.replies && !errors.Is(err, child.ErrPartial) {
			c.proc.Unhide(r.id)
		}
		return err
	}
	c.sent(p, r)
	return nil
}

// notWritten ends a command whose line did not reach the child.
func (c *commander) notWritten(p *pending, err error) {
	var gone givenUp
	switch {
	case errors.Is(err, child.ErrPartial):
		// The rest follows if the child reads on, and then it has its effect.
		c.finish(p, event.UnknownF, "the child did not read the whole line in time")
	case errors.As(err, &gone):
		c.finish(p, event.Refused, string(gone))
	case errors.Is(err, child.ErrStdinClosed):
		c.finish(p, event.Refused, "stdin_closed")
	case errors.Is(err, child.ErrNoStdin):
		c.finish(p, event.Refused, "no_control_channel")
	case errors.Is(err, child.ErrExited):
		c.finish(p, event.Refused, "already_ended")
	default:
		c.finish(p, event.Expired, "not written: "+err.Error())
	}
}
