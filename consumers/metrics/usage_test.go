package metrics

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
)

// A script makes the events of runs by hand.
type script struct {
	tenant, run, dialect string
	seq                  uint64
	clock                int // seconds since the start
	events               []*event.Event
}

func (s *script) add(e event.Event) *event.Event {
	s.seq++
	s.clock++
	e.Tenant, e.Run, e.Seq, e.Time = s.tenant, s.run, s.seq, startOf(s.clock)
	s.events = append(s.events, &e)
	return &e
}

func (s *script) fact(typ string, data any) *event.Event {
	e := fact(s.tenant, s.run, typ, "", data)
	return s.add(*e)
}

func (s *script) started(d event.Started) {
	if d.Dialect == "" {
		d.Dialect = s.dialect
	}
	s.fact(event.TypeStarted, d)
}

func (s *script) out(typ, line string) *event.Event {
	return s.add(event.Event{
		Type: event.TypePrefix + s.dialect + "." + typ, Kind: event.Msg, Stream: event.Out, ContentType: event.JSON,
		Session: sid, Data: []byte(line),
	})
}

func (s *script) init() {
	s.out("system.init", `{"type":"system","subtype":"init","session_id":"`+sid+`","model":"m-1"}`)
}

func (s *script) result(uuid string, cost float64, more string) {
	s.out("result.success", fmt.Sprintf(
		`{"type":"result","subtype":"success","is_error":false,"session_id":%q,"uuid":%q,"num_turns":1,"total_cost_usd":%v%s,"result":"done"}`, sid, uuid, cost, more))
}

func (s *script) exited(code int) {
	s.fact(event.TypeExited, event.Exited{Code: &code, Complete: true, DurationMS: int64(s.clock) * 1000})
}

const sid = "00000000-0000-4000-8000-000000000001"

func claudeRun(run string) *script { return &script{tenant: "acme", run: run, dialect: "claude"} }

// Case 073: a total that is restated counts once, and each process has its own.
func TestCumulativeCost(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	for i, cost := range []float64{0.10, 0.25, 0.25} {
		a.init()
		a.result(string(rune('a'+i)), cost, "")
	}
	a.exited(0)
	b := claudeRun("r2")
	b.started(event.Started{Argv: []string{"claude", "--resume", sid}})
	b.init()
	b.result("d", 0.05, "")
	b.exited(0)
	f.play(append(a.events, b.events...)...)
	want := map[string]string{"cost_usd_total{model=m-1,tenant=acme,dialect=claude}": "0.3"}
	if d := cmp.Diff(want, f.c.nonzero(mCost)); d != "" {
		t.Errorf("cost (-want +got):\n%s", d)
	}
}

// A total that goes down inside a process counts nothing, and what comes after only what
// is above the highest one.
func TestCostNeverCountsDown(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	for i, cost := range []float64{0.10, 0.04, 0.12} {
		a.init()
		a.result(string(rune('a'+i)), cost, "")
	}
	f.play(a.events...)
	if got := f.c.sum(mCost); got != 120_000_000 {
		t.Errorf("cost is %d nano dollars, want 120000000", got)
	}
}

// Cost and tokens go to the models that had them; sub-agents are in the totals once.
func TestModels(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	use := func(in, out int, cost float64) string {
		return fmt.Sprintf(`{"inputTokens":%d,"outputTokens":%d,"cacheReadInputTokens":1,"cacheCreationInputTokens":2,"costUSD":%v}`, in, out, cost)
	}
	a.init()
	a.result("a", 0.3, `,"usage":{"input_tokens":10,"output_tokens":5},"modelUsage":{"big":`+use(10, 5, 0.2)+`,"small":`+use(100, 50, 0.1)+`}`)
	a.init()
	a.result("b", 0.5, `,"usage":{"input_tokens":10,"output_tokens":5},"modelUsage":{"big":`+use(30, 15, 0.35)+`,"small":`+use(100, 50, 0.1)+`}`)
	// The same frame again, as after a compaction (case 069).
	a.result("b", 0.5, `,"usage":{"input_tokens":10,"output_tokens":5},"modelUsage":{"big":`+use(30, 15, 0.35)+`,"small":`+use(100, 50, 0.1)+`}`)
	a.exited(0)
	f.play(a.events...)
	want := map[string]string{
		"cost_usd_total{model=big,tenant=acme,dialect=claude}":                   "0.35",
		"cost_usd_total{model=small,tenant=acme,dialect=claude}":                 "0.1",
		"cost_usd_total{model=m-1,tenant=acme,dialect=claude}":                   "0.05", // of no model that was named
		"tokens_total{type=input,model=big,tenant=acme,dialect=claude}":          "30",
		"tokens_total{type=output,model=big,tenant=acme,dialect=claude}":         "15",
		"tokens_total{type=cache_read,model=big,tenant=acme,dialect=claude}":     "1",
		"tokens_total{type=cache_create,model=big,tenant=acme,dialect=claude}":   "2",
		"tokens_total{type=input,model=small,tenant=acme,dialect=claude}":        "100",
		"tokens_total{type=output,model=small,tenant=acme,dialect=claude}":       "50",
		"tokens_total{type=cache_read,model=small,tenant=acme,dialect=claude}":   "1",
		"tokens_total{type=cache_create,model=small,tenant=acme,dialect=claude}": "2",
	}
	got := f.c.nonzero(mCost, mTokens)
	// The rest of the second result belongs to the first model that it names.
	want["cost_usd_total{model=big,tenant=acme,dialect=claude}"] = "0.4"
	delete(want, "cost_usd_total{model=m-1,tenant=acme,dialect=claude}")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
}

