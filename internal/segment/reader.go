package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// ErrNotFound is returned for a run that the archive does not have.
var ErrNotFound = errors.New("not in the archive")

// An ErasedError is returned for records whose run was erased.
type ErasedError struct {
	Tenant, Run string
	Head        *Head // of the statement, nil where it was not found
}

func (e *ErasedError) Error() string {
	return fmt.Sprintf("run %s of tenant %q was erased", e.Run, e.Tenant)
}

// A Reader reads an archive. It checks each thing it reads up to the hash in the head,
// and the heads' signatures where it knows the keys. Its methods may be called concurrently.
type Reader struct{}

// ReaderOptions configure a [Reader].
type ReaderOptions struct {
	Store, Keys Store
	Wrap        []byte // see [Options.Wrap]
	Memory      int    // bytes of directories and index kept, about; 32 MiB
}

// NewReader makes a reader. It reads nothing yet.
func NewReader(o ReaderOptions) *Reader { return &Reader{} }

// Tenants lists the tenants.
func (r *Reader) Tenants(ctx context.Context) ([]string, error) { return nil, errors.ErrUnsupported }

// Heads yields a tenant's chain behind number after.
func (r *Reader) Heads(ctx context.Context, tenant string, after uint64) iter.Seq2[*Head, error] {
	return func(yield func(*Head, error) bool) { yield(nil, errors.ErrUnsupported) }
}

// A Query chooses records. Zero fields choose all.
type Query struct {
	Tenant string
	Run    string
	Logs   []Log
	After  uint64 // with Run: events with a greater seq, and the rest
	Since  time.Time
	Until  time.Time // stored at Since or later, before Until
}

// Records yields records: of one run in the order of each log, events by seq; else
// segment by segment and run by run. For a run it reads the blocks of that run only. A
// record is good until the next one. Instead of an erased run's records there comes
// one *ErasedError, and reading goes on if yield returns true. Every other error ends it.
func (r *Reader) Records(ctx context.Context, q Query) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) { yield(nil, errors.ErrUnsupported) }
}

// RunInfo is what the index knows of a run.
type RunInfo struct {
	Tenant, Run       string
	FirstSeq, LastSeq uint64
	Records           int64
	Bytes             int64 // as stored
	First, Last       time.Time
	Segments          []uint64 // numbers of heads
	Gone              []uint64 // those of them that retention deleted
	Erased            *Head    // nil where it was not
	Held              bool
}

// Runs yields the runs of a tenant that have records in [since, until), by id; zero
// times are no bounds. An empty tenant is all tenants.
func (r *Reader) Runs(ctx context.Context, tenant string, since, until time.Time) iter.Seq2[*RunInfo, error] {
	return func(yield func(*RunInfo, error) bool) { yield(nil, errors.ErrUnsupported) }
}

// Run finds one run, or ErrNotFound. An empty tenant asks all.
func (r *Reader) Run(ctx context.Context, tenant, run string) (*RunInfo, error) {
	return nil, errors.ErrUnsupported
}
