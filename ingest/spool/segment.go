package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

const (
	segMagic   = "cbcspool"
	headerSize = 32
	recordHead = 20 // bytes of a record before its meta
	// markStride is how far apart, in bytes, the places lie that a segment's
	// index knows: 16 bytes of memory for 64 KiB of disk.
	markStride = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// file is what the writer needs of an open segment.
type file interface {
	io.Writer
	io.Closer
	Truncate(size int64) error
}

func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
}

// A segment is one file of records. Its fields are guarded by Spool.mu, except
// path and first, which do not change.
type segment struct {
	path   string
	first  uint64
	last   uint64 // first-1 while it is empty
	size   int64  // bytes that hold the header and valid records
	disk   int64  // bytes of the file when it was loaded
	synced int64  // bytes that survive a power loss
	marks  []mark
}

// A mark says where record seq begins.
type mark struct {
	seq uint64
	off int64
}

// note adds the record at off to the segment.
func (g *segment) note(seq uint64, off, size int64) {
	if len(g.marks) == 0 || off-g.marks[len(g.marks)-1].off >= markStride {
		g.marks = append(g.marks, mark{seq, off})
	}
	g.last = seq
	g.size = off + size
}

// near is the last mark at or before record seq.
func (g *segment) near(seq uint64) mark {
	i := sort.Search(len(g.marks), func(i int) bool { return g.marks[i].seq > seq })
	return g.marks[i-1]
}

func segmentName(first uint64) string { return fmt.Sprintf("%012d%s", first, segSuffix) }

// segmentFirst reverses segmentName.
func segmentFirst(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segSuffix)
	if !ok || len(digits) < 12 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || segmentName(n) != name {
		return 0, false
	}
	return n, true
}

func appendHeader(dst []byte, first, prev uint64) []byte {
	start := len(dst)
	dst = append(dst, segMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, formVersion)
	dst = binary.LittleEndian.AppendUint64(dst, first)
	dst = binary.LittleEndian.AppendUint64(dst, prev)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// errVersion is wrapped when a segment was written by another version.
var errVersion = errors.New("segment of another version")

func parseHeader(b []byte) (first, prev uint64, err error) {
	if len(b) < headerSize || string(b[:8]) != segMagic {
		return 0, 0, errors.New("no segment header")
	}
	if crc32.Checksum(b[:28], castagnoli) != binary.LittleEndian.Uint32(b[28:]) {
		return 0, 0, errors.New("segment header's checksum is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formVersion {
		return 0, 0, fmt.Errorf("%w: %d", errVersion, v)
	}
	return binary.LittleEndian.Uint64(b[12:]), binary.LittleEndian.Uint64(b[20:]), nil
}

func recordSize(meta, data int) int { return recordHead + meta + data }

// putRecord writes a record to dst, which has exactly its size.
func putRecord(dst []byte, seq uint64, meta, data []byte) {
	binary.LittleEndian.PutUint32(dst, uint32(len(dst)-8))
	binary.LittleEndian.PutUint64(dst[8:], seq)
	binary.LittleEndian.PutUint32(dst[16:], uint32(len(meta)))
	copy(dst[recordHead:], meta)
	copy(dst[recordHead+len(meta):], data)
	binary.LittleEndian.PutUint32(dst[4:], recordSum(dst))
}

func recordSum(rec []byte) uint32 {
	return crc32.Update(crc32.Checksum(rec[:4], castagnoli), castagnoli, rec[8:])
}

// recordLen is the size of the record that begins with b, which holds at least
// its first 4 bytes. ok is false for a length that no record has.
func recordLen(b []byte) (n int, ok bool) {
	n = int(binary.LittleEndian.Uint32(b))
	return n + 8, n >= recordHead-8 && n <= MaxRecord+recordHead-8
}

// splitRecord takes a whole record apart and checks it.
func splitRecord(rec []byte) (seq uint64, meta, data []byte, err error) {
	if recordSum(rec) != binary.LittleEndian.Uint32(rec[4:]) {
		return 0, nil, nil, errors.New("record's checksum is wrong")
	}
	if m := int(binary.LittleEndian.Uint32(rec[16:])); m > len(rec)-recordHead {
		return 0, nil, nil, errors.New("record's meta is longer than the record")
	}
	meta, data = parts(rec)
	return binary.LittleEndian.Uint64(rec[8:]), meta, data, nil
}

// parts takes a valid record apart.
func parts(rec []byte) (meta, data []byte) {
	end := recordHead + int(binary.LittleEndian.Uint32(rec[16:]))
	return rec[recordHead:end:end], rec[end:len(rec):len(rec)]
}

// A scanner reads records one after the other from a file, checking each.
type scanner struct {
	r     io.ReaderAt
	size  int64
	off   int64  // where the next record begins
	buf   []byte // bytes at base
	fresh bool   // records stay good: take new memory for every block
	base  int64
}

// next returns the next record. It returns io.EOF at the end of the valid
// bytes, and another error where a record is torn or damaged; off stays there.
// The record is good until the next call, unless fresh.
func (s *scanner) next() (rec []byte, err error) {
	if s.off >= s.size {
		return nil, io.EOF
	}
	head, err := s.bytes(4)
	if err != nil {
		return nil, err
	}
	n, ok := recordLen(head)
	if !ok {
		return nil, errors.New("no record has this length")
	}
	rec, err = s.bytes(n)
	if err != nil {
		return nil, err
	}
	s.off += int64(n)
	return rec, nil
}

// bytes returns n bytes at off.
func (s *scanner) bytes(n int) ([]byte, error) {
	if int64(n) > s.size-s.off {
		return nil, errors.New("record is cut")
	}
	i := s.off - s.base
	if i >= 0 && i+int64(n) <= int64(len(s.buf)) {
		return s.buf[i : i+int64(n)], nil
	}
	want := min(max(int64(n), blockSize), s.size-s.off)
	if s.fresh || int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.base = s.buf[:want], s.off
	if _, err := s.r.ReadAt(s.buf, s.off); err != nil {
		s.buf = s.buf[:0]
		return nil, err
	}
	return s.buf[:n], nil
}

// segmentFiles lists the segments in dir by their first record.
func segmentFiles(dir string) ([]*segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segs []*segment
	for _, e := range entries {
		if first, ok := segmentFirst(e.Name()); ok {
			segs = append(segs, &segment{path: filepath.Join(dir, e.Name()), first: first, last: first - 1})
		}
	}
	sort.Slice(segs, func(i, j int) bool { return segs[i].first < segs[j].first })
	return segs, nil
}
