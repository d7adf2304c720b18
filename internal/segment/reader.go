package segment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

// ErrNotFound is returned for a run that the archive does not have.
var ErrNotFound = errors.New("not in the archive")

// ErrNoArchive is returned where a store has no archive: none was begun, or the store
// is not the one it was, like the directory of a disk that is not mounted.
var ErrNoArchive = errors.New("there is no archive")

// Exists returns ErrNoArchive where a store has none.
func Exists(ctx context.Context, st Store) error {
	o, err := st.Open(ctx, signerKey(1))
	if isNotExist(err) {
		return ErrNoArchive
	}
	if err != nil {
		return err
	}
	return o.Close()
}

// An ErasedError is returned for records whose run was erased.
type ErasedError struct {
	Tenant, Run string
	Head        *Head // of the statement, nil where it was not found
}

func (e *ErasedError) Error() string {
	return fmt.Sprintf("run %s of tenant %q was erased", e.Run, e.Tenant)
}

// A GoneError is returned for records whose segment retention deleted.
type GoneError struct {
	Tenant string
	Number uint64 // of the segment's head
	Head   *Head  // of the statement
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("segment %d of tenant %q was deleted when its time was over", e.Number, e.Tenant)
}

// A DamagedError is returned for a segment that is not what its head says, or not there. The
// records of its whole blocks are read nevertheless: what opens with a run's key was sealed.
type DamagedError struct {
	Tenant   string
	Number   uint64 // of the segment's head
	Name     string // of the object
	Readable int64  // records in whole blocks
	Of       int64  // of so many
	Err      error  // it is or wraps ErrDamaged, or fs.ErrNotExist
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("segment %d of tenant %q (%s): %d of its %d records can be read: %v", e.Number, e.Tenant, e.Name, e.Readable, e.Of, e.Err)
}

// Is makes it ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

func (e *DamagedError) Unwrap() error { return e.Err }

// A Reader reads an archive. It checks each thing it reads up to the hash in the head,
// and the heads' signatures where it knows whom to trust. Its methods may be called
// concurrently, and see what was added since.
type Reader struct {
	o      ReaderOptions
	coders sync.Pool // of *coder

	mu    sync.Mutex // guards the fields below
	views map[string]*view
	cache cache
	ring  *ring
}

// ReaderOptions configure a [Reader].
type ReaderOptions struct {
	Store, Keys Store
	Wrap        []byte              // see [Options.Wrap]
	Trust       []ed25519.PublicKey // as for [Verify]; none checks no signature
	Memory      int                 // bytes of directories, keys and indexes kept, about; 32 MiB
}

// NewReader makes a reader. It reads nothing yet.
func NewReader(o ReaderOptions) *Reader {
	if o.Memory <= 0 {
		o.Memory = 32 << 20
	}
	r := &Reader{o: o, views: map[string]*view{}, cache: cache{limit: o.Memory}}
	r.coders.New = func() any { return new(coder) }
	return r
}

// of lists whom a question is about: one tenant, or where it is "" all. bad is what is the matter
// with some of them, err why nobody can be asked.
func (r *Reader) of(ctx context.Context, tenant string) (tenants []string, bad, err error) {
	if tenant != "" {
		return []string{tenant}, nil, nil
	}
	tenants, err = r.Tenants(ctx)
	if errors.Is(err, ErrTenant) {
		return tenants, err, nil
	}
	return tenants, nil, err
}

// Tenants lists the tenants. Without an archive it is ErrNoArchive. Those that could not be read
// are an error that wraps ErrTenant, beside the others.
func (r *Reader) Tenants(ctx context.Context) ([]string, error) {
	all, err := Tenants(ctx, r.o.Store)
	if err == nil && len(all) == 0 {
		err = Exists(ctx, r.o.Store)
	}
	return all, err
}

// notFound is the error for a run that was not found: ErrNotFound, or why that cannot be told.
func (r *Reader) notFound(ctx context.Context, run string) error {
	if err := Exists(ctx, r.o.Store); err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	return fmt.Errorf("run %s: %w", run, ErrNotFound)
}

