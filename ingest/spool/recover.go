package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// Recovered says what Open had to give up at the end of the last segment: bytes
// of an append that a crash cut, or damage. Zero when all was well.
type Recovered struct {
	Segment string // file name
	Cut     int64  // bytes removed from its end
	Reason  string
}

// Damage is an error in a segment that others follow. The records before it are
// good. Those behind it are unusable, whatever the later segments hold: numbers
// would be missing between.
type Damage struct {
	Segment string `json:"segment"` // file name
	Offset  int64  `json:"offset"`
	Reason  string `json:"reason"`
	First   uint64 `json:"first"` // number of the first record lost
	Last    uint64 `json:"last"`  // of the last one, as far as the later segments' names tell
	Bytes   int64  `json:"bytes"` // unusable, from Offset on and in later segments
}

// A DamageError is returned by Open for a spool with Damage.
type DamageError struct{ Damage }

func (e *DamageError) Error() string {
	return fmt.Sprintf("spool segment %s is damaged at %d: %s; records from %d on (at least to %d) are unusable, those before are good",
		e.Segment, e.Offset, e.Reason, e.First, e.Last)
}

// Open takes over the spool of a run whose writer is gone, to ship it and to
// add what must be added. It returns ErrLocked while the writer lives,
// fs.ErrNotExist for a run that has none, and a *DamageError, see
// Options.Prefix. A torn end of the last segment is cut, see Spool.Recovered.
func Open(root, run string, o Options) (*Spool, error) {
	return openDir(Dir(root, run), o)
}

func openDir(dir string, o Options) (*Spool, error) {
	o.fill()
	if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &Spool{dir: dir, opt: o, lock: lock, stop: make(chan struct{})}
	if err := s.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s.start()
	return s, nil
}

// load reads the state that the last process left. What it may be, and the
// crash that leaves it:
//
//	no meta.json          in Create, or a power loss before the first Sync
//	no segment            before the first append
//	segment without a     in the write that begins it; the records before it
//	whole header          are all there
//	record cut at the end in an append, or a power loss
//	cursor behind         always possible: it is written now and then
//	cursor beyond the     a power loss that took records; the bus has them
//	records, or garbage   and the publisher asks it
//	no "ended"            the writer died before End
func (s *Spool) load() error {
	b, err := os.ReadFile(filepath.Join(s.dir, metaName))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.meta); err != nil {
		return fmt.Errorf("read %s: %w", metaName, err)
	}
	if s.meta.Version != formVersion {
		return fmt.Errorf("%s has version %d, this program reads %d", metaName, s.meta.Version, formVersion)
	}
	if err := s.loadSegments(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, endedName)); err == nil {
		s.ended = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.acked, s.ackedAt = readCursor(filepath.Join(s.dir, cursorName))
	if s.acked >= s.next {
		s.acked, s.ackedAt = 0, time.Time{}
	}
	if !s.ended {
		s.spent = s.keepReserve() != nil
	}
	return nil
}

// loadSegments checks every record of every segment.
func (s *Spool) loadSegments() error {
	segs, err := segmentFiles(s.dir)
	if err != nil {
		return err
	}
	s.next = 1
	for i, g := range segs {
		prev, bad := g.load(nil)
		if bad != nil && bad.fatal {
			return fmt.Errorf("segment %s: %w", filepath.Base(g.path), bad.err)
		}
		if bad == nil && i > 0 && prev != segs[i-1].last {
			// The segment before lost its end without a trace.
			bad, i = &fault{err: fmt.Errorf("%s follows record %d", filepath.Base(g.path), prev)}, i-1
			g = segs[i]
		}
		if bad == nil {
			s.next = g.last + 1
			continue
		}
		if i == len(segs)-1 {
			segs, err = s.cutLast(segs, bad.err)
		} else {
			segs, err = s.cutMiddle(segs, i, bad.err)
		}
		if err != nil {
			return err
		}
		break
	}
	if n := len(segs); n > 0 && segs[n-1].last < segs[n-1].first {
		// Begun, but without a record. The file stays until the segment is
		// begun again: its name says what the next number is.
		s.next = segs[n-1].first
		s.before = s.next - 1
		segs = segs[:n-1]
	}
	s.segs = segs
	for _, g := range segs {
		s.used += g.size
	}
	return s.loadDamage()
}

