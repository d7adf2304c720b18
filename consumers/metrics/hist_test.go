package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A snapshot says which buckets it has: one with fewer of them is read, all that was
// counted is below the bounds that it was below, and the native buckets are as before.
func TestSnapshotOfOtherBuckets(t *testing.T) {
	earlier := []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400}
	old := newHist(earlier)
	for _, s := range []float64{.2, 1.5, 2.5, 4, 8, 12, 40, 5000, 100_000} {
		old.observe(time.Duration(s*float64(time.Second)), exemplar{})
	}
	h := newHist(runBuckets)
	if err := h.restore(old.save()); err != nil {
		t.Fatal(err)
	}
	h.observe(1500*time.Millisecond, exemplar{})
	old.observe(1500*time.Millisecond, exemplar{})
	if d := cmp.Diff(old.native, h.native); d != "" || h.count != old.count || h.sum != old.sum {
		t.Errorf("count %d, sum %d; want %d, %d; native buckets (-want +got):\n%s", h.count, h.sum, old.count, old.sum, d)
	}
	below := func(h *hist) map[float64]uint64 {
		m := map[float64]uint64{}
		for _, b := range h.write(time.Time{}).GetBucket() {
			m[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		return m
	}
	was, is := below(old), below(h)
	for bound, n := range was {
		if is[bound] != n {
			t.Errorf("%d took no longer than %v s, want %d", is[bound], bound, n)
		}
	}
	if is[2] != 2 { // .2, and what was measured since
		t.Errorf("%d took no longer than 2 s, want 2", is[2])
	}
}

// Runs of some seconds are told apart.
func TestShortRunsAreToldApart(t *testing.T) {
	h := newHist(runBuckets)
	for _, s := range []time.Duration{1, 2, 3, 4, 7, 9} {
		h.observe(s*time.Second, exemplar{})
	}
	for i, n := range h.classic {
		if n > 1 {
			t.Errorf("%d of these are in the bucket up to %v", n, h.bounds[i])
		}
	}
}
