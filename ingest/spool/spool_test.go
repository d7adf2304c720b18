package spool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest/spool"
)

const run = "0197c0de-0000-7000-8000-000000000001"

func create(t testing.TB, root string, o spool.Options) *spool.Spool {
	t.Helper()
	s, err := spool.Create(root, spool.Meta{Run: run, Tenant: "t", Partition: 3, Data: json.RawMessage(`{"a":1}`)}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// add appends records n.. whose content follows from their number.
func add(t testing.TB, s *spool.Spool, count, size int) {
	t.Helper()
	for range count {
		n := s.Last() + 1
		meta, data := content(n, size)
		seq, err := s.Append(meta, data)
		if err != nil || seq != n {
			t.Fatalf("append %d: got %d, %v", n, seq, err)
		}
	}
}

func content(n uint64, size int) (meta, data []byte) {
	data = fmt.Appendf(nil, "data %d ", n)
	for len(data) < size {
		data = append(data, byte('a'+(int(n)+len(data))%26))
	}
	return fmt.Appendf(nil, "meta %d", n), data
}

// check reads every record from first to last and compares.
func check(t testing.TB, s *spool.Spool, first, last uint64, size int) {
	t.Helper()
	for n := first; n <= last; n++ {
		meta, data, ok, err := s.Record(n)
		wantMeta, wantData := content(n, size)
		if err != nil || !ok || string(meta) != string(wantMeta) || string(data) != string(wantData) {
			t.Fatalf("record %d: ok %v, err %v, meta %q, %d bytes of data", n, ok, err, meta, len(data))
		}
	}
	if got := s.Last(); got != last {
		t.Fatalf("last: got %d, want %d", got, last)
	}
}

func TestAppendAndRead(t *testing.T) {
	for _, o := range []spool.Options{{}, {Tail: 1}, {Tail: 1, SegmentSize: 4000}, {SegmentSize: 4000}} {
		root := t.TempDir()
		s := create(t, root, o)
		add(t, s, 300, 100)
		check(t, s, 1, 300, 100)
		if _, _, ok, err := s.Record(301); ok || err != nil {
			t.Errorf("record 301: ok %v, err %v", ok, err)
		}
		s.Acked(120)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := spool.Open(root, run, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s, 1, 300, 100)
		add(t, s, 20, 100)
		check(t, s, 1, 320, 100)
		if got := s.Stats().Acked; got != 120 {
			t.Errorf("acked: got %d, want 120", got)
		}
		if diff := cmp.Diff(json.RawMessage(`{"a":1}`), s.Meta().Data); diff != "" {
			t.Error(diff)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWait(t *testing.T) {
	s := create(t, t.TempDir(), spool.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- s.Wait(ctx, 2) }()
	add(t, s, 2, 10)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go func() { got <- s.Wait(ctx, 3) }()
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, spool.ErrDone) {
		t.Fatalf("got %v, want ErrDone", err)
	}
	if err := s.Wait(ctx, 2); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{512, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := create(b, b.TempDir(), spool.Options{RunCap: 64 << 30, TotalCap: -1})
			meta, data := make([]byte, 60), make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Append(meta, data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rec/s")
		})
	}
}

// BenchmarkAppendAll appends as many frames at once as one read brings.
func BenchmarkAppendAll(b *testing.B) {
	s := create(b, b.TempDir(), spool.Options{RunCap: 64 << 30, TotalCap: -1})
	recs := make([]spool.Record, 32)
	for i := range recs {
		recs[i] = spool.Record{Meta: make([]byte, 60), Data: make([]byte, 512)}
	}
	b.SetBytes(32 * 512)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.AppendAll(recs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(32*float64(b.N)/b.Elapsed().Seconds(), "rec/s")
}

// BenchmarkRecord reads in order, from memory and from disk.
func BenchmarkRecord(b *testing.B) {
	for _, tail := range []int{256 << 20, 1} {
		b.Run(fmt.Sprintf("tail=%d", tail), func(b *testing.B) {
			s := create(b, b.TempDir(), spool.Options{TotalCap: -1, Tail: tail})
			add(b, s, 100_000, 512)
			n := uint64(0)
			for b.Loop() {
				n = n%100_000 + 1
				if _, _, ok, err := s.Record(n); !ok || err != nil {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rec/s")
		})
	}
}
