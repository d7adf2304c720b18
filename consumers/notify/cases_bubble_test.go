package notify

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

const (
	bTask    = `{"type":"system","subtype":"task_started","task_id":"agent-1","tool_use_id":"toolu_1","description":"bg","task_type":"Agent","uuid":"u-1","session_id":"s1"}`
	bShell   = `{"type":"system","subtype":"task_started","task_id":"sh-2","tool_use_id":"toolu_2","description":"bg sh","task_type":"Bash","uuid":"u-1b","session_id":"s1"}`
	bUpdated = `{"type":"system","subtype":"task_updated","task_id":"agent-1","patch":{"status":"completed","end_time":1783945615966},"status":"completed","session_id":"s1"}`
	bNotify  = `{"type":"system","subtype":"task_notification","task_id":"agent-1","status":"completed","summary":"ok","session_id":"s1"}`
	bFailed  = `{"type":"system","subtype":"task_updated","task_id":"sh-2","patch":{"status":"failed","end_time":1783945616966},"status":"failed","session_id":"s1"}`
	bError   = `{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1","duration_ms":0,"num_turns":0}`
)

// agent makes the events of a run of an agent with an exit code; -1 is no end.
func agent(argv0, run string, code int, lines ...string) []*event.Event {
	c := &capture.Capture{Argv: []string{argv0}, Code: max(code, 0)}
	for _, l := range append([]string{bInit}, lines...) {
		e := capture.Entry{Dir: capture.Out, Data: []byte(l)}
		if in, ok := strings.CutPrefix(l, "> "); ok {
			e = capture.Entry{Dir: capture.In, Data: []byte(in)}
		}
		c.Timeline = append(c.Timeline, e)
	}
	c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Exit})
	all := capture.Events(c, "acme", run)
	if code < 0 {
		all = slices.DeleteFunc(all, func(e *event.Event) bool { return e.Type == event.TypeExited })
	}
	return all
}

const oneHook = `
destinations: {a: {type: webhook, url: http://example.com}}
rules: [{name: all, to: [a]}]
`

// 027 anthropics/claude-code#16768: an error result behind the success is one notice,
// with the warning in it.
func TestCase027(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.play(agent("claude", "r1", 0, `{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"bg started"}]},"parent_tool_use_id":null,"session_id":"s1","uuid":"u-1"}`, bDone, bError)...)
		if len(b.got) != 1 || b.got[0].n.Kind != sink.Finished || len(b.got[0].n.View.Warnings) == 0 {
			t.Errorf("told %v; warnings are missing", b.whats())
		}
		b.stop()
	})
}

// 029 multica-ai/multica#8340: a result while a task works is no end, nor is the task's
// end; the run's is.
func TestCase029(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		events := agent("cbc", "r1", 0, bTask, bShell, bDone, bUpdated, bNotify, bFailed)
		b.play(events[:len(events)-1]...)
		b.want(false)
		b.play(events[len(events)-1])
		v := b.got[0].n.View
		var tasks []string
		for _, k := range v.Tasks {
			tasks = append(tasks, k.ID+" "+k.Status)
		}
		if d := cmp.Diff([]string{"agent-1 completed", "sh-2 failed"}, tasks); d != "" {
			t.Errorf("tasks (-want +got):\n%s", d)
		}
		b.want(false, "a: finished r1")
		b.stop()
	})
}

// 031 anthropics/claude-code#20754: tasks that were open at the exit are not told as
// completed.
func TestCase031(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.play(agent("claude", "r1", 0, bTask, bShell, bNotify, bDone)...)
		n := b.got[0].n
		if len(b.got) != 1 || n.View.Verdict.Verdict != run.Incomplete || n.View.Tasks[1].Status != "unknown" || !n.View.Tasks[1].Synthesised {
			t.Errorf("told %v, %+v", b.whats(), n.View.Tasks)
		}
		b.stop()
	})
}

