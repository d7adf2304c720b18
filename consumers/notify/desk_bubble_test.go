package notify

import (
	cmp2 "cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// A told is a notice as a place got it.
type tell struct {
	after time.Duration // since the bench began
	what  string        // "dest: kind run note"
	n     sink.Notice
}

// A bench is a notifier without a bus, with places that note what they get. It runs in
// a bubble, where time is made up.
type bench struct {
	t     *testing.T
	dir   string
	rules string
	reply map[string]func(n *sink.Notice) sink.Outcome // by destination
	caps  map[string]sink.Capabilities

	n     *Notifier
	stop  func()
	began time.Time
	runs  map[string]*run.State

	mu  sync.Mutex
	got []tell
}

// place is one destination of a bench.
type place struct {
	b    *bench
	name string
}

func (p *place) Name() string                    { return p.name }
func (p *place) Capabilities() sink.Capabilities { return p.b.caps[p.name] }
func (p *place) Lane(n *sink.Notice) string      { return n.To }
func (p *place) Close() error                    { return nil }

func (p *place) Send(_ context.Context, n *sink.Notice) sink.Outcome {
	p.b.mu.Lock()
	what := strings.TrimSpace(fmt.Sprintf("%s: %s %s", p.name, n.Kind, n.Run))
	if n.Note != "" {
		what += ", " + n.Note
	}
	if n.Mention != "" {
		what += " " + n.Mention
	}
	p.b.got = append(p.b.got, tell{time.Since(p.b.began), strings.TrimSpace(what), *n})
	f := p.b.reply[p.name]
	p.b.mu.Unlock()
	if f != nil {
		return f(n)
	}
	return sink.Outcome{Verdict: sink.Delivered}
}

// answer says what a place answers from now on; nil is delivered.
func (b *bench) answer(name string, f func(*sink.Notice) sink.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reply[name] = f
}

// newBench starts a bench with rules whose destinations are all called to.
func newBench(t *testing.T, rules string) *bench {
	b := &bench{
		t: t, dir: t.TempDir(), runs: map[string]*run.State{}, began: time.Now(),
		reply: map[string]func(*sink.Notice) sink.Outcome{}, caps: map[string]sink.Capabilities{},
	}
	b.rules = filepath.Join(b.dir, "rules.yaml")
	if err := os.WriteFile(b.rules, []byte("version: 1\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	return b
}

func (b *bench) start() {
	b.t.Helper()
	n, err := New(Options{Dir: filepath.Join(b.dir, "state"), Config: Config{Rules: b.rules}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.t.Fatal(err)
	}
	for name, h := range n.d.sinks {
		_ = h.Close()
		h.Sink = &place{b, name}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop := n.deliver(ctx, &wg)
	b.n = n
	b.stop = func() {
		cancel()
		stop()
		wg.Wait()
		if err := n.Close(); err != nil {
			b.t.Error(err)
		}
	}
}

// play folds events of a run and lets the notifier decide on each.
func (b *bench) play(events ...*event.Event) {
	b.t.Helper()
	for _, e := range events {
		if b.runs[e.Run] == nil {
			b.runs[e.Run] = run.New(e.Run)
		}
		b.runs[e.Run].Apply(e)
		if err := b.n.d.decide(e, b.runs[e.Run], time.Now()); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.n.d.commit(); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

func (b *bench) whats() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.got {
		list = append(list, g.what)
	}
	return list
}

// want compares what was told since the last call, with the times in full seconds
// where with is set.
func (b *bench) want(with bool, want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	var got []string
	slices.SortStableFunc(b.got, func(x, y tell) int { // lanes have no order among them
		return cmp2.Or(cmp2.Compare(x.after, y.after), cmp2.Compare(x.n.To+x.what[:1], y.n.To+y.what[:1]))
	})
	for _, g := range b.got {
		s := g.what
		if with {
			s = g.after.Truncate(time.Second).String() + " " + s
		}
		got = append(got, s)
	}
	b.got = nil
	b.mu.Unlock()
	if d := cmp.Diff(want, got); d != "" {
		b.t.Errorf("told (-want +got):\n%s", d)
	}
}

// counter is the sum of a metric over the labels that hold words.
func (b *bench) counter(name string, words ...string) (sum float64) {
	b.t.Helper()
	all, err := b.n.Metrics().Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "cbcast_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			all := true
			for _, w := range words {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetValue() == w
				}
				all = all && found
			}
			if all {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

const (
	bInit = `{"type":"system","subtype":"init","session_id":"s1"}`
	bDone = `{"type":"result","subtype":"success","is_error":false,"session_id":"s1","num_turns":1,"result":"done"}`
)

// ran makes the events of a run that ends well.
func ran(run string, lines ...string) []*event.Event {
	c := &capture.Capture{Argv: []string{"claude"}}
	for _, l := range append([]string{bInit}, lines...) {
		c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: []byte(l)})
	}
	c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Exit})
	return capture.Events(c, "acme", run)
}

func asking(run string, asks ...string) []*event.Event {
	var lines []string
	for _, a := range asks {
		lines = append(lines, fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls %s"},"tool_use_id":"t%s"},"session_id":"s1"}`, a, a, a))
	}
	return ran(run, append(lines, bDone)...)
}

// asked cuts events behind the first ask.
func asked(events []*event.Event) (before, after []*event.Event) {
	i := slices.IndexFunc(events, func(e *event.Event) bool { return e.Kind == event.Ask })
	return events[:i+1], events[i+1:]
}

const twoHooks = `
destinations:
  a: {type: webhook, url: http://example.com}
  b: {type: webhook, url: http://example.com}
`

func retry(n *sink.Notice) sink.Outcome {
	return sink.Outcome{Verdict: sink.Retry, Err: errors.New("refused")}
}

// What fails is tried at the ladder's times and given up behind its last step; the
// other destination has had it at once.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, twoHooks[:len(twoHooks)-1]+"\nrules: [{name: all, to: [a, b]}]\n")
		b.n.d.rules.Destinations["a"].Retry.MaxAge = Duration(1000 * time.Hour)
		b.answer("a", retry)
		b.play(ran("r1", bDone)...)
		time.Sleep(200 * time.Hour)
		synctest.Wait()
		b.mu.Lock()
		var tries []time.Duration
		for _, g := range b.got {
			if strings.HasPrefix(g.what, "a:") {
				tries = append(tries, g.after)
			} else if g.after != 0 {
				t.Errorf("the other one waited %v", g.after)
			}
			if g.n.ID != b.got[0].n.ID {
				t.Errorf("id %s, want %s", g.n.ID, b.got[0].n.ID)
			}
		}
		b.mu.Unlock()
		if len(tries) != len(ladder)+1 {
			t.Fatalf("%d attempts, want %d", len(tries), len(ladder)+1)
		}
		for i, step := range ladder {
			// A breaker that is open adds at most its own time.
			if gap := tries[i+1] - tries[i]; gap < step || gap > step+step/5+breakerMax {
				t.Errorf("attempt %d came %v behind the last, want %v and up to a fifth", i+2, gap, step)
			}
		}
		if n := b.counter("notifications_total", "a", "dead"); n != 1 {
			t.Errorf("%v dead, want 1", n)
		}
		b.stop()
		if list, err := Dead(filepath.Join(b.dir, "state")); err != nil || len(list) != 1 || list[0].Run != "r1" {
			t.Errorf("letters %+v, %v", list, err)
		}
	})
}

// A destination that is busy is left alone as long as it says, what waits for it is
// told as one, and nobody else waits. 106 prometheus/alertmanager#2111.
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, `
destinations:
  a: {type: slack_webhook, url: http://example.com, rate: {every: 1ms, burst: 1000}}
  b: {type: webhook, url: http://example.com}
rules: [{name: all, to: [a, b]}]
`)
		n := 0
		b.answer("a", func(*sink.Notice) sink.Outcome {
			switch n++; n {
			case 1, 5:
				return sink.Outcome{Verdict: sink.Delivered}
			case 2:
				return sink.Outcome{Verdict: sink.Retry, Throttled: true, After: 7 * time.Second}
			case 3:
				return sink.Outcome{Verdict: sink.Retry, Throttled: true, After: 2 * time.Hour}
			}
			return sink.Outcome{Verdict: sink.Retry, Throttled: true}
		})
		for i := range 30 {
			b.play(ran(fmt.Sprint("r", i), bDone)...)
		}
		b.stop() // it is left alone by the next one, too
		b.start()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		var at []time.Duration
		var last sink.Notice
		others := 0
		b.mu.Lock()
		for _, g := range b.got {
			if strings.HasPrefix(g.what, "a:") {
				at, last = append(at, g.after), g.n
				continue
			}
			if others++; g.after != 0 {
				t.Errorf("the other destination waited %v", g.after)
			}
		}
		b.mu.Unlock()
		if d := cmp.Diff([]time.Duration{0, 0, 7 * time.Second, 7*time.Second + maxAfter, 7*time.Second + maxAfter + throttledFor}, at); d != "" {
			t.Errorf("attempts (-want +got):\n%s", d)
		}
		if others != 30 || last.Kind != sink.Digest || len(last.Digest) != 29 || last.Note != "29 runs finished" {
			t.Errorf("%d at the other; the last notice: %s %q with %d lines", others, last.Kind, last.Note, len(last.Digest))
		}
		if n := b.counter("notifications_total", "a", "delivered"); n != 1 {
			t.Errorf("%v delivered since the restart, want 1", n)
		}
		b.stop()
	})
}

