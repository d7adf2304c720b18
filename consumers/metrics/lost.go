package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

// fact counts a fact about a run that its edge did not write.
func (c *tally) fact(ctx context.Context, at bus.Place, e *event.Event) error {
	switch e.Type {
	case event.TypeLost, event.TypeResumed:
	case event.TypeCommandFact:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.frame(nil, e)
		c.relayFact(e)
		return nil
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.frame(nil, e)
		return nil
	}
	k := runKey{e.Tenant, e.Run}
	l := c.live[k]
	over := false
	if _, ok := c.ended.get(k); ok {
		over = true
	} else if _, ok := c.lost.get(k); ok {
		over = true
	}
	if l == nil && !over && e.Type == event.TypeLost {
		var err error
		if over, err = c.exited(ctx, e); err != nil {
			return err
		}
	}
	who := c.tenant(e.Tenant)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame(nil, e)
	if e.Type == event.TypeResumed {
		c.inc(mResumed, who)
		if l != nil {
			c.settleLost(l, at.Time)
			l.Lost = time.Time{}
		}
		return nil
	}
	c.inc(mLost, who)
	if over {
		return nil
	}
	if l == nil {
		l = &live{Tenant: strings.Clone(e.Tenant), Run: strings.Clone(e.Run), Partition: subject.Partition(e.Run, c.opt.Partitions)}
		l.Who, l.Dialect, l.CI, l.Repo, l.Flow, l.Touched = who, unknown, none, none, none, at.Time
		c.enter(l)
	}
	c.expect(l)
	l.Lost = at.Time
	return nil
}

// exited asks the bus whether a run's exit is stored.
func (c *tally) exited(ctx context.Context, e *event.Event) (bool, error) {
	if c.past == nil || c.ordered {
		return false, nil
	}
	last, _, err := c.past.Last(ctx, bus.Ref{Tenant: e.Tenant, Run: e.Run, Partition: subject.Partition(e.Run, c.opt.Partitions)})
	if errors.Is(err, bus.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the end of a lost run: %w", err)
	}
	// It may be stored and not counted yet: it is counted when it is read.
	return last.Type == event.TypeExited, nil
}

// settleLost counts a run as lost for good if it was lost for long enough at a time of the
// bus.
func (c *tally) settleLost(l *live, now time.Time) {
	if l.Final || l.Lost.IsZero() || now.Before(l.Lost.Add(c.opt.LostFinal)) {
		return
	}
	l.Final = true
	c.inc(mFinished, l.who(string(run.Lost))...)
}

// expire settles lost runs whose time is over, and forgets runs of which nothing came.
func (c *tally) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.live {
		c.settleLost(l, now)
		switch {
		case l.Final && !l.Lost.IsZero():
			c.lost.put(ended{l.Tenant, l.Run, l.Last, true})
			c.leave(l)
		case now.Sub(l.Touched) > forgetAfter && l.Lost.IsZero():
			c.inc(mForgotten)
			c.leave(l)
		}
	}
}
