package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// pipes is a listener in memory: its connections belong to a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.done:
		return nil, errors.New("relay is gone")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// relayInBubble is like relay, without a network.
func (r *rig) relayInBubble(cfg relay.Config) *served {
	p := newPipes()
	s := r.serve(cfg, p, &http.Transport{DialContext: p.dial})
	s.patience = 48 * time.Hour // of the bubble's time
	return s
}

// renew keeps an edge present until the returned function is called.
func (e *edge) renew(ttl time.Duration) (stop func()) {
	e.present(ttl)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t := time.NewTicker(ttl / 3); ; {
			select {
			case <-t.C:
				e.present(ttl)
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	e.r.t.Cleanup(stop)
	return stop
}

func (s *served) doc(run string) relay.RunDoc {
	s.t.Helper()
	var d relay.RunDoc
	s.get("/v1/runs/"+run, nil).into(s.t, &d)
	return d
}

func (s *served) entry(run string) relay.RunEntry {
	s.t.Helper()
	var l relay.RunList
	s.get("/v1/runs", nil).into(s.t, &l)
	for _, e := range l.Runs {
		if e.Run == run {
			return e
		}
	}
	s.t.Fatalf("run %s is not listed", run)
	return relay.RunEntry{}
}

// words lists what liveness says of a run, in order.
func (r *rig) words(run string) string {
	r.t.Helper()
	var all []string
	for e, err := range r.bus.Controls(r.t.Context(), tenant, run) {
		if err != nil {
			r.t.Fatal(err)
		}
		switch e.Type {
		case event.TypeLost, event.TypeResumed:
			all = append(all, strings.TrimPrefix(e.Type, event.TypePrefix+"relay."))
		case event.TypeCommandFact:
			var d event.CommandFact
			_ = json.Unmarshal(e.Data, &d)
			all = append(all, string(d.Fact))
		}
	}
	return strings.Join(all, " ")
}

// resume says that a run's spool speaks again, as a flush does.
func (e *edge) resume() {
	e.r.t.Helper()
	_, seq, err := e.r.bus.Control(e.r.t.Context(), tenant, e.ref.Run, subject.Liveness)
	if err != nil {
		e.r.t.Fatal(err)
	}
	f := fact(event.TypeResumed, event.Life, map[string]any{"time": time.Now()})
	f.Tenant, f.Run, f.Ref, f.Time = tenant, e.ref.Run, "resumed-1", time.Now()
	if _, err := e.r.bus.PutControl(e.r.t.Context(), &f, subject.Liveness, seq); err != nil {
		e.r.t.Fatal(err)
	}
}

const (
	ttl   = 10 * time.Second
	grace = 15 * time.Second
)

// An edge dies; two relays watch: one lost, provisional, at the end of every
// stream. Its spool is flushed later: the late events are there, the true verdict
// holds everywhere (case 095).
func TestLostThenTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.edge("run-1")
		stop := e.renew(ttl)
		e.emit(fact(event.TypeStarted, event.Life, event.Started{Dialect: "claude", Argv: []string{"claude"}}), note(1))
		e.shipped()
		a, b := r.relayInBubble(relay.Config{}), r.relayInBubble(relay.Config{})
		time.Sleep(5 * time.Minute)
		c1, c2 := a.stream("/v1/runs/run-1/stream", nil), b.stream("/v1/runs/run-1/stream?after=1", nil)
		if got := ids(c1.take(2)) + "|" + ids(c2.take(1)); got != "1 2|2" {
			t.Errorf("before: %s", got)
		}
		rest1, rest2 := c1.later(), c2.later()
		time.Sleep(2 * time.Minute)
		if n := r.words("run-1"); n != "" {
			t.Errorf("while the edge lives: %q", n)
		}
		died := time.Now()
		stop()
		got := rest1()
		took := time.Since(died)
		if len(got) != 1 || got[0].name != "lost" || got[0].id != "" || !strings.Contains(got[0].data, `"synthesised":true`) {
			t.Errorf("after the edge died: %+v", got)
		}
		if c1.comments < 8 { // 2 minutes at 12 s
			t.Errorf("%d heartbeats", c1.comments)
		}
		if took < grace || took > ttl+grace+3*time.Second {
			t.Errorf("lost after %v", took)
		}
		if rest := rest2(); ids(rest) != "lost" {
			t.Errorf("the other relay's client: %s", ids(rest))
		}
		time.Sleep(time.Minute)
		if got := r.words("run-1"); got != "lost" {
			t.Errorf("control facts: %s", got)
		}
		for _, s := range []*served{a, b} {
			i, d := s.entry("run-1"), s.doc("run-1")
			if i.State != "lost" || i.Verdict != "lost" || i.Alive || d.State.State != "lost" || !d.State.Provisional {
				t.Errorf("list %+v, state %s", i, d.State.State)
			}
		}

		// Who comes back hears it again and is held.
		c1 = a.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": "2"})
		if got := c1.take(1); ids(got) != "lost" {
			t.Errorf("coming back: %s", ids(got))
		}
		rest1 = c1.later()
		time.Sleep(10 * time.Minute)
		// Twenty late frames and the exit, from the spool.
		e.resume()
		e.emit(notes(20)...)
		e.emit(exited())
		// The fact comes on a stream of its own: among the late frames, once.
		got2 := strings.Fields(ids(rest1()))
		at := slices.Index(got2, "resumed")
		if at < 0 || strings.Join(slices.Delete(got2, at, at+1), " ") != "3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23" {
			t.Errorf("the truth: %s", got2)
		}
		time.Sleep(time.Minute)
		for _, s := range []*served{a, b} {
			i, d := s.entry("run-1"), s.doc("run-1")
			if i.State != "done" || i.Verdict == "lost" || i.Verdict == "" || d.State.Verdict == nil || string(d.State.Verdict.Verdict) != i.Verdict {
				t.Errorf("list %s %s, state %s %v", i.State, i.Verdict, d.State.State, d.State.Verdict)
			}
			if got := s.get("/v1/runs/run-1/stream?after=23", nil); got.status != http.StatusNoContent {
				t.Errorf("after the end: %d", got.status)
			}
			if got := ids(s.stream("/v1/runs/run-1/stream?after=20", nil).all()); got != "21 22 23" {
				t.Errorf("replay: %s", got)
			}
		}
		if got := r.words("run-1"); got != "lost resumed" {
			t.Errorf("control facts at the end: %s", got)
		}
	})
}

