package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/spool"
)

// fill appends until the spool is full and returns the last number.
func fill(t *testing.T, s *spool.Spool, size int) uint64 {
	t.Helper()
	for {
		meta, data := content(s.Last()+1, size)
		seq, err := s.Append(meta, data)
		if errors.Is(err, spool.ErrFull) {
			if seq != 0 {
				t.Fatalf("number %d with %v", seq, err)
			}
			return s.Last()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunCap is the case of a bus that is away while the child writes far more
// than the spool may hold: a bounded queue, an explicit gap, and then on.
func TestRunCap(t *testing.T) {
	const runCap = 8 << 20
	s := create(t, t.TempDir(), spool.Options{RunCap: runCap, SegmentSize: 1 << 20})
	last := fill(t, s, 4000)
	if b := s.Stats().Bytes; b > runCap || b < runCap*7/10 {
		t.Errorf("full at %d bytes of %d", b, runCap)
	}
	for range 5 {
		if fill(t, s, 4000) != last {
			t.Error("full, and yet it grows")
		}
	}
	gapMeta, gap := content(last+1, 3000)
	if seq, err := s.AppendReserved(gapMeta, gap); seq != last+1 || err != nil {
		t.Fatalf("gap: got %d, %v", seq, err)
	}
	if s.Stats().Refused < 6 {
		t.Errorf("refused: got %d", s.Stats().Refused)
	}
	if _, err := s.AppendReserved(nil, make([]byte, spool.MaxReserved+1)); !errors.Is(err, spool.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	// Acknowledged segments make room, and no more of them than needed.
	before := s.Stats()
	s.Acked(last / 2)
	if got := s.Stats(); got.Segments != before.Segments {
		t.Errorf("dropped without need: %+v", got)
	}
	add(t, s, 1, 4000)
	if got := s.Stats(); got.Dropped != 1 || got.First == 1 {
		t.Errorf("got %+v", got)
	}
	if _, _, _, err := s.Record(1); !errors.Is(err, spool.ErrDropped) {
		t.Errorf("got %v, want ErrDropped", err)
	}
	now := fill(t, s, 4000)
	st := s.Stats()
	if st.Bytes > runCap || st.First > last/2+1 {
		t.Errorf("got %+v", st)
	}
	check(t, s, now, now, 4000)
	for n := st.First; n <= now; n++ {
		if _, _, ok, err := s.Record(n); !ok || err != nil {
			t.Fatalf("record %d: %v %v", n, ok, err)
		}
	}
	// Last words always fit, many times over.
	for range 100 {
		if _, err := s.AppendReserved(nil, make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
	}
	if b := s.Stats().Bytes; b > runCap {
		t.Errorf("%d bytes of %d", b, runCap)
	}
}

func TestTotalCap(t *testing.T) {
	defer spool.SetMeasureEvery(0)()
	root := t.TempDir()
	o := spool.Options{TotalCap: 4 << 20, SegmentSize: 256 << 10}
	a := create(t, root, o)
	fill(t, a, 4000)
	b, err := spool.Create(root, spool.Meta{Run: "other"}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	// The first record begins a segment, and with it the others are measured.
	add(t, b, 1, 100)
	if last := fill(t, b, 4000); last > 2 {
		t.Errorf("%d records although the total is full", last)
	}
	if _, err := b.AppendReserved(nil, []byte("gap")); err != nil {
		t.Errorf("last words: %v", err)
	}
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	add(t, b, 100, 4000)
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("left in root: %v, %v", entries, err)
	}
}

// TestDiskFull: when the disk has no block left, last words take the place of
// the reserve file, and ordinary records wait until it is back.
func TestDiskFull(t *testing.T) {
	defer spool.SetMeasureEvery(0)()
	f := &faults{err: syscall.ENOSPC, persist: 5}
	s := create(t, t.TempDir(), spool.WithCreate(spool.Options{}, f.create))
	reserve := filepath.Join(s.Path(), "reserve")
	add(t, s, 3, 100)
	full := func(n, kind int) bool {
		if kind == opTruncate {
			return false
		}
		_, err := os.Stat(reserve)
		return err == nil // there is room where it was
	}
	f.at = full
	if fill(t, s, 100) != 3 {
		t.Fatal("not full")
	}
	meta, data := content(4, 100)
	if seq, err := s.AppendReserved(meta, data); seq != 4 || err != nil {
		t.Fatalf("got %d, %v", seq, err)
	}
	if _, err := os.Stat(reserve); err == nil {
		t.Error("reserve is still there")
	}
	// The reserve cannot come back, for its place is taken.
	if err := os.Mkdir(reserve, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(reserve, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.at = nil
	if fill(t, s, 100) != 4 {
		t.Fatal("ordinary records took the last blocks")
	}
	meta, data = content(5, 100)
	if seq, err := s.AppendReserved(meta, data); seq != 5 || err != nil {
		t.Fatalf("got %d, %v", seq, err)
	}
	if err := os.RemoveAll(reserve); err != nil {
		t.Fatal(err)
	}
	add(t, s, 3, 100)
	check(t, s, 1, 8, 100)
	if _, err := os.Stat(reserve); err != nil {
		t.Error(err)
	}
}

func TestTooLarge(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{})
	if _, err := s.Append(nil, make([]byte, spool.MaxRecord+1)); !errors.Is(err, spool.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if seq, err := s.Append(nil, make([]byte, spool.MaxRecord)); seq != 1 || err != nil {
		t.Errorf("got %d, %v", seq, err)
	}
	if _, data, ok, err := s.Record(1); !ok || err != nil || len(data) != spool.MaxRecord {
		t.Errorf("got %v, %v, %d bytes", ok, err, len(data))
	}
}

func TestListAndSweep(t *testing.T) {
	root := t.TempDir()
	if infos, err := spool.List(filepath.Join(root, "none")); infos != nil || err != nil {
		t.Errorf("got %v, %v", infos, err)
	}
	if err := os.WriteFile(filepath.Join(root, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "not-a-spool"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := create(t, root, spool.Options{Retain: time.Hour})
	add(t, s, 20, 100)
	s.Acked(7)
	one := func() spool.Info {
		t.Helper()
		infos, err := spool.List(root)
		if err != nil || len(infos) != 1 || infos[0].Err != nil {
			t.Fatalf("got %+v, %v", infos, err)
		}
		return infos[0]
	}
	if i := one(); !i.Live || i.Ended || i.First != 1 || i.Last != 20 || i.Acked != 7 || i.Meta.Run != run || i.Meta.Partition != 3 || i.Bytes == 0 {
		t.Errorf("got %+v", i)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, nil); !errors.Is(err, spool.ErrDone) {
		t.Errorf("got %v", err)
	}
	if s.Shipped() {
		t.Error("shipped too early")
	}
	s.Acked(20)
	if now := time.Now(); !s.Shipped() || s.Removable(now) || !s.Removable(now.Add(time.Hour)) {
		t.Error("shipped and removable are wrong")
	}
	if runs, err := spool.Sweep(root, 0, time.Now()); runs != nil || err != nil {
		t.Errorf("swept a live run: %v, %v", runs, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if i := one(); i.Live || !i.Ended || !i.Shipped() || time.Since(i.AckedAt) > time.Minute {
		t.Errorf("got %+v", i)
	}
	if runs, err := spool.Sweep(root, time.Hour, time.Now()); runs != nil || err != nil {
		t.Errorf("swept too early: %v, %v", runs, err)
	}
	if runs, err := spool.Sweep(root, time.Hour, time.Now().Add(2*time.Hour)); len(runs) != 1 || runs[0] != run || err != nil {
		t.Errorf("got %v, %v", runs, err)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 2 {
		t.Errorf("left in root: %v", entries)
	}
}

func TestPermissions(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state", "spool")
	s := create(t, root, spool.Options{})
	add(t, s, 1, 10)
	s.Acked(1)
	j, err := s.Journal()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Intent("a", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	err = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got %o, want %o", path, got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSmallRun: the first records of a run do not look at the other runs, and
// soon they do.
func TestSmallRun(t *testing.T) {
	defer spool.SetMeasureEvery(0)()
	root := t.TempDir()
	o := spool.Options{TotalCap: 40 << 20, SegmentSize: 1 << 20, RunCap: 1 << 30} // 10 KiB are written unseen
	a := create(t, root, o)
	fill(t, a, 100_000)
	fill(t, a, 100)
	b, err := spool.Create(root, spool.Meta{Run: "other"}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if last := fill(t, b, 1000); last < 5 || last > 20 {
		t.Errorf("%d records of 1 kB beside a full total; want some 10", last)
	}
}
