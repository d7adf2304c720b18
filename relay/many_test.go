package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// parted is a rig with three partitions.
func parted(t testing.TB) *rig {
	top := small()
	top.Partitions = 3
	return newRig(t, top)
}

// partedRelay is a relay that reads them.
func (r *rig) partedRelay(cfg relay.Config) *served {
	r.t.Helper()
	return r.serveAll(cfg, 3)
}

// runIn is the id of a run that is in the partition p of three.
func runIn(p int, name string) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint(name, "-", n); subject.Partition(id, 3) == p {
			return id
		}
	}
}

// edges is a run in each partition.
func (r *rig) edges() []*edge {
	var all []*edge
	for p := range 3 {
		all = append(all, r.edgeIn(runIn(p, "run"), p))
	}
	return all
}

// A manyClient follows many runs, as a client that comes back does.
type manyClient struct {
	t      testing.TB
	at     string // the cursor
	seen   map[string][]string
	resets int
}

func newManyClient(t testing.TB) *manyClient { return &manyClient{t: t, seen: map[string][]string{}} }

// open connects with the cursor it has.
func (m *manyClient) open(s *served, query string) *client {
	m.t.Helper()
	h := map[string]string{}
	if m.at != "" {
		h["Last-Event-ID"] = m.at
	}
	c := s.stream("/v1/stream"+query, h)
	if c.res.StatusCode != http.StatusOK {
		m.t.Fatalf("status %d", c.res.StatusCode)
	}
	return c
}

// note keeps what an event says.
func (m *manyClient) note(e sseEvent) {
	if e.id != "" {
		m.at = e.id
	}
	switch e.name {
	case "ready", "run":
	case "gap", "reset":
		m.resets++
	default:
		var v struct {
			ID, Source string
		}
		if err := json.Unmarshal([]byte(e.data), &v); err != nil {
			m.t.Fatalf("%s %.100q: %v", e.name, e.data, err)
		}
		run := v.Source[strings.LastIndexByte(v.Source, '/')+1:]
		m.seen[run] = append(m.seen[run], strings.TrimPrefix(v.ID, run+"/"))
	}
}

// until reads until ok, which is asked after each event.
func (m *manyClient) until(c *client, ok func(e sseEvent) bool) {
	m.t.Helper()
	for e, more := c.next(); more; e, more = c.next() {
		m.note(e)
		if ok(e) {
			return
		}
	}
	m.t.Fatalf("the stream ended: %v; seen %v", c.sc.Err(), m.seen)
}

func (m *manyClient) ready(c *client) {
	m.t.Helper()
	m.until(c, func(e sseEvent) bool { return e.name == "ready" })
}

func seqs(from, to int) (list []string) {
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return list
}

func has(m *manyClient, run string, n int) bool { return len(m.seen[run]) >= n }

// A client of many runs gets each event of each partition once and in order, over
// cuts at any event, other relays and relays that begin anew; what is longer than
// a message is whole wherever the cut was.
func TestManyResumesAnywhere(t *testing.T) {
	r := parted(t)
	relays := []*served{r.partedRelay(relay.Config{}), r.partedRelay(relay.Config{QueueBytes: 1})}
	runs := r.edges()
	m := newManyClient(t)
	m.ready(m.open(relays[0], "?runs=none"))

	const each = 30
	want := map[string][]string{}
	for n := range each {
		for _, e := range runs {
			ev := note(n)
			if n%10 == 7 {
				ev.Data = []byte(`{"long":"` + strings.Repeat("x", 600<<10) + `"}`)
			}
			e.emit(ev)
		}
	}
	for _, e := range runs {
		e.emit(exited())
		last := 0
		for n := range each {
			if last++; n%10 == 7 {
				last += 2
			}
			first := last
			if n%10 == 7 {
				first -= 2
			}
			want[e.ref.Run] = append(want[e.ref.Run], fmt.Sprint(first))
		}
		want[e.ref.Run] = append(want[e.ref.Run], fmt.Sprint(last+1))
	}
	all := func() bool {
		for run, w := range want {
			if !has(m, run, len(w)) {
				return false
			}
		}
		return true
	}
	for n := 0; !all(); n++ {
		if n == 6 {
			relays[1].stop()
			relays[1] = r.partedRelay(relay.Config{})
		}
		c := m.open(relays[n%2], "?runs=none")
		took := 0
		m.until(c, func(e sseEvent) bool {
			if e.name != "ready" {
				took++
			}
			return took == 1+n%7 || all()
		})
		c.close()
	}
	if d := cmp.Diff(want, m.seen); d != "" || m.resets > 0 {
		t.Errorf("%d resets; seen (-want +got):\n%s", m.resets, d)
	}
	c := m.open(relays[0], "?runs=none")
	m.ready(c)
	runs[0].emit(note(1))
	m.until(c, func(e sseEvent) bool { return e.name == "msg" })
	if d := cmp.Diff(len(want[runs[0].ref.Run])+1, len(m.seen[runs[0].ref.Run])); d != "" {
		t.Errorf("the next event is not the next: %v", m.seen[runs[0].ref.Run])
	}
}

