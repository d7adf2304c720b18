package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/spool"
)

// files is a spool's directory in memory, so that a test can damage copies.
type files map[string][]byte

func load(t testing.TB, dir string) files {
	t.Helper()
	out := files{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = b
	}
	return out
}

// store writes f as the spool of run under a new root, as a crash would leave
// it: nobody holds its lock.
func (f files) store(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	f.storeIn(t, root)
	return root
}

func (f files) storeIn(t testing.TB, root string) {
	t.Helper()
	dir := spool.Dir(root, run)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// with is a copy of f with one file changed.
func (f files) with(name string, b []byte) files {
	out := files{}
	for n, b := range f {
		out[n] = b
	}
	out[name] = b
	return out
}

func (f files) segments() (names []string) {
	for n := range f {
		if strings.HasSuffix(n, ".seg") {
			names = append(names, n)
		}
	}
	return sorted(names)
}

func sorted(s []string) []string {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s
}

const recSize = 60

// sample is a spool of 12 records in 3 segments, and how many records end at or
// before each byte of the last one.
func sample(t testing.TB) (f files, last string, upTo []uint64) {
	t.Helper()
	s := create(t, t.TempDir(), spool.Options{SegmentSize: 440})
	add(t, s, 12, recSize)
	s.Acked(2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f = load(t, s.Path())
	segs := f.segments()
	if len(segs) != 3 {
		t.Fatalf("segments: %v", segs)
	}
	last = segs[2]
	n := uint64(8)
	if segs[2] != fmt.Sprintf("%012d.seg", n+1) {
		t.Fatalf("segments: %v", segs)
	}
	end := 32
	for i := range len(f[last]) + 1 {
		meta, data := content(n+1, recSize)
		if size := 20 + len(meta) + len(data); i == end+size {
			end, n = i, n+1
		}
		upTo = append(upTo, n)
	}
	return f, last, upTo
}

// TestCutAtEveryByte: whatever the length of the last segment, the records that
// are whole are there, and the queue goes on behind them.
func TestCutAtEveryByte(t *testing.T) {
	f, last, upTo := sample(t)
	root := t.TempDir()
	for cut, want := range upTo {
		f.with(last, f[last][:cut]).storeIn(t, root)
		s, err := spool.Open(root, run, spool.Options{SegmentSize: 440})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		check(t, s, 1, want, recSize)
		whole := cut == len(f[last]) || want > 8 && upTo[cut-1] < want || cut == 32
		if r := s.Recovered(); (r.Cut == 0 && r.Segment == "") != (whole || cut == 0) && cut != 0 {
			t.Errorf("cut at %d: recovered %+v", cut, r)
		}
		add(t, s, 9, recSize)
		check(t, s, 1, want+9, recSize)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = spool.Open(root, run, spool.Options{})
		if err != nil {
			t.Fatalf("cut at %d, opened again: %v", cut, err)
		}
		check(t, s, 1, want+9, recSize)
		if r := s.Recovered(); r != (spool.Recovered{}) {
			t.Errorf("cut at %d, opened again: recovered %+v", cut, r)
		}
		s.Close()
	}
}

// TestFlipAtEveryByte: a changed byte ends the last segment there, and damages
// the spool in the others.
func TestFlipAtEveryByte(t *testing.T) {
	f, last, upTo := sample(t)
	root := t.TempDir()
	for _, name := range f.segments() {
		step := 1
		if name != last {
			step = 11 // each of these costs several fsyncs
		}
		for at := 0; at < len(f[name]); at += step {
			b := bytes.Clone(f[name])
			b[at] ^= 0x41
			f.with(name, b).storeIn(t, root)
			s, err := spool.Open(root, run, spool.Options{})
			if name == last {
				if at >= 8 && at < 12 {
					continue // the version: see below
				}
				if err != nil {
					t.Fatalf("%s at %d: %v", name, at, err)
				}
				check(t, s, 1, upTo[at], recSize)
				if r := s.Recovered(); r.Segment != name || r.Cut == 0 {
					t.Errorf("%s at %d: recovered %+v", name, at, r)
				}
				s.Close()
				continue
			}
			var damage *spool.DamageError
			if !errors.As(err, &damage) || damage.Segment != name {
				t.Fatalf("%s at %d: got %v", name, at, err)
			}
			s, err = spool.Open(root, run, spool.Options{Prefix: true})
			if err != nil {
				t.Fatal(err)
			}
			d, ok := s.Damage()
			if !ok || d.First != s.Last()+1 || d.Last != 12 || d.Segment != name {
				t.Fatalf("%s at %d: damage %+v, last %d", name, at, d, s.Last())
			}
			check(t, s, 1, s.Last(), recSize)
			s.Close()
			// Still known after another crash, until something is appended.
			if s, err = spool.Open(root, run, spool.Options{}); err != nil {
				t.Fatal(err)
			}
			if again, ok := s.Damage(); !ok || again != d {
				t.Fatalf("damage forgotten: %+v", again)
			}
			add(t, s, 1, recSize)
			if _, ok := s.Damage(); ok {
				t.Error("damage is told after it was stated")
			}
			s.Close()
		}
	}
}

func TestSegmentMissingInTheMiddle(t *testing.T) {
	f, _, _ := sample(t)
	segs := f.segments()
	delete(f, segs[1])
	_, err := spool.Open(f.store(t), run, spool.Options{})
	var damage *spool.DamageError
	if !errors.As(err, &damage) || damage.Segment != segs[0] || damage.First != 5 {
		t.Fatalf("got %v", err)
	}
}

func TestFirstSegmentsDropped(t *testing.T) {
	f, _, _ := sample(t)
	delete(f, f.segments()[0])
	s, err := spool.Open(f.store(t), run, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(t, s, 5, 12, recSize)
	if _, _, _, err := s.Record(4); !errors.Is(err, spool.ErrDropped) {
		t.Errorf("got %v, want ErrDropped", err)
	}
}

func TestOtherVersion(t *testing.T) {
	f, last, _ := sample(t)
	b := bytes.Clone(f[last])
	b[8] = 9
	copy(b[28:], checksum(b[:28]))
	_, err := spool.Open(f.with(last, b).store(t), run, spool.Options{Prefix: true})
	var damage *spool.DamageError
	if err == nil || errors.As(err, &damage) || !strings.Contains(err.Error(), "another version") {
		t.Errorf("got %v", err)
	}
	_, err = spool.Open(f.with("meta.json", []byte(`{"version":9}`)).store(t), run, spool.Options{})
	if err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("got %v", err)
	}
}

func TestCursor(t *testing.T) {
	f, _, _ := sample(t)
	good := f["cursor"]
	far := bytes.Clone(good)
	far[8] = 200
	copy(far[24:], checksum(far[:24]))
	for _, tt := range []struct {
		name string
		b    []byte
		want uint64
	}{
		{"good", good, 2},
		{"beyond", far, 0},
		{"short", good[:31], 0},
		{"empty", nil, 0},
		{"garbage", bytes.Repeat([]byte{7}, 32), 0},
		{"flipped", append([]byte{'x'}, good[1:]...), 0},
	} {
		root := f.with("cursor", tt.b).store(t)
		infos, err := spool.List(root)
		if err != nil || len(infos) != 1 || infos[0].Acked != tt.want {
			t.Errorf("%s: list %+v, %v", tt.name, infos, err)
		}
		s, err := spool.Open(root, run, spool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Acked; got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
		s.Acked(100) // limited to what exists
		if got := s.Stats().Acked; got != 12 {
			t.Errorf("%s: got %d, want 12", tt.name, got)
		}
		s.Close()
	}
}

func FuzzOpen(f *testing.F) {
	sampleFiles, _, _ := sample(f)
	segs := sampleFiles.segments()
	for _, n := range segs {
		f.Add(uint8(0), uint16(len(sampleFiles[n])/2), []byte("x"))
	}
	f.Add(uint8(1), uint16(33), []byte("\\xff\\xff\\xff\\xff"))
	f.Add(uint8(2), uint16(0), []byte(nil))
	f.Add(uint8(5), uint16(40), []byte("longer text over the record's head"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, which uint8, at uint16, put []byte) {
		name := segs[int(which)%len(segs)]
		b := bytes.Clone(sampleFiles[name])
		i := int(at) % (len(b) + 1)
		if which >= 128 || len(put) == 0 {
			b = append(b[:i], put...) // cut there
		} else {
			b = append(b[:i], append(put, b[min(len(b), i+len(put)):]...)...)
		}
		sampleFiles.with(name, b).storeIn(t, root)
		s, err := spool.Open(root, run, spool.Options{Prefix: true})
		if err != nil {
			if strings.Contains(err.Error(), "version") {
				return
			}
			t.Fatal(err)
		}
		defer s.Close()
		last := s.Last()
		if last > 12 && bytes.Equal(b, sampleFiles[name]) {
			t.Fatalf("%d records of 12", last)
		}
		// What is there is what was written, up to a forged record, which the
		// checksum makes impossible by chance.
		check(t, s, 1, last, recSize)
		if d, ok := s.Damage(); last < 12 && !ok && s.Recovered().Segment == "" && len(b) >= len(sampleFiles[name]) {
			t.Fatalf("lost records without a word: last %d, %+v", last, d)
		}
		add(t, s, 1, recSize)
	})
}

func TestCreateLeftUnfinished(t *testing.T) {
	root := t.TempDir()
	if _, err := spool.Open(root, run, spool.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	files{"lock": nil, "meta.json.tmp": []byte("{")}.storeIn(t, root)
	if _, err := spool.Open(root, run, spool.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := spool.Create(root, spool.Meta{Run: run}, spool.Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	infos, err := spool.List(root)
	if err != nil || len(infos) != 1 || infos[0].Err == nil {
		t.Errorf("list: %+v, %v", infos, err)
	}
	runs, err := spool.Sweep(root, -1, infos[0].AckedAt)
	if diff := cmp.Diff([]string(nil), runs); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