// Heads yields a tenant's chain behind number after.
func (r *Reader) Heads(ctx context.Context, tenant string, after uint64) iter.Seq2[*Head, error] {
	return func(yield func(*Head, error) bool) {
		for n := after + 1; ; n++ {
			h, err := readHead(ctx, r.o.Store, tenant, n)
			if isNotExist(err) {
				return
			}
			if !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// A Query chooses records. Zero fields choose all.
type Query struct {
	Tenant string
	Run    string
	Logs   []Log
	After  uint64 // with Run: events with a greater seq, and all records without one
	Since  time.Time
	Until  time.Time // stored at Since or later, before Until
}

func (q *Query) wants(l Log) bool {
	if len(q.Logs) == 0 {
		return true
	}
	for _, w := range q.Logs {
		if w == l {
			return true
		}
	}
	return false
}

// overlaps reports whether something stored between first and last is asked for.
func (q *Query) overlaps(first, last time.Time) bool {
	return (q.Since.IsZero() || !last.Before(q.Since)) && (q.Until.IsZero() || first.Before(q.Until))
}

func (q *Query) block(e *blockInfo) bool {
	return q.wants(e.log) && q.overlaps(time.Unix(0, e.first), time.Unix(0, e.last)) &&
		(e.lastSeq == 0 || e.distinct == 0 || e.lastSeq > q.After || q.Run == "")
}

func (q *Query) record(r *Record) bool {
	return q.overlaps(r.Stored, r.Stored) && (q.Run == "" || r.Seq == 0 || r.Seq > q.After)
}

// Records yields records: of one run in the order of each log, events by seq; else
// segment by segment and block by block. For a run it reads the blocks of that run only.
// Records may be kept; those of a block share its memory. In the place of an erased
// run's records comes one *ErasedError, for a deleted segment a *GoneError, behind what can be
// read of a damaged one a *DamagedError, for a tenant of several that cannot be read a
// *TenantError, and reading goes on if yield returns true. Every other error ends it; for a
// run that the archive does not have it is ErrNotFound, without an archive ErrNoArchive.
func (r *Reader) Records(ctx context.Context, q Query) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		tenants, bad, err := r.of(ctx, q.Tenant)
		if err != nil {
			yield(nil, err)
			return
		}
		found, whole := false, bad == nil
		for _, t := range tenants {
			any, goOn, err := r.records(ctx, t, &q, yield)
			if err != nil {
				whole = false
				goOn = yield(nil, ofTenant(t, err)) && q.Tenant == "" && ctx.Err() == nil
			}
			if found = found || any; !goOn {
				return
			}
		}
		switch {
		case bad != nil:
			yield(nil, bad)
		case q.Run != "" && !found && whole:
			yield(nil, r.notFound(ctx, q.Run))
		}
	}
}

// records yields those of one tenant. any says whether there were segments for it.
func (r *Reader) records(ctx context.Context, tenant string, q *Query, yield func(*Record, error) bool) (any, goOn bool, err error) {
	v, err := r.view(ctx, tenant)
	if err != nil {
		return false, false, err
	}
	var numbers []uint64
	if q.Run != "" {
		entries, unread, err := r.find(ctx, v, q.Run)
		if err != nil {
			return false, false, err
		}
		for i := range entries {
			numbers = append(numbers, entries[i].number)
		}
		for _, d := range unread { // it may be in what cannot be read
			numbers = append(numbers, d.Number)
		}
		slices.Sort(numbers)
		numbers = slices.Compact(numbers)
	} else {
		numbers = v.numbers()
	}
	erased := map[string]bool{}
	for _, n := range numbers {
		s := v.segment(n)
		if s == nil || !q.overlaps(s.First, s.Last) {
			any = any || s != nil
			continue
		}
		any = true
		if !r.segmentRecords(ctx, v, n, s, q, erased, yield) {
			return any, false, nil
		}
	}
	return any, true, nil
}

func yieldLast(yield func(*Record, error) bool, err error) bool {
	yield(nil, err)
	return false
}

// segmentRecords yields those of one segment; false ends reading.
func (r *Reader) segmentRecords(ctx context.Context, v *view, n uint64, s *Sealed, q *Query, erased map[string]bool,
	yield func(*Record, error) bool,
) bool {
	if h := v.goneHead(n); h != 0 {
		return yield(nil, &GoneError{v.tenant, n, r.headOf(ctx, v.tenant, h)})
	}
	f, damage, err := r.salvage(ctx, n, s, v.tenant)
	if err != nil {
		return yieldLast(yield, fmt.Errorf("segment %d of tenant %q: %w", n, v.tenant, err))
	}
	defer f.close()
	for i := range f.blocks {
		e := &f.blocks[i]
		if q.Run != "" && e.run != q.Run || !q.block(&e.blockInfo) || erased[e.run] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return yieldLast(yield, err)
		}
		raw, err := r.open(ctx, v, f, e)
		var gone *ErasedError
		switch {
		case errors.As(err, &gone):
			erased[e.run] = true
			if !yield(nil, gone) {
				return false
			}
			continue
		case errors.Is(err, errDamaged):
			damage = f.damage(n, s, err)
			continue
		case err != nil:
			return yieldLast(yield, fmt.Errorf("segment %d of tenant %q: %w", n, v.tenant, err))
		}
		if !eachRecord(raw, v.tenant, &e.blockInfo, func(rec *Record) bool { return !q.record(rec) || yield(rec, nil) }, func(err error) {
			yield(nil, fmt.Errorf("segment %d of tenant %q: block at %d: %w", n, v.tenant, e.off, err))
		}) {
			return false
		}
	}
	return damage == nil || yield(nil, damage)
}

// eachRecord splits a block's records.
func eachRecord(raw []byte, tenant string, i *blockInfo, each func(*Record) bool, bad func(error)) bool {
	for n := uint32(0); len(raw) > 0 || n < i.records; n++ {
		rec, rest, err := splitRecord(raw)
		if err == nil && n >= i.records {
			err = fmt.Errorf("%w: more records than it says", errDamaged)
		}
		if err != nil {
			bad(err)
			return false
		}
		raw = rest
		rec.Tenant, rec.Run, rec.Log = tenant, i.run, i.log
		if !each(rec) {
			return false
		}
	}
	return true
}
