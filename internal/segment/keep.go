package segment

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/subject"
)

// ErrTooMany is wrapped by Retain when there was more to delete than one statement may
// name: what it names was deleted, call it again.
var ErrTooMany = errors.New("more segments than one statement may name")

// Erase destroys the keys of a run: the fact gets into the chain first, then the keys
// go. It returns ErrHeld under a hold. Records of the run that come later are kept
// erased. A second call finishes what a first one could not, and returns its head.
//
// What stays readable: that there was a run with this id of this tenant, when its messages
// were stored, how many and how long they were, and the statement. Who has an older copy of the
// keys' store can still read the run.
func (a *Archive) Erase(ctx context.Context, tenant, run, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("erase run %s: %w", run, err)
	}
	if h := t.held(run); h != nil {
		return nil, fmt.Errorf("erase run %s: %w %q", run, ErrHeld, h.Hold)
	}
	var head *Head
	if n := t.erased[run]; n != 0 {
		head, err = readHead(ctx, a.o.Store, tenant, n)
	} else {
		head, err = a.state(ctx, t, &Statement{Kind: Erased, Run: run, By: by, Why: why})
	}
	if err != nil {
		return nil, fmt.Errorf("erase run %s: %w", run, err)
	}
	v, err := a.reader.view(ctx, tenant)
	if err != nil {
		return head, fmt.Errorf("erase run %s: %w", run, err)
	}
	entries, err := a.reader.find(ctx, v, run)
	if err != nil {
		return head, fmt.Errorf("erase run %s: %w", run, err)
	}
	for i := range entries {
		s := v.segment(entries[i].number)
		if _, err := erase(ctx, a.o.Keys, tenant, s.UID, run, a.o.Wrap); err != nil {
			return head, err
		}
	}
	return head, a.eraseUnnamed(ctx, v, tenant, run)
}

// IsErased reports whether the part of a tenant's chain that this process has seen says that a
// run is erased.
func (a *Archive) IsErased(tenant, run string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	return t != nil && t.erased[run] != 0
}

// eraseUnnamed destroys the keys of a run in pages of segments that no head names: a crash
// came before the head, and the records were sealed anew.
func (a *Archive) eraseUnnamed(ctx context.Context, v *view, tenant, run string) error {
	named := map[string]bool{}
	for _, n := range v.numbers() {
		named[v.segment(n).UID] = true
	}
	var errs []error
	for info, err := range a.o.Keys.List(ctx, "keys/"+subject.Token(tenant)+"/") {
		if err != nil {
			return fmt.Errorf("erase run %s: %w", run, err)
		}
		uid, ok := strings.CutSuffix(path.Base(info.Key), keysSuffix)
		if !ok || len(uid) != 32 || named[uid] || info.Key != pageKey(tenant, uid) {
			continue
		}
		if _, err := erase(ctx, a.o.Keys, tenant, uid, run, a.o.Wrap); err != nil {
			errs = append(errs, err) // the others are looked at, too
		}
	}
	return errors.Join(errs...)
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
	if h := t.held(""); h != nil && h.Run == "" {
		return nil, fmt.Errorf("retain tenant %q: %w %q", tenant, ErrHeld, h.Hold)
	}
	v, err := a.reader.view(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	held, err := a.heldSegments(ctx, t, v)
	if err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	var gone []uint64
	for _, n := range v.numbers() {
		s := v.segment(n)
		switch {
		case v.goneHead(n) != 0:
			if err := a.delete(ctx, tenant, s); err != nil { // what a crash left
				return nil, err
			}
		case s.Last.Before(before) && !held[n] && len(gone) < maxSegments:
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return nil, nil //nolint:nilnil // there was nothing to state
	}
	st := &Statement{Kind: Retained, By: by, Why: why, Segments: gone}
	if err := a.ends(ctx, v, st); err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	head, err := a.state(ctx, t, st)
	if err != nil {
		return nil, fmt.Errorf("retain: %w", err)
	}
	for _, n := range gone {
		if err := a.delete(ctx, tenant, v.segment(n)); err != nil {
			return head, fmt.Errorf("retain segment %d: %w", n, err)
		}
	}
	if len(gone) == maxSegments {
		return head, ErrTooMany
	}
	return head, nil
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
	for e, err := range a.reader.merged(ctx, v) {
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
		entries, err := a.reader.find(ctx, v, s.Run)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			held[entries[i].number] = true
		}
	}
	return held, nil
}

// Hold forbids Erase and Retain for a run, or a whole tenant where run is "", until
// Release. id names the hold; several may be on one run.
func (a *Archive) Hold(ctx context.Context, tenant, run, id, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	switch {
	case err != nil:
		return nil, fmt.Errorf("hold: %w", err)
	case id == "":
		return nil, errors.New("hold: it needs a name")
	case t.holds[id] != nil:
		return nil, fmt.Errorf("hold %q: there is one of this name", id)
	case run != "" && t.erased[run] != 0:
		return nil, fmt.Errorf("hold run %s: it was erased", run)
	}
	return a.state(ctx, t, &Statement{Kind: Held, Run: run, Hold: id, By: by, Why: why})
}

// Release ends a hold.
func (a *Archive) Release(ctx context.Context, tenant, id, by, why string) (*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.current(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	if t.holds[id] == nil {
		return nil, fmt.Errorf("release hold %q: %w", id, ErrNotFound)
	}
	return a.state(ctx, t, &Statement{Kind: Released, Hold: id, By: by, Why: why})
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
	return a.state(ctx, t, &Statement{Kind: Missing, Run: run, FirstSeq: first, LastSeq: last, By: by, Why: why})
}
