package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// follow calls fn for the events of a run behind after, in order, and then for
// each new one, until fn returns false, the run's exit has been given, or ctx
// ends. Control facts (lost, resumed, facts without an edge) come as they are
// found. Events are read from the bus's history when something new is announced:
// nothing can be missed, and a slow fn holds nobody up.
func follow(ctx context.Context, b *bus.Bus, ref bus.Ref, after uint64, fn func(*event.Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	done := make(chan struct{}, 2)
	defer func() {
		cancel(nil)
		<-done
		<-done
	}()
	go func() { // ends with ctx
		defer func() { done <- struct{}{} }()
		err := b.TailRun(ctx, ref, poke, func(*event.Event, uint64) {
			poke()
		})
		cancel(err)
	}()
	go func() { // ends with ctx
		defer func() { done <- struct{}{} }()
		err := b.TailControl(ctx, poke, func(e *event.Event, _ uint64) {
			if e.Run == ref.Run {
				poke()
			}
		})
		cancel(err)
	}()
	seen := map[string]bool{}
	for {
		more, err := pass(ctx, b, ref, &after, seen, fn)
		if err != nil || !more {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return ctx.Err()
		}
	}
}

// pass gives everything that is new and reports whether to go on.
func pass(ctx context.Context, b *bus.Bus, ref bus.Ref, after *uint64, seen map[string]bool, fn func(*event.Event) bool) (bool, error) {
	var beside []*event.Event // control facts not given yet, in the order of the bus
	for e, err := range b.Controls(ctx, ref.Tenant, ref.Run) {
		if err != nil {
			return false, fmt.Errorf("read control facts: %w", err)
		}
		if !seen[e.Ref] {
			seen[e.Ref] = true
			beside = append(beside, e)
		}
	}
	// before gives those that are older than an event.
	before := func(t time.Time) bool {
		for len(beside) > 0 && (t.IsZero() || beside[0].Time.Before(t)) {
			if !fn(beside[0]) {
				return false
			}
			beside = beside[1:]
		}
		return true
	}
	for e, err := range b.History(ctx, ref, *after) {
		if err != nil {
			return false, fmt.Errorf("read events: %w", err)
		}
		if *after > 0 && e.Seq > *after+1 {
			if !fn(hole(e, *after+1)) {
				return false, nil
			}
		}
		*after = e.Seq
		if !before(e.Time) || !fn(e) {
			return false, nil
		}
		if e.Type == event.TypeExited {
			before(time.Time{})
			return false, nil
		}
	}
	return before(time.Time{}), nil
}

// hole stands for events that the bus no longer has.
func hole(next *event.Event, first uint64) *event.Event {
	data, _ := json.Marshal(event.Gap{Frames: int64(next.Seq - first), Reason: "not_kept"}) // always marshals
	return &event.Event{
		Tenant: next.Tenant, Run: next.Run, Ref: fmt.Sprintf("gap-%d", first), Time: next.Time,
		Type: event.TypeGap, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: data,
	}
}