// 033 xintaofei/codeg#364: what comes behind a stop tells nothing more and revives
// nothing.
func TestCase033(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.play(agent("cbc", "r1", 0,
			`{"type":"system","subtype":"task_started","task_id":"w1","task_type":"local_workflow","workflow_name":"n","description":"d","uuid":"u1","session_id":"s1"}`,
			`> {"type":"control_request","request_id":"i1","request":{"subtype":"interrupt","session_id":"s1"}}`,
			`{"type":"control_response","response":{"subtype":"success","request_id":"i1"}}`,
			`{"type":"system","subtype":"task_updated","task_id":"w1","patch":{"status":"killed","end_time":1785000000000},"session_id":"s1"}`,
			`{"type":"system","subtype":"task_notification","task_id":"w1","status":"stopped","summary":"s","session_id":"s1"}`,
			`{"type":"system","subtype":"task_progress","task_id":"w1","description":"d","usage":{"total_tokens":1,"tool_uses":0,"duration_ms":1},"workflow_progress":[],"session_id":"s1"}`,
			`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1","uuid":"u-r","num_turns":1}`)...)
		if len(b.got) != 1 || b.got[0].n.View.Tasks[0].Status != "killed" || b.got[0].n.View.Tasks[0].Late != 1 {
			t.Errorf("told %v, %+v", b.whats(), b.got[0].n.View.Tasks)
		}
		b.stop()
	})
}

// 069 pingdotgg/t3code#4930: an old error that a resumed run says again is nothing new.
func TestCase069(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		old := `{"type":"assistant","message":{"id":"msg_7","role":"assistant","content":[{"type":"text","text":"API Error: 502"}]},"parent_tool_use_id":null,"session_id":"s1","uuid":"u-7","error":"unknown"}`
		b.play(agent("claude", "r1", 1, old, bError)...)
		b.play(agent("claude", "r2", 0, `{"type":"system","subtype":"compact_boundary","session_id":"s1","uuid":"u-cb","compact_metadata":{"trigger":"auto","pre_tokens":1000}}`, old, bDone)...)
		b.want(false, "a: failed r1", "a: finished r2")
		b.stop()
	})
}

// 071 anomalyco/opencode#2294: a sub-agent that says it failed is no failed run.
func TestCase071(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.play(agent("claude", "r1", 0,
			`{"type":"assistant","session_id":"s1","parent_tool_use_id":"toolu_x","message":{"content":[{"type":"text","text":"Task failed: error"}]},"uuid":"u1"}`, bDone)...)
		b.want(false, "a: finished r1")
		b.stop()
	})
}

