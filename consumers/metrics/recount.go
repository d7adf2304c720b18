package metrics

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// recounted bounds the ended runs that a recount remembers.
const recounted = 5_000_000

// recount counts everything that the logs have, in the order in which it was stored.
func (c *tally) recount(ctx context.Context, b *bus.Bus, logs []bus.Log) error {
	c.ordered = true
	c.ended, c.lost = newRing(recounted), newRing(recounted)
	defer c.settle()
	to := map[bus.Log]bus.Place{}
	for _, log := range logs {
		head, err := b.HeadLog(ctx, log)
		if err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		to[log] = bus.Place{Seq: head}
	}
	return c.replay(ctx, b, to)
}

// replay counts what lies between what was counted and a place of each log, in the order in
// which it was stored.
func (c *tally) replay(ctx context.Context, b *bus.Bus, to map[bus.Log]bus.Place) error {
	var all []*cursor
	for log, end := range to {
		next, stop := iter.Pull2(b.ReadLog(ctx, log, c.places[log], end, "", ""))
		defer stop()
		x := &cursor{log: log, next: next}
		if err := x.step(); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		all = append(all, x)
	}
	for x := earliest(all); x != nil; x = earliest(all) {
		if err := c.apply(ctx, x.log, x.at.At, x.at.Event, nil); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
		if err := x.step(); err != nil {
			return fmt.Errorf("count again: %w", err)
		}
	}
	// What could not be read counts as read: entries begin behind it.
	c.mu.Lock()
	defer c.mu.Unlock()
	for log, end := range to {
		if at := c.places[log]; at.Seq < end.Seq {
			c.places[log] = bus.Place{Seq: end.Seq, Time: at.Time}
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

// OnceFrom is [Once] of events that were exported: CloudEvents JSON, one a line, in the
// order of each run. The time at which an event was stored is not in them; its own stands
// for it.
func OnceFrom(ctx context.Context, o Options, r io.Reader) ([]byte, error) {
	o.Bus = nil
	o = o.defaults()
	c := newTally(o)
	c.ordered = true
	c.ended, c.lost = newRing(recounted), newRing(recounted)
	c.folds.max = math.MaxInt64 // there is no past to fold from again
	seq := map[bus.Log]uint64{}
	in := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			e, perr := event.ParseJSON(line)
			if perr != nil {
				return nil, fmt.Errorf("count exported events: line %d: %w", n, perr)
			}
			log := bus.ControlLog
			if e.Seq > 0 {
				log = bus.Log(subject.Partition(e.Run, o.Partitions))
			}
			seq[log]++
			if e.Type != event.TypeCmd { // an archive has commands, too; what became of them is in facts
				err := c.apply(ctx, log, bus.Place{Seq: seq[log], Time: e.Time}, e, nil)
				if err != nil {
					return nil, fmt.Errorf("count exported events: line %d: %w", n, err)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("count exported events: %w", err)
		}
	}
	c.settle()
	c.expire(o.now().Add(-lostSlack))
	return c.text()
}
