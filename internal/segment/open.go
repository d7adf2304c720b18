package segment

import (
	"container/list"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/event"
)

// An open segment is two files of this machine, <begun>-<uid>.seg and .keys: the
// segment as it will be, without its end, and the keys of its runs. It is not sealed yet.
type open struct {
	segHeader
	directory
	path   string // without the suffix
	f, kf  *os.File
	head   []byte
	size   int64 // bytes of f that count
	keys   int64 // bytes of kf that count
	torn   bool  // f or kf may have more
	dirty  bool  // something was written since the last sync
	done   bool  // the directory and the end are there
	full   bool  // another segment was begun after it
	begun  time.Time
	paged  time.Time // when its page of keys was stored, zero where that is not known
	runs   map[string]*openRun
	bufs   []*buffer     // of the runs, in the order in which they came
	ids    int           // bytes of the runs' ids
	before map[Log]Place // for each log in it, what had been appended before; zero where nothing is known
	upTo   map[Log]Place // the last place of each log in it
	first  map[Log]Place // the first one
	again  map[Log]Place // of a recovered segment: the logs that were not read again up to here
}

type openRun struct {
	key   [32]byte
	saved bool // the key is in kf
	pos   position
	logs  []*buffer
}

// A position is where in a run: a seq and the part of its event.
type position struct {
	seq  uint64
	part event.Part
}

// A buffer collects the records of one run and log for a block.
type buffer struct {
	seg  *open
	run  string
	r    *openRun
	log  Log
	info blockInfo
	b    []byte
	last Place         // of the last record taken, in a block or not
	from Place         // of the first one
	elem *list.Element // in Archive.queue while there are records
}

const (
	segSuffix  = ".seg"
	keysSuffix = ".keys"
)

// begin makes the files of a new segment.
func (a *Archive) begin(tenant string, day int32, begun time.Time) (_ *open, err error) {
	s := &open{
		segHeader: segHeader{day: day, tenant: tenant}, begun: begun, runs: map[string]*openRun{},
		before: map[Log]Place{}, upTo: map[Log]Place{}, first: map[Log]Place{},
	}
	rand.Read(s.uid[:]) // it never fails
	s.path = filepath.Join(a.o.Dir, fmt.Sprintf("%020d-%s", s.begun.UnixNano(), hex.EncodeToString(s.uid[:])))
	if err := a.step("begin keys"); err != nil {
		return nil, err
	}
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL
	if s.kf, err = os.OpenFile(s.path+keysSuffix, flags, 0o600); err != nil {
		return nil, fmt.Errorf("begin segment: %w", err)
	}
	defer func() {
		if err != nil {
			s.close()
			os.Remove(s.path + segSuffix)  // recovery removes it
			os.Remove(s.path + keysSuffix) // recovery removes it
		}
	}()
	if err := a.step("begin segment"); err != nil {
		return nil, err
	}
	if s.f, err = os.OpenFile(s.path+segSuffix, flags, 0o600); err != nil {
		return nil, fmt.Errorf("begin segment: %w", err)
	}
	s.head = s.segHeader.append(nil)
	if err := a.step("write header"); err != nil {
		return nil, err
	}
	if _, err := s.f.Write(s.head); err != nil {
		return nil, fmt.Errorf("begin segment: %w", err)
	}
	s.size, s.dirty = int64(len(s.head)), true
	return s, durable.SyncDir(a.o.Dir)
}

func (s *open) close() {
	for _, f := range []*os.File{s.f, s.kf} {
		if f != nil {
			f.Close()
		}
	}
}

// buffer finds or makes the buffer for a run and a log.
func (s *open) buffer(run string, log Log, create bool) *buffer {
	r := s.runs[run]
	if r == nil {
		if !create {
			return nil
		}
		r = &openRun{}
		rand.Read(r.key[:]) // it never fails
		s.runs[run] = r
		s.ids += len(run)
	}
	for _, b := range r.logs {
		if b.log == log {
			return b
		}
	}
	if !create {
		return nil
	}
	b := &buffer{seg: s, run: run, r: r, log: log}
	r.logs = append(r.logs, b)
	s.bufs = append(s.bufs, b)
	return b
}

// heal takes away what a failed write left.
func (s *open) heal() error {
	if !s.torn {
		return nil
	}
	if err := errors.Join(s.f.Truncate(s.size), s.kf.Truncate(s.keys)); err != nil {
		return fmt.Errorf("cut torn segment: %w", err)
	}
	s.torn = false
	return nil
}