// An ask is told at once, again, and to others, until it is closed; a restart changes no time.
func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, twoHooks+`
rules:
  - name: asks
    match: {kind: waiting}
    to: [a]
    mention: "@here"
    waiting: {remind: [10m, 30m], escalate: {after: 20m, to: [b], mention: "@boss"}}
    group: {repeat: 1h}
`)
		b.caps["a"] = sink.Capabilities{Updates: true}
		before, after := asked(asking("r1", "q1"))
		b.play(before...)
		time.Sleep(15 * time.Minute)
		// A reminder has its own time, and that of the ask.
		b.mu.Lock()
		first, n := b.got[0].n, b.got[1].n
		b.mu.Unlock()
		if n.At.Sub(b.began).Truncate(time.Second) != 10*time.Minute || !n.Since.Equal(first.At) || !first.Since.IsZero() {
			t.Errorf("%s at %v, since %v, of %v", n.Kind, n.At, n.Since, first.At)
		}
		b.want(true, "0s a: waiting r1 @here", "10m0s a: reminder r1, reminder 1: open for 10m0s @here")
		b.stop()
		time.Sleep(10 * time.Minute) // its time comes while nobody is there
		b.start()
		time.Sleep(10 * time.Minute)
		b.want(true, "25m0s b: escalated r1, nobody has answered for 25m0s @boss",
			"30m0s a: reminder r1, reminder 2: open for 30m0s @here", "30m0s b: reminder r1, reminder 2: open for 30m0s @here")
		time.Sleep(time.Hour)
		b.want(true, "1h30m0s a: reminder r1, reminder 3: open for 1h30m0s @here", "1h30m0s b: reminder r1, reminder 3: open for 1h30m0s @here")
		b.play(after...)
		time.Sleep(10 * time.Hour)
		b.want(false, "a: answered r1, closed: cleared")
		if n := len(b.n.d.st.watches); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		b.stop()
	})
}

