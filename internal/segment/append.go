package segment

import (
	"context"
	"fmt"
)

// An Added is what became of a record.
type Added int

// What Append did.
const (
	New     Added = iota // it is in the archive's memory now
	Already              // the archive has this very message: it came again after a crash
	Again                // it has this event, from another message: the stream lost its end and got it anew
)

// Append takes a record. It copies what it keeps. Nothing is durable before Sync or Seal
// returned. Records of one log come in its order. After an error nothing was taken, and the
// record must be appended again before those behind it in its log, unless the error
// is ErrRecord: that one can never be. ErrFull asks for a Seal first. The store is asked for
// the first record of a tenant, and where a run goes on that this process has not seen.
func (a *Archive) Append(ctx context.Context, r *Record) (Added, error) {
	if err := r.check(); err != nil {
		return New, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return New, a.broken
	}
	t := a.tenants[r.Tenant]
	if t == nil {
		var err error
		if t, err = a.tenant(ctx, r.Tenant); err != nil {
			return New, err
		}
	}
	if t.sealed[r.Log.String()].has(r.StreamSeq, r.Stored) {
		a.pass(r)
		a.stats.Already++
		return Already, nil
	}
	day := dayOf(r.Stored.UnixNano())
	seg, pos, already, behind := a.look(r, day)
	if already {
		a.pass(r)
		a.stats.Already++
		return Already, nil
	}
	at := position{r.Seq, r.Part}
	if r.Seq != 0 {
		if pos.seq == 0 {
			var err error
			if pos, err = a.position(ctx, t, r); err != nil {
				return New, ofTenant(r.Tenant, err)
			}
		}
		if !pos.before(at) {
			a.pass(r)
			a.stats.Again++
			return Again, nil
		}
	}
	seg, err := a.room(seg, r, day, behind)
	if err != nil {
		return New, err
	}
	b := seg.buffer(r.Run, r.Log, true)
	if n := r.size(); len(b.b) > 0 && len(b.b)+n > a.o.Block {
		if err := a.flush(b); err != nil {
			return New, err
		}
	}
	if _, ok := seg.before[r.Log]; !ok {
		seg.before[r.Log] = a.last[r.Log]
	}
	a.take(b, r)
	if r.Seq != 0 {
		if !pos.next(at) {
			a.stats.Holes++
		}
		b.r.pos = at
	}
	a.pass(r)
	a.stats.Records++
	a.stats.Bytes += int64(len(r.Data))
	return New, nil
}

// pass notes that a record is in the archive.
func (a *Archive) pass(r *Record) {
	a.last[r.Log] = later(a.last[r.Log], Place{r.StreamSeq, r.Stored})
	a.readAgain(r.Log, a.last[r.Log])
}

// look finds the segment that r belongs into, nil for none, and what the tenant's
// segments that are not in the chain know of its run. behind is the first segment with what
// follows r in its run, nil for none: a crash left that, and lost what is between.
func (a *Archive) look(r *Record, day int32) (seg *open, pos position, already bool, behind *open) {
	for _, s := range a.byTenant[r.Tenant] {
		b := s.buffer(r.Run, r.Log, false)
		if b != nil && r.StreamSeq < b.from.Seq && !r.Stored.After(b.from.Time) {
			return seg, pos, false, s
		}
		if s.day == day && !s.done && !s.full {
			seg = s
		}
		run := s.runs[r.Run]
		if run == nil {
			continue
		}
		if run.pos.seq != 0 {
			pos = run.pos
		}
		if b != nil && b.last.has(r.StreamSeq, r.Stored) {
			return seg, pos, true, nil
		}
	}
	return seg, pos, false, nil
}

