package segment

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// An openedFile is a segment of the store. Its directory may be in the cache; close it.
type openedFile struct {
	*file
	o Object
}

func (f *openedFile) close() {
	if f.o != nil {
		f.o.Close()
	}
}

// damage says how much of a segment can be read; err is why not all.
func (f *openedFile) damage(n uint64, s *Sealed, err error) *DamagedError {
	d := &DamagedError{Tenant: f.tenant, Number: n, Name: s.Name, Of: s.Records, Err: err}
	for i := range f.blocks {
		if _, err := f.block(&f.blocks[i]); err == nil {
			d.Readable += int64(f.blocks[i].records)
		}
	}
	return d
}

// salvage opens a segment. Of one that is damaged it gives the whole blocks up to the first bad
// one, and says so.
func (r *Reader) salvage(ctx context.Context, n uint64, s *Sealed, tenant string) (*openedFile, *DamagedError, error) {
	f, err := r.file(ctx, s, tenant)
	if err == nil {
		return f, nil, nil
	}
	none := &openedFile{file: &file{segHeader: segHeader{tenant: tenant}}}
	if isNotExist(err) {
		return none, none.damage(n, s, err), nil
	}
	if !errors.Is(err, errDamaged) {
		return nil, nil, err
	}
	o, oerr := r.o.Store.Open(ctx, s.Name)
	if oerr != nil {
		return nil, nil, oerr
	}
	h, raw, herr := readHeader(o, o.Size())
	if herr != nil || h.tenant != tenant || hex.EncodeToString(h.uid[:]) != s.UID {
		o.Close()
		return none, none.damage(n, s, err), nil
	}
	blocks, _, _ := readBlocks(o, o.Size(), int64(len(raw)))
	f = &openedFile{&file{segHeader: h, directory: directory{blocks}, r: o, size: o.Size()}, o}
	return f, f.damage(n, s, err), nil
}

// readBlocks reads the frames of a segment up to the directory, or the first bad one, whose
// error it returns; end is where the good blocks end.
func readBlocks(r io.ReaderAt, size, start int64) (blocks []entry, end int64, err error) {
	w := walk{r: r, size: size, off: start}
	for {
		b, off, err := w.next()
		end = w.off
		if err == nil && b[8] == kindDirectory {
			return blocks, end, nil
		}
		var i blockInfo
		if err == nil {
			i, err = parseBlock(b)
		}
		if err != nil {
			return blocks, off, err
		}
		blocks = append(blocks, entry{blockInfo: i, off: off, size: int64(len(b)), hash: leaf(b)})
	}
}

// file opens a segment and checks it against what the head says.
func (r *Reader) file(ctx context.Context, s *Sealed, tenant string) (*openedFile, error) {
	o, err := r.o.Store.Open(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	f, _ := r.cache.get("dir " + s.UID).(*file)
	r.mu.Unlock()
	if f == nil {
		c := r.coders.Get().(*coder)
		f, err = openFile(c, o, o.Size())
		r.coders.Put(c)
		if err == nil {
			err = f.is(s, tenant)
		}
		if err != nil {
			o.Close()
			return nil, err
		}
		r.mu.Lock()
		r.cache.put("dir "+s.UID, &file{f.segHeader, f.directory, nil, f.size, f.root, f.dir}, len(f.blocks)*256+256)
		r.mu.Unlock()
	}
	g := *f
	g.r = o
	return &openedFile{&g, o}, nil
}

// is checks that f is the segment that a head speaks of.
func (f *file) is(s *Sealed, tenant string) error {
	switch {
	case f.tenant != tenant:
		return fmt.Errorf("%w: it is a segment of tenant %q", errDamaged, f.tenant)
	case hex.EncodeToString(f.uid[:]) != s.UID:
		return fmt.Errorf("%w: it is another segment", errDamaged)
	case f.root.String() != s.Root || f.size != s.Bytes:
		return fmt.Errorf("%w: it is not what the head says", errDamaged)
	}
	return nil
}

// open reads and decrypts a block.
func (r *Reader) open(ctx context.Context, v *view, f *openedFile, e *entry) ([]byte, error) {
	key, err := r.key(ctx, v, hex.EncodeToString(f.uid[:]), e.run)
	if err != nil {
		return nil, err
	}
	b, err := f.block(e)
	if err != nil {
		return nil, err
	}
	c := r.coders.Get().(*coder)
	defer r.coders.Put(c)
	raw, err := c.open(b, &f.uid, key)
	if err != nil {
		return nil, fmt.Errorf("block at %d: %w", e.off, err)
	}
	return raw, nil
}

// key finds the key of a run in a segment.
func (r *Reader) key(ctx context.Context, v *view, uid, run string) (*[32]byte, error) {
	if n, _ := v.state(run); n != 0 {
		return nil, &ErasedError{v.tenant, run, r.headOf(ctx, v.tenant, n)}
	}
	r.mu.Lock()
	p, _ := r.cache.get("keys " + uid).(*page)
	r.mu.Unlock()
	if p == nil {
		if r.o.Keys == nil {
			return nil, errors.New("no keys were given")
		}
		var err error
		if p, err = loadPage(ctx, r.o.Keys, v.tenant, uid, r.o.Wrap); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("keys of segment %s are gone", uid)
			}
			return nil, err
		}
		r.mu.Lock()
		r.cache.put("keys "+uid, p, len(p.keys)*128+256)
		r.mu.Unlock()
	}
	e := p.find(run)
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: run %s is not in the keys of segment %s", errPage, run, uid)
	case e.erased:
		return nil, &ErasedError{Tenant: v.tenant, Run: run}
	}
	return &e.key, nil
}

// An openedIndex is an index of the store; close it.
type openedIndex struct {
	*index
	o Object
}

func (x *openedIndex) close() { x.o.Close() }

// index opens an index; what it has in memory may come from the cache, without the heads.
func (r *Reader) index(ctx context.Context, tenant string, c cover) (*openedIndex, error) {
	o, err := r.o.Store.Open(ctx, c.key)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	x, _ := r.cache.get("idx " + c.key).(*index)
	r.mu.Unlock()
	if x == nil {
		co := r.coders.Get().(*coder)
		x, err = openIndex(co, o, o.Size())
		r.coders.Put(co)
		if err == nil && (x.from != c.from || x.to != c.to) {
			err = fmt.Errorf("%w: it is of heads %d to %d", errDamaged, x.from, x.to)
		}
		if err != nil {
			o.Close()
			return nil, fmt.Errorf("%s of tenant %q: %w", c.key, tenant, err)
		}
		kept := *x
		kept.r, kept.heads = nil, nil
		r.mu.Lock()
		r.cache.put("idx "+c.key, &kept, len(x.pages)*96+256)
		r.mu.Unlock()
	}
	y := *x
	y.r = o
	return &openedIndex{&y, o}, nil
}
