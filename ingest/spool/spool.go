package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/subject"
)

// Sentinel errors.
var (
	// ErrFull is returned when a record does not fit: a bound is reached or the
	// disk is full (the error then wraps the cause too). Nothing was written
	// and no number was given; a later append may succeed.
	ErrFull = errors.New("spool is full")
	// ErrLocked is returned when another process, or another Spool of this one,
	// has the run open.
	ErrLocked = errors.New("spool is in use by its writer")
	// ErrDone is returned by Wait for a record that will never exist, and by
	// appends after End.
	ErrDone = errors.New("run has ended")
	// ErrDropped is returned for a record that was acknowledged and has been
	// removed to make room, or was passed over by Advance.
	ErrDropped = errors.New("record is no longer in the spool")
	// ErrClosed is returned after Close or Remove.
	ErrClosed = errors.New("spool is closed")
	// ErrTooLarge is returned for a record above MaxRecord (MaxReserved for
	// AppendReserved). Nothing was written.
	ErrTooLarge = errors.New("record is too large")
)

// Bounds. See also the fields of Options.
const (
	// MaxRecord bounds meta and data of one record together. Events are split
	// at 256 KiB, so it leaves room; a length above it in a file is damage.
	MaxRecord = 8 << 20
	// MaxReserved bounds a record of AppendReserved. A gap, exit or life event
	// is far smaller.
	MaxReserved = 64 << 10
	// reserve is the part of a run's cap that only AppendReserved may use. It
	// holds more last words than a run can have reasons for.
	reserve = 1 << 20
)

// Options are how a run's spool behaves. The zero value is usable.
type Options struct {
	// SegmentSize is where a segment ends and the next begins, in bytes. 0 is
	// 16 MiB. One AppendAll is never divided, so a segment may be larger by it.
	SegmentSize int64
	// RunCap bounds the segments of this run, in bytes. 0 is 1 GiB.
	RunCap int64
	// TotalCap bounds the segments of all runs under the root, in bytes. 0 is
	// 4 GiB, negative is none. Each writer measures the others when it begins a
	// segment, the first time from 1 MiB on, so n writers may exceed it by n
	// segments.
	TotalCap int64
	// Tail bounds the memory that keeps the newest records for the publisher,
	// in bytes. 0 is 4 MiB.
	Tail int
	// Retain is how long acknowledged records stay after the last one was
	// acknowledged, because a broker that lost power may have to be sent them
	// again: twice its sync interval. See Spool.Removable.
	Retain time.Duration
	// SyncEvery, when positive, is how often a goroutine of the spool calls
	// Sync while records are appended. Close ends it.
	SyncEvery time.Duration
	// Prefix lets Open take a damaged spool: what is readable before the damage
	// stays, the rest is given up and told by Spool.Damage.
	Prefix bool

	create func(path string) (file, error) // replaced by tests
}

func (o *Options) fill() {
	if o.SegmentSize == 0 {
		o.SegmentSize = 16 << 20
	}
	if o.RunCap == 0 {
		o.RunCap = 1 << 30
	}
	if o.TotalCap == 0 {
		o.TotalCap = 4 << 30
	}
	if o.Tail == 0 {
		o.Tail = 4 << 20
	}
	if o.create == nil {
		o.create = createFile
	}
}

// Meta says whose the spool is.
type Meta struct {
	Version   int       `json:"version"` // of the form on disk
	Run       string    `json:"run"`
	Tenant    string    `json:"tenant"`
	Partition int       `json:"partition"`
	Created   time.Time `json:"created"`
	// Data is the caller's: whatever it needs to ship the run later.
	Data json.RawMessage `json:"data,omitempty"`
}

const formVersion = 1

// Names of the files of a run.
const (
	metaName     = "meta.json"
	lockName     = "lock"
	cursorName   = "cursor"
	endedName    = "ended"
	reserveName  = "reserve"
	commandsName = "commands"
	damageName   = "damage.json"
	segSuffix    = ".seg"
	badSuffix    = ".bad"
)

// A Spool is one run's queue, opened by the one process that may write it. Its
// methods are safe for concurrent use.
type Spool struct {
	dir  string
	opt  Options
	meta Meta
	lock *os.File

	// wmu is held over a whole append, disk access included. It guards the
	// fields of writer. Taken before mu.
	wmu sync.Mutex
	writer

	// mu guards the fields below and is never held over disk access.
	mu      sync.Mutex
	segs    []*segment // in order; the last one is written to
	before  uint64     // while segs is empty: number of the record before the next
	next    uint64     // number of the next record
	acked   uint64
	ackedAt time.Time
	ended   bool
	closed  bool
	wake    chan struct{} // closed at the next change, nil while nobody waits
	tail    tail
	stats   counters

	rmu sync.Mutex // guards rd; taken without wmu and mu
	rd  reader

	cur cursorFile

	jmu     sync.Mutex // guards journal
	journal *Journal

	recovered Recovered
	damage    *Damage
	unsynced  syncState
	syncer    sync.WaitGroup
	stop      chan struct{} // ends the goroutine of SyncEvery
}

