package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// indexes writes the indexes that end at the chain's last multiple of 16, if they are not
// there. They are derived: an error is logged, and the next seal or [Reindex] tries again.
func (a *Archive) indexes(ctx context.Context, t *tenant) {
	to := t.number / fan * fan
	if to == 0 || to == t.indexed {
		return
	}
	from := t.indexed
	if from == 0 || from > to {
		from = to - fan
	}
	b := builder{st: a.o.Store, tenant: t.tenant, dir: a.o.Dir, coder: &a.coder}
	for n := from + fan; n <= to; n += fan {
		if err := b.upTo(ctx, n); err != nil {
			a.o.Log.Warn("index not written", "tenant", t.tenant, "head", n, "error", err)
			return
		}
	}
	t.indexed = to
}

// Reindex writes all indexes of a tenant that are missing, and those again that cannot be read.
// dir is for temporary files.
func Reindex(ctx context.Context, st Store, tenant, dir string) error {
	b := builder{st: st, tenant: tenant, dir: dir, coder: new(coder), check: true}
	for n := uint64(1); ; n++ {
		_, err := readHead(ctx, st, tenant, n)
		if isNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if n%fan == 0 {
			if err := b.upTo(ctx, n); err != nil {
				return err
			}
		}
	}
}

// A builder writes a tenant's indexes.
type builder struct {
	st     Store
	tenant string
	dir    string
	coder  *coder
	check  bool // look whether what is there can be read
}

// upTo writes the indexes that end with head n, a multiple of 16.
func (b *builder) upTo(ctx context.Context, n uint64) error {
	for size := uint64(fan); size <= maxIndexed && n%size == 0; size *= fan {
		if err := b.index(ctx, n-size+1, n); err != nil {
			return fmt.Errorf("index of heads %d to %d: %w", n-size+1, n, err)
		}
	}
	return nil
}

// index writes one index unless it is there.
func (b *builder) index(ctx context.Context, from, to uint64) error {
	key := indexKey(b.tenant, from, to)
	o, err := b.st.Open(ctx, key)
	if err == nil {
		if b.check {
			_, err = openIndex(b.coder, o, o.Size())
		}
		o.Close()
		if err == nil {
			return nil
		}
		if err := b.st.Delete(ctx, key); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(b.dir, "index*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // Open removes it
	defer f.Close()
	if err := b.write(ctx, f, from, to); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	err = b.st.Create(ctx, key, io.NewSectionReader(f, 0, size))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (b *builder) write(ctx context.Context, w io.Writer, from, to uint64) error {
	var heads []*Head
	var sources []*source
	if to-from+1 == fan {
		var entries []runEntry
		for n := from; n <= to; n++ {
			h, err := readHead(ctx, b.st, b.tenant, n)
			if err != nil {
				return err
			}
			heads = append(heads, h)
			more, err := b.entries(ctx, h)
			if err != nil {
				return err
			}
			entries = append(entries, more...)
		}
		slices.SortFunc(entries, func(a, b runEntry) int { return a.compare(&b) })
		sources = []*source{{page: entries}}
	} else {
		step := (to - from + 1) / fan
		for n := from; n <= to; n += step {
			if err := b.index(ctx, n, n+step-1); err != nil {
				return err
			}
			o, err := b.st.Open(ctx, indexKey(b.tenant, n, n+step-1))
			if err != nil {
				return err
			}
			defer o.Close()
			x, err := openIndex(b.coder, o, o.Size())
			if err != nil {
				return err
			}
			heads = append(heads, x.heads...)
			sources = append(sources, &source{x: x, c: b.coder})
		}
	}
	x, err := newIdxWriter(w, b.coder, from, to, heads)
	if err != nil {
		return err
	}
	merge(sources, func(e *runEntry, merr error) bool {
		if err = merr; err == nil {
			err = x.add(e)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return x.finish()
}

// entries sums up the segment of a head. One that retention deleted has none.
func (b *builder) entries(ctx context.Context, h *Head) ([]runEntry, error) {
	if h.Segment == nil {
		return nil, nil
	}
	o, err := b.st.Open(ctx, h.Segment.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer o.Close()
	f, err := openFile(b.coder, o, o.Size())
	if err == nil {
		err = f.is(h.Segment, b.tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.Segment.Name, err)
	}
	return f.entries(h.Number), nil
}
