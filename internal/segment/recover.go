package segment

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// recover reads what the last process left in the directory. What a segment's files may
// be, and the crash that leaves it:
//
//	keys alone             in begin, or in remove behind the first step
//	header cut             in begin: nothing was in it
//	block cut at the end   in flush, or a power loss
//	key without a block    in flush: it is of use for the next one
//	block without a key    a power loss before the first sync: cut, like all behind it
//	directory cut          in finish: it is written again
//	whole                  in Seal, before or after the head got into the chain
//
// The files of segments are in the order in which they were begun.
func (a *Archive) recover() ([]*open, error) {
	entries, err := os.ReadDir(a.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("recover segments: %w", err)
	}
	var out []*open
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), keysSuffix)
		if !ok {
			continue
		}
		path := filepath.Join(a.o.Dir, base)
		s, err := a.recoverOne(path)
		if err != nil {
			return nil, fmt.Errorf("recover segment %s: %w", base, err)
		}
		if s != nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// recoverOne opens the files of one segment. Where nothing is in it, it removes them and
// returns nil.
func (a *Archive) recoverOne(path string) (*open, error) {
	s := &open{
		path: path, runs: map[string]*openRun{}, before: map[Log]Place{}, upTo: map[Log]Place{},
		first: map[Log]Place{}, dirty: true, begun: time.Now(),
	}
	nanos, _, _ := strings.Cut(filepath.Base(path), "-")
	if n, err := strconv.ParseInt(nanos, 10, 64); err == nil {
		s.begun = time.Unix(0, n)
	}
	rec := Recovered{UID: filepath.Base(path)}
	err := a.reopen(s, &rec)
	if err == nil && len(s.blocks) == 0 && !s.done {
		if rec.Reason == "" {
			rec.Reason = "nothing was in it"
		}
		err = errEmpty
	}
	if err != nil {
		s.close()
	}
	if errors.Is(err, errEmpty) {
		if rec.Cut > 0 {
			a.recovered = append(a.recovered, rec)
		}
		return nil, errors.Join(durable.Remove(path+segSuffix), durable.Remove(path+keysSuffix))
	}
	if err != nil {
		return nil, err
	}
	rec.Blocks = len(s.blocks)
	for i := range s.blocks {
		rec.Records += int64(s.blocks[i].records)
	}
	a.recovered = append(a.recovered, rec)
	return s, nil
}

var errEmpty = errors.New("no block")

func (a *Archive) reopen(s *open, rec *Recovered) (err error) {
	if s.kf, err = os.OpenFile(s.path+keysSuffix, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return err
	}
	if s.f, err = os.OpenFile(s.path+segSuffix, os.O_RDWR|os.O_APPEND, 0); errors.Is(err, os.ErrNotExist) {
		return errEmpty
	} else if err != nil {
		return err
	}
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	if s.segHeader, s.head, err = readHeader(s.f, info.Size()); errors.Is(err, errDamaged) {
		rec.Cut, rec.Reason = info.Size(), err.Error()
		return errEmpty
	} else if err != nil {
		return err
	}
	rec.Tenant, rec.Day, rec.UID = s.tenant, dayName(s.day), hex.EncodeToString(s.uid[:])
	if err := s.loadKeys(); err != nil {
		return err
	}
	if f, err := openFile(&a.coder, s.f, info.Size()); err == nil && s.keysFor(f) {
		s.directory, s.size, s.done = f.directory, f.size, true
		for i := range s.blocks {
			s.note(&s.blocks[i])
		}
		return nil
	} else if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	err = s.scan(info.Size(), rec)
	s.again = maps.Clone(s.upTo)
	return err
}

// keysFor reports whether the keys of all blocks are there.
func (s *open) keysFor(f *file) bool {
	for i := range f.blocks {
		if s.runs[f.blocks[i].run] == nil {
			return false
		}
	}
	return true
}

// loadKeys reads the file of keys up to its last whole one, and cuts it there.
func (s *open) loadKeys() error {
	b, err := io.ReadAll(io.NewSectionReader(s.kf, 0, maxPage))
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for len(b)-int(s.keys) >= 6 {
		at := b[s.keys:]
		n := 6 + int(le.Uint16(at[4:])) + 32
		if n > len(at) || crc32.Checksum(at[4:n], castagnoli) != le.Uint32(at) {
			break
		}
		r := &openRun{saved: true}
		copy(r.key[:], at[n-32:])
		run := string(at[6 : n-32])
		s.runs[run] = r
		s.ids += len(run)
		s.keys += int64(n)
	}
	return s.kf.Truncate(s.keys)
}

// scan reads the blocks of a segment without an end, and cuts it behind the last good one.
func (s *open) scan(size int64, rec *Recovered) error {
	w := walk{r: s.f, size: size, off: int64(len(s.head))}
	s.size = w.off
	for {
		b, off, err := w.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var i blockInfo
		if err == nil && b[8] == kindDirectory {
			err = errors.New("a directory without an end") // it is written again
		}
		if err == nil {
			i, err = parseBlock(b)
		}
		if err == nil && s.runs[i.run] == nil {
			err = fmt.Errorf("%w: no key for run %s", errDamaged, i.run)
		}
		if err != nil {
			rec.Cut, rec.Reason = size-off, err.Error()
			rec.CutRecs = countCut(s.f, off, size)
			return s.f.Truncate(off)
		}
		e := entry{blockInfo: i, off: off, size: int64(len(b)), hash: leaf(b)}
		s.blocks = append(s.blocks, e)
		s.size = w.off
		s.note(&e)
	}
	return nil
}

// countCut counts the records in the torn block at off, as far as its head says.
func countCut(r io.ReaderAt, off, size int64) int64 {
	b := make([]byte, min(size-off, blockHead+maxID))
	if n, _ := r.ReadAt(b, off); n < blockHead { // a short read is no head
		return 0
	}
	i, err := parseBlock(b)
	if err != nil {
		return 0
	}
	return int64(i.records)
}

// note takes what a block says into what is known of the segment's runs and logs.
func (s *open) note(e *entry) {
	last := Place{e.lastPlace, time.Unix(0, e.last).UTC()}
	b := s.buffer(e.run, e.log, true)
	s.reach(b, Place{e.firstPlace, time.Unix(0, e.first).UTC()}, last)
	s.before[e.log] = Place{}
	if e.lastSeq != 0 {
		b.r.pos = position{e.lastSeq, e.lastPart}
	}
}
