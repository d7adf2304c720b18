package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
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
// and calls report for each. It returns early only when ctx ends. A spool that
// is shipped is removed once the store has had time to sync, by this call or a
// later one.
func Flush(ctx context.Context, root string, b *bus.Bus, syncInterval time.Duration, log *slog.Logger, report func(Flushed)) error {
	infos, err := spool.List(root)
	if err != nil {
		return fmt.Errorf("list the spool: %w", err)
	}
	for _, i := range infos {
		if i.Live || i.Meta.Run == "" {
			continue
		}
		f := Flushed{Run: i.Meta.Run}
		f.Events, f.Err = flushRun(ctx, root, f.Run, b, syncInterval, log)
		if errors.Is(f.Err, spool.ErrLocked) {
			continue // another flush has it
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		report(f)
	}
	return nil
}

func flushRun(ctx context.Context, root, id string, b *bus.Bus, syncInterval time.Duration, log *slog.Logger) (last uint64, err error) {
	s, err := spool.Open(root, id, spool.Options{Retain: 2 * syncInterval, Prefix: true})
	if err != nil {
		return 0, err
	}
	defer func() {
		if s.Removable(time.Now()) {
			err = errors.Join(err, s.Remove())
			return
		}
		err = errors.Join(err, s.Close())
	}()
	m := s.Meta()
	ref := bus.Ref{Tenant: m.Tenant, Run: m.Run, Partition: m.Partition}
	if !s.Ended() {
		// A power loss may have left less here than the bus has got.
		if e, _, err := b.Last(ctx, ref); err == nil && e.Seq > s.Last() {
			s.Advance(e.Seq)
		} else if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return s.Last(), fmt.Errorf("ask the bus: %w", err)
		}
		if err := lastWordsOf(s); err != nil {
			return s.Last(), fmt.Errorf("complete the run: %w", err)
		}
	}
	p := bus.Publisher{Bus: b, Ref: ref, Source: source{s}, Log: log}
	if err := p.Run(ctx); err != nil {
		return s.Last(), fmt.Errorf("publish: %w", err)
	}
	if err := resume(ctx, b, ref); err != nil {
		return s.Last(), fmt.Errorf("resume: %w", err)
	}
	if err := registerFlushed(ctx, b, ref, m); err != nil {
		return s.Last(), fmt.Errorf("write the registry: %w", err)
	}
	return s.Last(), nil
}

// lastWordsOf adds what a dead edge could not say: the commands whose fate
// nobody knows, and its end.
func lastWordsOf(s *spool.Spool) error {
	if n := s.Last(); n > 0 {
		if e, ok, err := (source{s}).Event(n); err == nil && ok && e.Type == event.TypeExited {
			return s.End()
		}
	}
	say := func(typ string, kind event.Kind, data any) error {
		m := s.Meta()
		e := event.Event{
			Tenant: m.Tenant, Run: m.Run, Time: time.Now(), Type: typ, Kind: kind, Stream: event.Edge,
			ContentType: event.JSON,
		}
		_, err := s.AppendReserved(event.AppendMeta(nil, &e), mustJSON(data))
		return err
	}
	x := event.Exited{Reason: "edge_died", FlushedLater: true}
	if d, damaged := s.Damage(); damaged {
		g := event.Gap{Frames: int64(d.Last - d.First + 1), Bytes: d.Bytes, Reason: "damaged", Detail: d.Reason}
		if err := say(event.TypeGap, event.Life, g); err != nil {
			return err
		}
		x.Gap, x.SpoolDamage = &g, d.Reason
	}
	j, err := s.Journal()
	if err != nil {
		return err
	}
	for _, open := range j.Pending() {
		if err := say(event.TypeCommand, event.Cmd, unknownFact(open.ID, open.Data)); err != nil {
			return err
		}
	}
	if err := say(event.TypeExited, event.Life, x); err != nil {
		return err
	}
	return s.End()
}

// registerFlushed writes the registry entry of a run from what the bus has of it.
func registerFlushed(ctx context.Context, b *bus.Bus, ref bus.Ref, m spool.Meta) error {
	st := run.New(ref.Run)
	info := bus.RunInfo{Run: ref.Run, Tenant: ref.Tenant, Partition: ref.Partition, Started: m.Created}
	_, seq, err := b.FirstKept(ctx, ref)
	if err != nil {
		return err
	}
	ref.First, info.First = seq, seq
	for e, err := range b.History(ctx, ref, 0) {
		if err != nil {
			return err
		}
		st.Apply(e)
		info.LastSeq = e.Seq
	}
	describe(st, &info)
	return b.PutRun(ctx, info)
}

// unknownFact is the last fact of a command whose line was being written when the
// edge died.
func unknownFact(id string, journal []byte) event.CommandFact {
	var j journalled
	_ = json.Unmarshal(journal, &j) // what cannot be read is left out
	return event.CommandFact{
		Command: id, Name: j.Name, Fact: event.UnknownF, Reason: "the edge died while it wrote the command",
		RequestID: j.Request, Task: j.Task,
	}
}
