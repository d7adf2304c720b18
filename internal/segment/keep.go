package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrTooMany is wrapped by Retain when there was more to delete than one statement may
// name: what it names was deleted, call it again.
var ErrTooMany = errors.New("more segments than one statement may name")

// Erase destroys the keys of a run: the fact gets into the chain first, then the keys
// go, also in pages that no head names. It returns ErrHeld under a
// hold. Records of the run that come later are kept erased. A second call finishes what a first
// one could not, and returns its head. Of several calls at once, in any number of processes,
// the chain says which was first.
//
// What stays readable: that there was a run with this id of this tenant, when its messages
// were stored, how many and how long they were, and the statement. Who has an older copy of the
// keys' store can still read the run.
func (a *Archive) Erase(ctx context.Context, tenant, run, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	head, err := a.eraseRun(ctx, tenant, run, by, why)
	if err != nil {
		return head, fmt.Errorf("erase run %s: %w", run, err)
	}
	return head, nil
}

func (a *Archive) eraseRun(ctx context.Context, tenant, run, by, why string) (*Head, error) {
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, err
	}
	head, err := a.state(ctx, t, func() (*Statement, error) {
		if h := t.held(run); h != nil {
			return nil, fmt.Errorf("%w %q", ErrHeld, h.Hold)
		}
		if t.erased[run] != 0 {
			return nil, nil //nolint:nilnil // it is said already
		}
		return &Statement{Kind: Erased, Run: run, By: by, Why: why}, nil
	})
	if err == nil && head == nil {
		head, err = readHead(ctx, a.o.Store, tenant, t.erased[run])
	}
	if err != nil {
		return nil, err
	}
	v, err := a.reader.view(ctx, tenant)
	if err != nil {
		return head, err
	}
	entries, unread, err := a.reader.find(ctx, v, run)
	if err != nil {
		return head, err
	}
	var errs []error
	here := map[string]bool{}
	for i := range entries {
		here[v.segment(entries[i].number).UID] = true
	}
	for _, d := range unread { // the run may be in what cannot be read
		here[v.segment(d.Number).UID] = true
	}
	for uid := range here {
		errs = append(errs, a.erasePage(ctx, t, uid)) // the others are looked at, too
	}
	return head, errors.Join(append(errs, a.eraseUnnamed(ctx, t, v))...)
}

// eraseUnnamed destroys the keys of erased runs in pages of segments that no head names, and
// what is left of pages that were being written: a crash came before the head, and the records
// were sealed anew.
func (a *Archive) eraseUnnamed(ctx context.Context, t *tenant, v *view) error {
	named := v.uids()
	var errs []error
	for info, err := range a.o.Keys.List(ctx, pagePrefix(t.tenant)) {
		if err != nil {
			return err
		}
		if uid, ok := pageUID(t.tenant, info.Key); ok && named[uid] == 0 {
			errs = append(errs, a.erasePage(ctx, t, uid)) // the others are looked at, too
		}
	}
	if d, ok := a.o.Keys.(*Dir); ok {
		errs = append(errs, d.Sweep(ctx, time.Now().Add(-eraseTemp)))
	}
	return errors.Join(errs...)
}

// eraseTemp is the age from which Erase removes what is being written to a directory of keys: a
// writer that is slower tries again.
const eraseTemp = time.Minute

// erasePage destroys the keys of all erased runs in the page of one segment. Another process
// may be writing the page at the same time, with the keys of other runs gone: so what was
// written is looked at again, with what the chain says then.
func (a *Archive) erasePage(ctx context.Context, t *tenant, uid string) error {
	for {
		changed, err := eraseKeys(ctx, a.o.Keys, t.tenant, uid, t.erased, a.o.Wrap)
		if err != nil || !changed {
			return err
		}
		if err := a.advance(ctx, t); err != nil {
			return err
		}
		v, err := a.reader.view(ctx, t.tenant)
		if err != nil {
			return err
		}
		if v.goneUID(uid) { // its page was deleted, and is here again
			return a.o.Keys.Delete(ctx, pageKey(t.tenant, uid))
		}
	}
}

// IsErased reports whether the part of a tenant's chain that this process has seen says that a
// run is erased.
func (a *Archive) IsErased(tenant, run string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	return t != nil && t.erased[run] != 0
}

