package segment

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// Seal ends open segments and puts them into the store and the chain: those that are
// full, whose day is over, or that are open for longer than age; all for 0. One that was
// recovered waits until its logs were read again, and those behind it wait, too. What
// was in them survives this machine. After an error, Seal again goes on where it was;
// nothing gets into the chain twice, and what one tenant's chain has does not keep the
// others'. It returns the heads it added.
func (a *Archive) Seal(ctx context.Context, age time.Duration) ([]*Head, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return nil, a.broken
	}
	due := a.due(age)
	if len(due) == 0 {
		return nil, nil
	}
	key, err := a.key(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	var heads []*Head
	var errs []error
	failed := map[string]bool{}
	for _, s := range due {
		if failed[s.tenant] {
			continue // its segments get into the chain in the order in which they were begun
		}
		h, err := a.seal(ctx, s, key)
		if h != nil {
			heads = append(heads, h)
		}
		if err != nil {
			failed[s.tenant] = true
			errs = append(errs, fmt.Errorf("seal segment %x: %w", s.uid[:4], ofTenant(s.tenant, err)))
		}
	}
	return heads, errors.Join(errs...)
}

// due lists the segments to be sealed, in the order in which they were begun: with one
// all older ones of its tenant.
func (a *Archive) due(age time.Duration) []*open {
	now := time.Now()
	tenants := map[string]bool{}
	var out []*open
	for _, s := range slices.Backward(a.sealable()) {
		if tenants[s.tenant] || s.done || s.full || s.day < dayOf(now.UnixNano()) || now.Sub(s.begun) >= age {
			tenants[s.tenant] = true
			out = append(out, s)
		}
	}
	slices.Reverse(out)
	return out
}

// seal takes one segment through all steps. What is done already is not done again.
func (a *Archive) seal(ctx context.Context, s *open, key ed25519.PrivateKey) (*Head, error) {
	t, err := a.tenant(ctx, s.tenant)
	if err != nil {
		return nil, err
	}
	if err := a.finish(s); err != nil {
		return nil, err
	}
	if err := a.sync(s); err != nil {
		return nil, err
	}
	a.finished(t, s)
	h, err := a.commit(ctx, t, s, key)
	if err != nil {
		return nil, err
	}
	if err := a.keepPage(ctx, t, s, h); err != nil {
		return nil, err
	}
	delete(t.found, h.Segment.UID)
	a.setSegs(slices.DeleteFunc(a.segs, func(o *open) bool { return o == s }))
	a.stats.Sealed++
	a.stats.SealedBytes += s.size
	if err := t.remember(); err != nil {
		return h, err
	}
	if err := a.remove(s); err != nil {
		return h, err
	}
	a.indexes(ctx, t)
	return h, nil
}

// commit puts a finished segment into the store and the chain: its keys, the segment, the
// head. A crash between leaves objects that no head names, which the next commit finds.
func (a *Archive) commit(ctx context.Context, t *tenant, s *open, key ed25519.PrivateKey) (*Head, error) {
	uid := hex.EncodeToString(s.uid[:])
	moved := func() error {
		if err := a.advance(ctx, t); err != nil {
			return err
		}
		if t.foreign && t.found[uid] == nil {
			// This archive's place in the logs is not the chain's any more.
			a.broken = ErrAnother
			return errors.Join(ErrAnother, a.drop(t))
		}
		return nil
	}
	if err := moved(); err != nil || t.found[uid] != nil {
		return t.found[uid], err
	}
	if err := a.createPage(ctx, t, s, uid); err != nil {
		return nil, err
	}
	name, err := a.createSegment(ctx, s, uid)
	if err != nil {
		return nil, err
	}
	for {
		h := &Head{Segment: name, Through: a.through(t, s)}
		if err := a.step("create head"); err != nil {
			return nil, err
		}
		err := t.add(ctx, h, key)
		if err == nil {
			t.found[uid] = h
			return h, a.step("head created")
		}
		if !errors.Is(err, errMoved) {
			return nil, err
		}
		// Somebody stated something meanwhile. It may be that a run of this segment is erased.
		if err := errors.Join(a.advance(ctx, t), a.erasePage(ctx, t, uid)); err != nil {
			return nil, err
		}
		if err := moved(); err != nil || t.found[uid] != nil {
			return t.found[uid], err
		}
	}
}

func (a *Archive) createPage(ctx context.Context, t *tenant, s *open, uid string) error {
	p := &page{uid: s.uid, tenant: s.tenant}
	has := map[string]bool{} // a key that a crash left without a block is of no use
	for i := range s.blocks {
		has[s.blocks[i].run] = true
	}
	for run, r := range s.runs {
		if !has[run] {
			continue
		}
		e := pageEntry{run: run, key: r.key}
		if t.erased[run] != 0 {
			e.erased, e.key = true, [32]byte{}
		}
		p.keys = append(p.keys, e)
	}
	b, err := p.encode(a.o.Wrap)
	if err != nil {
		return fmt.Errorf("keys of the segment: %w", err)
	}
	if err := a.step("create page"); err != nil {
		return err
	}
	s.paged = time.Now()
	err = createBytes(ctx, a.o.Keys, pageKey(s.tenant, uid), b)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return a.erasePage(ctx, t, uid) // it is from before a crash: what was erased since must go
}

// createSegment puts the segment into the store. One that is there already must be the same.
func (a *Archive) createSegment(ctx context.Context, s *open, uid string) (*Sealed, error) {
	f, err := openFile(&a.coder, s.f, s.size)
	if err != nil {
		return nil, fmt.Errorf("read what was written: %w", err)
	}
	sealed := f.sealed("")
	sealed.Name = segmentKey(s.tenant, dayName(s.day), sealed.First.Format("150405.000000000Z"), uid)
	if err := a.step("create segment"); err != nil {
		return nil, err
	}
	err = a.o.Store.Create(ctx, sealed.Name, io.NewSectionReader(s.f, 0, s.size))
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return sealed, err
	}
	o, err := a.o.Store.Open(ctx, sealed.Name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if there, err := openFile(&a.coder, o, o.Size()); err != nil {
		return nil, fmt.Errorf("another object has the name %s: %w", sealed.Name, err)
	} else if there.root != f.root {
		return nil, fmt.Errorf("another segment has the name %s", sealed.Name)
	}
	return sealed, nil
}
