package metrics

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Bounds of what is remembered about runs that are not live.
const (
	maxEnded    = 5_000
	maxLost     = 5_000   // of runs counted as lost for good
	maxSessions = 5_000   // CodeBuddy's
	maxHoles    = 100_000 // as many as entries can wait in a consumer
	forgetAfter = 7 * 24 * time.Hour
)

// A tally counts entries of the logs. One goroutine applies them; mu guards what is
// read by others meanwhile.
type tally struct {
	opt  Options
	past Past // nil where only what comes is known

	mu sync.Mutex
	*book
	sets     *sets
	live     map[runKey]*live
	folds    folds
	ended    *ring
	lost     *ring
	sessions *sessionStore
	places   map[bus.Log]bus.Place
	holes    map[bus.Log]*holes // places that were passed and not counted
	newest   time.Time          // stored time of the newest entry
	saved    time.Time

	// ordered says that entries of all logs come in the order in which they were stored:
	// then an end that was not seen is not there.
	ordered bool

	before []run.TaskState // scratch
}

func newTally(o Options) *tally {
	c := &tally{
		opt: o, past: o.past, book: newBook(o.now), sets: newSets(o.Config), live: map[runKey]*live{},
		ended: newRing(maxEnded), lost: newRing(maxLost), sessions: newSessionStore(maxSessions),
		places: map[bus.Log]bus.Place{}, holes: map[bus.Log]*holes{},
	}
	c.folds.max = o.Memory
	c.begin()
	return c
}

// begin makes the series that alerts look at, so that the first count is a rise.
func (c *tally) begin() {
	for _, d := range []*def{mForgotten, mMissing, mRepeated, mUnreadable, mFull} {
		c.at(d)
	}
	for _, d := range dialects {
		c.at(mInvalid, d)
	}
	c.beginAlerts()
	for _, s := range stalls {
		c.at(mStalled, s)
	}
	for _, o := range outcomes {
		c.at(mCommands, "interrupt", o, byEdge)
	}
	for _, why := range []string{whyMissing, whyDamaged} {
		c.at(mRebuilds, why)
	}
}

// Who wrote a command's final fact.
const (
	byEdge  = "edge"
	byRelay = "relay"
)

// apply counts one message of a log. An error says that it was not counted, and is to
// come again.
func (c *tally) apply(ctx context.Context, log bus.Log, at bus.Place, e *event.Event, bad error) error {
	if !c.isNew(log, at) {
		return nil
	}
	err := c.entry(ctx, log, at, e, bad)
	c.passed(log, at, err)
	return err
}

func (c *tally) entry(ctx context.Context, log bus.Log, at bus.Place, e *event.Event, bad error) error {
	switch {
	case e == nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inc(mUnreadable)
		if bad != nil {
			c.opt.Log.Debug("message is no event", "log", log, "stream_seq", at.Seq, "error", bad)
		}
		return nil
	case e.Seq == 0:
		return c.fact(ctx, at, e)
	}
	return c.event(ctx, log, at, e)
}

// rebuilt is told that a log is another one than before, and given from behind a place.
func (c *tally) rebuilt(log bus.Log, after bus.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[log] = after
	delete(c.holes, log)
}

// event counts one event of a run.
func (c *tally) event(ctx context.Context, log bus.Log, at bus.Place, e *event.Event) error {
	l, err := c.of(ctx, log, e)
	if err != nil || l == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Seq < l.Last || e.Seq == l.Last && e.Part.I <= l.Part {
		c.inc(mRepeated)
		return nil
	}
	c.folds.use(l)
	c.settleLost(l, at.Time)
	if at.Time.After(l.Touched) {
		l.Touched = at.Time
	}
	c.look(l, e)
	if e.Type == event.TypeExited && e.Complete() {
		c.over(l)
	}
	return nil
}

// of returns the live run that an event is of, with its state just before the event; nil
// where the event was counted before its run ended.
func (c *tally) of(ctx context.Context, log bus.Log, e *event.Event) (*live, error) {
	k := runKey{e.Tenant, e.Run}
	l := c.live[k]
	if l != nil && l.state != nil {
		return l, nil
	}
	var after ended
	fresh := l == nil || l.Last == 0 // a control fact may have come first
	if l == nil {
		var ok bool
		if after, ok = c.lost.get(k); !ok {
			after, ok = c.ended.get(k)
		}
		if ok && e.Seq <= after.Last {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.inc(mRepeated)
			return nil, nil
		}
	}
	if l == nil {
		l = &live{Tenant: strings.Clone(e.Tenant), Run: strings.Clone(e.Run), Partition: int(log), Final: after.Lost}
		l.Who, l.Dialect, l.CI, l.Repo, l.Flow = c.tenant(e.Tenant), unknown, none, none, none
	}
	var err error
	if fresh {
		err = c.fold(ctx, l, e.Seq, e.Part.I, true)
	} else {
		err = c.fold(ctx, l, l.Last, l.Part+1, false)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[k] == nil {
		c.enter(l)
	}
	return l, nil
}

func (c *tally) tenant(t string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sets.tenants.of(t)
}

// enter adds a live run. Past the bound the one that was touched first goes.
func (c *tally) enter(l *live) {
	if len(c.live) >= c.opt.MaxRuns {
		var old *live
		for _, x := range c.live {
			if old == nil || x.Touched.Before(old.Touched) {
				old = x
			}
		}
		c.inc(mForgotten)
		c.leave(old)
	}
	c.live[l.key()] = l
}

// leave drops a live run.
func (c *tally) leave(l *live) {
	c.folds.drop(l)
	l.state = nil
	delete(c.live, l.key())
}

// fold makes a run's state out of its history, up to the part before part of seq. whole
// also fills in what else is known of the run.
func (c *tally) fold(ctx context.Context, l *live, seq uint64, part int, whole bool) error {
	l.state, l.join = run.New(l.Run), event.Joiner{}
	if c.past == nil || whole && seq == 1 && part <= 1 {
		return nil
	}
	c.mute = true
	defer func() { c.mute = false }()
	ref := bus.Ref{Tenant: l.Tenant, Run: l.Run, Partition: l.Partition}
	for e, err := range c.past.History(ctx, ref, 0) {
		if err != nil {
			l.state = nil
			return fmt.Errorf("fold run again: %w", err)
		}
		if e.Seq > seq || e.Seq == seq && e.Part.I >= part {
			break
		}
		if whole {
			c.mu.Lock()
			c.look(l, e)
			c.mu.Unlock()
		} else {
			l.state.Apply(e)
			l.join.Add(e)
		}
	}
	return nil
}

// dialectOf is the dialect that a ce-type names, "" where it names none.
func dialectOf(typ string) string {
	if d := dialect.FromType(typ); d != dialect.Unknown {
		return string(d)
	}
	return ""
}