// The list lives on the stream: what there is, then what changes.
func TestManyList(t *testing.T) {
	r := silentRig(t)
	old := r.edge("r1")
	waits := r.edge("r2")
	waits.info.State, waits.info.WaitingFor = "waiting", "approval"
	waits.info.Started = old.info.Started.Add(-time.Hour)
	waits.register()
	s := r.relay(relay.Config{})
	s.until(func() bool {
		var l relay.RunList
		s.get("/v1/runs?state=waiting", nil).into(t, &l)
		return len(l.Runs) == 1
	})

	c := s.stream("/v1/stream?runs=only&limit=10", nil)
	next := func() string {
		t.Helper()
		e, ok := c.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.id != "" {
			t.Errorf("a list has the cursor %q", e.id)
		}
		var v struct {
			Run, State           string
			Alive, Matches, Gone bool
			Runs                 int
			More                 bool
		}
		if err := json.Unmarshal([]byte(e.data), &v); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %+v", e.name, v)
	}
	entry := func(run, state string, alive, matches, gone bool) string {
		return fmt.Sprintf("run {Run:%s State:%s Alive:%v Matches:%v Gone:%v Runs:0 More:false}", run, state, alive, matches, gone)
	}
	same := func(want string) {
		t.Helper()
		if got := next(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	same(entry("r2", "waiting", false, true, false))
	same(entry("r1", "working", false, true, false))
	same("ready {Run: State: Alive:false Matches:false Gone:false Runs:2 More:false}")
	old.present(24 * time.Hour)
	same(entry("r1", "working", true, true, false))
	third := r.edge("r3")
	same(entry("r3", "working", false, true, false))
	third.info.State = "done"
	third.register()
	same(entry("r3", "done", false, true, false))
	r.dropRun("r3")
	same(entry("r3", "", false, false, true))

	c = s.stream("/v1/stream?runs=only&state=working&limit=1", nil)
	same(entry("r1", "working", true, true, false))
	same("ready {Run: State: Alive:false Matches:false Gone:false Runs:1 More:false}")
	old.info.State = "idle"
	old.register()
	same(entry("r1", "idle", true, false, false))
	waits.info.State = "working"
	waits.register()
	same(entry("r2", "working", false, true, false))
}

// What does not match is not told, and a run that begins to match is from then on.
func TestManyFilters(t *testing.T) {
	r := newRig(t, small())
	s := r.relay(relay.Config{Heartbeat: 50 * time.Millisecond})
	claude, codex := r.edge("r1"), r.edge("r2")
	codex.info.Dialect = "codex"
	codex.register()
	ask := note(0)
	ask.Kind = event.Ask
	for _, q := range []struct {
		query string
		want  map[string][]string
	}{
		{"from=start", map[string][]string{"r1": {"1", "2", "3"}, "r2": {"1", "2", "3"}}},
		{"from=start&kind=ask,life", map[string][]string{"r1": {"2", "3"}, "r2": {"2", "3"}}},
		{"from=start&kind=ask", map[string][]string{"r1": {"2"}, "r2": {"2"}}},
		{"from=start&dialect=codex", map[string][]string{"r2": {"1", "2", "3"}}},
		{"from=start&state=working", map[string][]string{"r1": {"1", "2", "3"}, "r2": {"1", "2", "3"}}},
		{"from=start&state=waiting", map[string][]string{}},
		{"from=start&tenant=acme", map[string][]string{"r1": {"1", "2", "3"}, "r2": {"1", "2", "3"}}},
		{"from=start&tenant=other", map[string][]string{}},
		{"from=start&session=s9", map[string][]string{"r2": {"1", "2", "3"}}},
		{"", map[string][]string{}},
	} {
		if q.query == "from=start" {
			claude.emit(note(1), ask, exited())
			codex.info.Sessions = []string{"s9"}
			codex.register()
			codex.emit(note(1), ask, exited())
			claude.shipped()
			codex.shipped()
			s.until(func() bool {
				var l relay.RunList
				s.get("/v1/runs?session=s9", nil).into(t, &l)
				return len(l.Runs) == 1
			})
		}
		m := newManyClient(t)
		c := m.open(s, "?"+q.query)
		m.ready(c)
		// The cursor that stands alone comes when everything before was looked at.
		total := 0
		for _, w := range q.want {
			total += len(w)
		}
		for n := 0; n < total; {
			e, ok := c.next()
			if !ok {
				t.Fatalf("%s: ended", q.query)
			}
			m.note(e)
			if e.name != "run" {
				n++
			}
		}
		if d := cmp.Diff(q.want, m.seen); d != "" {
			t.Errorf("%s (-want +got):\n%s", q.query, d)
		}
		c.close()
	}

	m := newManyClient(t)
	c := m.open(s, "?state=idle")
	m.ready(c)
	begins := func(e *edge) {
		e.info.State = "idle"
		e.register()
		m.until(c, func(e sseEvent) bool { return e.name == "run" && strings.Contains(e.data, `"matches":true`) })
	}
	begins(codex)
	claude.emit(note(9))
	claude.shipped()
	codex.emit(note(9)) // behind the other: when it is told, that was looked at
	m.until(c, func(e sseEvent) bool { return e.name == "msg" })
	begins(claude)
	claude.emit(note(10))
	m.until(c, func(e sseEvent) bool { return e.name == "msg" })
	claude.info.State, claude.info.Updated = "working", time.Now()
	claude.register()
	m.until(c, func(e sseEvent) bool { return e.name == "run" && strings.Contains(e.data, `"matches":false`) })
	c.close()
	// What came while it was away is told also of what does not match any more.
	claude.emit(note(11))
	claude.shipped()
	m.until(m.open(s, "?state=idle"), func(e sseEvent) bool { return e.name == "msg" })
	if got := m.seen["r1"]; !slices.Equal(got, []string{"5", "6"}) {
		t.Errorf("r1: events %v, want 5 and 6", got)
	}
}

// A cursor is one of ours or an error; what the bus no longer has is said.
func TestManyCursors(t *testing.T) {
	r := parted(t)
	s := r.partedRelay(relay.Config{Heartbeat: 20 * time.Millisecond})
	runs := r.edges()
	m := newManyClient(t)
	c := m.open(s, "")
	m.ready(c)
	for _, bad := range []string{"x", m.at + "A", m.at[1:], strings.ToUpper(m.at), "1", strings.Repeat("A", 30_000), "=", "AQ"} {
		a := s.get("/v1/stream", map[string]string{"Last-Event-ID": bad})
		var e struct{ Code string }
		a.into(t, &e)
		if a.status != http.StatusBadRequest || e.Code != "bad_cursor" {
			t.Errorf("cursor %.40q: %d %s", bad, a.status, e.Code)
		}
	}
	for _, bad := range []string{"kind=x", "state=x", "runs=x", "from=x", "limit=0", "kind=,", "after=", "after=" + m.at + "&after=" + m.at} {
		if a := s.get("/v1/stream?"+bad, nil); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	for _, e := range runs {
		e.emit(notes(10)...)
		e.shipped()
	}
	m.until(c, func(sseEvent) bool { return has(m, runs[0].ref.Run, 3) })
	c.close()

	// Retention takes two events that were not told, in one partition. A relay that
	// has them in memory still tells them.
	r.purge(0, 6)
	s = r.partedRelay(relay.Config{Heartbeat: 20 * time.Millisecond})
	m.until(m.open(s, "?runs=none"), func(sseEvent) bool {
		return has(m, runs[0].ref.Run, 8) && has(m, runs[1].ref.Run, 10) && has(m, runs[2].ref.Run, 10)
	})
	if m.resets != 1 {
		t.Errorf("%d gaps were told, want 1", m.resets)
	}
	want := append(seqs(1, 3), seqs(6, 10)...)
	if d := cmp.Diff(want, m.seen[runs[0].ref.Run]); d != "" {
		t.Errorf("around the gap (-want +got):\n%s", d)
	}

	// The stream is made anew: everything that is stored from then on is told.
	r.recreate(1, 3)
	fresh := r.edgeIn(runIn(1, "fresh"), 1)
	fresh.emit(notes(3)...)
	fresh.shipped()
	m.resets = 0
	m.until(m.open(s, "?runs=none"), func(sseEvent) bool { return has(m, fresh.ref.Run, 3) })
	if m.resets != 1 {
		t.Errorf("%d resets were told, want 1", m.resets)
	}
	if d := cmp.Diff(seqs(1, 3), m.seen[fresh.ref.Run]); d != "" {
		t.Errorf("of the new stream (-want +got):\n%s", d)
	}
}

// A run's edge is gone: the fact has its place, too.
func TestManyLost(t *testing.T) {
	r := newRig(t, small())
	s := r.relay(relay.Config{})
	e := r.edge("r1")
	e.emit(note(1))
	e.shipped()
	m := newManyClient(t)
	m.until(m.open(s, "?runs=none&from=start"), func(got sseEvent) bool { return got.name == "msg" })
	now := time.Now().UTC()
	for _, f := range []struct {
		typ  string
		data any
	}{
		{event.TypeLost, relay.Lost{Synthesised: true, Reason: "presence_expired", Time: now}},
		{event.TypeResumed, map[string]time.Time{"time": now}},
	} {
		ev, typ := fact(f.typ, event.Life, f.data), f.typ
		ev.Tenant, ev.Run, ev.Ref, ev.Time = tenant, "r1", typ, time.Now()
		if _, err := r.bus.PutControl(t.Context(), &ev, subject.Liveness, bus.Any); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"lost", "resumed"} {
		c := m.open(s, "?runs=none")
		m.until(c, func(got sseEvent) bool {
			if got.name != "ready" && (got.name != want || got.id == "") {
				t.Errorf("event %+v, want %s", got, want)
			}
			return got.name != "ready"
		})
		c.close()
	}
}