// A relay that starts finds a run whose edge died while no relay was there, and
// says so once; a lost run is over after LostFinal.
func TestLostFoundAtStartAndFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.edge("run-1")
		e.present(ttl)
		e.emit(note(1))
		never := r.edge("run-2") // died before it was ever present
		never.emit(note(1))
		e.shipped()
		never.shipped()
		time.Sleep(time.Minute)
		s := r.relayInBubble(relay.Config{LostFinal: 30 * time.Minute})
		time.Sleep(time.Minute)
		if got := r.words("run-1") + "|" + r.words("run-2"); got != "lost|lost" {
			t.Errorf("control facts: %s", got)
		}
		s.stop()
		s = r.relayInBubble(relay.Config{LostFinal: 30 * time.Minute})
		c := s.stream("/v1/runs/run-1/stream", nil)
		if got := ids(c.take(2)); got != "1 lost" {
			t.Errorf("stream: %s", got)
		}
		from := time.Now()
		if got := ids(c.all()); got != "" {
			t.Errorf("held: %s", got)
		}
		if d := time.Since(from); d < 25*time.Minute || d > 31*time.Minute {
			t.Errorf("held for %v", d)
		}
		if got := s.get("/v1/runs/run-1/stream?after=1", nil); got.status != http.StatusNoContent {
			t.Errorf("after the final time: %d", got.status)
		}
		if got := ids(s.stream("/v1/runs/run-1/stream", nil).all()); got != "1 lost" {
			t.Errorf("replay after the final time: %s", got)
		}
		if got := r.words("run-1"); got != "lost" {
			t.Errorf("control facts: %s", got)
		}
	})
}

