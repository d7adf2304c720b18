package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

// flushInfo is what a spool's meta keeps for whoever ships it later.
type flushInfo struct {
	Dialect string            `json:"dialect,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Version string            `json:"version,omitempty"`
	Source  string            `json:"source,omitempty"`
}

// Flushed says what became of one run's spool.
type Flushed struct {
	Run    string
	Events uint64 // in the run so far
	Err    error  // nil: everything is on the bus
}

// Flush ships every spool under root whose edge is gone, one after the other,
// and calls report for each that had something to ship. It returns early only
// when ctx ends. A spool that is shipped is removed once the store has had time
// to sync and the bus still has the run's end, by this call or a later one.
func Flush(ctx context.Context, root string, b *bus.Bus, syncInterval time.Duration, log *slog.Logger, report func(Flushed)) error {
	return flushSpools(ctx, root, math.MaxInt64, b, syncInterval, log, report)
}

// flushSpools is Flush for the spools of at most limit bytes.
func flushSpools(ctx context.Context, root string, limit int64, b *bus.Bus, syncInterval time.Duration, log *slog.Logger, report func(Flushed)) error {
	dirs, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the spool: %w", err)
	}
	for _, d := range dirs {
		run, ok := subject.Untoken(d.Name())
		if !ok || !d.IsDir() || limit < math.MaxInt64 && size(filepath.Join(root, d.Name())) > limit {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := flusher{bus: b, log: log.With("run", run)}
		err := f.open(ctx, root, run, syncInterval)
		if errors.Is(err, spool.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue // its edge lives, or another flush has it, or had it
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f.worked || err != nil {
			report(Flushed{Run: run, Events: f.last, Err: err})
		}
	}
	return nil
}

// size sums up the files of a directory.
func size(dir string) (sum int64) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it is going
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// A flusher ships one spool.
type flusher struct {
	bus    *bus.Bus
	log    *slog.Logger
	s      *spool.Spool
	ref    bus.Ref
	last   uint64
	worked bool // there was something to ship

	damage  spool.Damage
	damaged bool
	ahead   bool // the bus has more than was left here
}

func (f *flusher) open(ctx context.Context, root, id string, syncInterval time.Duration) (err error) {
	f.s, err = spool.Open(root, id, spool.Options{Retain: 2 * syncInterval, Prefix: true})
	if err != nil {
		return err
	}
	f.damage, f.damaged = f.s.Damage()
	m := f.s.Meta()
	f.ref = bus.Ref{Tenant: m.Tenant, Run: m.Run, Partition: m.Partition}
	err = f.flush(ctx)
	f.last = f.s.Last()
	if err == nil && f.s.Removable(time.Now()) {
		return f.s.Remove()
	}
	return errors.Join(err, f.s.Close())
}

func (f *flusher) flush(ctx context.Context) error {
	has, final, err := f.has(ctx)
	if err != nil {
		return err
	}
	if f.s.Shipped() && final {
		return nil
	}
	f.worked = true
	if err := f.complete(has, final); err != nil {
		return fmt.Errorf("complete the run: %w", err)
	}
	p := bus.Publisher{Bus: f.bus, Ref: f.ref, Source: &source{s: f.s}, Log: f.log, Resumed: true}
	if err := p.Run(ctx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := resume(ctx, f.bus, f.ref); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if err := f.register(ctx); err != nil {
		return fmt.Errorf("write the registry: %w", err)
	}
	if err := f.bus.ClearPresence(ctx, f.ref.Run); err != nil {
		return fmt.Errorf("clear presence: %w", err)
	}
	return nil
}

// has asks what the bus has of the run, and whether that is all of it. A power
// loss may have left less here: then the spool goes on behind it.
func (f *flusher) has(ctx context.Context) (seq uint64, final bool, err error) {
	e, _, err := f.bus.LastOwn(ctx, f.ref)
	if errors.Is(err, bus.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("ask the bus: %w", err)
	}
	if e.Seq > f.s.Last() {
		f.ahead = true
		f.s.Advance(e.Seq)
	}
	return e.Seq, e.Type == event.TypeExited && e.Seq == f.s.Last(), nil
}

// complete makes sure that the run has its last event, here or on the bus. If
// not it adds what a dead edge could not say: what is lost of its spool, the
// commands whose fate nobody knows, and its end. has is what the bus has.
func (f *flusher) complete(has uint64, final bool) error {
	x := event.Exited{Reason: "edge_died", FlushedLater: true}
	e, ok, err := (&source{s: f.s}).Event(max(1, f.s.Last()))
	if ok && err == nil {
		final = final || e.Type == event.TypeExited
		if f.s.Last() > has {
			x.LastEventTime, x.DurationMS = &e.Time, max(0, e.Time.Sub(f.s.Meta().Created).Milliseconds())
		}
	}
	switch {
	case final && f.s.Ended():
		return nil
	case final:
		return f.s.End()
	}
	ended := f.s.Ended()
	if ended { // its edge did write the last event; the disk lost it
		x.Reason = "spool_damaged"
	}
	if err := f.s.Reopen(); err != nil {
		return err
	}
	d := f.damage
	if f.damaged {
		x.SpoolDamage = d.Reason
	}
	// What the bus has got is not lost.
	if d.First = max(d.First, has+1); f.damaged && d.First <= d.Last {
		g := event.Gap{Frames: int64(d.Last - d.First + 1), Bytes: d.Bytes, Reason: "damaged", Detail: d.Reason}
		if err := f.say(event.TypeGap, event.Life, g); err != nil {
			return err
		}
		x.Gap = &g
	} else if torn := f.s.Recovered(); !f.ahead && (torn.Cut > 0 || ended && !f.damaged) {
		// At most the record that was being written when the edge was killed, if
		// the disk is sound; nobody can say how many if it is not.
		g := event.Gap{Frames: 1, Bytes: torn.Cut, Reason: "damaged", Detail: "the end of the spool cannot be read"}
		if err := f.say(event.TypeGap, event.Life, g); err != nil {
			return err
		}
		x.Gap, x.SpoolDamage = &g, g.Detail
	}
	j, err := f.s.Journal()
	if err != nil {
		return err
	}
	for _, open := range j.Pending() {
		x.CommandsOpen = append(x.CommandsOpen, open.ID)
		if err := f.say(event.TypeCommand, event.Cmd, unknownFact(open.ID, open.Data)); err != nil {
			return err
		}
	}
	if err := f.say(event.TypeExited, event.Life, x); err != nil {
		return err
	}
	return f.s.End()
}

// say appends a fact of the edge in its place.
func (f *flusher) say(typ string, kind event.Kind, data any) error {
	e := event.Event{
		Tenant: f.ref.Tenant, Run: f.ref.Run, Time: time.Now(), Type: typ, Kind: kind, Stream: event.Edge,
		ContentType: event.JSON,
	}
	_, err := f.s.AppendReserved(event.AppendMeta(nil, &e), mustJSON(data))
	return err
}

// register writes the registry entry of a run from what the bus has of it.
func (f *flusher) register(ctx context.Context) error {
	m := f.s.Meta()
	var kept flushInfo
	_ = json.Unmarshal(m.Data, &kept) // what cannot be read is left out
	info := bus.RunInfo{Run: f.ref.Run, Tenant: f.ref.Tenant, Partition: f.ref.Partition, Started: m.Created, Labels: kept.Labels}
	_, seq, err := f.bus.FirstKept(ctx, f.ref)
	if errors.Is(err, bus.ErrDenied) {
		return f.registerOwn(ctx, info)
	}
	if errors.Is(err, bus.ErrNotFound) {
		return nil // it has left the bus by age
	}
	if err != nil {
		return err
	}
	info.First = seq
	st := run.New(f.ref.Run)
	ref := f.ref
	ref.First = seq
	for e, err := range f.bus.History(ctx, ref, 0) {
		if err != nil {
			return err
		}
		st.Apply(e)
		info.LastSeq = e.Seq
	}
	describe(st, &info)
	info.Host = st.View().Host
	return f.bus.PutRun(ctx, info)
}

// registerOwn is register for an edge that may not read: from the spool, where that
// has everything. Else the entry stays as it is, and a relay completes it.
func (f *flusher) registerOwn(ctx context.Context, info bus.RunInfo) error {
	st, src := run.New(f.ref.Run), source{s: f.s}
	for n := uint64(1); n <= f.s.Last(); n++ {
		e, ok, err := src.Event(n)
		if err != nil {
			return err
		}
		if !ok || e.Type == event.TypeGap {
			return nil
		}
		own := *e // the fold keeps what it is given
		own.Data = bytes.Clone(e.Data)
		st.Apply(&own)
		info.LastSeq = n
	}
	describe(st, &info)
	info.Host = st.View().Host
	return f.bus.PutRun(ctx, info)
}

// unknownFact is the last fact of a command that had none when the edge died.
func unknownFact(id string, journal []byte) event.CommandFact {
	var j journalled
	_ = json.Unmarshal(journal, &j) // what cannot be read is left out
	f := event.CommandFact{
		Command: id, Name: j.Name, Fact: event.UnknownF, Reason: "the edge died before the effect was seen",
		RequestID: j.Request, Task: j.Task,
	}
	if j.Ask != "" {
		f.Detail = map[string]string{"ask": j.Ask, "decision": j.Decision}
	}
	return f
}