// Notices of a group are told as one: the first after the wait, more after the interval.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, twoHooks+"rules: [{name: all, to: [a], group: {by: [kind], wait: 30s, interval: 5m}}]\n")
		b.play(ran("r1", bDone)...)
		time.Sleep(10 * time.Second)
		b.play(ran("r2", bDone)...)
		before, _ := asked(asking("r3", "q1"))
		b.play(before...)
		time.Sleep(time.Minute)
		b.want(true, "10s a: waiting r3", "30s a: digest, 2 runs finished")
		b.play(ran("r4", bDone)...)
		b.stop() // the group is in the journal
		b.start()
		time.Sleep(time.Minute)
		b.play(ran("r5", bDone)...)
		time.Sleep(10 * time.Minute)
		b.want(true, "5m30s a: digest, 2 runs finished")
		b.play(ran("r6", bDone)...)
		time.Sleep(time.Minute)
		b.want(true, "12m40s a: finished r6")
		b.stop()
	})
}

// In quiet hours only what may pass is told; the rest comes as one at their end, and
// what is over by then not at all.
func TestQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The clock of a bubble begins at midnight UTC, 2000-01-01.
		b := newBench(t, `
destinations: {a: {type: slack_webhook, url: http://example.com}}
quiet: {night: {zone: UTC, from: "22:00", to: "07:00"}}
rules:
  - {name: urgent, match: {kind: [failed]}, to: [a], quiet: night, pass: failed}
  - {name: all, to: [a], quiet: night}
`)
		b.play(ran("r1", bDone)...)
		b.play(ran("r2", `{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1"}`)...)
		before, after := asked(asking("r3", "q1"))
		b.play(before...)
		time.Sleep(time.Hour)
		b.play(ran("r4", bDone)...)
		b.play(after...)
		b.stop()
		b.start()
		time.Sleep(12 * time.Hour)
		b.want(true, "0s a: failed r2", "7h0m0s a: digest, 3 runs finished")
		if n := b.counter("notifications_suppressed_total", "closed"); n != 0 { // of the process before
			t.Errorf("%v suppressed", n)
		}
		b.play(ran("r5", bDone)...)
		b.want(true, "13h0m0s a: finished r5")
		b.stop()
	})
}

