package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// merged yields what all segments have of all runs, by run and number. Segments that no index
// has and that cannot be read whole are added to unread.
func (r *Reader) merged(ctx context.Context, v *view, unread *[]*DamagedError) iter.Seq2[*runEntry, error] {
	return func(yield func(*runEntry, error) bool) {
		covers, rest := v.indexed()
		c := r.coders.Get().(*coder)
		defer r.coders.Put(c)
		var from []*source
		var plain []uint64
		for _, cov := range covers {
			x, err := r.index(ctx, v.tenant, cov)
			if errors.Is(err, errDamaged) || isNotExist(err) {
				plain = append(plain, v.within(cov)...)
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			defer x.close()
			from = append(from, &source{x: x.index, c: c})
		}
		var tail []runEntry
		for _, n := range append(plain, rest...) {
			if v.goneHead(n) != 0 {
				continue
			}
			f, damage, err := r.salvage(ctx, n, v.segment(n), v.tenant)
			if err != nil {
				yield(nil, fmt.Errorf("segment %d of tenant %q: %w", n, v.tenant, err))
				return
			}
			if damage != nil {
				*unread = append(*unread, damage)
			}
			tail = append(tail, f.entries(n)...)
			f.close()
		}
		slices.SortFunc(tail, func(a, b runEntry) int { return a.compare(&b) })
		merge(append(from, &source{page: tail}), yield)
	}
}

// A source gives sorted entries, of an index or of a list.
type source struct {
	x    *index
	c    *coder
	next int // page
	page []runEntry
}

// peek is the next entry, nil at the end.
func (s *source) peek() (*runEntry, error) {
	for len(s.page) == 0 {
		if s.x == nil || s.next >= len(s.x.pages) {
			return nil, nil //nolint:nilnil // the end is no error
		}
		var err error
		if s.page, err = s.x.page(s.c, s.next); err != nil {
			return nil, err
		}
		s.next++
	}
	return &s.page[0], nil
}

// merge yields the entries of all sources in order.
func merge(from []*source, yield func(*runEntry, error) bool) {
	for {
		var least *source
		var at *runEntry
		for _, s := range from {
			e, err := s.peek()
			if err != nil {
				yield(nil, err)
				return
			}
			if e != nil && (at == nil || e.compare(at) < 0) {
				least, at = s, e
			}
		}
		if at == nil {
			return
		}
		e := *at
		least.page = least.page[1:]
		if !yield(&e, nil) {
			return
		}
	}
}
