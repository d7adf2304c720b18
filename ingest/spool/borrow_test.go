package spool_test

import (
	"bytes"
	"testing"

	"github.com/cbcast/cbcast/ingest/spool"
)

// TestBorrow: what was borrowed is good until the call after the next one, its
// memory is used again, and what Record gave stays nevertheless.
func TestBorrow(t *testing.T) {
	for size, n := range map[int]uint64{300: 2000, 40_000: 60, 70_000: 60} {
		s := create(t, t.TempDir(), spool.Options{Tail: 1 << 20})
		places := map[*byte]bool{}
		var prev, kept, wantKept []byte
		for i := uint64(1); i <= n; i++ {
			add(t, s, 3, size)
			for k := 3*i - 2; k <= 3*i; k++ {
				_, data, ok, err := s.Borrow(k)
				if _, want := content(k, size); !ok || err != nil || !bytes.Equal(data, want) {
					t.Fatalf("record %d: %v, %v", k, ok, err)
				}
				if _, want := content(k-1, size); prev != nil && !bytes.Equal(prev, want) {
					t.Fatalf("record %d changed before the second call", k-1)
				}
				prev = data
				places[&data[0]] = true
			}
			if i == n/2 {
				_, data, _, err := s.Record(3*i - 1)
				if err != nil {
					t.Fatal(err)
				}
				kept, wantKept = data, bytes.Clone(data)
			}
		}
		if !bytes.Equal(kept, wantKept) {
			t.Errorf("%d B: what Record gave was written over", size)
		}
		if len(places) > int(3*n)/2 {
			t.Errorf("%d B: %d records lay in %d places", size, 3*n, len(places))
		}
		if got := s.Stats().Read; got != 3*n {
			t.Errorf("read up to %d", got)
		}
		// The bus lost what it had: the old ones are read from disk.
		for k := range uint64(5) {
			k++
			_, data, ok, err := s.Borrow(k)
			if _, want := content(k, size); !ok || err != nil || !bytes.Equal(data, want) {
				t.Fatalf("record %d again: %v, %v", k, ok, err)
			}
		}
	}
}
