package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// RunInfo is what the index knows of a run.
type RunInfo struct {
	Tenant, Run       string
	FirstSeq, LastSeq uint64 // 0 where it has no events
	Records           int64
	Bytes             int64 // as stored
	First, Last       time.Time
	Segments          []uint64 // numbers of heads
	Gone              []uint64 // those of them that retention deleted
	Unread            []uint64 // segments that are damaged, in which it may have more
	Erased            *Head    // nil where it was not
	Held              bool
}

// Runs yields the runs of a tenant that have records in [since, until), by id; zero
// times are no bounds. An empty tenant is all tenants, one after the other. What cannot be
// read comes behind a tenant's runs, as with [Reader.Records].
func (r *Reader) Runs(ctx context.Context, tenant string, since, until time.Time) iter.Seq2[*RunInfo, error] {
	q := Query{Since: since, Until: until}
	return func(yield func(*RunInfo, error) bool) {
		tenants, bad, err := r.of(ctx, tenant)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, t := range tenants {
			goOn, err := r.runs(ctx, t, &q, yield)
			if err != nil {
				goOn = yield(nil, ofTenant(t, err)) && ctx.Err() == nil
			}
			if !goOn {
				return
			}
		}
		if bad != nil {
			yield(nil, bad)
		}
	}
}

func (r *Reader) runs(ctx context.Context, tenant string, q *Query, yield func(*RunInfo, error) bool) (goOn bool, err error) {
	v, err := r.view(ctx, tenant)
	if err != nil {
		return false, err
	}
	var of []runEntry
	flush := func() bool {
		if len(of) == 0 {
			return true
		}
		info := r.info(ctx, v, of)
		of = of[:0]
		return !q.overlaps(info.First, info.Last) || yield(info, nil)
	}
	var unread []*DamagedError
	for e, err := range r.merged(ctx, v, &unread) {
		if err != nil {
			return false, err
		}
		if len(of) > 0 && of[0].run != e.run && !flush() {
			return false, nil
		}
		of = append(of, *e)
	}
	if !flush() {
		return false, nil
	}
	for _, d := range unread {
		if !yield(nil, d) {
			return false, nil
		}
	}
	return true, nil
}

// Run finds one run, or ErrNotFound; ErrNoArchive where there is nothing to look in. An empty
// tenant asks all. Where it was not found, and could be in what cannot be read, the error says that.
func (r *Reader) Run(ctx context.Context, tenant, run string) (*RunInfo, error) {
	tenants, bad, err := r.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, t := range tenants {
		i, err := r.runOf(ctx, t, run)
		if i != nil {
			return i, nil
		}
		if err != nil {
			bad = errors.Join(bad, ofTenant(t, err))
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("run %s was not found, and not everything can be read: %w", run, bad)
	}
	return nil, r.notFound(ctx, run)
}

// runOf is what is known of a run of a tenant, nil for nothing.
func (r *Reader) runOf(ctx context.Context, tenant, run string) (*RunInfo, error) {
	v, err := r.view(ctx, tenant)
	if err != nil {
		return nil, err
	}
	entries, unread, err := r.find(ctx, v, run)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		for _, d := range unread {
			err = errors.Join(err, d)
		}
		return nil, err
	}
	i := r.info(ctx, v, entries)
	for _, d := range unread {
		i.Unread = append(i.Unread, d.Number)
	}
	return i, nil
}

// Erased lists the runs of a tenant that were erased.
func (r *Reader) Erased(ctx context.Context, tenant string) (map[string]bool, error) {
	v, err := r.view(ctx, tenant)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]bool, len(v.erased))
	for run := range v.erased {
		out[run] = true
	}
	return out, nil
}

// Deleted lists the heads of a tenant whose segments retention deleted.
func (r *Reader) Deleted(ctx context.Context, tenant string) (map[uint64]bool, error) {
	v, err := r.view(ctx, tenant)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[uint64]bool, len(v.gone))
	for n := range v.gone {
		out[n] = true
	}
	return out, nil
}

// info sums up what segments have of one run.
func (r *Reader) info(ctx context.Context, v *view, entries []runEntry) *RunInfo {
	i := &RunInfo{Tenant: v.tenant, Run: entries[0].run}
	for k := range entries {
		e := &entries[k]
		i.Records += int64(e.records)
		i.Bytes += int64(e.bytes)
		i.Segments = append(i.Segments, e.number)
		if v.goneHead(e.number) != 0 {
			i.Gone = append(i.Gone, e.number)
		}
		if e.firstSeq != 0 && (i.FirstSeq == 0 || e.firstSeq < i.FirstSeq) {
			i.FirstSeq = e.firstSeq
		}
		i.LastSeq = max(i.LastSeq, e.lastSeq)
		first, last := time.Unix(0, e.first).UTC(), time.Unix(0, e.last).UTC()
		if k == 0 || first.Before(i.First) {
			i.First = first
		}
		if last.After(i.Last) {
			i.Last = last
		}
	}
	var n uint64
	if n, i.Held = v.state(i.Run); n != 0 {
		i.Erased = r.headOf(ctx, v.tenant, n)
	}
	return i
}

// headOf reads a head that is known to be there; nil where it cannot be read.
func (r *Reader) headOf(ctx context.Context, tenant string, n uint64) *Head {
	h, err := readHead(ctx, r.o.Store, tenant, n)
	if err != nil {
		return nil
	}
	return h
}
