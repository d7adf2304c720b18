package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"time"
)

// blockSize is how much is read from a segment at a time.
const blockSize = 256 << 10

// reader is the place in a segment where the publisher reads, guarded by
// Spool.rmu.
type reader struct {
	f    *os.File
	path string
	scan scanner
	at   uint64 // number of the record at scan.off
}

func (r *reader) close() error {
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	r.f = nil
	return err
}

// Record returns record n. ok is false when it does not exist yet. The slices
// must not be changed; they stay good. The error is ErrDropped when the record
// was removed, or says what could not be read. Reading in order is fast, from
// memory behind the writer and in large blocks from disk otherwise.
func (s *Spool) Record(n uint64) (meta, data []byte, ok bool, err error) {
	return s.record(n, false)
}

// Borrow is Record for the one who ships the run: the slices are good only until
// the call after the next one. The memory behind them is used again, and records
// below the one before n need not be kept in it.
func (s *Spool) Borrow(n uint64) (meta, data []byte, ok bool, err error) {
	return s.record(n, true)
}

func (s *Spool) record(n uint64, borrow bool) (meta, data []byte, ok bool, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, false, ErrClosed
	}
	if n >= s.next {
		s.mu.Unlock()
		return nil, nil, false, nil
	}
	rec, c := s.tail.record(n)
	if borrow {
		s.tail.lend(n, c)
	}
	if rec != nil {
		c.kept = c.kept || !borrow
		s.mu.Unlock()
		meta, data = parts(rec) // as it was written; the checksum is for the disk
		return meta, data, true, nil
	}
	i := sort.Search(len(s.segs), func(i int) bool { return s.segs[i].last >= n })
	if n == 0 || i == len(s.segs) || s.segs[i].first > n {
		s.mu.Unlock()
		return nil, nil, false, ErrDropped
	}
	g := s.segs[i]
	from, size := g.near(n), g.size
	s.mu.Unlock()

	s.rmu.Lock()
	defer s.rmu.Unlock()
	rec, err = s.rd.seek(g.path, size, from, n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, false, ErrDropped
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("read record %d from %s: %w", n, g.path, err)
	}
	return s.split(n, rec)
}

func (s *Spool) split(n uint64, rec []byte) (meta, data []byte, ok bool, err error) {
	seq, meta, data, err := splitRecord(rec)
	if err == nil && seq != n {
		err = fmt.Errorf("found record %d in its place", seq)
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("read record %d: %w", n, err)
	}
	return meta, data, true, nil
}

// seek reads record n from the segment at path, of which size bytes are valid;
// it lies at or behind the mark from.
func (r *reader) seek(path string, size int64, from mark, n uint64) (rec []byte, err error) {
	if r.f == nil || r.path != path {
		if err := r.close(); err != nil {
			return nil, err
		}
		if r.f, err = os.Open(path); err != nil {
			r.f = nil
			return nil, err
		}
		r.path, r.scan = path, scanner{r: r.f, fresh: true}
		r.at, r.scan.off = from.seq, from.off
	}
	if n < r.at || from.seq > r.at {
		r.at, r.scan.off = from.seq, from.off
	}
	r.scan.size = size
	for r.at <= n {
		if rec, err = r.scan.next(); err != nil {
			return nil, err
		}
		r.at++
	}
	return rec, nil
}

// Wait blocks until record n exists (or has existed). It returns ErrDone when
// the run ended before n, ErrClosed after Close, or the context's cause.
func (s *Spool) Wait(ctx context.Context, n uint64) error {
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return ErrClosed
		case n < s.next:
			s.mu.Unlock()
			return nil
		case s.ended:
			s.mu.Unlock()
			return ErrDone
		}
		if s.wake == nil {
			s.wake = make(chan struct{})
		}
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Acked says that the bus has every record up to n. Numbers that go back or
// beyond the last record are limited to what is possible. It is remembered on
// disk soon (see cursorEvery) and at Close; a crash forgets the newest part,
// which is harmless: the publisher asks the bus.
func (s *Spool) Acked(n uint64) {
	now := time.Now()
	s.mu.Lock()
	n = min(n, s.next-1)
	if s.closed || n <= s.acked {
		s.mu.Unlock()
		return
	}
	s.acked, s.ackedAt = n, now
	shipped := s.ended && n == s.next-1
	s.mu.Unlock()
	s.cur.write(n, now, shipped)
}

// Advance makes n+1 the next record's number. It is for a flusher that learns
// from the bus that the run had more records than a power loss left of them
// here, up to n, all of them on the bus. They count as acknowledged. Numbers
// that are below the last record's change nothing.
func (s *Spool) Advance(n uint64) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	if n < s.next || s.closed {
		s.mu.Unlock()
		return
	}
	s.next = n + 1
	s.acked, s.ackedAt = n, time.Now()
	if len(s.segs) == 0 {
		s.before = n
	}
	s.changed()
	s.mu.Unlock()
	// Records of a chunk and of a segment are consecutive: begin new ones.
	s.head = nil
	if s.f != nil {
		s.f.Close() // nothing was buffered
		s.f = nil
	}
}
