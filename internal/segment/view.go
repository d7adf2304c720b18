package segment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
)

// A view is what a Reader knows of a tenant's chain.
type view struct {
	tenant string

	mu     sync.Mutex // guards the fields below
	number uint64
	hash   string
	time   time.Time
	signer int
	segs   map[uint64]*Sealed
	order  []uint64
	erased map[string]uint64
	holds  map[string]*Statement
	gone   map[uint64]uint64 // by the segment's number, that of the statement
	covers []cover
	listed uint64 // the chain's length when the indexes were listed
}

// A cover is an index that is used: of the heads from to to.
type cover struct {
	from, to uint64
	key      string
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// view gives the tenant's view as it is now.
func (r *Reader) view(ctx context.Context, tenant string) (*view, error) {
	r.mu.Lock()
	v := r.views[tenant]
	if v == nil {
		v = &view{
			tenant: tenant, segs: map[uint64]*Sealed{}, erased: map[string]uint64{}, holds: map[string]*Statement{},
			gone: map[uint64]uint64{}, signer: -1,
		}
		if len(r.views) >= maxViews {
			clear(r.views)
		}
		r.views[tenant] = v
	}
	r.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listed == 0 {
		if err := r.list(ctx, v, true); err != nil {
			return nil, err
		}
	}
	for {
		h, err := readHead(ctx, r.o.Store, tenant, v.number+1)
		if isNotExist(err) {
			break
		}
		if err == nil {
			err = r.take(ctx, v, h)
		}
		if err != nil {
			return nil, err
		}
	}
	if v.number/fan != v.listed/fan {
		if err := r.list(ctx, v, false); err != nil {
			return nil, err
		}
	}
	v.listed = max(v.number, 1)
	return v, nil
}

// maxViews bounds the tenants that a Reader knows at a time.
const maxViews = 1024

// list finds the indexes that cover the chain's beginning, the largest ones, and takes their
// heads if it is told to.
func (r *Reader) list(ctx context.Context, v *view, take bool) error {
	best := map[uint64]cover{} // by the first head, the longest
	for info, err := range r.o.Store.List(ctx, indexPrefix(v.tenant)) {
		if err != nil {
			return fmt.Errorf("list indexes: %w", err)
		}
		var c cover
		name := info.Key[strings.LastIndexByte(info.Key, '/')+1:]
		if n, err := fmt.Sscanf(name, "%d-%d.idx", &c.from, &c.to); n != 2 || err != nil || c.to < c.from {
			continue
		}
		c.key = info.Key
		if c.to > best[c.from].to {
			best[c.from] = c
		}
	}
	v.covers = v.covers[:0]
	for at := uint64(1); ; {
		c, ok := best[at]
		if !ok || !take && c.to > v.number {
			break
		}
		if take {
			if err := r.takeIndexed(ctx, v, c); err != nil {
				break // it is derived: the heads themselves say the same, or what is wrong
			}
		}
		v.covers = append(v.covers, c)
		at = c.to + 1
	}
	return nil
}

// takeIndexed takes the heads that an index has.
func (r *Reader) takeIndexed(ctx context.Context, v *view, c cover) error {
	o, err := r.o.Store.Open(ctx, c.key)
	if err != nil {
		return err
	}
	defer o.Close()
	co := r.coders.Get().(*coder)
	defer r.coders.Put(co)
	x, err := openIndex(co, o, o.Size())
	if err != nil {
		return err
	}
	for _, h := range x.heads {
		if err := r.take(ctx, v, h); err != nil {
			return err
		}
	}
	return nil
}

// take adds a head that follows.
func (r *Reader) take(ctx context.Context, v *view, h *Head) error {
	if h.Number != v.number+1 || h.Prev != v.hash || h.Tenant != v.tenant {
		return fmt.Errorf("chain of tenant %q: %w: head %d does not follow the one before", v.tenant, errDamaged, h.Number)
	}
	if len(r.o.Trust) > 0 {
		if err := r.checkSigner(ctx, v, h); err != nil {
			return err
		}
	}
	v.number, v.hash, v.time = h.Number, h.Hash(), h.Time
	if h.Segment != nil {
		v.segs[h.Number] = h.Segment
		v.order = append(v.order, h.Number)
	}
	if s := h.Statement; s != nil {
		switch s.Kind {
		case Erased:
			v.erased[s.Run] = h.Number
		case Retained:
			for _, n := range s.Segments {
				v.gone[n] = h.Number
			}
		case Held:
			v.holds[s.Hold] = s
		case Released:
			delete(v.holds, s.Hold)
		case Missing:
		}
	}
	return nil
}

func (r *Reader) checkSigner(ctx context.Context, v *view, h *Head) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring == nil || r.ring.find(h.Key) < 0 {
		all, err := Signers(ctx, r.o.Store)
		if err != nil {
			return err
		}
		if r.ring, err = newRing(all, r.o.Trust); err != nil {
			return err
		}
	}
	i := r.ring.find(h.Key)
	if i < 0 || i < v.signer || !h.SignedBy(r.ring.keys[i].Public()) {
		return fmt.Errorf("head %d of tenant %q: %w", h.Number, v.tenant, ErrSigner)
	}
	v.signer = i
	return nil
}

