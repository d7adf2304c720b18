package segment_test

import (
	"testing"

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
