package metrics

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
)

// recounted bounds the ended runs that a recount remembers.
const recounted = 5_000_000

// recount counts everything that the logs have, in the order in which it was stored. Then
// the bounds are those of a living tally.
func (c *tally) recount(ctx context.Context, b *bus.Bus, logs []bus.Log) error {
	c.ordered = true
	c.ended, c.lost = newRing(recounted), newRing(recounted)
	defer c.settle()
	var all []*cursor
	for _, log := range logs {
		head, err := b.HeadLog(ctx, log)
		if err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		next, stop := iter.Pull2(b.ReadLog(ctx, log, bus.Place{}, bus.Place{Seq: head}, "", ""))
		defer stop()
		x := &cursor{log: log, next: next, head: head}
		if err := x.step(); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		all = append(all, x)
	}
	for {
		x := earliest(all)
		if x == nil {
			break
		}
		if err := c.apply(ctx, x.log, x.at.At, x.at.Event, nil); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		if err := x.step(); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
	}
	// What could not be read counts as read: the consumer's entries begin behind it.
	for _, x := range all {
		if c.places[x.log].Seq < x.head {
			c.places[x.log] = bus.Place{Seq: x.head, Time: c.places[x.log].Time}
		}
	}
	return nil
}

// settle ends a recount.
func (c *tally) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered = false
	e, l := c.ended.all(), c.lost.all()
	c.ended, c.lost = newRing(maxEnded), newRing(maxLost)
	for _, x := range e {
		c.ended.put(x)
	}
	for _, x := range l {
		c.lost.put(x)
	}
}

// A cursor reads one log.
type cursor struct {
	log  bus.Log
	next func() (bus.Entry, error, bool)
	at   bus.Entry
	head uint64
	done bool
}

func (x *cursor) step() error {
	e, err, ok := x.next()
	if err != nil {
		return err
	}
	x.at, x.done = e, !ok
	return nil
}

// earliest is the cursor whose entry was stored first, nil where all are done.
func earliest(all []*cursor) (first *cursor) {
	for _, x := range all {
		if !x.done && (first == nil || x.at.At.Time.Before(first.at.At.Time)) {
			first = x
		}
	}
	return first
}

// Once counts what the bus has and returns it in Prometheus' text format. Nothing is read
// from or written to a directory, and no cursor is moved.
func Once(ctx context.Context, o Options) ([]byte, error) {
	o = o.defaults()
	c := newTally(o)
	if err := c.recount(ctx, o.Bus, consume.Logs(o.Partitions)); err != nil {
		return nil, err
	}
	c.expire(o.now().Add(-lostSlack))
	return c.text()
}

// lostSlack is how much later than its time a lost run is counted: clocks differ.
const lostSlack = time.Minute
