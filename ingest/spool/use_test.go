package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/spool"
)

// TestWriterAndReader: one publisher reads right behind several writers, and
// then, with a tail of one record, from disk.
func TestWriterAndReader(t *testing.T) {
	for _, o := range []spool.Options{{}, {Tail: 1, SegmentSize: 64 << 10}} {
		s := create(t, t.TempDir(), o)
		const writers, each = 4, 2000
		var wg sync.WaitGroup
		for g := range writers {
			wg.Go(func() {
				for i := range each {
					var err error
					if i%10 == 9 {
						_, err = s.AppendAll([]spool.Record{{Data: fmt.Appendf(nil, "%d %d", g, i)}, {Data: []byte("second")}})
					} else {
						_, err = s.Append(nil, fmt.Appendf(nil, "%d %d", g, i))
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		ended := make(chan error, 1)
		go func() {
			wg.Wait()
			ended <- s.End()
		}()
		next := [writers]int{}
		n, pair := uint64(1), false
		for ; ; n++ {
			err := s.Wait(t.Context(), n)
			if errors.Is(err, spool.ErrDone) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			_, data, ok, err := s.Record(n)
			if !ok || err != nil {
				t.Fatalf("record %d: %v, %v", n, ok, err)
			}
			if pair != bytes.Equal(data, []byte("second")) {
				t.Fatalf("record %d: %s", n, data)
			}
			if pair {
				pair = false
				continue
			}
			var g, i int
			if _, err := fmt.Sscanf(string(data), "%d %d", &g, &i); err != nil || i != next[g] {
				t.Fatalf("record %d: %s, want number %d", n, data, next[g])
			}
			next[g]++
			pair = i%10 == 9
			s.Acked(n)
		}
		if want := uint64(writers*each*11/10 + 1); n != want {
			t.Errorf("ended at %d, want %d", n, want)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{})
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := s.Wait(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	got := make(chan error)
	go func() { got <- s.Wait(context.Background(), 1) }()
	s.Close()
	if err := <-got; !errors.Is(err, spool.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, _, _, err := s.Record(1); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Append(nil, nil); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := s.End(); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestGoBack: the bus lost what it had acknowledged, and the publisher reads it
// again.
func TestGoBack(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{SegmentSize: 300 << 10, Tail: 1})
	add(t, s, 3000, 500)
	for _, from := range []uint64{2990, 1, 1500, 1499, 2500, 700, 3000} {
		for n := from; n <= min(3000, from+20); n++ {
			_, data, ok, err := s.Record(n)
			if _, want := content(n, 500); !ok || err != nil || !bytes.Equal(data, want) {
				t.Fatalf("record %d: %v %v", n, ok, err)
			}
		}
	}
	if _, _, _, err := s.Record(0); !errors.Is(err, spool.ErrDropped) {
		t.Errorf("got %v", err)
	}
}

// TestRecordsStay: what Record returned is not overwritten later.
func TestRecordsStay(t *testing.T) {
	for _, o := range []spool.Options{{Tail: 4096}, {Tail: 1, SegmentSize: 4096}} {
		s := create(t, t.TempDir(), o)
		var kept [][]byte
		for n := uint64(1); n <= 2000; n++ {
			add(t, s, 1, 300)
			if n > 5 {
				_, data, _, err := s.Record(n - 5)
				if err != nil {
					t.Fatal(err)
				}
				kept = append(kept, data)
			}
		}
		for i, got := range kept {
			if _, want := content(uint64(i+1), 300); !bytes.Equal(got, want) {
				t.Fatalf("record %d changed", i+1)
			}
		}
	}
}

// TestAdvance: a power loss took records that the bus has.
func TestAdvance(t *testing.T) {
	root := t.TempDir()
	s := create(t, root, spool.Options{})
	s.Advance(4)
	add(t, s, 2, 50)
	s.Advance(9)
	s.Advance(3)
	add(t, s, 2, 50)
	for range 2 {
		for n := uint64(0); n <= 11; n++ {
			_, _, ok, err := s.Record(n)
			switch n {
			case 5, 6, 10, 11:
				if !ok || err != nil {
					t.Errorf("record %d: %v, %v", n, ok, err)
				}
			default:
				if !errors.Is(err, spool.ErrDropped) {
					t.Errorf("record %d: got %v, want ErrDropped", n, err)
				}
			}
		}
		if got := s.Stats(); got.Last != 11 || got.Acked != 9 {
			t.Errorf("got %+v", got)
		}
		s.Close()
		var err error
		if s, err = spool.Open(root, run, spool.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
	}
}

func TestSyncEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := spool.Create(t.TempDir(), spool.Meta{Run: run}, spool.Options{SyncEvery: time.Second, SegmentSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		add(t, s, 100, 100)
		time.Sleep(3 * time.Second) //nolint:forbidigo // of the bubble
		synctest.Wait()
		if err := s.Stats().SyncErr; err != nil {
			t.Error(err)
		}
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRemoveTwice(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{SegmentSize: 4096})
	add(t, s, 100, 100)
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestJournal(t *testing.T) {
	root := t.TempDir()
	s := create(t, root, spool.Options{})
	j := journal(t, s)
	for _, id := range []string{"a", "b", "c"} {
		if err := j.Intent(id, []byte("data of "+id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Intent("b", nil); !errors.Is(err, spool.ErrKnown) {
		t.Errorf("got %v", err)
	}
	if err := j.Done("b"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"b", "x"} {
		if err := j.Done(id); !errors.Is(err, spool.ErrNoIntent) {
			t.Errorf("got %v", err)
		}
	}
	want := []spool.Command{{"a", []byte("data of a")}, {"c", []byte("data of c")}}
	for range 2 {
		if diff := cmp.Diff(want, j.Pending()); diff != "" {
			t.Error(diff)
		}
		if known, done := j.Known("b"); !known || !done {
			t.Error("b is not known as done")
		}
		if known, _ := j.Known("x"); known {
			t.Error("x is known")
		}
		s.Close()
		if err := j.Intent("late", nil); !errors.Is(err, spool.ErrClosed) {
			t.Errorf("got %v", err)
		}
		var err error
		if s, err = spool.Open(root, run, spool.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		j = journal(t, s)
	}
}

func journal(t testing.TB, s *spool.Spool) *spool.Journal {
	t.Helper()
	j, err := s.Journal()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestJournalCut: cut or changed at any byte, the journal has the entries before
// and goes on behind them.
func TestJournalCut(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{})
	j := journal(t, s)
	var ends []int // of the file after each entry
	note := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, len(load(t, s.Path())["commands"]))
	}
	note(j.Intent("a", []byte("1")))
	note(j.Intent("b", nil))
	note(j.Done("a"))
	s.Close()
	f := load(t, s.Path())
	pending := [][]string{nil, {"a"}, {"a", "b"}, {"b"}}
	root := t.TempDir()
	for at := range len(f["commands"]) {
		for _, flip := range []bool{false, true} {
			b := bytes.Clone(f["commands"][:at])
			if flip {
				b = bytes.Clone(f["commands"])
				b[at] ^= 1
			}
			f.with("commands", b).storeIn(t, root)
			s, err := spool.Open(root, run, spool.Options{})
			if err != nil {
				t.Fatal(err)
			}
			j := journal(t, s)
			entries := 0
			for _, e := range ends {
				if e <= at {
					entries++
				}
			}
			want := pending[entries]
			if got := ids(j); !cmp.Equal(got, want) {
				t.Fatalf("at %d, flip %v: got %v, want %v", at, flip, got, want)
			}
			if cut := j.Cut(); (cut == 0) == flip && at > ends[2] {
				t.Errorf("at %d: cut %d", at, cut)
			}
			if err := j.Intent("z", nil); err != nil {
				t.Fatal(err)
			}
			s.Close()
			if s, err = spool.Open(root, run, spool.Options{}); err != nil {
				t.Fatal(err)
			}
			if got := ids(journal(t, s)); !cmp.Equal(got, append(want, "z")) {
				t.Fatalf("at %d, flip %v, opened again: got %v", at, flip, got)
			}
			s.Close()
		}
	}
}

func ids(j *spool.Journal) (out []string) {
	for _, c := range j.Pending() {
		out = append(out, c.ID)
	}
	return out
}
