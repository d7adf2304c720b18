package consume

import (
	"container/list"
	"context"
	"fmt"
	"math"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// DefaultRuns and DefaultRunBytes bound the states that a [Folds] holds.
	DefaultRuns     = 2000
	DefaultRunBytes = 128 << 20

	// What a state takes is estimated: so much to begin with, and for each event. The
	// fold itself is bounded.
	stateBytes, stateEventBytes, stateMost = 16 << 10, 128, 4 << 20
)

// Folds hold the states of the runs that were seen last. A state that is not held any
// more is folded again from the bus, so that bounds cost time and change nothing. It is
// for a [Handler]'s goroutine.
type Folds struct {
	Bus *bus.Bus
	// Partitions of the events; 0 is 1.
	Partitions int
	// Controls says that the consumer reads the control facts, too.
	Controls bool
	// Runs and Bytes bound what is held: [DefaultRuns], [DefaultRunBytes] if 0.
	Runs  int
	Bytes int64

	held    map[string]*list.Element // of *folded, by run
	used    list.List                // the one used last first
	bytes   int64
	rebuilt int
}

// A folded is a state that is held.
type folded struct {
	key  string
	st   *run.State
	size int64
}

// At returns the state of the entry's run just before the entry: what the consumer has
// read of the run, without e. It may be looked at until the next call; [Folds.Apply]
// folds e. Where retention has taken the beginning, or some of it, the state knows only
// the rest. An error is of the bus.
func (f *Folds) At(ctx context.Context, e *Entry) (*run.State, error) {
	if e.Event == nil {
		return nil, fmt.Errorf("state before an entry that is no event: %w", e.Bad)
	}
	if h := f.get(e.Event.Run); h != nil {
		ok, err := f.advance(ctx, h.st, e)
		if err != nil {
			return nil, err
		}
		if ok {
			return h.st, nil
		}
		f.Drop(e.Event.Run)
	}
	st, err := f.rebuild(ctx, e)
	if err != nil {
		return nil, err
	}
	f.put(e.Event.Run, st)
	return st, nil
}

// Apply folds e into the state that [Folds.At] returned.
func (f *Folds) Apply(e *Entry) {
	if h := f.get(e.Event.Run); h != nil {
		h.st.Apply(e.Event)
		f.grow(h, stateEventBytes)
	}
}

// Drop forgets a run's state.
func (f *Folds) Drop(runID string) {
	if el := f.held[runID]; el != nil {
		h := f.used.Remove(el).(*folded)
		f.bytes -= h.size
		delete(f.held, runID)
	}
}

// Held is how many states are held, and about how many bytes they take.
func (f *Folds) Held() (runs int, bytes int64) { return len(f.held), f.bytes }

// Rebuilds is how often a state was folded again from the bus.
func (f *Folds) Rebuilds() int { return f.rebuilt }

func (f *Folds) get(runID string) *folded {
	el := f.held[runID]
	if el == nil {
		return nil
	}
	f.used.MoveToFront(el)
	return el.Value.(*folded)
}

func (f *Folds) put(runID string, st *run.State) {
	if f.held == nil {
		f.held = map[string]*list.Element{}
	}
	h := &folded{key: runID, st: st}
	f.held[runID] = f.used.PushFront(h)
	f.grow(h, stateBytes+stateEventBytes*int64(min(st.LastSeq(), math.MaxInt32)))
}

func (f *Folds) grow(h *folded, n int64) {
	n = min(n, stateMost-h.size)
	h.size += n
	f.bytes += n
	runs, most := f.Runs, f.Bytes
	if runs == 0 {
		runs = DefaultRuns
	}
	if most == 0 {
		most = DefaultRunBytes
	}
	for len(f.held) > 1 && (len(f.held) > runs || f.bytes > most) {
		f.Drop(f.used.Back().Value.(*folded).key)
	}
}

// before reports whether event x of a run stands before e.
func before(x, e *event.Event) bool {
	return x.Seq < e.Seq || x.Seq == e.Seq && x.Part.I < e.Part.I
}

// advance brings a held state up to e where e was not the next event; false: it is past e.
func (f *Folds) advance(ctx context.Context, st *run.State, e *Entry) (bool, error) {
	last := st.LastSeq()
	switch ev := e.Event; {
	case ev.Seq == 0, ev.Seq == last+1, ev.Seq == last && ev.Part.I > 1:
		return true, nil
	case ev.Seq <= last:
		return false, nil
	}
	return true, f.events(ctx, e, last, st.Apply)
}

// rebuild folds what the bus has of a run before e.
func (f *Folds) rebuild(ctx context.Context, e *Entry) (*run.State, error) {
	if e.Event.Seq == 1 && e.Event.Part.I <= 1 && !f.Controls {
		return run.New(e.Event.Run), nil
	}
	f.rebuilt++
	st := run.New(e.Event.Run)
	facts, err := f.facts(ctx, e)
	if err != nil {
		return nil, err
	}
	if e.Event.Seq == 1 && e.Event.Part.I <= 1 {
		for _, x := range facts {
			st.Apply(x)
		}
		return st, nil // there is no event before it
	}
	// Facts stand among the events by their time.
	err = f.events(ctx, e, 0, func(x *event.Event) {
		for len(facts) > 0 && facts[0].Time.Before(x.Time) {
			st.Apply(facts[0])
			facts = facts[1:]
		}
		st.Apply(x)
	})
	if err != nil {
		return nil, err
	}
	for _, x := range facts {
		st.Apply(x)
	}
	return st, nil
}

// events calls fn for the run's events behind number after that the consumer has read
// before e.
func (f *Folds) events(ctx context.Context, e *Entry, after uint64, fn func(*event.Event)) error {
	part := int(e.Log)
	if part < 0 {
		part = subject.Partition(e.Event.Run, max(f.Partitions, 1))
	}
	ref := bus.Ref{Tenant: e.Event.Tenant, Run: e.Event.Run, Partition: part}
	for x, err := range f.Bus.HistoryTo(ctx, ref, after, e.readOf(bus.Log(part))) {
		if err != nil {
			return err
		}
		if e.Event.Seq > 0 && !before(x, e.Event) {
			return nil
		}
		fn(x)
	}
	return nil
}

// facts are the control facts about the run that the consumer has read before e.
func (f *Folds) facts(ctx context.Context, e *Entry) (all []*event.Event, err error) {
	if !f.Controls {
		return nil, nil
	}
	to := e.readOf(bus.ControlLog)
	if e.Log == bus.ControlLog {
		to = e.At.Seq - 1
	}
	for x, err := range f.Bus.ControlsTo(ctx, e.Event.Tenant, e.Event.Run, to) {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}
