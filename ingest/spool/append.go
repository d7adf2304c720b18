package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A Record is one event: the caller's meta and data, uninterpreted.
type Record struct{ Meta, Data []byte }

// writer is the append side of a Spool, guarded by Spool.wmu.
type writer struct {
	spool  *Spool
	f      file     // the segment being written, nil before the first record
	seg    *segment // its description
	off    int64    // where its next record goes
	used   int64    // bytes of all segments of this run
	torn   bool     // f may have bytes beyond off
	litter string   // a segment that could not be begun nor removed

	head  *chunk // being filled
	batch []placed

	spent    bool      // the reserve file is used up
	retried  time.Time // when its return was tried last
	others   int64     // bytes of the other runs' segments, when last measured
	measured time.Time
}

// placed is a record of the append under way.
type placed struct {
	c      *chunk
	off, n int
}

// Append adds one record and returns its number. Meta and data may be changed
// afterwards. When it returns, the record survives the death of this process;
// see Sync for a power loss. After an error no number was given and nothing
// stays on disk: ErrFull (a bound, or the disk with its cause), ErrTooLarge,
// ErrDone, ErrClosed, or what the file system said.
func (s *Spool) Append(meta, data []byte) (uint64, error) {
	one := [1]Record{{meta, data}}
	return s.append(one[:], false)
}

// AppendAll adds records with consecutive numbers and returns the first. They
// all get a number or none does. When this process dies within the call, the
// first few of them may stay.
func (s *Spool) AppendAll(recs []Record) (first uint64, err error) {
	return s.append(recs, false)
}

// AppendReserved is Append for what must be said when there is no more room (a
// gap, an exit): it may use the part of the run's cap that Append leaves, and
// when the disk is full the blocks of the reserve file. Meta and data together
// are at most MaxReserved.
func (s *Spool) AppendReserved(meta, data []byte) (uint64, error) {
	if len(meta)+len(data) > MaxReserved {
		return 0, ErrTooLarge
	}
	one := [1]Record{{meta, data}}
	return s.append(one[:], true)
}

func (s *Spool) append(recs []Record, reserved bool) (uint64, error) {
	var size int64
	for i := range recs {
		if len(recs[i].Meta)+len(recs[i].Data) > MaxRecord {
			return 0, ErrTooLarge
		}
		size += int64(recordSize(len(recs[i].Meta), len(recs[i].Data)))
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	next, ended, closed := s.next, s.ended, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return 0, ErrClosed
	case ended:
		return 0, ErrDone
	case len(recs) == 0:
		return next, nil
	}
	err := s.try(next, recs, size, reserved)
	if reserved && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && s.freeReserve() {
		err = s.try(next, recs, size, reserved)
	}
	if err != nil {
		s.mu.Lock()
		s.stats.refused += uint64(len(recs))
		s.mu.Unlock()
		return 0, full(err)
	}
	s.publish(next, size)
	return next, nil
}

// try does one append up to the point where only its publication is missing.
func (s *Spool) try(next uint64, recs []Record, size int64, reserved bool) error {
	if !reserved {
		if err := s.haveReserve(); err != nil {
			return err
		}
	}
	if err := s.heal(); err != nil {
		return err
	}
	if err := s.room(size, reserved); err != nil {
		return err
	}
	if s.f == nil || s.off > headerSize && s.off+size > s.opt.SegmentSize {
		if err := s.roll(next); err != nil {
			return err
		}
	}
	return s.write(next, recs)
}

// full adds ErrFull to errors that say that there is no room.
func full(err error) error {
	if errors.Is(err, ErrFull) {
		return err
	}
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, io.ErrShortWrite} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return fmt.Errorf("append to spool: %w", err)
}