// A destination that says it is gone is asked no more, its owner is told once, and a
// command takes it up again, with what it has missed.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "owner: [b]"+twoHooks+"rules: [{name: all, to: [a]}]\n")
		b.answer("a", func(*sink.Notice) sink.Outcome {
			return sink.Outcome{Verdict: sink.Gone, Err: errors.New("410 Gone")}
		})
		b.play(ran("r1", bDone)...)
		b.play(ran("r2", bDone)...)
		time.Sleep(time.Hour)
		text := "destination a is disabled: it says that it is gone; cbcast notify enable a takes it up again"
		b.want(false, "a: finished r1", "b: disabled, "+text)
		b.stop()
		b.start()
		b.play(ran("r3", bDone)...)
		time.Sleep(time.Hour)
		b.want(false)
		if n := b.counter("notification_destination_disabled", "a"); n != 1 {
			t.Errorf("disabled is %v", n)
		}
		b.answer("a", nil)
		if _, err := b.n.Do(Request{Enable: "a"}); err != nil {
			t.Fatal(err)
		}
		if a, err := b.n.Do(Request{Replay: &Replay{Dead: true, Dest: "a"}}); err != nil || a.Sent != 3 {
			t.Fatalf("replay: %+v, %v", a, err)
		}
		time.Sleep(time.Minute)
		b.want(false, "a: finished r1", "a: finished r2", "a: finished r3")
		if a, err := b.n.Do(Request{Replay: &Replay{Dead: true}}); err != nil || a.Sent != 0 {
			t.Errorf("replay again: %+v, %v", a, err)
		}
		for _, r := range []Replay{{Dead: true, Dest: "hok"}, {Run: "r9"}, {Run: "r"}} {
			if a, err := b.n.Do(Request{Replay: &r}); err == nil {
				t.Errorf("replay %+v: %+v", r, a)
			}
		}
		if a, err := b.n.Do(Request{Replay: &Replay{Run: "r2"}}); err != nil || a.Sent != 1 {
			t.Errorf("replay of a run: %+v, %v", a, err)
		}
		time.Sleep(time.Minute)
		b.want(false, "a: finished r2")
		if _, err := b.n.Do(Request{Enable: "c"}); !errors.Is(err, ErrNoDestination) {
			t.Errorf("enable an unknown one: %v", err)
		}
		b.stop()
	})
}