// A fault is why a segment's records end before its bytes do.
type fault struct {
	err   error
	fatal bool // not damage: the file could not be read, or is of another version
}

// load reads a segment to its end or first fault, calling each for every record.
func (g *segment) load(each func(rec []byte) error) (prev uint64, bad *fault) {
	f, err := os.Open(g.path)
	if err != nil {
		return 0, &fault{err, true}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, &fault{err, true}
	}
	g.disk = info.Size()
	head := make([]byte, headerSize)
	if n, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return 0, &fault{err, true}
	} else if n < headerSize {
		return 0, &fault{err: errors.New("segment header is cut")}
	}
	first, prev, err := parseHeader(head)
	if errors.Is(err, errVersion) {
		return 0, &fault{err, true}
	}
	if err == nil && first != g.first {
		err = fmt.Errorf("segment header says record %d", first)
	}
	if err != nil {
		return 0, &fault{err: err}
	}
	g.size = headerSize
	sc := scanner{r: f, size: info.Size(), off: headerSize}
	for {
		off := sc.off
		rec, err := sc.next()
		if errors.Is(err, io.EOF) {
			return prev, nil
		}
		var seq uint64
		if err == nil {
			seq, _, _, err = splitRecord(rec)
		}
		if err == nil && seq != g.last+1 {
			err = fmt.Errorf("record %d stands where %d belongs", seq, g.last+1)
		}
		if err == nil && each != nil {
			err = each(rec)
		}
		if err != nil {
			var pe *fs.PathError
			return prev, &fault{err, errors.As(err, &pe)}
		}
		g.note(seq, off, int64(len(rec)))
	}
}

// cutLast cuts the end of the last segment at its last good record.
func (s *Spool) cutLast(segs []*segment, reason error) ([]*segment, error) {
	g := segs[len(segs)-1]
	s.recovered = Recovered{Segment: filepath.Base(g.path), Cut: g.disk - g.size, Reason: reason.Error()}
	if err := os.Truncate(g.path, g.size); err != nil {
		return nil, err
	}
	s.next = g.last + 1
	return segs, nil
}

// cutMiddle handles damage in a segment that others follow: an error, or with
// Options.Prefix the good part. The damage is written down first: a crash must
// not make it look as if nothing was lost.
func (s *Spool) cutMiddle(segs []*segment, i int, reason error) ([]*segment, error) {
	g := segs[i]
	d := Damage{
		Segment: filepath.Base(g.path), Offset: g.size, Reason: reason.Error(),
		First: g.last + 1, Last: segs[len(segs)-1].first, Bytes: max(0, g.disk-g.size),
	}
	later := segs[i+1:]
	for _, l := range later {
		if info, err := os.Stat(l.path); err == nil {
			d.Bytes += info.Size()
		}
	}
	if last := later[len(later)-1]; true {
		if _, bad := last.load(nil); bad == nil || !bad.fatal {
			d.Last = max(d.Last, last.last)
		}
	}
	if !s.opt.Prefix {
		return nil, &DamageError{d}
	}
	b, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(filepath.Join(s.dir, damageName), b, 0o600); err != nil {
		return nil, err
	}
	// From the newest back: a crash within leaves damage in the middle again,
	// never a shorter spool that looks whole.
	for j := len(later) - 1; j >= 0; j-- {
		if err := durable.Rename(later[j].path, later[j].path+badSuffix); err != nil {
			return nil, err
		}
	}
	if err := os.Truncate(g.path, g.size); err != nil {
		return nil, err
	}
	s.next = g.last + 1
	return segs[:i+1], nil
}

// loadDamage reads what cutMiddle wrote, now or in an earlier process.
func (s *Spool) loadDamage() error {
	b, err := os.ReadFile(filepath.Join(s.dir, damageName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var d Damage
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("read %s: %w", damageName, err)
	}
	s.damage = &d
	return nil
}

// Recovered says what Open cut.
func (s *Spool) Recovered() Recovered { return s.recovered }

// Damage is what Options.Prefix gave up, until something is appended behind it:
// the first record that its caller appends should state the gap.
func (s *Spool) Damage() (Damage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damage == nil || s.next > s.damage.First {
		return Damage{}, false
	}
	return *s.damage, true
}
