package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// The catalogue has one object for each segment: the notes of its runs. It lies with
// the keys, where what is erased can be overwritten. It can be made again from the
// segments at any time.
const catalogPrefix = "catalog/"

func catalogKey(tenant string, number uint64) string {
	return fmt.Sprintf("%s%s/%012d.json.gz", catalogPrefix, subject.Token(tenant), number)
}

// A page is one object of the catalogue.
type page struct {
	Version int    `json:"v"`
	Tenant  string `json:"tenant"`
	Number  uint64 `json:"number"` // of the segment's head
	Notes   []Note `json:"notes"`  // by run
}

// maxPage bounds an object of the catalogue, unpacked.
const maxPage = 256 << 20

func (p *page) find(run string) (int, bool) {
	return slices.BinarySearchFunc(p.Notes, run, func(n Note, run string) int { return strings.Compare(n.Run, run) })
}

func writePage(ctx context.Context, st segment.Store, p *page) error {
	p.Version = 1
	slices.SortFunc(p.Notes, func(a, b Note) int { return strings.Compare(a.Run, b.Run) })
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	if err := json.NewEncoder(zw).Encode(p); err != nil {
		return fmt.Errorf("encode catalogue: %w", err)
	}
	if err := zw.Close(); err != nil {
		return fmt.Errorf("encode catalogue: %w", err)
	}
	if err := st.Replace(ctx, catalogKey(p.Tenant, p.Number), buf.Bytes()); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	return nil
}

// readPage reads one object; an error that wraps fs.ErrNotExist where there is none, and one that
// wraps segment.ErrDamaged where it is not what was written.
func readPage(ctx context.Context, st segment.Store, tenant string, number uint64) (*page, error) {
	o, err := st.Open(ctx, catalogKey(tenant, number))
	if err != nil {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	defer o.Close()
	raw := make([]byte, min(o.Size(), maxPage))
	if _, err := o.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	var p page
	zr, err := gzip.NewReader(bytes.NewReader(raw))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(zr, maxPage)).Decode(&p)
	}
	if err == nil && (p.Version != 1 || p.Tenant != tenant || p.Number != number) {
		err = fmt.Errorf("it is head %d of %q, version %d", p.Number, p.Tenant, p.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("read catalogue of head %d of tenant %q: %w: %w", number, tenant, segment.ErrDamaged, err)
	}
	return &p, nil
}

// pages lists the numbers that the catalogue has of a tenant.
func pages(ctx context.Context, st segment.Store, tenant string) ([]uint64, error) {
	var have []uint64
	prefix := catalogPrefix + subject.Token(tenant) + "/"
	for info, err := range st.List(ctx, prefix) {
		if err != nil {
			return nil, fmt.Errorf("list catalogue: %w", err)
		}
		number, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, prefix), ".json.gz")
		if n, err := strconv.ParseUint(number, 10, 64); ok && err == nil {
			have = append(have, n)
		}
	}
	return have, nil
}

// rebuildPage makes the page of a segment from its records.
func rebuildPage(ctx context.Context, p Place, h *segment.Head) (*page, error) {
	notes := map[string]*Note{}
	q := segment.Query{Tenant: h.Tenant, Since: h.Segment.First, Until: h.Segment.Last.Add(1)}
	r := p.Reader()
	for info, err := range r.Runs(ctx, h.Tenant, q.Since, q.Until) {
		if err != nil {
			return nil, fmt.Errorf("rebuild catalogue of head %d: %w", h.Number, err)
		}
		if info.Erased != nil || !slices.Contains(info.Segments, h.Number) {
			continue
		}
		q.Run = info.Run
		n := &Note{Run: info.Run}
		for rec, err := range r.Records(ctx, q) {
			if erased, gone := (*segment.ErasedError)(nil), (*segment.GoneError)(nil); errors.As(err, &erased) || errors.As(err, &gone) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("rebuild catalogue of head %d: %w", h.Number, err)
			}
			if e, err := rec.Event(); err == nil {
				n.add(e)
			}
		}
		if !n.empty() {
			notes[n.Run] = n
		}
	}
	out := &page{Tenant: h.Tenant, Number: h.Number}
	for _, n := range notes {
		out.Notes = append(out.Notes, *n)
	}
	return out, nil
}

