package segment

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"
)

// An object that no head names was left by a crash: segments and pages of keys are stored
// before their head. It is no part of the archive, but it has what the archive may have
// erased. Which of them may go:
//
//   - A segment of which the chain has every record. Its writer cannot name it any more: whoever
//     added those records was another, at which it drops what it has (see [ErrAnother]), or
//     is this process.
//   - A page of keys of such a segment, or of one that retention deleted.
//   - A page without a segment, when it is older than [orphanAge]. A writer that was stopped for
//     so long between its page and its head looks whether the page is there; see [Archive.keepPage].
//
// A segment with records that the chain does not have stays: it may be the only copy, of a chain
// whose end was cut off.

// orphanAge is how old a page without a segment must be to be removed.
const orphanAge = 24 * time.Hour

// Tidy removes what crashes left of a tenant that no head names and nobody needs, and returns
// the keys of the objects that are gone. It is for the process that archives the tenant.
func (a *Archive) Tidy(ctx context.Context, tenant string) (gone []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone, err = a.tidy(ctx, tenant, time.Now())
	if err != nil {
		err = fmt.Errorf("tidy: %w", ofTenant(tenant, err))
	}
	return gone, err
}

func (a *Archive) tidy(ctx context.Context, tenant string, now time.Time) (gone []string, err error) {
	t, err := a.current(ctx, tenant)
	if err == nil {
		err = t.check(ctx)
	}
	if err != nil {
		return nil, err
	}
	v, err := a.reader.view(ctx, tenant)
	if err != nil {
		return nil, err
	}
	named := v.uids()
	for _, s := range a.byTenant[tenant] {
		named[hex.EncodeToString(s.uid[:])] = 0 // they are this process's to go on with
	}
	remove := func(st Store, key string) error {
		if err := st.Delete(ctx, key); err != nil {
			return err
		}
		gone = append(gone, key)
		return nil
	}
	segments, needed, err := a.unnamed(ctx, t, v, named)
	if err != nil {
		return gone, err
	}
	for info, err := range a.o.Keys.List(ctx, pagePrefix(tenant)) {
		if err != nil {
			return gone, err
		}
		uid, ok := pageUID(tenant, info.Key)
		if !ok || needed[uid] {
			continue
		}
		n, known := named[uid]
		switch {
		case known && v.goneHead(n) == 0:
			continue
		case !known && segments[uid] == "":
			if info.Time.IsZero() || now.Sub(info.Time) < orphanAge {
				continue
			}
			if whole, err := a.wholeChain(ctx, t); err != nil || !whole {
				return gone, err
			}
		}
		if err := remove(a.o.Keys, info.Key); err != nil {
			return gone, err
		}
	}
	for _, key := range segments {
		if err := remove(a.o.Store, key); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// unnamed lists the segments that no head names, by uid: those of which the chain has everything,
// and the others, which are needed.
func (a *Archive) unnamed(ctx context.Context, t *tenant, v *view, named map[string]uint64) (covered map[string]string, needed map[string]bool, err error) {
	names := map[string]bool{}
	for _, n := range v.numbers() {
		names[v.segment(n).Name] = true
	}
	covered, needed = map[string]string{}, map[string]bool{}
	for info, err := range a.o.Store.List(ctx, segmentPrefix(t.tenant)) {
		if err != nil {
			return nil, nil, err
		}
		if names[info.Key] {
			continue
		}
		f, err := a.unnamedFile(ctx, info.Key)
		if err != nil {
			return nil, nil, err
		}
		if f == nil || f.tenant != t.tenant {
			continue // verify says what it is
		}
		uid := hex.EncodeToString(f.uid[:])
		if _, known := named[uid]; known {
			continue
		}
		if len(f.blocks) > 0 && t.covers(f.blocks) {
			covered[uid] = info.Key
		} else {
			needed[uid] = true
		}
	}
	return covered, needed, nil
}

// unnamedFile reads what a segment has, nil where it is none.
func (a *Archive) unnamedFile(ctx context.Context, key string) (*file, error) {
	o, err := a.o.Store.Open(ctx, key)
	if isNotExist(err) {
		return nil, nil //nolint:nilnil // it went meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer o.Close()
	f, err := openFile(&a.coder, o, o.Size())
	if damagedChain(err) {
		return nil, nil //nolint:nilnil // it is none
	}
	return f, err
}

// covers reports whether the chain has all records of blocks.
func (c *chain) covers(blocks []entry) bool {
	for i := range blocks {
		e := &blocks[i]
		if !c.through[e.log.String()].has(e.lastPlace, time.Unix(0, e.last).UTC()) {
			return false
		}
	}
	return true
}

// wholeChain reports whether there is no head but those of the chain: behind a gap there may be
// heads that name what seems to be named by none.
func (a *Archive) wholeChain(ctx context.Context, t *tenant) (bool, error) {
	n := uint64(0)
	for _, err := range a.o.Store.List(ctx, headPrefix(t.tenant)) {
		if err != nil {
			return false, err
		}
		n++
	}
	return n == t.number, nil
}

// keepPage sees to it that the page of a segment whose head is there is there, too, where
// much time has passed since it was stored, or that is not known.
func (a *Archive) keepPage(ctx context.Context, t *tenant, s *open, h *Head) error {
	if !s.paged.IsZero() && time.Since(s.paged.Round(0)) < orphanAge/4 {
		return nil
	}
	uid := hex.EncodeToString(s.uid[:])
	v, err := a.reader.view(ctx, t.tenant)
	if err != nil || v.goneHead(h.Number) != 0 {
		return err
	}
	return a.createPage(ctx, t, s, uid)
}