// flush makes a block of a buffer. After an error the records are still in the buffer.
func (a *Archive) flush(b *buffer) error {
	if b.elem == nil {
		return nil
	}
	s := b.seg
	if err := s.heal(); err != nil {
		return err
	}
	if !b.r.saved {
		if err := a.saveKey(s, b.run, b.r); err != nil {
			return err
		}
	}
	var nonce [12]byte
	rand.Read(nonce[:]) // it never fails
	b.info.run, b.info.log = b.run, b.log
	frame, err := a.coder.pack(&b.info, b.b, &s.uid, &b.r.key, nonce)
	if err != nil {
		return fmt.Errorf("make block: %w", err)
	}
	if err := a.step("write block"); err != nil {
		return err
	}
	if _, err := s.f.Write(frame); err != nil {
		s.torn = true
		return fmt.Errorf("write block: %w", err)
	}
	s.blocks = append(s.blocks, entry{blockInfo: b.info, off: s.size, size: int64(len(frame)), hash: leaf(frame)})
	s.size += int64(len(frame))
	s.dirty = true
	a.release(b)
	return nil
}

// saveKey puts a run's key into the file of keys: a checksum, the length of the run's id, the
// id and the key.
func (a *Archive) saveKey(s *open, run string, r *openRun) error {
	b := appendKey(nil, run, &r.key)
	if err := a.step("write key"); err != nil {
		return err
	}
	if _, err := s.kf.Write(b); err != nil {
		s.torn = true
		return fmt.Errorf("write key: %w", err)
	}
	s.keys += int64(len(b))
	r.saved, s.dirty = true, true
	return nil
}

func appendKey(dst []byte, run string, key *[32]byte) []byte {
	le := binary.LittleEndian
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = le.AppendUint16(dst, uint16(len(run)))
	dst = append(dst, run...)
	dst = append(dst, key[:]...)
	le.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	return dst
}

// release empties a buffer whose records are in a block.
func (a *Archive) release(b *buffer) {
	a.queue.Remove(b.elem)
	b.elem = nil
	a.held -= cap(b.b)
	a.spare.put(b.b)
	b.b, b.info = nil, blockInfo{}
}

// take puts a record into a buffer.
func (a *Archive) take(b *buffer, r *Record) {
	if b.elem == nil {
		b.elem = a.queue.PushBack(b)
	}
	if need := len(b.b) + r.size(); need > cap(b.b) {
		grown := append(a.spare.get(need), b.b...)
		a.held += cap(grown) - cap(b.b)
		a.spare.put(b.b)
		b.b = grown
	}
	b.b = appendRecord(b.b, r)
	b.info.add(r)
	b.seg.reach(b, Place{r.StreamSeq, r.Stored}, Place{r.StreamSeq, r.Stored})
}

// sync makes what is in a segment's files survive a power loss: the keys first.
func (a *Archive) sync(s *open) error {
	if !s.dirty {
		return nil
	}
	if err := s.heal(); err != nil {
		return err
	}
	if err := a.step("sync keys"); err != nil {
		return err
	}
	if err := s.kf.Sync(); err != nil {
		a.broken = fmt.Errorf("sync keys: %w", err)
		return a.broken
	}
	if err := a.step("sync segment"); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		a.broken = fmt.Errorf("sync segment: %w", err)
		return a.broken
	}
	s.dirty = false
	return nil
}

// finish writes the directory and the end of a segment.
func (a *Archive) finish(s *open) error {
	if s.done {
		return nil
	}
	if err := a.flushAll(s); err != nil {
		return err
	}
	dir, err := s.encode(&a.coder)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	end := tail(s.size, s.size+int64(len(dir))+segTail, len(s.blocks))
	if err := s.heal(); err != nil {
		return err
	}
	if err := a.step("write directory"); err != nil {
		return err
	}
	if _, err := s.f.Write(append(dir, end...)); err != nil {
		s.torn = true
		return fmt.Errorf("write directory: %w", err)
	}
	s.size += int64(len(dir)) + segTail
	s.done, s.dirty = true, true
	return nil
}

// flushAll makes blocks of all records of a segment that are in memory.
func (a *Archive) flushAll(s *open) error {
	for _, b := range s.bufs {
		if err := a.flush(b); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the files of a segment that is in the chain. The keys go last: without
// them the segment's file is of no use, and with them alone nothing is left to read.
func (a *Archive) remove(s *open) error {
	s.close()
	for _, suffix := range []string{segSuffix, keysSuffix} {
		if err := a.step("remove " + suffix); err != nil {
			return err
		}
		if err := durable.Remove(s.path + suffix); err != nil {
			return err
		}
	}
	return nil
}
