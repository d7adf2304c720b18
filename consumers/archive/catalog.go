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

// readPage reads one object; an error that wraps fs.ErrNotExist where there is none.
func readPage(ctx context.Context, st segment.Store, tenant string, number uint64) (*page, error) {
	o, err := st.Open(ctx, catalogKey(tenant, number))
	if err != nil {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	defer o.Close()
	zr, err := gzip.NewReader(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		return nil, fmt.Errorf("read catalogue of head %d: %w", number, err)
	}
	var p page
	if err := json.NewDecoder(io.LimitReader(zr, maxPage)).Decode(&p); err != nil {
		return nil, fmt.Errorf("read catalogue of head %d: %w", number, err)
	}
	if p.Version != 1 || p.Tenant != tenant || p.Number != number {
		return nil, fmt.Errorf("read catalogue of head %d: it is head %d of %q, version %d", number, p.Number, p.Tenant, p.Version)
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

// forget takes a run out of the catalogue. It looks at every page of the tenant, since a
// page may name runs of the segment that was sealed together with its own.
func forget(ctx context.Context, st segment.Store, tenant, run string) error {
	numbers, err := pages(ctx, st, tenant)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		p, err := readPage(ctx, st, tenant, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		i, ok := p.find(run)
		if !ok {
			continue
		}
		p.Notes = slices.Delete(p.Notes, i, i+1)
		if err := writePage(ctx, st, p); err != nil {
			return err
		}
	}
	return nil
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

// List yields the runs that a filter chooses, by tenant and id.
func List(ctx context.Context, p Place, f Filter, yield func(Listed) error) error {
	r := p.Reader()
	tenants, bad := []string{f.Tenant}, error(nil)
	if f.Tenant == "" {
		tenants, bad = r.Tenants(ctx)
		if bad != nil && !errors.Is(bad, segment.ErrTenant) {
			return bad
		}
	}
	for _, t := range tenants {
		notes, err := notesOf(ctx, p, r, t, f)
		if err != nil {
			return err
		}
		for info, err := range r.Runs(ctx, t, f.Since, f.Until) {
			if err != nil {
				return err
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
	return bad // the others are listed
}

// notesOf merges the notes of a tenant's runs over the segments from a time on. What a
// run did before stays unseen, as its records do.
func notesOf(ctx context.Context, p Place, r *segment.Reader, tenant string, f Filter) (map[string]*Note, error) {
	notes := map[string]*Note{}
	for h, err := range r.Heads(ctx, tenant, 0) {
		if err != nil {
			return nil, err
		}
		s := h.Segment
		if s == nil || !f.Until.IsZero() && !s.First.Before(f.Until) {
			continue
		}
		pg, err := readPage(ctx, p.Keys, tenant, h.Number)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not there yet, or gone with its segment
		}
		if err != nil {
			return nil, err
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
	return notes, nil
}

// NoteOf is what the records of one run say.
func NoteOf(ctx context.Context, p Place, tenant, run string) (Note, error) {
	n := Note{Run: run}
	for rec, err := range p.Reader().Records(ctx, segment.Query{Tenant: tenant, Run: run}) {
		if gone := (*segment.GoneError)(nil); errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return n, err
		}
		if e, err := rec.Event(); err == nil {
			n.add(e)
		}
	}
	return n, nil
}