// write encodes recs into the tail's memory and writes them from there. After
// an error the segment ends where it ended before, or is torn.
func (w *writer) write(seq uint64, recs []Record) (err error) {
	head, fill := w.head, 0
	if head != nil {
		fill = head.fill
	}
	w.batch = w.batch[:0]
	start := fill // of what is encoded in w.head and not written
	defer func() {
		if err == nil {
			return
		}
		if w.head = head; head != nil {
			head.fill = fill
		}
		w.torn = true
		err = errors.Join(err, w.spool.heal())
	}()
	for i := range recs {
		n := recordSize(len(recs[i].Meta), len(recs[i].Data))
		if w.head == nil || len(w.head.mem)-w.head.fill < n {
			if err = w.flush(start); err != nil {
				return err
			}
			w.head = w.begin(n)
			start = 0
		}
		c := w.head
		putRecord(c.mem[c.fill:c.fill+n], seq+uint64(i), recs[i].Meta, recs[i].Data)
		w.batch = append(w.batch, placed{c, c.fill, n})
		c.fill += n
	}
	return w.flush(start)
}

// begin returns a chunk for a record of n bytes and those behind it.
func (w *writer) begin(n int) *chunk {
	size := min(chunkSize, w.spool.opt.Tail)
	if n > size/4 {
		// Beside it the rest of a chunk would mostly stay empty. Chunks of few
		// sizes are of use again.
		size = (n + largeStep - 1) / largeStep * largeStep
	}
	w.spool.mu.Lock()
	c := w.spool.tail.reuse(size)
	w.spool.mu.Unlock()
	if c == nil {
		c = &chunk{mem: make([]byte, size)}
	}
	return c
}

// largeStep is what the sizes of chunks for large records are multiples of.
const largeStep = 8 << 10

func (w *writer) flush(start int) error {
	if w.head == nil || w.head.fill == start {
		return nil
	}
	b := w.head.mem[start:w.head.fill]
	n, err := w.f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// publish shows the records of w.batch to the reader.
func (s *Spool) publish(seq uint64, size int64) {
	s.mu.Lock()
	for _, p := range s.batch {
		s.tail.add(p.c, seq, p.off, p.n, s.opt.Tail)
		s.seg.note(seq, s.off, int64(p.n))
		s.off += int64(p.n)
		seq++
	}
	s.next = seq
	s.changed()
	s.mu.Unlock()
	s.used += size
	clear(s.batch) // they keep chunks alive
}

// changed wakes whoever waits. Called with mu held.
func (s *Spool) changed() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// heal removes what a failed append left behind. Until it succeeds nothing is
// appended: a record behind torn bytes could never be read.
func (s *Spool) heal() error {
	if s.litter != "" {
		if err := os.Remove(s.litter); err != nil && !os.IsNotExist(err) {
			return err
		}
		s.litter = ""
	}
	if !s.torn {
		return nil
	}
	if err := s.f.Truncate(s.off); err != nil {
		return fmt.Errorf("cut torn record: %w", err)
	}
	s.torn = false
	return nil
}

// roll begins the segment whose first record is first. On an error the present
// segment stays.
func (s *Spool) roll(first uint64) error {
	path := filepath.Join(s.dir, segmentName(first))
	f, err := s.opt.create(path)
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	var prev uint64
	s.mu.Lock()
	if n := len(s.segs); n > 0 {
		prev = s.segs[n-1].last
	} else {
		prev = s.before
	}
	s.mu.Unlock()
	head := appendHeader(nil, first, prev)
	if n, werr := f.Write(head); werr != nil || n < len(head) {
		if werr == nil {
			werr = io.ErrShortWrite
		}
		s.litter = path
		return errors.Join(fmt.Errorf("begin segment: %w", werr), f.Close(), s.heal())
	}
	if s.f != nil {
		if cerr := s.f.Close(); cerr != nil {
			err = fmt.Errorf("close segment: %w", cerr) // told once; the records are in the kernel
		}
	}
	s.f, s.off = f, headerSize
	s.seg = &segment{path: path, first: first, last: first - 1, size: headerSize}
	s.used += headerSize
	s.mu.Lock()
	s.segs = append(s.segs, s.seg)
	s.mu.Unlock()
	s.measure()
	return err
}

func (w *writer) close() error {
	if w.f == nil {
		return nil
	}
	return w.f.Close()
}
