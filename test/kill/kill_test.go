package kill

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/consumers/metrics"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/test/capture"
)

const tenant = "acme"

// rulesText tells everything, at once and without end of patience.
const rulesText = `
version: 1
destinations:
  hook: {type: webhook, url: URL/hook, allow: [127.0.0.1], merge: 0, rate: {every: 1ms, burst: 1000}, queue: 20000,
         retry: {ladder: [10ms, 20ms, 50ms, 100ms, 100ms, 100ms, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]}}
rules:
  - {name: all, to: [hook]}
`

// The consumers are killed again and again while runs are published. Afterwards the
// archive has every event once and verifies, every run's end was told once, and the
// counters are those of a recount of the archive.
func TestKilled(t *testing.T) {
	events, kills := size()
	w := newWorld(t)
	runs := recorded(t, events)
	file := filepath.Join(w.dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(rulesText, "URL", w.hooks.url)), 0o600); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(w.dir, "kept")
	arch := w.part("archive", "CBCAST_ARCHIVE_ADDR=127.0.0.1:0", "CBCAST_ARCHIVE_DEST="+dest, "CBCAST_ARCHIVE_SEAL_AGE=1s")
	meter := w.part("metrics", "CBCAST_METRICS_ADDR=127.0.0.1:0")
	teller := w.part("notify", "CBCAST_NOTIFY_ADDR=127.0.0.1:0", "CBCAST_NOTIFY_RULES="+file)
	parts := []*part{arch, meter, teller}
	for _, p := range parts {
		p.start()
	}

	begin := time.Now()
	gate := newGate(runs, kills)
	published := make(chan error, 1)
	go func() { published <- w.publish(runs, gate) }()
	for k := range kills {
		if k%len(parts) == 0 {
			rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
		p := parts[k%len(parts)]
		gate.open()
		// From before it is up to deep in its work.
		<-time.After(rand.N(1200 * time.Millisecond))
		if p.ended() {
			t.Fatalf("%s has ended by itself: %v", p.name, p.err)
		}
		p.kill()
		p.start()
	}
	gate.end()
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events of %d runs published, %d kills, in %v", gate.total, len(runs), kills, time.Since(begin).Round(time.Millisecond))

	for _, p := range []*part{meter, teller, arch} {
		w.caughtUp(p, "EV_0", "CTL")
		t.Logf("%s has caught up after %v", p.name, time.Since(begin).Round(time.Millisecond))
	}
	w.caughtUp(arch, "CMD")
	want := ends(runs)
	w.hooks.wait(t, func(got map[string]int) bool {
		for x := range want {
			if got[x] == 0 {
				return false
			}
		}
		return true
	})
	shown := samples(meter.get("/metrics"))
	for _, p := range parts {
		p.stop()
	}
	t.Logf("caught up after %v; %d notices in %d requests", time.Since(begin).Round(time.Millisecond), len(w.hooks.told), w.hooks.n)

	got := map[string]int{}
	for x, n := range w.hooks.notices() {
		if _, kind, _ := strings.Cut(x, " "); kind == "finished" || kind == "failed" || kind == "interrupted" || n > 1 && kind != "waiting" {
			got[x] = n
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("notices of runs' ends (-want +got):\n%.4000s", d)
	}
	w.archived(arch, dest, runs, shown)
}

// archived compares the archive with what was published, and the counters with it.
func (w *world) archived(arch *part, dest string, runs map[string][]*event.Event, shown map[string]string) {
	w.t.Helper()
	if out, err := w.run(arch.env, "archive", "verify", "--deep"); err != nil {
		w.t.Errorf("the archive is not whole: %v", err)
	} else {
		w.t.Log(strings.TrimSpace(out))
	}
	cfg := archive.Config{Dest: dest}
	place, err := cfg.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	kept := map[string]*bytes.Buffer{}
	for r, err := range place.Reader().Records(w.t.Context(), segment.Query{Tenant: tenant}) {
		if err != nil {
			w.t.Fatal(err)
		}
		e, err := r.Event()
		if err != nil {
			w.t.Fatalf("%s %d: %v", r.Run, r.Seq, err)
		}
		if kept[r.Run] == nil {
			kept[r.Run] = &bytes.Buffer{}
		}
		kept[r.Run].Write(append(e.AppendJSON(nil), '\n'))
	}
	var all bytes.Buffer
	bad := 0
	for i, id := range sorted(runs) {
		var sent bytes.Buffer
		for _, e := range runs[id] {
			sent.Write(append(e.AppendJSON(nil), '\n'))
		}
		have := kept[id]
		if i < 5 { // as people get it
			have = &bytes.Buffer{}
			if _, err := archive.Export(w.t.Context(), place, tenant, id, archive.CloudEvents, have); err != nil {
				w.t.Errorf("export %s: %v", id, err)
			}
		}
		if have == nil || !bytes.Equal(have.Bytes(), sent.Bytes()) {
			if bad++; bad < 4 {
				w.t.Errorf("%s is not in the archive as it was published", id)
			}
			continue
		}
		all.Write(have.Bytes())
	}
	if len(kept) != len(runs) {
		w.t.Errorf("the archive has %d runs, not %d", len(kept), len(runs))
	}
	text, err := metrics.OnceFrom(w.t.Context(), metrics.Options{Partitions: 1}, &all)
	if err != nil {
		w.t.Fatal(err)
	}
	counted := samples(string(text))
	compared := 0
	for _, name := range sorted(counted) {
		if !counter(name) {
			continue
		}
		compared++
		if shown[name] != counted[name] {
			w.t.Errorf("%s is %q, a recount of the archive %q", name, shown[name], counted[name])
		}
	}
	if compared < 20 {
		w.t.Errorf("only %d counters compared", compared)
	}
	w.t.Logf("%d counters are those of a recount", compared)
}

// counter reports whether a series counts what happened to runs. Sums of times are
// left out where the clock of the bus is in them, which an export does not have.
func counter(name string) bool {
	family, _, _ := strings.Cut(name, "{")
	return strings.HasPrefix(family, "cbcast_") && (strings.HasSuffix(family, "_total") || strings.HasSuffix(family, "_count")) &&
		!strings.Contains(family, "_consumer_") && !strings.HasPrefix(family, "cbcast_metrics_") &&
		family != "cbcast_events_repeated_total" // what came again, to this process
}

// recorded are runs of recordings with so many events in all, as if they were of now.
func recorded(t *testing.T, events int) map[string][]*event.Event {
	t.Helper()
	var all []*capture.Capture
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	now, runs := time.Now().UTC(), map[string][]*event.Event{}
	for n := 0; n < events; {
		id := fmt.Sprintf("run-%05d", len(runs))
		list := capture.Events(all[len(runs)%len(all)], tenant, id)
		if len(list) > 2000 || len(list) > events/2 {
			list = capture.Events(all[0], tenant, id)
		}
		sessions(list, len(runs))
		for _, e := range list {
			e.Time = now.Add(e.Time.Sub(capture.Start))
		}
		runs[id] = list
		n += len(list)
	}
	return runs
}

// sessions gives a run sessions of its own: what a session has used goes on from run to
// run, so that the order of runs would count.
func sessions(list []*event.Event, n int) {
	fresh := map[string]string{}
	for _, e := range list {
		if id := e.Session; len(id) > 16 && fresh[id] == "" {
			fresh[id] = fmt.Sprintf("%s%06x", id[:len(id)-6], n)
		}
	}
	for _, e := range list {
		e.Data = bytes.Clone(e.Data)
		for old, id := range fresh {
			e.Data = bytes.ReplaceAll(e.Data, []byte(old), []byte(id))
		}
		if id := fresh[e.Session]; id != "" {
			e.Session = id
		}
	}
}

// ends are the notices of the runs' ends.
func ends(runs map[string][]*event.Event) map[string]int {
	want := map[string]int{}
	for id, list := range runs {
		s := run.New(id)
		for _, e := range list {
			s.Apply(e)
		}
		kind := "finished"
		if v := s.Verdict(); v != nil && v.Verdict == run.Failed {
			kind = "failed"
		} else if v != nil && v.Verdict == run.Interrupted {
			kind = "interrupted"
		}
		want[id+" "+kind] = 1
	}
	return want
}

// A gate lets through a share of the events for each kill, so that all of the work is
// done between kills.
type gate struct {
	total, share int64
	sent         atomic.Int64

	mu    sync.Mutex // guards the rest
	upTo  int64
	moved chan struct{}
}

func newGate(runs map[string][]*event.Event, kills int) *gate {
	g := &gate{moved: make(chan struct{})}
	for _, list := range runs {
		g.total += int64(len(list))
	}
	g.share = g.total/int64(kills+1) + 1
	return g
}

// open lets the next share through.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.upTo += g.share
	g.move()
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.upTo = g.total
	g.move()
}