// room gives the segment for a record, with memory for it. A new one gets before behind. What
// a recovered segment lacks it takes however full it is: that was once in memory.
func (a *Archive) room(seg *open, r *Record, day int32, behind *open) (*open, error) {
	if seg != nil && len(seg.again) == 0 && a.isFull(seg, r) {
		seg.full = true
		seg = nil
	}
	for a.held+r.size() > a.o.Memory && a.queue.Len() > 0 {
		if err := a.flush(a.queue.Front().Value.(*buffer)); err != nil {
			return nil, err
		}
	}
	if seg != nil {
		return seg, nil
	}
	// What waits for its logs is not counted: it is they that need the room.
	if n := len(a.segs); n >= a.o.Open {
		if n = len(a.sealable()); n >= a.o.Open {
			return nil, fmt.Errorf("%w: %d of them are open", ErrFull, n)
		}
	}
	return a.insert(r.Tenant, day, behind)
}

// isFull reports whether r goes into a new segment.
func (a *Archive) isFull(s *open, r *Record) bool {
	if s.size >= a.o.Segment || len(s.blocks) >= maxBlocks/4 || len(s.blocks)*entryFixed+s.ids >= maxDirectory/4 {
		return true
	}
	return len(s.runs) >= a.o.Runs && s.runs[r.Run] == nil
}

// Sync writes what was appended to Options.Dir. After nil it survives the process and
// a power loss, but not the loss of this machine.
func (a *Archive) Sync(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return a.broken
	}
	for _, s := range a.segs {
		if !s.done {
			if err := a.flushAll(s); err != nil {
				return fmt.Errorf("sync archive: %w", err)
			}
		}
		if err := a.sync(s); err != nil {
			return fmt.Errorf("sync archive: %w", err)
		}
	}
	return nil
}

// Through says for each log up to where everything appended is sealed, over all
// tenants: up to there the bus may forget. Logs of which nothing is known are missing.
func (a *Archive) Through() map[Log]Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[Log]Place{}
	for log, p := range a.last {
		for _, s := range a.segs {
			if before, ok := s.before[log]; ok && before.Time.Before(p.Time) || ok && before.Seq < p.Seq && before.Time.Equal(p.Time) {
				p = before
			}
		}
		if p != (Place{}) {
			out[log] = p
		}
	}
	return out
}

// before reports whether b comes behind p in a run.
func (p position) before(b position) bool {
	return b.seq > p.seq || b.seq == p.seq && b.part.I > p.part.I
}

// next reports whether b is what must follow p, with nothing missing between.
func (p position) next(b position) bool {
	if b.part.I > 1 {
		return b.seq == p.seq && b.part.I == p.part.I+1 && b.part.N == p.part.N
	}
	return b.seq == p.seq+1 && p.part.I == p.part.N
}

// positions remember where runs are, of the last 65536 at least.
type positions struct{ now, old map[string]position }

const maxPositions = 1 << 16

func (p *positions) put(run string, at position) {
	if len(p.now) >= maxPositions {
		p.old, p.now = p.now, nil
	}
	if p.now == nil {
		p.now = map[string]position{}
	}
	p.now[run] = at
}

func (p *positions) get(run string) (position, bool) {
	if at, ok := p.now[run]; ok {
		return at, true
	}
	at, ok := p.old[run]
	return at, ok
}

// position finds where a run is that no open segment knows. A run that begins is not
// looked for in the store.
func (a *Archive) position(ctx context.Context, t *tenant, r *Record) (position, error) {
	if at, ok := t.known.get(r.Run); ok {
		return at, nil
	}
	if r.Seq == 1 && r.Part.I <= 1 {
		return position{}, nil
	}
	v, err := a.reader.view(ctx, t.tenant)
	if err != nil {
		return position{}, err
	}
	entries, unread, err := a.reader.find(ctx, v, r.Run)
	if err == nil && len(unread) > 0 { // it might go on from there
		err = unread[0]
	}
	if err != nil {
		return position{}, fmt.Errorf("find run %s: %w", r.Run, err)
	}
	var at position
	for i := range entries {
		if e := &entries[i]; e.lastSeq != 0 && at.seq <= e.lastSeq {
			at = position{e.lastSeq, e.lastPart}
		}
	}
	return at, nil
}
