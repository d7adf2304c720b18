package chaos_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A plan is how much of what happens.
type plan struct {
	replicas int
	runs     int // published by this process
	frames   int // at least
	kills    int // of the server, or of the stream's leader
	edges    int // edge processes killed
	edgeLife time.Duration

	between [2]time.Duration // kills
	dead    [2]time.Duration // how long a killed server stays away
	cut     time.Duration    // all connections are cut about this often
	drop    int64            // acknowledgements dropped of 1000
}

func within(r [2]time.Duration) time.Duration { return r[0] + rand.N(r[1]-r[0]+1) }

func seconds(a, b float64) [2]time.Duration {
	return [2]time.Duration{time.Duration(a * float64(time.Second)), time.Duration(b * float64(time.Second))}
}

func TestChaos(t *testing.T) {
	p := plan{
		replicas: 1, runs: 6, frames: 12_000, kills: 4, edges: 1, edgeLife: 2 * time.Second,
		between: seconds(1.5, 3), dead: seconds(0, 0.5), cut: time.Second, drop: 20,
	}
	if long() {
		p.frames, p.runs, p.kills, p.edges, p.edgeLife = 130_000, 12, 30, 12, 5*time.Second
		p.between, p.drop = seconds(1.5, 5), 50
	}
	p.run(t)
}

func TestChaosCluster(t *testing.T) {
	p := plan{
		replicas: 3, runs: 3, frames: 3_000, kills: 1, between: seconds(1, 2), dead: seconds(0.2, 0.5),
		cut: time.Second, drop: 20,
	}
	if long() {
		p.frames, p.runs, p.kills, p.edges, p.edgeLife = 80_000, 8, 14, 4, 5*time.Second
		p.between, p.dead, p.drop = seconds(2, 5), seconds(0.2, 3), 50
	}
	p.run(t)
}

// A storm is one plan under way.
type storm struct {
	plan
	t    *testing.T
	ctx  context.Context
	b    *broker
	root string // spools of the edges
	gens []*generator
	pubs []*bus.Publisher

	mu     sync.Mutex        // guards the rest
	want   map[string]uint64 // events each run must have
	edged  int               // edges killed
	failed error             // the first failure of a goroutine
}

func (p plan) run(t *testing.T) {
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &storm{plan: p, t: t, ctx: ctx, b: startBroker(t, p.replicas), root: t.TempDir(), want: map[string]uint64{}}
	for _, px := range s.b.proxies {
		px.drop.Store(p.drop)
	}
	var publishing, breaking sync.WaitGroup
	over := make(chan struct{}) // closed when all faults were had
	for i := range p.runs {
		s.publish(&publishing, "run-"+strconv.Itoa(i), over)
	}
	breaking.Go(func() { s.killServers(cancel) })
	breaking.Go(func() { s.killEdges(cancel) })
	weather, calm := context.WithCancel(ctx)
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for pause(weather, p.cut/2+rand.N(p.cut)) {
			for _, px := range s.b.proxies {
				px.cutAll()
			}
		}
	})
	breaking.Wait()
	close(over)
	publishing.Wait()
	calm()
	cutting.Wait()
	if s.failed != nil {
		t.Fatal(s.failed)
	}
	s.verify()
	s.report(time.Since(begin))
}

