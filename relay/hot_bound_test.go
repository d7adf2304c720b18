package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
)

// What nobody watches stays for its time, as long as it is little; the longest
// unwatched goes first, and what somebody came back to stays.
func TestHotFeeds(t *testing.T) {
	r := New(Options{Config: Config{Addr: "127.0.0.1:0"}})
	h, now := r.hub, time.Now()
	feeds := map[string]*feed{}
	stopped := []string{}
	for n := range 5 {
		run := fmt.Sprint("r", n)
		f := newFeed(r, bus.Ref{Run: run}, 0, 0)
		f.size, f.stop = 100<<10, func() { stopped = append(stopped, run) }
		feeds[run], h.feeds[keyOf(f.ref)] = f, f
		h.hot[f] = now.Add(time.Duration(n) * time.Second)
	}
	delete(h.hot, feeds["r2"]) // watched
	h.coolFeeds(now, 1<<20)
	h.coolFeeds(now.Add(-time.Second), 300<<10)
	if d := cmp.Diff([]string{"r0", "r1"}, stopped); d != "" {
		t.Errorf("let go (-want +got):\n%s", d)
	}
	h.coolFeeds(now.Add(time.Minute), 1<<20)
	slices.Sort(stopped)
	if d := cmp.Diff([]string{"r0", "r1", "r3", "r4"}, stopped); d != "" {
		t.Errorf("let go after their time (-want +got):\n%s", d)
	}
	if len(h.feeds) != 1 || len(h.hot) != 0 {
		t.Errorf("%d feeds, %d of them unwatched, are left, want the watched one", len(h.feeds), len(h.hot))
	}
}
