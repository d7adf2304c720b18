package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// handler is what [consume] calls.
type handler struct{ t *Tracer }

// Handle makes the spans that an entry finishes. They are sent by Commit.
func (h handler) Handle(ctx context.Context, e *consume.Entry) error {
	t := h.t
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Event == nil: // nothing can be told of it; the archive has it
		return nil
	case e.Log == bus.ControlLog:
		if b := t.held.get(e.Event.Run); b != nil {
			b.Apply(e.Event)
		}
		return nil
	default:
		return t.event(ctx, e)
	}
}

// Commit sends what there is to the collector. Nothing is acked before it has all of it.
func (h handler) Commit(ctx context.Context, _ bool) (map[bus.Log]bus.Place, error) {
	t := h.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return nil, t.flush(ctx)
}

// event takes the next event of a run.
func (t *Tracer) event(ctx context.Context, e *consume.Entry) error {
	ev := e.Event
	if last, ok := t.ended.get(ev.Run); ok && ev.Seq <= last {
		return nil // it came again
	}
	b, err := t.builder(ctx, e)
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			t.held.drop(ev.Run) // what it holds may be half
			panic(v)
		}
	}()
	for _, s := range b.Apply(ev) {
		t.out = append(t.out, outgoing{s, e})
	}
	if !b.Ended() {
		t.held.grown(ev.Run)
	} else {
		t.held.drop(ev.Run)
		t.ended.set(ev.Run, ev.Seq)
		t.lost.forget(ev.Run)
		t.counted(b)
	}
	t.n.held.Set(float64(len(t.held.m)))
	t.n.waiting.Set(float64(len(t.out)))
	return nil
}

func (t *Tracer) counted(b *Builder) {
	if t.o.Sample(b.Context()) {
		t.n.runs.Inc()
	} else {
		t.n.unsampled.Inc()
	}
}

// builder returns that of the entry's run, as it was before the entry.
func (t *Tracer) builder(ctx context.Context, e *consume.Entry) (*Builder, error) {
	ev := e.Event
	b := t.held.get(ev.Run)
	ref := bus.Ref{Tenant: ev.Tenant, Run: ev.Run, Partition: int(e.Log)}
	switch {
	case b != nil && ev.Seq <= b.LastSeq()+1:
		return b, nil
	case b != nil: // another instance has told what lies between
		if err := t.read(ctx, b, ref, b.LastSeq(), e.At.Seq-1); err != nil {
			t.held.drop(ev.Run)
			return nil, err
		}
		return b, nil
	}
	b = t.fresh(ctx, ev.Run)
	if ev.Seq > 1 || ev.Part.I > 1 {
		t.n.rebuilds.Inc()
		if err := t.read(ctx, b, ref, 0, e.At.Seq-1); err != nil {
			return nil, err
		}
	}
	t.held.put(ev.Run, b)
	return b, nil
}

func (t *Tracer) fresh(ctx context.Context, runID string) *Builder {
	ctx = context.WithoutCancel(ctx) // it may be called in a later Handle
	return NewBuilder(runID, BuilderOptions{
		MaxSpans: t.o.MaxSpans, Content: t.o.Content, Sample: t.o.Sample,
		Facts: func(tenant, runID string) (all []*event.Event) {
			ctx, cancel := context.WithTimeout(ctx, factsWait)
			defer cancel()
			for x, err := range t.o.Bus.Controls(ctx, tenant, runID) {
				if err != nil {
					t.o.Log.Warn("who gave a command is not known", "run", runID, "error", err)
					return all
				}
				all = append(all, x)
			}
			return all
		},
	})
}

// factsWait bounds the look for who gave a command. It is only about a name.
const factsWait = 5 * time.Second

// read gives a builder what the bus has of its run behind number after, up to a place of
// its log. The spans of it were sent before.
func (t *Tracer) read(ctx context.Context, b *Builder, ref bus.Ref, after, to uint64) error {
	var facts []*event.Event
	if after == 0 {
		for x, err := range t.o.Bus.Controls(ctx, ref.Tenant, ref.Run) {
			if err != nil {
				return fmt.Errorf("read the facts about %s: %w", ref.Run, err)
			}
			facts = append(facts, x)
		}
	}
	for x, err := range t.o.Bus.HistoryTo(ctx, ref, after, to) {
		if err != nil {
			return fmt.Errorf("read %s again: %w", ref.Run, err)
		}
		for len(facts) > 0 && facts[0].Time.Before(x.Time) { // they stand among the events by their time
			b.Apply(facts[0])
			facts = facts[1:]
		}
		b.Apply(x)
	}
	for _, x := range facts {
		b.Apply(x)
	}
	return nil
}

