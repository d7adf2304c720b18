package segment

import (
	"container/list"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Options configure an [Archive]. Zero values of bounds mean the default.
type Options struct {
	Store Store // segments, heads, index
	Keys  Store // key pages; may live elsewhere than Store, or be the same

	// Dir is a directory of this machine for segments that are not sealed yet. It
	// must outlive the process, and one Archive at a time may use it: the caller
	// holds a lock.
	Dir string

	// Signer gives the private key that signs heads. It is asked before each seal,
	// so that a rotated key is found.
	Signer func() (ed25519.PrivateKey, error)

	// Wrap is 32 bytes that the keys of runs are wrapped with, nil for none. It is
	// needed to read.
	Wrap []byte

	Block   int   // bytes of records before compression in a block, about; 256 KiB
	Segment int64 // bytes of a file, about; past it a segment is sealed by the next Seal; 64 MiB
	Runs    int   // runs in a segment; 16384
	Memory  int   // bytes of records held before they are in blocks, all segments together; 32 MiB
	Open    int   // segments open at a time, one for each tenant and day; 64

	// Aside are tenants of which nothing is taken, and why. What an earlier process left of
	// them stays as it is.
	Aside map[string]error

	Log *slog.Logger // nil is none
}

// Errors of an [Archive].
var (
	// ErrFull is returned by Append when a segment has to be sealed first: call
	// Seal and append the record again.
	ErrFull = errors.New("segments are full: seal first")

	// ErrRolledBack is returned when the store's chain ends before a head that this
	// archiver wrote, or has another one in its place.
	ErrRolledBack = errors.New("the store's chain is older than what was written to it")

	// ErrSigner is returned when the signing key is not the archive's newest: it was
	// rotated, or is another archive's.
	ErrSigner = errors.New("not the archive's signing key")

	// ErrText is wrapped where a statement has text that no head can hold.
	ErrText = errors.New("bad text")

	// ErrHeld is returned for what a legal hold forbids.
	ErrHeld = errors.New("under a legal hold")
)

// Defaults of [Options].
const (
	defaultBlock   = 256 << 10
	defaultSegment = 64 << 20
	defaultRuns    = 16384
	defaultMemory  = 32 << 20
	defaultOpen    = 64
)

func (o *Options) fill() error {
	if o.Store == nil || o.Keys == nil || o.Dir == "" || o.Signer == nil {
		return errors.New("an archive needs stores, a directory and a signing key")
	}
	if o.Wrap != nil && len(o.Wrap) != 32 {
		return errors.New("wrapping key is not 32 bytes")
	}
	set := func(p *int, def, limit int) {
		if *p <= 0 {
			*p = def
		}
		*p = min(*p, limit)
	}
	set(&o.Block, defaultBlock, 16<<20)
	set(&o.Runs, defaultRuns, maxRuns/2)
	set(&o.Memory, defaultMemory, 1<<30)
	set(&o.Open, defaultOpen, 1024)
	if o.Segment <= 0 {
		o.Segment = defaultSegment
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// An Archive is written by one process at a time. Its methods may be called
// concurrently but wait for each other.
type Archive struct {
	o    Options
	hook func(step string) error // of tests: an error is a crash at this step

	mu        sync.Mutex // guards everything below
	coder     coder
	reader    *Reader // of the index
	tenants   map[string]*tenant
	aside     map[string]error   // tenants that nothing is taken of
	segs      []*open            // not in the chain yet, in the order in which they were begun
	byTenant  map[string][]*open // the same
	queue     *list.List         // of buffers with records, oldest first
	held      int                // bytes of their memory
	spare     buffers
	last      map[Log]Place // of what was appended
	again     bool          // a segment has logs to be read again
	recovered []Recovered
	signers   []*Signer
	stats     Stats
	broken    error
}

// setSegs changes which segments are not in the chain. It is rare; what asks is each record.
func (a *Archive) setSegs(segs []*open) {
	a.segs, a.byTenant = segs, map[string][]*open{}
	for _, s := range segs {
		a.byTenant[s.tenant] = append(a.byTenant[s.tenant], s)
	}
}

func (a *Archive) step(name string) error {
	if a.hook == nil {
		return nil
	}
	return a.hook(name)
}

// Open opens an archive to write, begins it where the store has none, and recovers
// what an earlier process left in Options.Dir: a torn end is cut at the last whole
// block. What it found goes on being written, or is sealed by the next Seal.
func Open(ctx context.Context, o Options) (*Archive, error) { return openHook(ctx, o, nil) }

func openHook(ctx context.Context, o Options, hook func(string) error) (*Archive, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	a := &Archive{o: o, hook: hook, tenants: map[string]*tenant{}, queue: list.New(), last: map[Log]Place{}}
	if a.aside = maps.Clone(o.Aside); a.aside == nil {
		a.aside = map[string]error{}
	}
	a.reader = NewReader(ReaderOptions{Store: o.Store, Memory: 8 << 20})
	if err := mkdirs(o.Dir); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if _, err := a.key(ctx); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	segs, err := a.recover()
	if err != nil {
		return nil, err
	}
	a.setSegs(segs)
	a.again = true
	for _, s := range segs {
		t, err := a.tenant(ctx, s.tenant)
		if named := (*TenantError)(nil); errors.As(err, &named) && (named.Damaged() || o.Aside[s.tenant] != nil) {
			a.setAside(s.tenant, named.Err)
			continue
		}
		if err != nil {
			a.closeFiles()
			return nil, err
		}
		if s.done && slices.Contains(a.segs, s) {
			a.finished(t, s)
		}
		for _, r := range a.recovered {
			if r.UID == hex.EncodeToString(s.uid[:]) {
				o.Log.Info("segment recovered", "tenant", s.tenant, "uid", r.UID, "records", r.Records, "cut_bytes", r.Cut,
					"cut_records", r.CutRecs, "reason", r.Reason)
			}
		}
	}
	return a, nil
}

// key gives the key that signs now. It must be the newest of the archive.
func (a *Archive) key(ctx context.Context) (ed25519.PrivateKey, error) {
	key, err := a.o.Signer()
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if len(a.signers) == 0 {
		if a.signers, err = Signers(ctx, a.o.Store); err != nil {
			return nil, err
		}
	}
	if len(a.signers) == 0 {
		s, err := Begin(ctx, a.o.Store, key, "archive")
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err == nil {
			a.signers = []*Signer{s}
		} else if a.signers, err = Signers(ctx, a.o.Store); err != nil {
			return nil, err
		}
	}
	for {
		b, err := readObject(ctx, a.o.Store, signerKey(len(a.signers)+1), maxID)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("signing keys: %w", err)
		}
		s, err := ParseSigner(b)
		if err != nil {
			return nil, err
		}
		a.signers = append(a.signers, s)
	}
	if n := len(a.signers); n == 0 || !a.signers[n-1].Public().Equal(key.Public()) {
		return nil, ErrSigner
	}
	return key, nil
}

// Recovered says what Open found of one segment that was not sealed.
type Recovered struct {
	Tenant  string
	Day     string
	UID     string
	Sealed  bool   // it was whole, and is in the chain now
	Blocks  int    // whole ones kept
	Records int64  // in them
	Cut     int64  // bytes removed from its end
	CutRecs int64  // records in what was removed, as far as a block's header was there
	Reason  string // why it was cut, "" where it was not
}

// Recovered says what Open found. None of what was cut was acknowledged by Sync or Seal.
func (a *Archive) Recovered() []Recovered {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.recovered)
}

// Stats of an archive since Open.
type Stats struct {
	Records, Bytes int64 // appended, before compression
	Already, Again int64
	Holes          int64 // times that a run's seq jumped
	Sealed         int64 // segments
	SealedBytes    int64
	Open           int       // segments open now
	Held           int       // bytes in memory, not in blocks
	Oldest         time.Time // when the oldest open segment was begun, zero for none
}

// Stats returns what was done so far.
func (a *Archive) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Open, s.Held = len(a.segs), a.held
	for _, g := range a.segs {
		if s.Oldest.IsZero() || g.begun.Before(s.Oldest) {
			s.Oldest = g.begun
		}
	}
	return s
}

// Close releases files. It seals nothing: what Sync wrote is recovered by the next Open.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeFiles()
	a.broken = fs.ErrClosed
	return nil
}

func (a *Archive) closeFiles() {
	for _, s := range a.segs {
		s.close()
	}
}
