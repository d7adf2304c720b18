package relay

import (
	"context"
	"slices"
	"time"
)

// coolEvery is how often it is looked for what nobody came back to.
const coolEvery = time.Second

// leave gives a feed back. Where it was the last client's the run stays in memory
// for a while: most who come back do so at once, many at a time, and the ring has
// what they missed.
func (h *hub) leave(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.users--; f.users == 0 {
		h.hot[f] = time.Now()
	}
}

// cool lets runs and rings go that nobody came back to, until ctx ends.
func (h *hub) cool(ctx context.Context) {
	t := time.NewTicker(min(coolEvery, h.r.cfg.HotFor))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		since := time.Now().Add(-h.r.cfg.HotFor)
		h.coolFeeds(since, h.r.cfg.HotBytes)
		for _, l := range h.logs {
			l.cool(since)
		}
	}
}

// coolFeeds lets the feeds go that nobody has watched since t, and the longest
// unwatched of the others until they have at most limit bytes.
func (h *hub) coolFeeds(t time.Time, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.hot) == 0 {
		return
	}
	all, total := make([]*feed, 0, len(h.hot)), 0
	for f := range h.hot {
		all = append(all, f)
		total += f.held()
	}
	slices.SortFunc(all, func(a, b *feed) int { return h.hot[a].Compare(h.hot[b]) })
	for _, f := range all {
		if h.hot[f].After(t) && total <= limit {
			break
		}
		total -= f.held()
		delete(h.hot, f)
		delete(h.feeds, keyOf(f.ref))
		f.stop()
	}
}

// held is what f has in memory, in bytes, with what a run costs at least.
func (f *feed) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size + 16<<10
}
