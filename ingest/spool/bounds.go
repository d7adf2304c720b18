package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// measureEvery is how often a writer that has no room looks again: at the other
// runs, or whether its reserve file fits.
var measureEvery = time.Second // shortened by tests

// reserveBlocks is the size of the reserve file: a few gap and exit events.
const reserveBlocks = MaxReserved + 4096

// room makes sure that size more bytes stay within the bounds, by dropping
// segments that are acknowledged as a whole, oldest first. Called with wmu.
func (s *Spool) room(size int64, reserved bool) error {
	run, total := s.opt.RunCap, s.opt.TotalCap
	if !reserved {
		run -= min(reserve, run/4)
	}
	fits := func() bool {
		// What is reserved is bounded by the run's cap, and must be said even
		// when other runs have filled the total.
		return s.used+size <= run && (reserved || total < 0 || s.used+s.others+size <= total)
	}
	if s.measured.IsZero() && s.used+size > s.unmeasured() {
		s.measure()
	}
	if !fits() && s.used+size <= run && time.Since(s.measured) >= measureEvery {
		s.measure()
	}
	for !fits() {
		dropped, err := s.dropOldest()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		if !dropped {
			if s.used+size > run {
				return fmt.Errorf("%w: run has %d bytes of %d", ErrFull, s.used, s.opt.RunCap)
			}
			return fmt.Errorf("%w: all runs have %d bytes of %d", ErrFull, s.used+s.others, total)
		}
	}
	return nil
}

// dropOldest removes the oldest segment if all its records are acknowledged.
// The last segment always stays: it says what the next number is.
func (s *Spool) dropOldest() (bool, error) {
	s.mu.Lock()
	if len(s.segs) < 2 || s.segs[0].last > s.acked {
		s.mu.Unlock()
		return false, nil
	}
	g := s.segs[0]
	s.mu.Unlock()
	// Only the writer shortens segs, so g is still the first one afterwards. A
	// reader that comes in between finds no file: dropped.
	if err := os.Remove(g.path); err != nil && !os.IsNotExist(err) {
		return false, err
	}
	s.mu.Lock()
	s.segs = s.segs[1:]
	s.stats.dropped++
	s.mu.Unlock()
	s.used -= g.size
	return true, nil
}

// unmeasured is how much a run writes before it looks at the others, in bytes: a
// small run does not pay for a full root. It is far below a segment, by which
// each writer may exceed the total anyway.
func (s *Spool) unmeasured() int64 { return min(s.opt.SegmentSize/16, s.opt.TotalCap/4096) }

// measure sums up the segments of the other runs: one stat a segment, so about
// a millisecond for a full root, once a segment.
func (s *Spool) measure() {
	if s.opt.TotalCap < 0 || s.measured.IsZero() && s.used < s.unmeasured() {
		return
	}
	s.measured = time.Now()
	s.others = 0
	root, self := filepath.Split(s.dir)
	runs, err := os.ReadDir(root)
	if err != nil {
		return // an unreadable root shows itself elsewhere; the run's cap still holds
	}
	for _, r := range runs {
		if r.IsDir() && r.Name() != self {
			s.others += segmentBytes(filepath.Join(root, r.Name()))
		}
	}
}

func segmentBytes(dir string) (sum int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if _, ok := segmentFirst(e.Name()); !ok {
			continue
		}
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// keepReserve writes the reserve file.
func (s *Spool) keepReserve() error {
	path := filepath.Join(s.dir, reserveName)
	if err := os.WriteFile(path, make([]byte, reserveBlocks), 0o600); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}

// freeReserve gives the blocks of the reserve file back to the file system, for
// the write that follows at once. It reports whether there were any. Another
// process may be faster: the reserve is a help, not a promise.
func (s *Spool) freeReserve() bool {
	if os.Remove(filepath.Join(s.dir, reserveName)) != nil {
		return false
	}
	s.spent = true
	return true
}

// haveReserve brings the reserve file back after its use. Until that succeeds
// ordinary records are refused: what the file left free is for the next last
// words.
func (s *Spool) haveReserve() error {
	if !s.spent {
		return nil
	}
	if time.Since(s.retried) < measureEvery {
		return fmt.Errorf("%w: the disk's last blocks are for the end of the run", ErrFull)
	}
	s.retried = time.Now()
	if err := s.keepReserve(); err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	s.spent = false
	return nil
}
