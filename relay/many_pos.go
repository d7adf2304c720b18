package relay

import (
	"context"
	"iter"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// scanTurn is how many events of a log are looked at between those of others.
const scanTurn = 512

// A manyPos is a client's place in one log, and how it goes on from there: from
// the ring, or from the bus where the ring does not reach back.
type manyPos struct {
	*many
	wide *wide
	at   bus.Place // everything up to it has been told or does not match

	placed  bool   // at is the client's
	located bool   // at is good for gen
	gen     int    // of wide
	late    uint64 // up to where events were stored before the client came, with a cursor

	attached bool
	index    int64 // of the next frame in the ring

	pull  func() (bus.Entry, error, bool) // of the bus, nil outside
	end   func()
	to    bus.Place
	joins map[runKey]*joining

	queue []wideFrame // to be told or skipped next
	held  time.Time   // since when the first of them waits for its run's entry

	failed int
	retry  time.Time // of what failed
}

// begin places a client without a cursor at what is next. It reports whether the
// place is known.
func (p *manyPos) begin() bool {
	if p.placed {
		return true
	}
	at, gen, ok := p.wide.place()
	if ok {
		p.at, p.gen, p.placed, p.located = at, gen, true, true
	}
	return ok
}

// turn tells some of what follows. next is brought forward to when there may be
// more without a poke.
func (p *manyPos) turn(ctx context.Context, next *time.Time) (busy bool, err error) {
	if len(p.queue) > 0 {
		return p.tellQueue(next)
	}
	if p.attached {
		frames, lag := p.wide.next(p.gen, p.index, batchBytes)
		p.index += int64(len(frames))
		p.queue, p.attached = frames, !lag
		if len(frames) > 0 {
			return p.tellQueue(next)
		}
		return lag, nil
	}
	if time.Now().Before(p.retry) {
		p.soon(next, p.retry)
		return false, nil
	}
	busy, err = p.reach(ctx, next)
	if err == nil || ctx.Err() != nil {
		if p.failed > 0 && err == nil && busy {
			p.failed = 0
		}
		return busy, err
	}
	if p.out.err != nil {
		return false, err
	}
	p.r.log.Debug("log not read, trying again", "log", p.wide.log, "after", p.at.Seq, "error", err)
	p.stop()
	p.failed++
	p.retry = time.Now().Add(min(retryMax, 20*time.Millisecond<<min(p.failed, 10)))
	p.soon(next, p.retry)
	return false, nil
}

func (p *manyPos) soon(next *time.Time, t time.Time) {
	if t.Before(*next) {
		*next = t
	}
}

// reach goes on towards the ring.
func (p *manyPos) reach(ctx context.Context, next *time.Time) (busy bool, err error) {
	if !p.located {
		if p.located, err = p.locate(ctx); err != nil || !p.located {
			return false, err
		}
	}
	if p.pull == nil {
		index, to, ok := p.wide.attach(p.gen, p.at)
		switch {
		case ok:
			p.attached, p.index = true, index
			clear(p.joins)
			return true, nil
		case to.Seq == 0: // the reader begins again, or is away
			_, gen, reads := p.wide.place()
			p.located = reads && gen == p.gen
			return reads, nil
		}
		p.to = to
		p.pull, p.end = iter.Pull2(p.r.bus.ReadLog(ctx, p.wide.log, p.at, to, one(p.filter.tenants), one(p.filter.kinds)))
	}
	return p.scan(ctx, next)
}

// locate finds out whether the place is still what it was, and tells the client
// where it is not. It reports false while the reader is away.
func (p *manyPos) locate(ctx context.Context) (bool, error) {
	head, gen, reads := p.wide.place()
	if !reads {
		return false, nil
	}
	if p.late == 0 && !p.since.IsZero() {
		p.late = max(head.Seq, 1)
	}
	p.gen = gen
	if known, ok := p.wide.knows(p.at); ok && known == gen {
		return true, nil
	}
	from, turn, err := p.r.bus.Locate(ctx, p.wide.log, p.at)
	if err != nil {
		return false, err
	}
	since := p.at.Time
	p.at, p.moved = from, true
	if turn == bus.Kept {
		return true, nil
	}
	clear(p.joins)
	turned := ManyTurn{Reason: reasonNotKept, Since: since}
	name := evGap
	if turn == bus.Rebuilt {
		turned.Reason, name = reasonRebuilt, evReset
	}
	return true, p.tell(name, mustJSON(turned), false)
}

const reasonRebuilt = "rebuilt" // the bus has other events than the cursor counted

// A ManyTurn is the data of the events gap and reset in the stream of many runs.
type ManyTurn struct {
	Reason string    `json:"reason"`         // not_kept, rebuilt
	Since  time.Time `json:"since,omitzero"` // of the last event before it
}

// scan tells some of what the bus has.
func (p *manyPos) scan(ctx context.Context, next *time.Time) (busy bool, err error) {
	for range scanTurn {
		e, err, ok := p.pull()
		if err != nil {
			return false, err
		}
		if !ok {
			p.stop()
			p.at, p.moved = p.to, true
			return true, nil
		}
		if p.queue, err = p.frames(ctx, e); err != nil {
			return false, err
		}
		if len(p.queue) == 0 {
			p.at, p.moved = e.At, true
			continue
		}
		if _, err := p.tellQueue(next); err != nil || len(p.queue) > 0 {
			return false, err
		}
	}
	return true, nil
}

// stop ends the reading from the bus.
func (p *manyPos) stop() {
	if p.pull != nil {
		p.end()
		p.pull, p.end = nil, nil
	}
}

// frames makes frames of what the bus has. The beginning of one that began before
// the place is read, too: it was not told.
func (p *manyPos) frames(ctx context.Context, entry bus.Entry) ([]wideFrame, error) {
	e := entry.Event
	if e.Seq == 0 {
		return wideFact(e, entry.At), nil
	}
	key := runKey{e.Tenant, e.Run}
	j := p.joins[key]
	if j == nil && e.Chunk.IsZero() && e.Part.IsZero() {
		return []wideFrame{wideOf(newFrame(e, e.Seq), e, entry.At)}, nil
	}
	if j == nil {
		j = &joining{}
		if e.Chunk.I > 1 || e.Part.I > 1 {
			if err := p.earlier(ctx, j, e); err != nil {
				return nil, err
			}
		}
		if p.joins == nil {
			p.joins = map[runKey]*joining{}
		}
		p.joins[key] = j
	}
	frames := j.add(e, entry.At)
	if j.bytes == 0 {
		delete(p.joins, key)
	}
	return frames, nil
}

// earlier feeds j the parts of a frame before e.
func (p *manyPos) earlier(ctx context.Context, j *joining, e *event.Event) error {
	after := e.Seq - min(e.Seq, uint64(max(e.Chunk.I, 1)))
	ref := bus.Ref{Tenant: e.Tenant, Run: e.Run, Partition: int(p.wide.log)}
	if i := p.r.reg.get(e.Run); i != nil {
		ref.First = i.First
	}
	for o, err := range p.r.bus.History(ctx, ref, after) {
		if err != nil {
			return err
		}
		if o.Seq > e.Seq || o.Seq == e.Seq && o.Part.I >= e.Part.I {
			return nil
		}
		j.add(o, bus.Place{})
	}
	return nil
}

// isLate reports whether a frame was stored before the client came back. The reader
// may have it later than that: then the bus's time tells.
func (p *manyPos) isLate(w *wideFrame) bool {
	return !p.since.IsZero() && w.at.Seq > 0 && (w.at.Seq <= p.late || w.at.Time.Before(p.came))
}

// tellQueue tells or skips what is queued, until one must wait.
func (p *manyPos) tellQueue(next *time.Time) (busy bool, err error) {
	for len(p.queue) > 0 {
		w := &p.queue[0]
		var waited time.Duration
		if !p.held.IsZero() {
			waited = time.Since(p.held)
		}
		choice := p.choose(w, p.isLate(w), waited)
		if choice == await {
			if p.held.IsZero() {
				p.held = time.Now()
			}
			p.soon(next, time.Now().Add(entryLook))
			return false, nil
		}
		p.held = time.Time{}
		if w.at.Seq > 0 {
			p.at, p.moved = w.at, true
		}
		p.queue = p.queue[1:]
		if choice == skip {
			continue
		}
		if err := p.tell(w.name, w.data, w.at.Seq > 0); err != nil {
			return false, err
		}
	}
	p.queue = nil
	return true, nil
}
