package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// wanted chooses the events of tail --all; an empty list is every word.
type wanted struct {
	tenants, dialects, sessions, states, kinds []string
}

func among(words []string, have ...string) bool {
	return len(words) == 0 || slices.ContainsFunc(have, func(h string) bool { return slices.Contains(words, h) })
}

// check refuses words that no event has, and choices that mean nothing for one run.
func (w *wanted) check(all bool) error {
	for _, k := range w.kinds {
		if !slices.Contains(event.Kinds, event.Kind(k)) {
			return fmt.Errorf("there is no kind %q; there are %s", k, strings.Trim(fmt.Sprint(event.Kinds), "[]"))
		}
	}
	for _, d := range w.dialects {
		if d == "" || checkDialect(d) != nil {
			return fmt.Errorf("there is no dialect %q; there are claude, cbc, codex and unknown", d)
		}
	}
	if !all && len(w.tenants)+len(w.dialects)+len(w.sessions)+len(w.states) > 0 {
		return errors.New("--tenant, --dialect, --session and --state choose among all runs: they need --all")
	}
	return nil
}

// byEntry reports whether the entry of a run decides.
func (w *wanted) byEntry() bool { return len(w.dialects)+len(w.sessions)+len(w.states) > 0 }

// takes reports whether an event is wanted. The states and the rest of an entry are
// those it has now; a run without one has none.
func (w *wanted) takes(e *event.Event, entry func(run string) (bus.RunInfo, bool)) bool {
	if !among(w.kinds, string(e.Kind)) || !among(w.tenants, e.Tenant) {
		return false
	}
	if !w.byEntry() {
		return true
	}
	i, ok := entry(e.Run)
	return ok && among(w.dialects, i.Dialect) && among(w.sessions, i.Sessions...) && among(w.states, i.State)
}

// tailAll prints the events of all runs from now on, each run's in their order,
// until ctx ends. A hub that moves to another process leaves no hole.
func (a *app) tailAll(ctx context.Context, b *bus.Bus, o tailOptions, w wanted) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &listing{entries: map[string]bus.RunInfo{}, changed: make(chan struct{})}
	p := &allPrinter{a: a, o: o, w: w, list: l, prints: map[string]*printer{}}
	var wg sync.WaitGroup
	work := func(fn func() error) {
		wg.Go(func() { // ends with ctx
			if err := fn(); err != nil {
				cancel(err)
			}
		})
	}
	if w.byEntry() {
		work(func() error { return keepGoing(ctx, func() error { return b.WatchRuns(ctx, nil, l.put) }) })
	}
	logs := []bus.Log{bus.ControlLog}
	for n := range max(a.partitions(), 1) {
		logs = append(logs, bus.Log(n))
	}
	for _, log := range logs {
		work(func() error { return followLog(ctx, b, log, p.print) })
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return ctx.Err()
}

// keepGoing calls fn again whenever it ends because the bus is away or began anew.
func keepGoing(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if ctx.Err() != nil || !errors.Is(err, bus.ErrUnavailable) && !errors.Is(err, bus.ErrEpoch) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followLog calls fn for each event of a log that is stored from now on. When its
// reader had to begin again, what was stored meanwhile is read first.
func followLog(ctx context.Context, b *bus.Bus, log bus.Log, fn func(*event.Event) error) error {
	var at bus.Place // of the last event given
	begun := false
	return keepGoing(ctx, func() error {
		var failed error
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		give := func(e *event.Event, p bus.Place) {
			if failed != nil || p.Seq <= at.Seq {
				return
			}
			if failed = fn(e); failed != nil {
				cancel()
			}
			at = p
		}
		err := b.TailLog(ctx, log, func(head bus.Place) {
			if !begun {
				at, begun = head, true
				return
			}
			from, _, err := b.Locate(ctx, log, at)
			if failed = err; err != nil {
				cancel()
				return
			}
			at = from
			for e, err := range b.ReadLog(ctx, log, at, head, "", "") {
				if err != nil {
					failed = err
					cancel()
					return
				}
				give(e.Event, e.At)
			}
		}, give)
		return cmp.Or(failed, err)
	})
}

// A listing is the entries of the runs, as far as they are known.
type listing struct {
	mu      sync.Mutex // guards the rest
	entries map[string]bus.RunInfo
	changed chan struct{} // closed and replaced with each change
}

func (l *listing) put(i bus.RunInfo, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		delete(l.entries, i.Run)
	} else {
		l.entries[i.Run] = i
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// entryPatience is how long a run's first events may be ahead of its entry.
const entryPatience = 2 * time.Second

// get returns a run's entry. That of a run whose event is new is waited for.
func (l *listing) get(e *event.Event) (bus.RunInfo, bool) {
	t := time.NewTimer(min(entryPatience, time.Until(e.Time.Add(entryPatience))))
	defer t.Stop()
	for {
		l.mu.Lock()
		i, ok := l.entries[e.Run]
		changed := l.changed
		l.mu.Unlock()
		if ok {
			return i, true
		}
		select {
		case <-changed:
		case <-t.C:
			return i, false
		}
	}
}

// allPrinter prints the events of many runs; frames that were split are joined
// within their run.
type allPrinter struct {
	a    *app
	o    tailOptions
	w    wanted
	list *listing

	mu     sync.Mutex // guards the rest
	prints map[string]*printer
}

func (p *allPrinter) print(e *event.Event) error {
	if e.Type == event.TypeAudit && e.Seq == 0 || !p.w.takes(e, func(string) (bus.RunInfo, bool) { return p.list.get(e) }) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.prints[e.Run]
	if one == nil {
		one = &printer{a: p.a, o: p.o, prefix: shortRun(e.Run) + " "}
		p.prints[e.Run] = one
	}
	one.print(e)
	if e.Type == event.TypeExited {
		delete(p.prints, e.Run)
	}
	return one.err
}

// shortRun is the end of a run's id, which differs where beginnings are the same.
func shortRun(id string) string {
	const most = 8
	return printable(fmt.Sprintf("%*s", most, id[max(0, len(id)-most):]))
}