func (g *gate) move() {
	close(g.moved)
	g.moved = make(chan struct{})
}

// pass waits until an event may be published.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		ok, moved := g.sent.Load() < g.upTo, g.moved
		g.mu.Unlock()
		if ok {
			g.sent.Add(1)
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A feed is a Source of a run that goes through a gate.
type feed struct {
	list []*event.Event
	gate *gate
	n    uint64 // let through
}

func (f *feed) Event(n uint64) (*event.Event, bool, error) {
	if n > f.n {
		return nil, false, nil
	}
	return f.list[n-1], true, nil
}

func (f *feed) Wait(ctx context.Context, n uint64) error {
	for f.n < n {
		if n > uint64(len(f.list)) {
			return bus.ErrDone
		}
		if err := f.gate.pass(ctx); err != nil {
			return err
		}
		f.n++
	}
	return nil
}
func (f *feed) Acked(uint64) {}

// publish publishes all runs, eight at a time.
func (w *world) publish(runs map[string][]*event.Event, g *gate) error {
	ctx, cancel := context.WithCancelCause(w.t.Context())
	defer cancel(nil)
	ids := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends with ids
			for id := range ids {
				p := &bus.Publisher{Bus: w.bus, Ref: bus.Ref{Tenant: tenant, Run: id}, Source: &feed{list: runs[id], gate: g}}
				if err := p.Run(ctx); err != nil {
					cancel(fmt.Errorf("publish %s: %w", id, err))
				}
			}
		})
	}
	for _, id := range sorted(runs) {
		ids <- id
	}
	close(ids)
	wg.Wait()
	return context.Cause(ctx)
}
