package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// verifyIndexes compares the indexes that end with head n with the segments: those of 16
// heads with the segments themselves, the larger ones with the 16 smaller ones.
func (c *verifyChain) verifyIndexes(ctx context.Context, n uint64) error {
	entries := c.recent
	c.recent = nil
	slices.SortFunc(entries, func(a, b runEntry) int { return a.compare(&b) })
	for size := uint64(fan); size <= maxIndexed && n%size == 0; size *= fan {
		key := c.indexKey(n-size+1, n)
		if !c.indexes[key] {
			c.note(Finding{Code: IndexMissing, Object: key, First: n - size + 1, Last: n, Text: "it can be made again"})
			continue
		}
		var from []*source
		if size == fan {
			from = []*source{{page: entries}}
		} else {
			var close func()
			var err error
			if from, close, err = c.smaller(ctx, n, size); err != nil {
				return err
			}
			defer close()
			if from == nil {
				continue // told for the smaller ones
			}
		}
		if err := c.verifyIndex(ctx, key, n-size+1, n, from); err != nil {
			return err
		}
	}
	return nil
}

func (c *verifyChain) indexKey(from, to uint64) string {
	return c.prefix() + indexKey("", from, to)[len(rootOf("")):]
}

// smaller opens the 16 indexes that one of size heads is made of, nil if one cannot be used.
func (c *verifyChain) smaller(ctx context.Context, n, size uint64) (from []*source, done func(), err error) {
	var objects []Object
	done = func() {
		for _, o := range objects {
			o.Close()
		}
	}
	step := size / fan
	for m := n - size + 1; m <= n; m += step {
		o, err := c.o.Store.Open(ctx, c.indexKey(m, m+step-1))
		if isNotExist(err) {
			return nil, done, nil
		}
		if err != nil {
			return nil, done, err
		}
		objects = append(objects, o)
		x, err := openIndex(&c.coder, o, o.Size())
		if err != nil {
			return nil, done, nil //nolint:nilerr // it was told when that one was looked at
		}
		from = append(from, &source{x: x, c: &c.coder})
	}
	return from, done, nil
}

var errDiffers = errors.New("differs")

// verifyIndex compares an index with what it must have.
func (c *verifyChain) verifyIndex(ctx context.Context, key string, from, to uint64, want []*source) error {
	f := Finding{Object: key, First: from, Last: to}
	o, err := c.o.Store.Open(ctx, key)
	if err != nil {
		return err
	}
	defer o.Close()
	x, err := openIndex(&c.coder, o, o.Size())
	if err != nil {
		f.Code, f.Text = IndexDamaged, err.Error()
		c.bad(f)
		return nil
	}
	if x.from != from || x.to != to {
		f.Code, f.Text = IndexDiffers, fmt.Sprintf("it is of heads %d to %d", x.from, x.to)
		c.bad(f)
		return nil
	}
	for _, h := range x.heads {
		if have := c.chain[h.Number]; have != nil && have.Hash() != h.Hash() {
			f.Code, f.Text = IndexDiffers, fmt.Sprintf("it has another head %d", h.Number)
			c.bad(f)
			return nil
		}
	}
	got := []*source{{x: x, c: &c.coder}}
	err = c.compareEntries(got, want)
	switch {
	case errors.Is(err, errDiffers):
		f.Code, f.Text = IndexDiffers, err.Error()
		c.bad(f)
	case err != nil:
		f.Code, f.Text = IndexDamaged, err.Error()
		c.bad(f)
	}
	return nil
}

// compareEntries walks both in step.
func (c *verifyChain) compareEntries(got, want []*source) error {
	a, stopA := c.pull(got)
	defer stopA()
	b, stopB := c.pull(want)
	defer stopB()
	x, errX := a()
	y, errY := b()
	for {
		if err := errors.Join(errX, errY); err != nil {
			return err
		}
		switch {
		case x == nil && y == nil:
			return nil
		case x != nil && y != nil && *x == *y:
			x, errX = a()
			y, errY = b()
		case x != nil && (y == nil || x.compare(y) <= 0):
			return fmt.Errorf("%w: run %s in segment %d is not what the segments say", errDiffers, x.run, x.number)
		default:
			return fmt.Errorf("%w: run %s in segment %d is not in it", errDiffers, y.run, y.number)
		}
	}
}

// pull gives the merged entries of sources one by one, without those of segments that are not
// as they were: deleted, missing or damaged ones.
func (c *verifyChain) pull(from []*source) (next func() (*runEntry, error), stop func()) {
	type item struct {
		e   *runEntry
		err error
	}
	seq := func(yield func(item) bool) {
		merge(from, func(e *runEntry, err error) bool {
			if err == nil && (c.gone[e.number] != 0 || c.skip[e.number] || c.chain[e.number] == nil) {
				return true
			}
			return yield(item{e, err})
		})
	}
	pull, stop := iter.Pull(seq)
	return func() (*runEntry, error) {
		i, ok := pull()
		if !ok {
			return nil, nil //nolint:nilnil // the end is no error
		}
		return i.e, i.err
	}, stop
}