// Create makes the spool of a new run and opens it. Directories that are
// missing are made, with mode 0700. It does not wait for the disk: until the
// first Sync a power loss may lose the whole spool. The error is fs.ErrExist
// when the run already has one.
func Create(root string, m Meta, o Options) (*Spool, error) {
	o.fill()
	dir := Dir(root, m.Run)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	s := &Spool{dir: dir, opt: o, meta: m, lock: lock, next: 1, stop: make(chan struct{})}
	s.meta.Version = formVersion
	if s.meta.Created.IsZero() {
		s.meta.Created = time.Now().UTC()
	}
	if err := s.writeMeta(); err != nil {
		err = errors.Join(err, os.RemoveAll(dir), lock.Close())
		return nil, fmt.Errorf("create spool: %w", err)
	}
	s.spent = s.keepReserve() != nil
	s.unsynced.meta = true
	s.start()
	return s, nil
}

// Dir is the directory of a run's spool under root.
func Dir(root, run string) string { return filepath.Join(root, subject.Token(run)) }

func (s *Spool) writeMeta() error {
	b, err := json.Marshal(s.meta)
	if err != nil {
		return fmt.Errorf("encode meta: %w", err)
	}
	path := filepath.Join(s.dir, metaName)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// start begins what runs beside the caller.
func (s *Spool) start() {
	s.writer.spool = s
	s.cur.path = filepath.Join(s.dir, cursorName)
	if s.opt.SyncEvery > 0 {
		s.syncer.Go(s.syncLoop) // ends with Close
	}
}

// Meta is what Create was given.
func (s *Spool) Meta() Meta { return s.meta }

// Path is the spool's directory.
func (s *Spool) Path() string { return s.dir }

// End marks that the run is over: no record follows. Whoever waits for one gets
// ErrDone. The mark survives the death of this process when End returns nil;
// for a power loss call Sync. When it returns an error, this Spool has ended
// nevertheless and only a later Open will not know it.
func (s *Spool) End() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.ended = true
	s.changed()
	s.mu.Unlock()
	path := filepath.Join(s.dir, endedName)
	err := os.WriteFile(path, nil, 0o600)
	if err != nil && s.freeReserve() {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mark run as ended: %w", err)
	}
	return nil
}

// Reopen takes End back, for a flusher that finds the run's last words missing:
// damage or a power loss may take them and leave the mark.
func (s *Spool) Reopen() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := os.Remove(filepath.Join(s.dir, endedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reopen: %w", err)
	}
	s.ended = false
	return nil
}

// Close writes the cursor, ends what runs beside the caller and gives the lock
// up. The files stay. Readers that wait get ErrClosed.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.changed()
	n, at := s.acked, s.ackedAt
	s.mu.Unlock()
	close(s.stop)
	s.syncer.Wait()

	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	errs := []error{s.cur.close(n, at), s.rd.close(), s.writer.close()}
	s.jmu.Lock()
	defer s.jmu.Unlock()
	if s.journal != nil {
		errs = append(errs, s.journal.close())
	}
	// The lock last: whoever gets it finds everything written.
	errs = append(errs, s.lock.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// Remove deletes the spool with all its files, shipped or not, and closes it.
// A crash within leaves a spool that still opens, with fewer records in it, all
// of them at its end, and a power loss may bring it back: it is then shipped a
// second time, which the bus recognises. See Removable.
func (s *Spool) Remove() error {
	s.mu.Lock()
	segs := s.segs
	s.mu.Unlock()
	// The lock is held until the end, so nobody opens what is half removed.
	var errs []error
	rm := func(name string) {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, g := range segs {
		rm(filepath.Base(g.path))
	}
	if entries, err := os.ReadDir(s.dir); err == nil {
		for _, e := range entries {
			if n := e.Name(); n != lockName && n != metaName && own(n) {
				rm(n)
			}
		}
	}
	rm(metaName)
	rm(lockName)
	if err := os.Remove(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	s.cur.disable()
	errs = append(errs, s.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove spool: %w", err)
	}
	return nil
}

// own reports whether a file of this name in a run's directory is the spool's.
func own(name string) bool {
	switch name {
	case metaName, metaName + ".tmp", lockName, cursorName, endedName, reserveName, commandsName, damageName:
		return true
	}
	_, ok := segmentFirst(name)
	return ok || filepath.Ext(name) == badSuffix || filepath.Ext(name) == segSuffix
}