// Retain deletes a tenant's segments whose last record was stored before a time,
// except those with a held run. The fact gets into the chain first. It returns nil
// where there was nothing to delete. A second call finishes what a first one could not.
func (a *Archive) Retain(ctx context.Context, tenant string, before time.Time, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	var v *view
	var left []uint64
	head, err := a.state(ctx, t, func() (st *Statement, err error) {
		if h := t.held(""); h != nil && h.Run == "" {
			return nil, fmt.Errorf("tenant %q: %w %q", tenant, ErrHeld, h.Hold)
		}
		if v, err = a.reader.view(ctx, tenant); err != nil {
			return nil, err
		}
		st = &Statement{Kind: Retained, By: by, Why: why}
		if st.Segments, left, err = a.over(ctx, t, v, before); err != nil || len(st.Segments) == 0 {
			return nil, err
		}
		return st, a.ends(ctx, v, st)
	})
	if err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	gone := left // what a crash left
	if head != nil {
		gone = append(gone, head.Statement.Segments...)
	}
	for _, n := range gone {
		if err := a.delete(ctx, tenant, v.segment(n)); err != nil {
			return head, fmt.Errorf("retain segment %d: %w", n, err)
		}
	}
	if head != nil && len(head.Statement.Segments) == maxSegments {
		return head, ErrTooMany
	}
	return head, nil
}

// over lists the segments whose time is over and that are not held, up to as many as a statement
// may name, and those that are said to be deleted.
func (a *Archive) over(ctx context.Context, t *tenant, v *view, before time.Time) (over, gone []uint64, err error) {
	held, err := a.heldSegments(ctx, t, v)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range v.numbers() {
		switch {
		case v.goneHead(n) != 0:
			gone = append(gone, n)
		case v.segment(n).Last.Before(before) && !held[n] && len(over) < maxSegments:
			over = append(over, n)
		}
	}
	return over, gone, nil
}

// ends notes where the runs were that go on in segments that stay: what is missing of them
// then is no hole that somebody made.
func (a *Archive) ends(ctx context.Context, v *view, st *Statement) error {
	var end End
	size, goesOn := 0, false
	flush := func() {
		if end.Seq == 0 || !goesOn {
			return
		}
		if size += len(end.Run) + 32; size > maxEnds {
			st.More = true
			return
		}
		st.Ends = append(st.Ends, end)
	}
	var unread []*DamagedError // what cannot be read is not known to go on
	for e, err := range a.reader.merged(ctx, v, &unread) {
		if err != nil {
			return err
		}
		if e.run != end.Run {
			flush()
			end, goesOn = End{Run: e.run}, false
		}
		if _, gone := slices.BinarySearch(st.Segments, e.number); gone {
			end.Seq = max(end.Seq, e.lastSeq)
		} else if v.goneHead(e.number) == 0 && end.Seq > 0 {
			goesOn = true
		}
	}
	flush()
	return nil
}

// delete removes a segment's objects, the keys first: what they open is gone then.
func (a *Archive) delete(ctx context.Context, tenant string, s *Sealed) error {
	if err := a.o.Keys.Delete(ctx, pageKey(tenant, s.UID)); err != nil {
		return err
	}
	return a.o.Store.Delete(ctx, s.Name)
}

// heldSegments are the segments that have a held run.
func (a *Archive) heldSegments(ctx context.Context, t *tenant, v *view) (map[uint64]bool, error) {
	held := map[uint64]bool{}
	for _, s := range t.holds {
		entries, unread, err := a.reader.find(ctx, v, s.Run)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			held[entries[i].number] = true
		}
		for _, d := range unread { // the run may be in what cannot be read
			held[d.Number] = true
		}
	}
	return held, nil
}

// Hold forbids Erase and Retain for a run, or a whole tenant where run is "", until
// Release. id names the hold; several may be on one run.
func (a *Archive) Hold(ctx context.Context, tenant, run, id, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == "" {
		return nil, errors.New("hold: it needs a name")
	}
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("hold: %w", err)
	}
	return a.state(ctx, t, func() (*Statement, error) {
		switch {
		case t.holds[id] != nil:
			return nil, fmt.Errorf("hold %q: there is one of this name", id)
		case run != "" && t.erased[run] != 0:
			return nil, fmt.Errorf("hold run %s: it was erased", run)
		}
		return &Statement{Kind: Held, Run: run, Hold: id, By: by, Why: why}, nil
	})
}

// Release ends a hold.
func (a *Archive) Release(ctx context.Context, tenant, id, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	return a.state(ctx, t, func() (*Statement, error) {
		if t.holds[id] == nil {
			return nil, fmt.Errorf("release hold %q: %w", id, ErrNotFound)
		}
		return &Statement{Kind: Released, Hold: id, By: by, Why: why}, nil
	})
}

// Holds lists a tenant's holds by their names.
func (a *Archive) Holds(ctx context.Context, tenant string) ([]*Statement, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var out []*Statement
	for _, s := range t.holds {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Statement) int { return strings.Compare(a.Hold, b.Hold) })
	return out, nil
}

// Missing states that the bus did not have some events of a run any more when they were to be
// archived, so that verify can tell the hole from one that was made.
func (a *Archive) Missing(ctx context.Context, tenant, run string, first, last uint64, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return a.state(ctx, t, func() (*Statement, error) {
		return &Statement{Kind: Missing, Run: run, FirstSeq: first, LastSeq: last, By: by, Why: why}, nil
	})
}
