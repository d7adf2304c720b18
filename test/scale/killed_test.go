package scale

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// One of two relays ends in the middle of all streams: every client goes on at the
// other one, with the event that follows on the last it had. So does a client of
// all runs. A relay that is told to end lets its clients go, and does not take new
// ones.
func TestChaosRelayEnds(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "told": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) { relayEnds(t, sig) })
	}
}

func relayEnds(t *testing.T, sig syscall.Signal) {
	size := sizeOf()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	natsURL, b := startBus(t)
	first, second := startRelay(t, natsURL), startRelay(t, natsURL)
	var writers []*writer
	all := map[string]uint64{}
	for n := range size.runs {
		w := startWriter(t, b, n, size.events)
		writers = append(writers, w)
		all[w.info.Run] = w.last
	}

	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	var clients []*follower
	for n := range size.clients {
		run := writers[n%size.runs].info.Run
		f := newFollower(c, "/v1/runs/"+run+"/stream", map[string]uint64{run: all[run]}, first.url, second.url)
		clients = append(clients, f)
	}
	for range 3 {
		clients = append(clients, newFollower(c, "/v1/stream?runs=none&from=start", all, first.url, second.url))
	}
	errs := make(chan error, len(clients))
	for _, f := range clients {
		go func() { errs <- f.follow(ctx) }()
	}

	// Everybody reads, then the relay ends while events go on.
	third := uint64(size.events / 3)
	for _, w := range writers {
		w.grow(third)
	}
	for _, f := range clients {
		for f.took.Load() < int64(min(third, 2)) {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("a client is told nothing")
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := third; n < uint64(size.events)-1; n++ {
			for _, w := range writers {
				w.grow(n + 1)
			}
			<-time.After(size.pace)
		}
	})
	begin := time.Now()
	first.end(sig)
	ended := time.Since(begin)
	wg.Wait()
	for _, w := range writers {
		w.grow(w.last)
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	var moves []int
	for _, f := range clients {
		moves = append(moves, f.moves)
	}
	slices.Sort(moves)
	if moves[0] == 0 {
		t.Errorf("a client was told everything by the relay that ended: %v", moves)
	}
	t.Logf("%d clients of %d runs went on at another relay, %d events each, the relay ended in %v, all told %v later",
		len(clients), size.runs, size.events, ended.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
}
