package segment

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// A Store keeps objects by key. Keys are 1 to 1000 bytes of [A-Za-z0-9_=.-] in
// parts with "/" between; no part begins with ".". All methods may be called
// concurrently.
type Store interface {
	// Create stores what body has under key if there is no such object yet, else
	// it returns an error that wraps fs.ErrExist and leaves what is there. It is
	// all or nothing: other readers see the whole object or none, also after a
	// crash. After nil it survives a power loss. After another error the object
	// may be there nevertheless.
	Create(ctx context.Context, key string, body *io.SectionReader) error

	// Replace stores data under key, whether there was an object or not. Readers
	// see the old or the new one. After nil it survives a power loss.
	Replace(ctx context.Context, key string, data []byte) error

	// Open gives an object to read, or an error that wraps fs.ErrNotExist.
	Open(ctx context.Context, key string) (Object, error)

	// List yields the keys that begin with prefix and the objects' sizes, sorted
	// by key as bytes. An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes an object. That there is none is no error.
	Delete(ctx context.Context, key string) error
}

// An Object is open to read. ReadAt may be called concurrently.
type Object interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Info is what [Store.List] says of an object.
type Info struct {
	Key  string
	Size int64
	Time time.Time // when it was stored, zero where that is not known
}

// A Sweeper is a [Store] in which writes that became no object can leave something.
type Sweeper interface {
	// Sweep removes what was left by writes that began before a time, or went on last
	// then. One that is still going on fails, and leaves no object.
	Sweep(ctx context.Context, before time.Time) error
}

// A Checker is a [Store] that can find out whether it can hold an archive.
type Checker interface {
	// Check writes, reads and removes something. It returns an error that wraps ErrUnfit
	// where the store does not do what a Store must.
	Check(ctx context.Context) error
}

// ErrUnfit is wrapped by an error about a store that cannot hold an archive.
var ErrUnfit = errors.New("not fit for an archive")