// publish ships one run until the faults are over and the run has its share.
func (s *storm) publish(wg *sync.WaitGroup, run string, over <-chan struct{}) {
	g := newGenerator(run)
	b, err := bus.Open(bus.Config{URL: s.b.urls(true)}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	pub := &bus.Publisher{Bus: b, Ref: bus.Ref{Tenant: tenant, Run: run}, Source: g, Log: s.log()}
	s.gens, s.pubs = append(s.gens, g), append(s.pubs, pub)
	wg.Go(func() {
		if err := pub.Run(s.ctx); err != nil {
			s.fail(fmt.Errorf("publish %s: %w", run, err))
		}
	})
	wg.Go(func() {
		share := uint64(s.frames/s.runs + 1)
		for {
			select {
			case <-over:
				if g.last() < share {
					g.grow(share-g.last(), false)
				}
				g.grow(0, true)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.want[run] = g.last()
				return
			default:
			}
			// Bursts and trickles; sometimes nothing for a while. No run is far
			// ahead of the stream, so that every fault meets all of them.
			// On a slow machine the faults take longer than the frames.
			n := uint64(rand.IntN(60))
			n = n * n / 30
			if g.last() > 3*share {
				n = 1
			}
			if g.behind() < 20_000 {
				g.grow(n, false)
			}
			if !pause(s.ctx, rand.N(100*time.Millisecond)) {
				return
			}
		}
	})
}

func (s *storm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func (s *storm) log() *slog.Logger {
	if !testing.Verbose() || long() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(s.t.Output(), nil))
}

func (s *storm) killServers(abort func()) {
	for range s.kills {
		pause(s.ctx, within(s.between))
		err := s.b.killLeader(s.ctx, within(s.dead))
		if err == nil {
			err = s.b.healthy(s.ctx)
		}
		if err != nil {
			s.fail(fmt.Errorf("kill a server: %w", err))
			abort()
			return
		}
	}
}

// killEdges kills one edge after the other and flushes what each left behind,
// while bytes of the dead edge may still be under way.
func (s *storm) killEdges(abort func()) {
	for i := range s.edges {
		if err := s.killEdge("edge-" + strconv.Itoa(i)); err != nil {
			s.fail(fmt.Errorf("kill an edge: %w", err))
			abort()
			return
		}
	}
}

func (s *storm) killEdge(run string) error {
	p, err := play(role{Edge: &edgeSpec{Root: s.root, Run: run, URL: s.b.urls(true)}})
	if err != nil {
		return err
	}
	var spooled string
	for end := time.Now().Add(s.edgeLife/2 + rand.N(s.edgeLife)); time.Now().Before(end); {
		if spooled, err = p.expect(s.ctx, "spooled"); err != nil {
			p.kill()
			return err
		}
	}
	if last := p.kill(); strings.HasPrefix(last, "spooled ") {
		spooled = last[len("spooled "):]
	}
	said, err := strconv.ParseUint(spooled, 10, 64)
	if err != nil {
		return fmt.Errorf("the edge says %q", spooled)
	}
	b, err := bus.Open(bus.Config{URL: s.b.urls(true)}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	last, err := flush(s.ctx, s.root, run, b)
	if err != nil {
		return err
	}
	// The flusher adds that the edge died. What the edge had counted as spooled
	// must be there.
	if last < said+1 {
		return fmt.Errorf("%s spooled %d, its spool has %d", run, said, last-1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want[run], s.edged = last, s.edged+1
	return nil
}

// verify reads the stream from its leader and, in a cluster, once more from
// another one.
func (s *storm) verify() {
	for i := range min(2, s.replicas) {
		if i > 0 {
			if err := s.b.killLeader(s.ctx, 0); err != nil {
				s.t.Fatal(err)
			}
			s.b.kills-- // nothing is published meanwhile
		}
		if err := s.b.healthy(s.ctx); err != nil {
			s.t.Fatal(err)
		}
		f := check(s.t, s.b, s.want)
		if f.wrong() {
			s.t.Errorf("%+v", f)
		}
		s.t.Logf("read %d: frames %d · lost %d · doubled %d · reordered %d · altered %d · foreign %d",
			i+1, f.Frames, f.Lost, f.Doubled, f.Reordered, f.Altered, f.Foreign)
	}
}

func check(t *testing.T, b *broker, want map[string]uint64) findings {
	t.Helper()
	c := newChecker()
	for run := range want {
		c.expect(run)
	}
	if err := b.read(t.Context(), c.add); err != nil {
		t.Fatal(err)
	}
	return c.finish(want)
}

func (s *storm) report(took time.Duration) {
	var st bus.Stats
	for _, p := range s.pubs {
		o := p.Stats()
		st.Messages += o.Messages
		st.Resent += o.Resent
		st.Batches += o.Batches
		st.Recovers += o.Recovers
		st.Gaps += o.Gaps
		st.Duplicates += o.Duplicates
		st.FenceMisses += o.FenceMisses
		st.Timeouts += o.Timeouts
		st.Regressions += o.Regressions
	}
	cuts, dropped, late := s.b.faults()
	s.t.Logf("R%d: %d server kills · %d edge kills · %d cuts (%d bytes late) · %d acks dropped · %.0f s",
		s.replicas, s.b.kills, s.edged, cuts, late, dropped, took.Seconds())
	s.t.Logf("publishers: %d messages, %d of them again · %d batches · %d recoveries · %d gaps · %d duplicates refused · %d fence misses · %d timeouts",
		st.Messages, st.Resent, st.Batches, st.Recovers, st.Gaps, st.Duplicates, st.FenceMisses, st.Timeouts)
	if s.b.kills < s.kills || s.edged < s.edges || cuts == 0 || dropped == 0 {
		s.t.Errorf("fewer faults than planned: %+v", s.plan)
	}
}

// The whole of it must be able to fail: a publisher without ids that sends again
// what was not acknowledged is caught.
func TestChaosCatchesPlainPublisher(t *testing.T) {
	b := startBroker(t, 1)
	const n = 500
	b.proxies[0].drop.Store(100)
	nc, err := nats.Connect(b.urls(true))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	g := newGenerator("plain")
	g.grow(n, true)
	var unacked []*nats.Msg
	send := func(m *nats.Msg) nats.PubAckFuture {
		f, err := js.PublishMsgAsync(m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	var futures []nats.PubAckFuture
	for seq := uint64(1); seq <= n; seq++ {
		futures = append(futures, send(plainMsg(frame("plain", seq))))
	}
	patient, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, f := range futures {
		select {
		case <-f.Ok():
		case <-patient.Done():
			unacked = append(unacked, f.Msg())
		}
	}
	b.proxies[0].drop.Store(0)
	for _, m := range unacked {
		m.Reply = ""
		<-send(m).Ok()
	}
	f := check(t, b, map[string]uint64{"plain": n})
	if f.Doubled == 0 || f.Doubled != len(unacked) || f.Lost > 0 {
		t.Errorf("%d acks were dropped and the check found %+v", len(unacked), f)
	}
}

func plainMsg(e *event.Event) *nats.Msg {
	s := subject.Event{Tenant: e.Tenant, Run: e.Run, Session: e.Session, Task: e.Task, Kind: string(e.Kind)}
	m := &nats.Msg{Subject: s.String(), Data: e.Data, Header: nats.Header{}}
	e.Attributes(func(name, value string) { m.Header[event.HeaderPrefix+name] = []string{value} })
	return m
}