// forget takes the runs that were erased out of the catalogue. It looks at every page of the
// tenant, since a page may name runs of the segment that was sealed together with its own; one
// that cannot be read is made again.
func forget(ctx context.Context, p Place, tenant string) error {
	numbers, err := pages(ctx, p.Keys, tenant)
	if err != nil {
		return err
	}
	r := p.Reader()
	var errs []error
	for _, n := range numbers {
		if err := forgetIn(ctx, p, r, tenant, n); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// forgetIn is forget for one page. Another process may be writing it, too, with other runs gone:
// so what was written is looked at again.
func forgetIn(ctx context.Context, p Place, r *segment.Reader, tenant string, number uint64) error {
	for {
		erased, err := r.Erased(ctx, tenant)
		if err != nil {
			return err
		}
		pg, err := readPage(ctx, p.Keys, tenant, number)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, segment.ErrDamaged):
			if err := remakePage(ctx, p, r, tenant, number); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		n := len(pg.Notes)
		pg.Notes = slices.DeleteFunc(pg.Notes, func(n Note) bool { return erased[n.Run] })
		if len(pg.Notes) == n {
			return nil
		}
		if err := writePage(ctx, p.Keys, pg); err != nil {
			return err
		}
	}
}

// remakePage makes a page of the catalogue from the segment, or deletes it where the segment
// cannot be read.
func remakePage(ctx context.Context, p Place, r *segment.Reader, tenant string, number uint64) error {
	for h, err := range r.Heads(ctx, tenant, number-1) {
		if err != nil {
			return err
		}
		if h.Segment == nil {
			break
		}
		pg, err := rebuildPage(ctx, p, h)
		if err == nil {
			return writePage(ctx, p.Keys, pg)
		}
		if !segment.Damaged(err) {
			return err
		}
		break
	}
	return p.Keys.Delete(ctx, catalogKey(tenant, number))
}

// A Listed is one run as `cbcast archive ls` shows it.
type Listed struct {
	*segment.RunInfo
	Note Note `json:"note"`
}

// A Filter chooses runs. Zero fields choose all.
type Filter struct {
	Tenant, Repo, Actor string
	Since, Until        time.Time
}

// List yields the runs that a filter chooses, by tenant and id. What cannot be read keeps nothing
// else from being listed: it is named in the error.
func List(ctx context.Context, p Place, f Filter, yield func(Listed) error) error {
	r := p.Reader()
	tenants, bad := []string{f.Tenant}, error(nil)
	if f.Tenant == "" {
		tenants, bad = r.Tenants(ctx)
		if bad != nil && !errors.Is(bad, segment.ErrTenant) {
			return bad
		}
	}
	errs := []error{bad}
	for _, t := range tenants {
		notes, err := notesOf(ctx, p, r, t, f)
		if err != nil {
			errs = append(errs, err)
		}
		for info, err := range r.Runs(ctx, t, f.Since, f.Until) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			l := Listed{RunInfo: info, Note: Note{Run: info.Run}}
			if n := notes[info.Run]; n != nil && info.Erased == nil {
				l.Note = *n
			}
			if f.Repo != "" && l.Note.Repo != f.Repo || f.Actor != "" && !l.Note.by(f.Actor) {
				continue
			}
			if err := yield(l); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// notesOf merges the notes of a tenant's runs over the segments from a time on. What a
// run did before stays unseen, as its records do. Pages that cannot be read are left out, and
// named in the error.
func notesOf(ctx context.Context, p Place, r *segment.Reader, tenant string, f Filter) (map[string]*Note, error) {
	notes := map[string]*Note{}
	var errs []error
	for h, err := range r.Heads(ctx, tenant, 0) {
		if err != nil { // that of reading the runs says more
			break
		}
		s := h.Segment
		if s == nil || !f.Until.IsZero() && !s.First.Before(f.Until) {
			continue
		}
		pg, err := readPage(ctx, p.Keys, tenant, h.Number)
		switch {
		case errors.Is(err, fs.ErrNotExist): // not there yet, or gone with its segment
			continue
		case errors.Is(err, segment.ErrDamaged):
			errs = append(errs, err)
			continue
		case err != nil:
			return notes, errors.Join(append(errs, err)...)
		}
		for i := range pg.Notes {
			n := &pg.Notes[i]
			if notes[n.Run] == nil {
				notes[n.Run] = n
			} else {
				notes[n.Run].merge(n)
			}
		}
	}
	return notes, errors.Join(errs...)
}

// NoteOf is what the records of one run say: all that can be read. The error names what cannot.
func NoteOf(ctx context.Context, p Place, tenant, run string) (Note, error) {
	n := Note{Run: run}
	var errs []error
	for rec, err := range p.Reader().Records(ctx, segment.Query{Tenant: tenant, Run: run}) {
		gone, bad := (*segment.GoneError)(nil), (*segment.DamagedError)(nil)
		switch {
		case errors.As(err, &gone):
			continue
		case errors.As(err, &bad):
			errs = append(errs, err)
			continue
		case err != nil:
			return n, err
		}
		if e, err := rec.Event(); err == nil {
			n.add(e)
		}
	}
	return n, errors.Join(errs...)
}
