package segment

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"
)

// A tenant is what an Archive knows of one.
type tenant struct {
	*chain

	sealed  map[string]Place // up to where all is in segments that are done
	reached map[Log]Place    // the last place of each log in segments that are done
	known   positions
	found   map[string]*Head // of segments of this archive that were in the chain already, by uid
	foreign bool             // another archiver has added a segment
	indexed uint64           // the last head for which indexes were written
}

// tenant opens a tenant's chain, as the store has it. What this machine has of segments that
// are not in the chain is dropped where another archiver went on without it: whatever was in
// it was not acknowledged, so it is in the other's, or it comes again.
func (a *Archive) tenant(ctx context.Context, name string) (*tenant, error) {
	if t := a.tenants[name]; t != nil {
		return t, nil
	}
	if err := a.aside[name]; err != nil {
		return nil, &TenantError{name, err}
	}
	c, err := openChain(a.o.Store, name, a.o.Dir)
	if err != nil {
		return nil, ofTenant(name, err)
	}
	t := &tenant{chain: c, sealed: map[string]Place{}, reached: map[Log]Place{}, found: map[string]*Head{}}
	if err := a.advance(ctx, t); err != nil {
		return nil, ofTenant(name, err)
	}
	if t.foreign {
		if err := a.drop(t); err != nil {
			return nil, err
		}
		t.foreign = false
	}
	if err := a.dropCovered(ctx, t); err != nil {
		return nil, err
	}
	maps.Copy(t.sealed, t.through)
	a.tenants[name] = t
	return t, nil
}

// advance reads what was added to a tenant's chain.
func (a *Archive) advance(ctx context.Context, t *tenant) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	return t.advance(ctx, func(h *Head) {
		if h.Segment == nil {
			return
		}
		for _, s := range a.segs {
			if hex.EncodeToString(s.uid[:]) == h.Segment.UID {
				t.found[h.Segment.UID] = h
				return
			}
		}
		t.foreign = true
	})
}

// drop forgets a tenant's segments that are not in the chain.
func (a *Archive) drop(t *tenant) error {
	var kept []*open
	var errs []error
	for _, s := range a.segs {
		if s.tenant != t.tenant || t.found[hex.EncodeToString(s.uid[:])] != nil {
			kept = append(kept, s)
			continue
		}
		a.o.Log.Warn("segment dropped: another archiver went on without it", "tenant", t.tenant, "uid", hex.EncodeToString(s.uid[:]))
		for _, r := range s.runs {
			for _, b := range r.logs {
				if b.elem != nil {
					a.release(b)
				}
			}
		}
		errs = append(errs, a.remove(s))
	}
	a.setSegs(kept)
	return errors.Join(errs...)
}

// dropCovered forgets the segments of which the chain has everything: a crash came behind the head.
func (a *Archive) dropCovered(ctx context.Context, t *tenant) error {
	var kept []*open
	var errs []error
	for _, s := range a.segs {
		covered := s.tenant == t.tenant
		for log, p := range s.upTo {
			covered = covered && t.through[log.String()].has(p.Seq, p.Time)
		}
		var err error
		if h := t.found[hex.EncodeToString(s.uid[:])]; covered && h != nil {
			err = a.keepPage(ctx, t, s, h)
			errs = append(errs, err)
		}
		if !covered || err != nil {
			kept = append(kept, s)
			continue
		}
		errs = append(errs, a.remove(s))
	}
	a.setSegs(kept)
	return errors.Join(errs...)
}

// current gives a tenant's chain with all that was added to it.
func (a *Archive) current(ctx context.Context, name string) (*tenant, error) {
	if a.broken != nil {
		return nil, a.broken
	}
	t, err := a.tenant(ctx, name)
	if err != nil {
		return nil, err
	}
	return t, a.advance(ctx, t)
}

// state adds a statement to a tenant's chain. say makes it, of what the chain says then: it is
// called again where somebody else was faster. Where it makes none, nothing is added.
func (a *Archive) state(ctx context.Context, t *tenant, say func() (*Statement, error)) (*Head, error) {
	key, err := a.key(ctx)
	if err != nil {
		return nil, err
	}
	for {
		s, err := say()
		if err != nil || s == nil {
			return nil, err
		}
		for _, text := range []string{s.By, s.Why, s.Run, s.Hold} {
			if !utf8.ValidString(text) {
				return nil, fmt.Errorf("%w: %q is not UTF-8", ErrText, text)
			}
		}
		h := &Head{Statement: s}
		err = t.add(ctx, h, key)
		if err == nil {
			a.indexes(ctx, t)
			return h, t.remember()
		}
		if !errors.Is(err, errMoved) {
			return nil, err
		}
		if err := a.advance(ctx, t); err != nil {
			return nil, err
		}
	}
}

// finished notes that a segment has all it will have.
func (a *Archive) finished(t *tenant, s *open) {
	for log, p := range s.upTo {
		t.reached[log] = later(t.reached[log], p)
	}
	for log, p := range a.through(t, s) {
		t.sealed[log] = later(t.sealed[log], p)
	}
	for run, r := range s.runs {
		if r.pos.seq > 0 {
			t.known.put(run, r.pos)
		}
	}
}