// An exit event whose edge died before it could write the registry.
func TestVerdictOfDeadEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		s := r.relayInBubble(relay.Config{})
		e := r.edge("run-1")
		e.present(ttl)
		e.emit(note(1), exited())
		e.shipped()
		time.Sleep(time.Minute)
		if i := s.entry("run-1"); i.State != "done" || i.Verdict == "" || i.LastSeq != 2 {
			t.Errorf("list: %+v", i)
		}
		if got := r.words("run-1"); got != "" {
			t.Errorf("control facts: %s", got)
		}
	})
}

func TestCommandFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		s := r.relayInBubble(relay.Config{})
		e := r.edge("run-1")
		stop := e.renew(ttl)
		e.emit(note(1))
		e.shipped()
		post := func(body string, h map[string]string) relay.CommandAccepted {
			t.Helper()
			a := s.post("/v1/runs/run-1/interrupt", body, h)
			var c relay.CommandAccepted
			if a.into(t, &c); a.status != http.StatusAccepted {
				t.Fatalf("%d %s", a.status, a.body)
			}
			return c
		}
		state := func(id string) (relay.CommandDoc, string) {
			t.Helper()
			var d relay.CommandDoc
			s.get("/v1/commands/"+id, nil).into(t, &d)
			var facts []string
			for _, f := range d.Facts {
				facts = append(facts, string(f.Fact))
			}
			return d, strings.Join(facts, " ")
		}
		say := func(id string, f event.Fact) {
			e.emit(fact(event.TypeCommand, event.Cmd, event.CommandFact{Command: id, Name: "interrupt", Fact: f}))
			e.shipped()
			synctest.Wait()
		}
		got := post(`{"reason":"wrong branch"}`, map[string]string{"Idempotency-Key": "k1"})
		want := relay.CommandAccepted{Command: "k1", Run: "run-1", Name: "interrupt", State: "accepted", Facts: "/v1/commands/k1"}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		cmd, err := r.bus.FindCommand(t.Context(), "k1")
		if err != nil || string(cmd.Data) != `{"reason":"wrong branch"}` || cmd.Actor != "local" || cmd.From == "" ||
			cmd.DeliverBy.Sub(cmd.Time) != 30*time.Second || cmd.EffectBy.Sub(cmd.Time) != time.Minute {
			t.Errorf("on the bus: %+v %s, %v", cmd, cmd.Data, err)
		}
		audit, _, err := r.bus.Control(t.Context(), tenant, "run-1", subject.Audit("k1"))
		var a relay.Audit
		if err != nil || json.Unmarshal(audit.Data, &a) != nil || a.Actor != "local" || a.From == "" || a.Reason != "wrong branch" {
			t.Errorf("audit %+v, %v", a, err)
		}
		if got := post("", map[string]string{"Idempotency-Key": "k1"}); !got.Duplicate || got.Command != "k1" {
			t.Errorf("again: %+v", got)
		}
		if got := s.post("/v1/runs/run-1/interrupt", `{"task":"t1","id":"k1"}`, nil); got.status != http.StatusConflict {
			t.Errorf("the same id for another command: %d", got.status)
		}
		if d, facts := state("k1"); d.State != "accepted" || facts != "accepted" || d.Reason != "wrong branch" {
			t.Errorf("%s: %s", d.State, facts)
		}
		say("k1", event.Written)
		if d, facts := state("k1"); d.State != "written" || facts != "accepted written" || d.Facts[1].Seq != 2 || d.Facts[1].By != "edge" {
			t.Errorf("%s: %s", d.State, facts)
		}
		time.Sleep(5 * time.Second)
		if d, _ := state("k1"); d.State != "sent_not_acked" || d.Final {
			t.Errorf("5 s later: %s", d.State)
		}
		say("k1", event.Acked)
		say("k1", event.Settled)
		if d, facts := state("k1"); d.State != "settled" || !d.Final || facts != "accepted written acked settled" {
			t.Errorf("%s: %s", d.State, facts)
		}

		// The edge dies with one command on the child's stdin and one not taken;
		// a third comes when it is gone.
		post(`{"id":"k2"}`, nil)
		say("k2", event.Written)
		post(`{"id":"k3","task":"t1"}`, nil)
		stop()
		time.Sleep(2 * ttl)
		post(`{"id":"k4","deliver_within":1,"effect_within":1}`, nil)
		time.Sleep(3 * time.Minute)
		for id, want := range map[string]string{"k1": "settled", "k2": "unknown", "k3": "unknown", "k4": "expired"} {
			if d, facts := state(id); d.State != want || !d.Final {
				t.Errorf("%s: %s (%s), want %s", id, d.State, facts, want)
			}
		}
		if got := r.words("run-1"); strings.Count(got, "unknown") != 2 || strings.Count(got, "expired") != 1 || strings.Count(got, "lost") != 1 {
			t.Errorf("control facts: %s", got)
		}

		// After the end: nothing is written, and old ids still have their answer.
		e.emit(exited())
		e.shipped()
		ended := s.post("/v1/runs/run-1/interrupt", `{"id":"k5"}`, nil)
		var body relay.ErrorBody
		if ended.into(t, &body); ended.status != http.StatusConflict || body.Code != relay.CodeEnded {
			t.Errorf("after the end: %d %s", ended.status, ended.body)
		}
		if _, err := r.bus.FindCommand(t.Context(), "k5"); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("k5 is on the bus: %v", err)
		}
		if got := post(`{"id":"k4"}`, nil); !got.Duplicate {
			t.Errorf("k4 again: %+v", got)
		}
	})
}