// 073 anthropics/claude-code#83239: what is told as the cost is the running total once.
func TestCase073(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		var lines []string
		for i, cost := range []float64{0.1, 0.25, 0.25} {
			lines = append(lines, `> {"type":"user","message":{"role":"user","content":"x"}}`,
				fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"session_id":"s1","uuid":"u%d","num_turns":1,"total_cost_usd":%v}`, i, cost))
		}
		b.play(agent("claude", "r1", 0, lines...)...)
		if got := b.got[0].n.View.Usage.CostUSD; got < 0.2499 || got > 0.2501 {
			t.Errorf("cost %v, want 0.25", got)
		}
		b.stop()
	})
}

func control(typ, ref string) *event.Event {
	return &event.Event{
		Tenant: "acme", Run: "r1", Ref: ref, Time: time.Now(), Type: typ, Kind: event.Life, Stream: event.Edge, ContentType: event.JSON, Data: []byte(`{}`),
	}
}

// 095 bytedance/deer-flow#3932, 121 buildkite/agent#1208: a lost run is told once; when
// its events come after all, who was told of the loss is told what is true, also where
// no rule is for that, and whatever comes first of the facts.
func TestCase095And121(t *testing.T) {
	const lostOnly = `
destinations:
  a: {type: webhook, url: http://example.com}
  b: {type: webhook, url: http://example.com}
rules:
  - {name: lost, match: {kind: lost}, to: [a]}
  - {name: rest, match: {kind: finished}, to: [b]}
`
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, lostOnly)
		events := agent("claude", "r1", 0, bDone)
		b.play(events[:3]...)
		lost := control(event.TypeLost, "lost-20000101T000000.000000000Z")
		b.play(lost)
		b.play(lost) // given again
		b.want(false, "a: lost r1")
		b.play(control(event.TypeResumed, "resumed-20000101T000100.000000000Z"))
		b.want(false, "a: resumed r1")
		b.play(control(event.TypeLost, "lost-20000101T000200.000000000Z"))
		b.want(false, "a: lost r1")
		b.play(events[3:]...) // the end is seen before the word that it speaks again
		b.play(control(event.TypeResumed, "resumed-20000101T000300.000000000Z"))
		b.want(false, "a: finished r1", "b: finished r1")
		b.play(control(event.TypeLost, "lost-20000101T000400.000000000Z"))
		b.want(false)
		b.stop()
	})
}

// A run that flaps is told so often and no more.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		b.play(agent("claude", "r1", -1)...)
		for i := range 3 * maxLosses {
			b.play(control(event.TypeLost, fmt.Sprintf("lost-%03d", i)), control(event.TypeResumed, fmt.Sprintf("resumed-%03d", i)))
		}
		n := 0
		for _, w := range b.whats() {
			if strings.Contains(w, "lost") {
				n++
			}
		}
		if n > maxLosses || b.counter("notifications_suppressed_total", "flapping") != 2*maxLosses {
			t.Errorf("%d losses told; suppressed %v", n, b.counter("notifications_suppressed_total", "flapping"))
		}
		b.stop()
	})
}

// An ask that a rule decides is not told; one whose rule could not answer is.
func TestPolicyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		before, _ := asked(asking("r1", "q1"))
		before[len(before)-1].Ext = map[string]string{"ask": "a1", "auto": "allow"}
		b.play(before...)
		b.want(false)
		seq := before[len(before)-1].Seq
		b.play(&event.Event{
			Tenant: "acme", Run: "r1", Seq: seq + 1, Time: time.Now(), Type: event.TypeDecision, Kind: event.Ask, Stream: event.Edge, ContentType: event.JSON,
			Data: []byte(`{"ask":"a1","decision":"allow","cause":"rule","error":"stdin is closed"}`),
		})
		b.want(false, "a: waiting r1")
		b.stop()
	})
}

// Whatever is read again, nothing is told again: neither from memory, nor after a
// restart, nor where the journal is gone and only the told log is left.
func TestToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		r1, r2 := ran("r1", bDone), asking("r2", "q1")
		before, after := asked(r2)
		all := func() {
			b.runs = map[string]*run.State{}
			b.play(r1...)
			b.play(before...)
			b.play(after...)
		}
		b.play(r1...)
		b.play(before...)
		b.play(after...)
		b.want(false, "a: finished r1", "a: waiting r2", "a: finished r2")
		all()
		b.want(false)
		b.stop()
		b.start()
		all()
		b.want(false)
		b.stop()
		if err := os.Remove(b.dir + "/state/" + journalName); err != nil {
			t.Fatal(err)
		}
		b.start()
		all()
		b.want(false)
		b.stop()
	})
}

// At the very first start what ended long before is noted and not told; an ask that
// still waits is.
func TestFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		long := time.Now().Add(-24 * time.Hour)
		play := func(events []*event.Event) {
			for _, e := range events {
				if b.runs[e.Run] == nil {
					b.runs[e.Run] = run.New(e.Run)
				}
				b.runs[e.Run].Apply(e)
				if err := b.n.d.decide(e, b.runs[e.Run], long); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.n.d.commit(); err != nil {
				t.Fatal(err)
			}
		}
		play(ran("r1", bDone))
		play(asking("r2", "q1"))
		before, _ := asked(asking("r3", "q1"))
		play(before)
		time.Sleep(time.Minute)
		b.want(false, "a: waiting r3")
		b.stop()
	})
}

// What is kept of runs that are over does not grow with their number.
func TestMemory(t *testing.T) {
	runs := 450
	if os.Getenv("NOTIFY_TEST_LONG") != "" {
		runs = 100_000
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneHook)
		heap := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc) / (1 << 20)
		}
		batch := func(from, to int) {
			for i := from; i < to; i++ {
				id := fmt.Sprint("run-", i)
				for _, e := range asking(id, "q1") {
					st := b.runs[id]
					if st == nil {
						st = run.New(id)
						b.runs[id] = st
					}
					st.Apply(e)
					if err := b.n.d.decide(e, st, time.Now()); err != nil {
						t.Fatal(err)
					}
				}
				delete(b.runs, id)
				if i%100 == 99 || i == to-1 {
					if err := b.n.d.commit(); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					b.got = b.got[:0]
				}
			}
		}
		batch(0, runs/3)
		first := heap()
		batch(runs/3, runs)
		last := heap()
		d := b.n.d
		if len(d.st.items)+len(d.st.watches)+len(d.st.notes)+len(d.st.marks)+len(d.st.refs)+d.st.bytes != 0 {
			t.Errorf("left: %d items, %d watches, %d notes, %d marks, %d bytes", len(d.st.items), len(d.st.watches), len(d.st.notes), len(d.st.marks), d.st.bytes)
		}
		t.Logf("heap %.1f MiB behind %d runs, %.1f MiB behind %d; journal %d bytes", first, runs/3, last, runs, d.journal.length())
		if last > first+8 {
			t.Errorf("the heap grew from %.1f to %.1f MiB", first, last)
		}
		if n := d.journal.length(); n > 4*minCompact {
			t.Errorf("the journal has %d bytes", n)
		}
		b.stop()
	})
}