// A destination that is back gets what waits for it, in order, without waiting for the
// time of each.
func TestBackAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.answer("a", retry)
		for i := range 8 {
			b.play(ran(fmt.Sprint("r", i), bDone)...)
			time.Sleep(time.Hour)
		}
		b.answer("a", nil)
		synctest.Wait()
		b.mu.Lock()
		b.got = nil
		b.mu.Unlock()
		b.play(ran("r9", bDone)...)
		time.Sleep(breakerMax)
		want := []string{"a: finished r9"}
		for i := range 8 {
			want = append(want, fmt.Sprint("a: finished r", i))
		}
		got := b.whats()
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("told (-want +got):\n%s", d)
		}
		b.stop()
	})
}

// Nobody knows whether it was told: a destination that can tell two of a kind apart
// gets it again; another is asked once, and then left alone. 107 gascity-packs#69.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, twoHooks+"rules: [{name: all, to: [a, b]}]\n")
		unknown := func(*sink.Notice) sink.Outcome {
			return sink.Outcome{Verdict: sink.Unknown, Err: errors.New("no answer in 10s")}
		}
		b.answer("a", unknown)
		b.answer("b", unknown)
		b.caps["a"] = sink.Capabilities{Idempotent: true}
		b.play(ran("r1", bDone)...)
		time.Sleep(4 * time.Minute)
		b.answer("a", nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		b.mu.Lock()
		var unsure []string
		for _, g := range b.got {
			unsure = append(unsure, fmt.Sprintf("%s %d%v", g.what, g.n.Attempt, g.n.Unsure))
		}
		b.mu.Unlock()
		slices.Sort(unsure)
		want := []string{"a: finished r1 1false", "a: finished r1 2true", "a: finished r1 3true", "b: finished r1 1false", "b: finished r1 2true"}
		if d := cmp.Diff(want, unsure); d != "" {
			t.Errorf("attempts (-want +got):\n%s", d)
		}
		if n := b.counter("notifications_total", "b", "unknown"); n != 1 {
			t.Errorf("%v unknown, want 1", n)
		}
		b.stop()
	})
}

// What is refused is tried a few times, what no attempt can help once; both are letters.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, twoHooks+"rules: [{name: all, to: [a, b]}]\n")
		b.answer("a", func(*sink.Notice) sink.Outcome { return sink.Outcome{Verdict: sink.Refused, Err: errors.New("404")} })
		b.answer("b", func(*sink.Notice) sink.Outcome {
			return sink.Outcome{Verdict: sink.Refused, Permanent: true, Err: errors.New("cannot be encoded")}
		})
		b.play(ran("r1", bDone)...)
		time.Sleep(100 * time.Hour)
		got := b.whats()
		slices.Sort(got)
		if d := cmp.Diff([]string{"a: finished r1", "a: finished r1", "a: finished r1", "b: finished r1"}, got); d != "" {
			t.Errorf("attempts (-want +got):\n%s", d)
		}
		if n := b.counter("notification_dead_letters"); n != 2 {
			t.Errorf("%v letters, want 2", n)
		}
		b.stop()
	})
}

// A queue is bounded in number and in age; what is dropped is counted.
func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, `
destinations: {a: {type: webhook, url: http://example.com, queue: 5, retry: {max_age: 1h}}}
rules: [{name: all, to: [a]}]
`)
		b.answer("a", retry)
		for i := range 10 {
			b.play(ran(fmt.Sprint("r", i), bDone)...)
		}
		if n := b.counter("notification_queue_length", "a"); n != 5 {
			t.Errorf("%v wait, want 5", n)
		}
		if n := b.counter("notifications_total", "a", "dropped"); n != 5 {
			t.Errorf("%v dropped, want 5", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := b.counter("notifications_total", "a", "expired"); n != 5 {
			t.Errorf("%v expired, want 5", n)
		}
		if got := b.whats(); len(got) > 5*4+10 {
			t.Errorf("%d attempts: the breaker does not hold", len(got))
		}
		b.stop()
	})
}