// Commands outlive a relay: another one says what became of them.
func TestCommandOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		s := r.relayInBubble(relay.Config{})
		e := r.edge("run-1")
		e.emit(note(1))
		e.shipped()
		first := s.post("/v1/runs/run-1/interrupt", `{"id":"k1"}`, nil)
		s.stop()
		s = r.relayInBubble(relay.Config{})
		again := s.post("/v1/runs/run-1/interrupt", `{"id":"k1"}`, nil)
		var a, b relay.CommandAccepted
		first.into(t, &a)
		again.into(t, &b)
		if b.Duplicate = false; a != b {
			t.Errorf("answers differ: %+v %+v", a, b)
		}
		other := r.relayInBubble(relay.Config{})
		time.Sleep(2 * time.Minute)
		if got := r.words("run-1"); strings.Count(got, "expired") != 1 || strings.Contains(got, "unknown") {
			t.Errorf("control facts: %s", got)
		}
		time.Sleep(20 * time.Minute)
		if _, err := r.bus.FindCommand(t.Context(), "k1"); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("k1 is still on the bus: %v", err)
		}
		var d relay.CommandDoc
		other.get("/v1/commands/k1", nil).into(t, &d)
		if d.State != "expired" || len(d.Facts) != 2 || d.Facts[0].At.IsZero() || d.Run != "run-1" {
			t.Errorf("when it has left the bus: %+v", d)
		}
		again = other.post("/v1/runs/run-1/interrupt", `{"id":"k1"}`, nil)
		if again.into(t, &b); again.status != http.StatusAccepted || !b.Duplicate {
			t.Errorf("given again then: %d %s", again.status, again.body)
		}
		c := other.stream("/v1/runs/run-1/stream", nil)
		if got := ids(c.take(2)); got != "1 lost" {
			t.Errorf("stream: %s", got)
		}
	})
}