// flush sends all spans that wait, in order. One that the collector will never take
// becomes a dead letter: it is found by halving.
func (t *Tracer) flush(ctx context.Context) error {
	defer func() { t.n.waiting.Set(float64(len(t.out))) }()
	for len(t.out) > 0 {
		if t.o.now().Before(t.until) {
			return t.why
		}
		n := min(t.chunk, len(t.out))
		spans := make([]Span, n)
		for i := range spans {
			spans[i] = t.out[i].span
		}
		err := t.x.send(ctx, spans)
		var wait *waitError
		switch {
		case err == nil:
			t.sent(n)
			t.chunk = min(2*t.chunk, requestSpans)
		case errors.As(err, &wait):
			t.n.failures.Inc()
			t.why = fmt.Errorf("traces: %w", err)
			t.until = t.o.now().Add(wait.after)
			return t.why
		case n > 1:
			t.n.failures.Inc()
			t.chunk = n / 2
		default:
			t.n.failures.Inc()
			if err := t.bury(t.out[0], err); err != nil {
				return fmt.Errorf("traces: %w", err)
			}
			t.sent(1)
		}
	}
	t.out = nil
	return nil
}

// sent forgets the first n spans.
func (t *Tracer) sent(n int) {
	clear(t.out[:n]) // what they hold may go
	t.out = t.out[n:]
}

// bury makes a dead letter of a span: a request of its own, as it was refused.
func (t *Tracer) bury(o outgoing, reason error) error {
	s := &o.span
	body, err := encode(t.x.res, t.o.Collector.Resource.Version, []Span{*s})
	if err != nil {
		body = nil // then that is the reason
	}
	e := consume.Entry{At: bus.Place{Time: s.End}, Raw: bus.Raw{Data: body}}
	if o.of != nil {
		e.Log, e.At.Seq, e.Raw.Subject = o.of.Log, o.of.At.Seq, o.of.Raw.Subject
	}
	// Several spans may come of one entry; a letter is named by log, place and time.
	e.At.Time = e.At.Time.Add(time.Duration(s.ID[6])<<8 | time.Duration(s.ID[7]))
	e.Raw.Header = [][2]string{
		{"content-type", "application/x-protobuf"}, {"span-name", s.Name}, {"span-id", s.ID.String()}, {"trace-id", s.Context.Trace.String()},
	}
	if err := t.consumer.Dead().Bury(Name, &e, reason, 1); err != nil {
		return err
	}
	t.n.dead.Inc()
	t.o.Log.Error("the collector refuses a span; it is a dead letter", "span", s.Name, "trace", s.Context.Trace, "error", reason)
	return nil
}

// settleLost sends off the runs that have been lost for so long that they are not waited
// for any more.
func (t *Tracer) settleLost(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.lost.look(ctx, t.o.Bus); err != nil {
		return err
	}
	t.n.lost.Set(float64(len(t.lost.m)))
	for _, r := range t.lost.due(t.o.now().Add(-t.o.LostFinal)) {
		if !r.made {
			if err := t.giveUp(ctx, r); err != nil {
				return err
			}
		}
		if err := t.flush(ctx); err != nil {
			return err
		}
		t.lost.settled(r)
		t.n.lost.Set(float64(len(t.lost.m)))
	}
	return t.lost.save()
}

// giveUp makes the spans of a run that is lost for good.
func (t *Tracer) giveUp(ctx context.Context, r lostRun) error {
	b := t.fresh(ctx, r.run)
	ref := bus.Ref{Tenant: r.tenant, Run: r.run, Partition: subject.Partition(r.run, t.o.Partitions)}
	if err := t.read(ctx, b, ref, 0, maxPlace); err != nil {
		return err
	}
	if b.IsLost() {
		for _, s := range b.Lost() {
			t.out = append(t.out, outgoing{span: s})
		}
		t.counted(b)
	}
	t.held.drop(r.run)
	r.made = true
	t.lost.m[r.run] = r
	return nil
}

const maxPlace = 1<<63 - 1
