package segment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
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

	// ErrHeld is returned for what a legal hold forbids.
	ErrHeld = errors.New("under a legal hold")
)

// An Archive is written by one process at a time. Its methods may be called
// concurrently but wait for each other.
type Archive struct{}

// Open opens an archive to write, begins it where the store has none, and recovers
// what an earlier process left in Options.Dir: a torn end is cut at the last whole
// block, and a segment that was being sealed is sealed.
func Open(ctx context.Context, o Options) (*Archive, error) { return nil, errors.ErrUnsupported }

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
func (a *Archive) Recovered() []Recovered { return nil }

// An Added is what became of a record.
type Added int

// What Append did.
const (
	New     Added = iota // it is in the archive's memory now
	Already              // the archive has this very message: it came again after a crash
	Again                // it has this event, from another message: the stream lost its end and got it anew
)

// Append takes a record. It copies what it keeps. Nothing is durable before Sync or Seal
// returned. Records of one log come in its order. It returns ErrFull, after which
// nothing was taken, when a segment must be sealed first.
func (a *Archive) Append(r *Record) (Added, error) { return New, errors.ErrUnsupported }

// Sync writes what was appended to Options.Dir. After nil it survives the process and
// a power loss, but not the loss of this machine.
func (a *Archive) Sync(ctx context.Context) error { return errors.ErrUnsupported }

// Seal ends open segments and puts them into the store and the chain: those that are
// full, whose day is over, or that are open for longer than age; all for 0. What
// was in them survives this machine. After an error, Seal again goes on where it was;
// nothing gets into the chain twice. It returns the heads it added.
func (a *Archive) Seal(ctx context.Context, age time.Duration) ([]*Head, error) {
	return nil, errors.ErrUnsupported
}

// Through says for each log up to where everything appended is sealed, over all
// tenants: up to there the bus may forget. Logs of which nothing is sealed are missing.
func (a *Archive) Through() map[Log]Place { return nil }

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
func (a *Archive) Stats() Stats { return Stats{} }

// Erase destroys the keys of a run: the fact gets into the chain first, then the keys
// go. It returns ErrHeld under a hold. Records of the run that come later are kept
// erased. A second call finishes what a first one could not.
func (a *Archive) Erase(ctx context.Context, tenant, run, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Retain deletes a tenant's segments whose last record was stored before a time,
// except those with a held run. The fact gets into the chain first. It returns nil
// where there was nothing to delete.
func (a *Archive) Retain(ctx context.Context, tenant string, before time.Time, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Hold forbids Erase and Retain for a run, or a whole tenant where run is "", until
// Release. id names the hold; several may be on one run.
func (a *Archive) Hold(ctx context.Context, tenant, run, id, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Release ends a hold.
func (a *Archive) Release(ctx context.Context, tenant, id, by, why string) (*Head, error) {
	return nil, errors.ErrUnsupported
}

// Close releases files. It seals nothing: what Sync wrote is recovered by the next Open.
func (a *Archive) Close() error { return nil }
