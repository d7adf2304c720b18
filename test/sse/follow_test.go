package sse

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/relay/client"
)

const (
	batches   = 8
	batchSize = 250
	lines     = batches * batchSize
)

// ends says how the relay ends in the middle of a batch.
var ends = map[int]syscall.Signal{1: syscall.SIGKILL, 2: syscall.SIGKILL, 3: syscall.SIGTERM, 5: syscall.SIGKILL, 6: syscall.SIGTERM}

// A run of 2000 lines is followed by every client over every road, while the relay is
// killed or told to end, and comes back, and while the cutters cut: each client is
// told each event once and in order, and stops at the end by itself.
func TestEveryClientFollows(t *testing.T) {
	s := newSite(t)
	plain, again := s.startNginx()
	cutters := []*cutter{
		newCutter(t, s.addr, 1, false), newCutter(t, plain, 2, false), newCutter(t, again, 3, false),
		newCutter(t, s.addr, 4, true), newCutter(t, again, 5, true),
	}
	direct, nginx, recipe := road{"nothing", s.addr}, road{"nginx as it is", plain}, road{"nginx of the recipe", again}
	cut := []road{{"cuts", cutters[0].addr}, {"cuts and nginx as it is", cutters[1].addr}, {"cuts and nginx of the recipe", cutters[2].addr}}
	p := s.start()

	var mu sync.Mutex
	said := map[string]int{} // the event of each line of the agent
	near := s.ours(p.run, direct, func(e client.Event) {
		if _, line, ok := strings.Cut(string(e.Data), `"text":"line `); ok {
			mu.Lock()
			defer mu.Unlock()
			n, _, _ := strings.Cut(line, `\n`)
			said[n] = int(e.Seq)
		}
	})
	streams := []*stream{near}
	for _, r := range append([]road{nginx, recipe}, cut...) {
		streams = append(streams, s.ours(p.run, r, func(client.Event) {}))
	}
	tools := os.Getenv(envTools)
	var stops []func() error
	for name, command := range map[string][]string{
		"tmaxmax/go-sse": {filepath.Join(tools, "gosse")}, "launchdarkly/eventsource": {filepath.Join(tools, "launchdarkly")},
		"npm eventsource": {"node", "eventsource.mjs"}, "npm eventsource-client": {"node", "eventsource-client.mjs"},
	} {
		more, stop := s.theirs(name, p.run, append([]road{direct, nginx, recipe}, cut...), command...)
		streams, stops = append(streams, more...), append(stops, stop)
	}
	if theBrowser == nil {
		t.Log("without a browser: " + envBrowser + " is not set")
	} else {
		s.logIn()
		for _, r := range []road{direct, recipe, {cut[0].name, cutters[3].addr}, {cut[2].name, cutters[4].addr}} {
			streams = append(streams, s.browse("EventSource", plainSource, p.run, r))
		}
		for _, r := range []road{direct, nginx, cut[1]} {
			streams = append(streams, s.browse("EventSource of the recipe", recipeSource, p.run, r))
		}
	}

	begin := time.Now()
	for n := range batches {
		from, half, to := n*batchSize, n*batchSize+batchSize/2, (n+1)*batchSize
		p.say(from, half)
		if sig := ends[n]; sig != 0 {
			near.mu.Lock()
			have := len(near.lines)
			near.mu.Unlock()
			waitAll(t, "the relay's end", []*stream{near}, max(have, 1))
			s.down(sig)
			p.say(half, to)
			s.knocked(plain, again)
			s.up()
		} else {
			p.say(half, to)
		}
		last := fmt.Sprint(to - 1)
		for seq := 0; seq == 0; {
			near.mu.Lock()
			have := len(near.lines)
			near.mu.Unlock()
			mu.Lock()
			seq = said[last]
			mu.Unlock()
			if seq == 0 {
				waitAll(t, "line "+last, []*stream{near}, have+1)
			} else {
				waitAll(t, "line "+last, streams, seq)
			}
		}
		t.Logf("batch %d after %v", n, time.Since(begin).Round(time.Millisecond))
	}
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	waitAll(t, "the end", streams, 0)
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	s.compare(p.run, streams)
	total := int64(0)
	for _, c := range cutters {
		total += c.cuts.Load()
	}
	if total < 20 {
		t.Errorf("%d cuts are too few to say anything", total)
	}
	t.Logf("%d streams of %d events over %d ends of the relay and %d cuts in %v",
		len(streams), len(streams[0].lines), len(ends), total, time.Since(begin).Round(time.Millisecond))
}

// compare holds what was told against the run as it is.
func (s *site) compare(run string, streams []*stream) {
	s.t.Helper()
	var want []string
	n := 0
	c := client.Client{URL: "http://" + s.addr, Token: s.token}
	err := c.Follow(s.t.Context(), run, 0, func(e client.Event) error {
		want = append(want, line(e))
		if strings.Contains(string(e.Data), fmt.Sprintf(`"uuid":"u%d"`, n)) {
			n++
		}
		return nil
	})
	if err != nil || n != lines {
		s.t.Fatalf("the run has %d of %d lines: %v", n, lines, err)
	}
	for _, st := range streams {
		if d := cmp.Diff(want, st.lines); d != "" {
			s.t.Errorf("%s (-want +got):\n%.2000s", st.name, d)
		}
	}
}