// A frame of a turn's own usage that is told again counts once (case 069).
func TestRepeatedResult(t *testing.T) {
	f := feed(t, testOptions())
	a := claudeRun("r1")
	a.started(event.Started{})
	for range 3 {
		a.init()
		a.result("a", 0, `,"usage":{"input_tokens":10,"output_tokens":5}`)
	}
	f.play(a.events...)
	if got := f.c.sum(mTokens); got != 15 {
		t.Errorf("%d tokens, want 15", got)
	}
}

// CodeBuddy's totals are those of a session: a run that goes on with one counts what is
// new. The recordings are one session in three processes.
func TestResumedSession(t *testing.T) {
	names := []string{"cbc-2.163.0/resume-a", "cbc-2.163.0/resume-b", "cbc-2.163.0/resume-c-continue"}
	f := feed(t, testOptions())
	for i, name := range names {
		f.play(captured(t, name, "acme", fmt.Sprint("r", i))...)
	}
	if got := f.c.sum(mTokens, "type", "output"); got != 21 {
		t.Errorf("%d output tokens, want 21 as the last total says", got)
	}
	// The first run was not seen: what the session had used before is nobody's.
	f = feed(t, testOptions())
	for i, name := range names[1:] {
		f.play(captured(t, name, "acme", fmt.Sprint("r", i))...)
	}
	if got := f.c.sum(mTokens, "type", "output"); got != 7 {
		t.Errorf("%d output tokens, want 7: those after the first total that was seen", got)
	}
}

// Nonsense in a child's figures counts nothing and breaks nothing.
func TestHostileUsage(t *testing.T) {
	for _, cost := range []string{"-1", "1e400", `"x"`, "null", "{}", "1e300"} {
		f := feed(t, testOptions())
		a := claudeRun("r1")
		a.started(event.Started{})
		a.init()
		a.out("result.success", `{"type":"result","subtype":"success","uuid":"a","num_turns":1,"total_cost_usd":`+cost+
			`,"usage":{"input_tokens":-5,"output_tokens":9e18},"modelUsage":{"m":{"inputTokens":99999999999999999999,"costUSD":`+cost+`}}}`)
		f.play(a.events...)
		if c, n := f.c.sum(mCost), f.c.sum(mTokens); c != 0 || n != 0 {
			t.Errorf("cost %s: counted %d nano dollars and %d tokens", cost, c, n)
		}
	}
}

// However much agents say that they cost, a counter never falls.
func TestCostsBeyondAnyCount(t *testing.T) {
	f := feed(t, testOptions())
	last := int64(0)
	for n := range 12 {
		a := claudeRun(fmt.Sprint("r", n))
		a.started(event.Started{})
		a.init()
		a.out("result.success", `{"type":"result","subtype":"success","uuid":"a","num_turns":1,"total_cost_usd":1e9}`)
		f.play(a.events...)
		got := f.c.sum(mCost)
		if got < last {
			t.Fatalf("after %d runs %d nano dollars, before %d", n+1, got, last)
		}
		last = got
	}
	if last != math.MaxInt64 {
		t.Errorf("%d nano dollars, want %d", last, int64(math.MaxInt64))
	}
}
