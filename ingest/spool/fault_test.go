package spool_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/ingest/spool"
)

func checksum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// faults makes the operations on segments fail, counted from the first one.
type faults struct {
	op      int                     // operations so far
	at      func(op, kind int) bool // which one fails
	persist int                     // bytes written nevertheless: all for -1
	err     error
	hit     int
}

const (
	opCreate = iota
	opWrite
	opTruncate
)

func (f *faults) fail(kind int) bool {
	f.op++
	if f.at != nil && f.at(f.op, kind) {
		f.hit++
		return true
	}
	return false
}

func (f *faults) create(path string) (spool.File, error) {
	if f.fail(opCreate) {
		return nil, f.err
	}
	g, err := spool.CreateFile(path)
	return &faultFile{g, f}, err
}

type faultFile struct {
	spool.File
	f *faults
}

func (g *faultFile) Write(b []byte) (int, error) {
	if !g.f.fail(opWrite) {
		return g.File.Write(b)
	}
	n := min(g.f.persist, len(b))
	if g.f.persist < 0 {
		n = len(b)
	}
	if _, err := g.File.Write(b[:n]); err != nil {
		return 0, err
	}
	return n, g.f.err
}

func (g *faultFile) Truncate(n int64) error {
	if g.f.fail(opTruncate) {
		return g.f.err
	}
	return g.File.Truncate(n)
}

// TestFaults lets every operation fail in turn, with some, none or all of its
// bytes on the disk, for a while or for good, and then goes on or crashes.
func TestFaults(t *testing.T) {
	const records = 14 // over three segments
	o := spool.Options{SegmentSize: 440, Tail: 1}
	base, crashRoot, runs := t.TempDir(), t.TempDir(), 0
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO, nil} {
		for _, persist := range []int{0, 33, -1} {
			for _, length := range []int{1, 3} {
				for op := 1; op <= 20; op++ {
					name := fmt.Sprintf("%v, %d bytes persisted, operations %d to %d", cause, persist, op, op+length-1)
					f := &faults{persist: persist, err: cause}
					f.at = func(n, kind int) bool {
						// A short write is the only fault without an error.
						return n >= op && n < op+length && (cause != nil || kind == opWrite && persist >= 0)
					}
					runs++
					s := create(t, filepath.Join(base, fmt.Sprint(runs)), spool.WithCreate(o, f.create))
					good, failed := uint64(0), false
					for range records {
						meta, data := content(good+1, recSize)
						seq, err := s.Append(meta, data)
						if err == nil {
							if good++; seq != good {
								t.Fatalf("%s: got %d, want %d", name, seq, good)
							}
						} else if f.hit == 0 {
							t.Fatalf("%s: %v", name, err)
						} else if !errors.Is(cause, syscall.EIO) && !errors.Is(err, spool.ErrFull) {
							t.Fatalf("%s: got %v, want ErrFull", name, err)
						} else if cause != nil && !errors.Is(err, cause) {
							t.Fatalf("%s: got %v, want %v in it", name, err, cause)
						}
						// Whatever happened, all is readable here, and would be
						// after a crash now.
						check(t, s, 1, good, recSize)
						if f.hit == 0 || err == nil && !failed && good < records {
							continue
						}
						failed = err != nil
						crashed := load(t, s.Path())
						delete(crashed, "reserve")
						crashed.storeIn(t, crashRoot)
						c, err2 := spool.Open(crashRoot, run, o)
						if err2 != nil {
							t.Fatalf("%s: open after crash: %v", name, err2)
						}
						// A record that got to the disk as a whole, and could
						// not be removed, is there after all.
						if last := c.Last(); last != good && (err == nil || last != good+1 || persist >= 0) {
							t.Fatalf("%s: after crash: got %d records, want %d (%v)", name, last, good, err)
						}
						check(t, c, 1, c.Last(), recSize)
						c.Close()
					}
					if f.hit > 0 && good == records && cause != nil && length > 2 {
						t.Fatalf("%s: no append failed", name)
					}
					if good < uint64(records-2*length-1) {
						t.Fatalf("%s: only %d records went in", name, good)
					}
					s.Close()
				}
			}
		}
	}
}

// TestAppendAllIsWhole: a group that does not fit leaves no number behind.
func TestAppendAllIsWhole(t *testing.T) {
	for op := 3; op < 8; op++ {
		f := &faults{err: syscall.ENOSPC, persist: 1000}
		s := create(t, t.TempDir(), spool.WithCreate(spool.Options{SegmentSize: 1 << 20}, f.create))
		add(t, s, 1, recSize)
		var recs []spool.Record
		for n := range 5 {
			meta, data := content(uint64(n+2), 100<<10)
			recs = append(recs, spool.Record{Meta: meta, Data: data})
		}
		f.op = 2
		f.at = func(n, kind int) bool { return n == op }
		first, err := s.AppendAll(recs)
		if !errors.Is(err, spool.ErrFull) || first != 0 || s.Last() != 1 {
			t.Fatalf("operation %d: got %d, %v; last %d", op, first, err, s.Last())
		}
		if first, err = s.AppendAll(recs); err != nil || first != 2 || s.Last() != 6 {
			t.Fatalf("again: got %d, %v; last %d", first, err, s.Last())
		}
		for n := range uint64(5) {
			if _, data, ok, err := s.Record(n + 2); !ok || err != nil || string(data) != string(recs[n].Data) {
				t.Fatalf("record %d: %v %v", n+2, ok, err)
			}
		}
		if first, err := s.AppendAll(nil); first != 7 || err != nil {
			t.Errorf("empty group: got %d, %v", first, err)
		}
	}
}
