package segment_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

// TestRoundTrip: what was appended is read, byte for byte, by run and all of it.
func TestRoundTrip(t *testing.T) {
	r := newRig(t)
	r.open()
	for i := range 30 {
		r.add(r.next("acme", []string{"a", "b", "c"}[i%3]))
		if i%10 == 9 {
			r.seal()
		}
	}
	var want []*segment.Record
	for _, rec := range r.all {
		if rec.Run == "b" {
			want = append(want, rec)
		}
	}
	if d := cmp.Diff(want, r.read(segment.Query{Tenant: "acme", Run: "b"})); d != "" {
		t.Errorf("run b (-want +got):\n%s", d)
	}
	if got := r.read(segment.Query{}); len(got) != len(r.all) {
		t.Errorf("got %d records, want %d", len(got), len(r.all))
	}
	if d := cmp.Diff(want[5:], r.read(segment.Query{Run: "b", After: 5})); d != "" {
		t.Errorf("run b after 5 (-want +got):\n%s", d)
	}
}

// TestManySegments: indexes of 16 and 256 segments are written and used, and runs are
// found through them.
func TestManySegments(t *testing.T) {
	r := newRig(t)
	r.open()
	for i := range 300 {
		r.add(r.next("acme", []string{"a", "b", "c"}[i%3]))
		if i%7 == 0 {
			r.add(r.next("acme", "d"))
		}
		r.seal()
	}
	var keys []string
	for info, err := range r.Store.List(t.Context(), "t/acme/index/") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if len(keys) != 18+1 {
		t.Errorf("got indexes %v", keys)
	}
	info, err := r.reader().Run(t.Context(), "", "d")
	if err != nil {
		t.Fatal(err)
	}
	if info.FirstSeq != 1 || info.LastSeq != 43 || info.Records != 43 || len(info.Segments) != 43 {
		t.Errorf("got %+v", info)
	}
	var runs []string
	for info, err := range r.reader().Runs(t.Context(), "", time.Time{}, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, info.Run)
	}
	if d := cmp.Diff([]string{"a", "b", "c", "d"}, runs); d != "" {
		t.Error(d)
	}
	if got := r.read(segment.Query{Run: "a"}); len(got) != 100 {
		t.Errorf("run a has %d records", len(got))
	}
}

func TestErase(t *testing.T) {
	r := newRig(t)
	r.open()
	for i := range 20 {
		r.add(r.next("acme", []string{"a", "b"}[i%2]))
		if i%5 == 4 {
			r.seal()
		}
	}
	if _, err := r.a.Hold(t.Context(), "acme", "a", "case 7", "counsel", "lawsuit"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.a.Erase(t.Context(), "acme", "a", "dpo", "request"); !errors.Is(err, segment.ErrHeld) {
		t.Errorf("erase under a hold: %v", err)
	}
	if _, err := r.a.Release(t.Context(), "acme", "case 7", "counsel", "settled"); err != nil {
		t.Fatal(err)
	}
	h, err := r.a.Erase(t.Context(), "acme", "a", "dpo", "request")
	if err != nil {
		t.Fatal(err)
	}
	r.add(r.next("acme", "a"), r.next("acme", "b")) // erased runs go on
	r.seal()
	var gone *segment.ErasedError
	n := 0
	for _, err := range r.reader().Records(t.Context(), segment.Query{Run: "a"}) {
		if n++; !errors.As(err, &gone) {
			t.Errorf("got %v", err)
		}
	}
	if n != 1 || gone == nil || gone.Head == nil || gone.Head.Number != h.Number {
		t.Errorf("%d times, %+v", n, gone)
	}
	if got := r.read(segment.Query{Run: "b"}); len(got) != 11 {
		t.Errorf("run b has %d records", len(got))
	}
	info, err := r.reader().Run(t.Context(), "acme", "a")
	if err != nil || info.Erased == nil || info.Records != 11 {
		t.Errorf("got %+v, %v", info, err)
	}
}
