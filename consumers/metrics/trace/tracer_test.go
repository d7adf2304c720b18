package trace

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/testbus"
)

// Every run on the bus gets to the collector, each span once; with room for one run only
// as well, where each event of another run has its run read again.
func TestRuns(t *testing.T) {
	for _, room := range []int{0, 1} {
		_, b := testbus.Start(t, testbus.Streams)
		f := newFake(t)
		runs := runsOf(t, some...)
		for n := 1; ; n += 7 { // interleaved
			more := false
			for _, run := range sortedKeys(runs) {
				events := runs[run]
				publish(t, b, events, min(n, len(events)))
				more = more || n < len(events)
			}
			if !more {
				break
			}
		}
		o := options(t, b, f)
		o.MaxRuns = room
		tr, stop := startTracer(t, o)
		f.wait(t, "all roots", func(f *fake) bool {
			return !slices.ContainsFunc(sortedKeys(runs), func(run string) bool { return !f.has(run) })
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want(runs), f.byID()); d != "" {
			t.Errorf("room for %d: spans by id (-want +got):\n%s", room, d)
		}
		if n := value(t, tr.n.rebuilds); (n > 0) != (room == 1) {
			t.Errorf("room for %d: %v runs read again", room, n)
		}
		if n := value(t, tr.n.runs); n != float64(len(runs)) {
			t.Errorf("%v runs counted", n)
		}
	}
}

// What a tracer has sent and not acknowledged is sent again by the next one, with the
// same ids and the same content. What was acknowledged is not.
func TestRestart(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := newFake(t)
	runs := runsOf(t, some...)
	cut := func(events []*event.Event) int { return len(events) / 2 }
	for _, events := range runs {
		publish(t, b, events, cut(events))
	}
	o := options(t, b, f)
	_, stop := startTracer(t, o)
	f.wait(t, "the first spans", func(f *fake) bool { return len(f.spans) > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	first := f.byID()

	// This one's words get to the collector, and its answer is lost.
	f.say(func(w http.ResponseWriter, spans []*tracepb.Span) bool {
		f.spans = append(f.spans, spans...)
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	for _, events := range runs {
		publish(t, b, events, len(events))
	}
	before := len(f.spans)
	_, stop = startTracer(t, o)
	f.wait(t, "an unanswered request", func(f *fake) bool { return len(f.spans) > before })
	if err := stop(); err == nil {
		t.Error("it ended well, and the collector has nothing")
	}

	f.say(nil)
	_, stop = startTracer(t, o)
	f.wait(t, "all roots", func(f *fake) bool {
		return !slices.ContainsFunc(sortedKeys(runs), func(run string) bool { return !f.has(run) })
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	all := f.byID()
	for id := range want(runs) {
		if all[id] == 0 {
			t.Errorf("span %x is missing", id)
		}
		if first[id] > 0 && all[id] != 1 {
			t.Errorf("span %x was acknowledged and sent %d times", id, all[id])
		}
	}
	if len(all) != len(want(runs)) {
		t.Errorf("%d spans, want %d", len(all), len(want(runs)))
	}
	same(t, f.spans)
}

// same checks that spans of one id are equal.
func same(t *testing.T, spans []*tracepb.Span) {
	t.Helper()
	seen := map[string]string{}
	for _, s := range spans {
		id, text := string(s.SpanId), s.String()
		if old, ok := seen[id]; ok && strings.ReplaceAll(old, " ", "") != strings.ReplaceAll(text, " ", "") {
			t.Errorf("span %x differs:\n%s\n%s", id, old, text)
		}
		seen[id] = text
	}
}

// A collector that is away, busy or set up wrongly holds everything up and loses nothing;
// the program says what is wrong.
func TestCollectorAway(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, []*tracepb.Span) bool{
		"busy": refuse(429, "Retry-After", "0"), "down": refuse(503), "broken": refuse(500), "no such path": refuse(404),
		"no leave": refuse(401), "moved": refuse(307, "Location", "http://127.0.0.1:1/"),
	} {
		t.Run(name, func(t *testing.T) {
			_, b := testbus.Start(t, testbus.Streams)
			f := newFake(t)
			f.say(answer)
			runs := runsOf(t, some[:2]...)
			for _, events := range runs {
				publish(t, b, events, len(events))
			}
			tr, stop := startTracer(t, options(t, b, f))
			f.wait(t, "a second try", func(f *fake) bool { return f.asked > 1 })
			f.wait(t, "a word of it", func(*fake) bool { return tr.Ready() != nil && tr.Consumer().Status().Unacked > 0 })
			f.say(nil)
			f.wait(t, "all roots", func(f *fake) bool {
				return !slices.ContainsFunc(sortedKeys(runs), func(run string) bool { return !f.has(run) })
			})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want(runs), f.byID()); d != "" {
				t.Errorf("spans by id (-want +got):\n%s", d)
			}
			if st := tr.Consumer().Status(); st.Dead > 0 {
				t.Errorf("%d dead letters", st.Dead)
			}
		})
	}
}

// A span that the collector refuses for good is a dead letter, and all others get there.
func TestRefused(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := newFake(t)
	f.say(func(w http.ResponseWriter, spans []*tracepb.Span) bool {
		if slices.ContainsFunc(spans, func(s *tracepb.Span) bool { return s.Name == "execute_tool Agent" }) {
			http.Error(w, "bad span", http.StatusBadRequest)
			return false
		}
		return true
	})
	runs := runsOf(t, some[:2]...)
	for _, events := range runs {
		publish(t, b, events, len(events))
	}
	o := options(t, b, f)
	tr, stop := startTracer(t, o)
	f.wait(t, "all roots", func(f *fake) bool {
		return !slices.ContainsFunc(sortedKeys(runs), func(run string) bool { return !f.has(run) })
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got, all := len(f.byID()), len(want(runs)); got != all-1 {
		t.Errorf("%d spans of %d", got, all)
	}
	ids, err := tr.Consumer().Dead().IDs()
	if err != nil || len(ids) != 1 {
		t.Fatalf("dead letters: %v, %v", ids, err)
	}
	d, err := tr.Consumer().Dead().Read(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.Reason, "400") || !strings.Contains(d.Reason, "bad span") || len(d.Data) == 0 || d.Run == "" {
		t.Errorf("letter: %+v", d)
	}
	if n := value(t, tr.n.dead); n != 1 {
		t.Errorf("%v counted", n)
	}
}

// Lost runs are sent off when they are not waited for any more, and not before; once, also
// after a restart. One that came back is not sent off as lost.
func TestLostRuns(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := newFake(t)
	runs := runsOf(t, some[:3]...)
	names := sortedKeys(runs)
	for _, run := range names {
		publish(t, b, runs[run], len(runs[run])-1) // all but the exit
		fact(t, b, run, event.TypeLost, "lost")
	}
	fact(t, b, names[1], event.TypeResumed, "resumed")
	publish(t, b, runs[names[2]], len(runs[names[2]])) // it ended after all

	o := options(t, b, f)
	tr, stop := startTracer(t, o)
	f.wait(t, "the one that ended", func(f *fake) bool { return f.has(names[2]) })
	waitFor(t, tr, func(st consume.Status) bool { return st.Lag == 0 && st.Unacked == 0 })
	if err := tr.settleLost(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wait(t, "nothing", func(f *fake) bool { return !f.has(names[0]) && !f.has(names[1]) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	// A day later, in another process.
	o.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	tr, stop = startTracer(t, o)
	waitFor(t, tr, func(st consume.Status) bool { return st.Ready && !st.Standby && st.Lag == 0 })
	settled := func() {
		if err := tr.settleLost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	settled()
	f.wait(t, "the lost one", func(f *fake) bool { return f.has(names[0]) && !f.has(names[1]) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	tr, stop = startTracer(t, o)
	waitFor(t, tr, func(st consume.Status) bool { return st.Ready })
	settled()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for id, n := range f.byID() {
		if n != 1 {
			t.Errorf("span %x was sent %d times", id, n)
		}
	}
	for _, s := range f.spans {
		if s.Name == "run claude" && attrOf(s, "cbcast.verdict") == "lost" && s.Status.Code != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("lost: %v", s)
		}
	}
}

// waitFor waits for a state of the consumer, which tells nobody when it changes.
func waitFor(t *testing.T, tr *Tracer, ok func(consume.Status) bool) {
	t.Helper()
	look, limit := time.NewTicker(time.Millisecond), time.After(long)
	defer look.Stop()
	for !ok(tr.Consumer().Status()) {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("waited in vain: %+v", tr.Consumer().Status())
		}
	}
}

// Two tracers: one waits, and takes over what the other has not done.
func TestStandby(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := newFake(t)
	runs := runsOf(t, some...)
	o := options(t, b, f)
	_, stop1 := startTracer(t, o)
	for _, events := range runs {
		publish(t, b, events, len(events)/2)
	}
	f.wait(t, "the first spans", func(f *fake) bool { return len(f.spans) > 0 })
	o.Dir = filepath.Join(t.TempDir(), "second")
	_, stop2 := startTracer(t, o)
	if err := stop1(); err != nil {
		t.Fatal(err)
	}
	for _, events := range runs {
		publish(t, b, events, len(events))
	}
	f.wait(t, "all roots", func(f *fake) bool {
		return !slices.ContainsFunc(sortedKeys(runs), func(run string) bool { return !f.has(run) })
	})
	if err := stop2(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want(runs), f.byID()); d != "" {
		t.Errorf("spans by id (-want +got):\n%s", d)
	}
}

// fact puts a fact that no edge wrote on the bus.
func fact(t *testing.T, b interface {
	Decide(ctx context.Context, e *event.Event, what string) (*event.Event, bool, error)
}, run, typ, what string,
) {
	t.Helper()
	e := &event.Event{
		Tenant: "acme", Run: run, Ref: what, Time: time.Now(), Type: typ, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON,
		Data: []byte(`{"reason":"presence"}`),
	}
	if _, _, err := b.Decide(t.Context(), e, what); err != nil {
		t.Fatal(err)
	}
}

// A directory that another one holds is an error, and so are options that cannot work.
func TestOptions(t *testing.T) {
	_, b := testbus.Start(t, testbus.Streams)
	f := newFake(t)
	o := options(t, b, f)
	tr, stop := startTracer(t, o)
	waitFor(t, tr, func(st consume.Status) bool { return st.Ready })
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, consume.ErrDirUsed) {
		t.Errorf("a second one in the same directory: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"", "collector:4318", "ftp://h/", "http://", "http://user:secret@h:x/"} {
		o.Collector.Endpoint = endpoint
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	o = options(t, b, f)
	o.Dir = ""
	if _, err := New(o); err == nil {
		t.Error("no directory is fine")
	}
	_ = os.Remove(o.Dir)
}