func (v *view) numbers() []uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.order)
}

func (v *view) segment(n uint64) *Sealed {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.segs[n]
}

// goneHead is the statement that a segment was deleted with, 0 for none.
func (v *view) goneHead(n uint64) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone[n]
}

// goneUID reports whether the segment of this uid was deleted by retention.
func (v *view) goneUID(uid string) bool { return v.goneHead(v.uids()[uid]) != 0 }

// uids are the heads of the segments, by the segments' uids.
func (v *view) uids() map[string]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]uint64, len(v.segs))
	for n, s := range v.segs {
		out[s.UID] = n
	}
	return out
}

// state is the statement that erased a run, 0 for none, and whether it is held.
func (v *view) state(run string) (erased uint64, held bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.holds {
		held = held || s.Run == "" || s.Run == run
	}
	return v.erased[run], held
}

// indexed is the indexes in use, and the segments that they do not cover.
func (v *view) indexed() (covers []cover, rest []uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var to uint64
	if n := len(v.covers); n > 0 {
		to = v.covers[n-1].to
	}
	i, _ := slices.BinarySearch(v.order, to+1)
	return slices.Clone(v.covers), slices.Clone(v.order[i:])
}

// find returns what segments have of a run, in the order of the chain. unread are segments that
// no index has and that cannot be read whole.
func (r *Reader) find(ctx context.Context, v *view, run string) (out []runEntry, unread []*DamagedError, err error) {
	covers, rest := v.indexed()
	c := r.coders.Get().(*coder)
	defer r.coders.Put(c)
	var plain []uint64
	for _, cov := range covers {
		entries, err := r.findIndexed(ctx, c, v, cov, run)
		if errors.Is(err, errDamaged) || isNotExist(err) { // it is derived: the segments say the same
			plain = append(plain, v.within(cov)...)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, entries...)
	}
	for _, n := range append(plain, rest...) {
		if v.goneHead(n) != 0 {
			continue // it was deleted before an index had it
		}
		f, damage, err := r.salvage(ctx, n, v.segment(n), v.tenant)
		if err != nil {
			return nil, nil, fmt.Errorf("segment %d of tenant %q: %w", n, v.tenant, err)
		}
		if damage != nil {
			unread = append(unread, damage)
		}
		if blocks := f.of(run); len(blocks) > 0 {
			d := directory{}
			for _, b := range blocks {
				d.blocks = append(d.blocks, *b)
			}
			out = append(out, d.entries(n)...)
		}
		f.close()
	}
	if len(plain) > 0 {
		slices.SortFunc(out, func(a, b runEntry) int { return a.compare(&b) })
	}
	return out, unread, nil
}

func (r *Reader) findIndexed(ctx context.Context, c *coder, v *view, cov cover, run string) ([]runEntry, error) {
	x, err := r.index(ctx, v.tenant, cov)
	if err != nil {
		return nil, err
	}
	defer x.close()
	entries, err := x.find(c, run)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cov.key, err)
	}
	return entries, nil
}

// within lists the segments of the heads that an index is of.
func (v *view) within(c cover) []uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, _ := slices.BinarySearch(v.order, c.from)
	j, _ := slices.BinarySearch(v.order, c.to+1)
	return slices.Clone(v.order[i:j])
}
