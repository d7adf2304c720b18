package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// text is the exposition in OpenMetrics, without what depends on the process.
func (f *feeder) text() string {
	f.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(f.c)
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	q.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, q)
	if w.Code != http.StatusOK {
		f.t.Fatalf("/metrics answers %d: %s", w.Code, w.Body)
	}
	b, err := io.ReadAll(w.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	var keep []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if !strings.HasPrefix(line, "cbcast_metrics_folds_held ") && !strings.HasPrefix(line, "cbcast_metrics_snapshot") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "\n")
}

func (c *tally) seriesCount() int { return len(c.samples()) }

// quick is a run with fresh ids everywhere.
func quick(n int) *script {
	id := fmt.Sprintf("%08d-aaaa-bbbb-cccc-dddddddddddd", n)
	s := claudeRun(id)
	s.started(event.Started{CI: map[string]string{
		"ciprovider": "github", "cirepo": "org/" + id, "ciworkflow": id, "cirun": id, "cisha": id, "ciactor": id,
	}, Cwd: "/" + id, Host: id})
	s.out("system.init", `{"type":"system","subtype":"init","session_id":"`+id+`","model":"m-1"}`).Session = id
	s.out("assistant", `{"type":"assistant","uuid":"`+id+`","message":{"id":"m","content":[{"type":"tool_use","id":"toolu_`+id+`","name":"`+id+`","input":{}}]}}`).Session = id
	s.out("system.task_started", `{"type":"system","subtype":"task_started","task_id":"`+id+`","task_type":"local_bash"}`).Session = id
	s.out("system.task_notification", `{"type":"system","subtype":"task_notification","task_id":"`+id+`","status":"completed"}`).Session = id
	s.out("result.success", `{"type":"result","subtype":"success","uuid":"r`+id+`","num_turns":1,"total_cost_usd":0.01,"session_id":"`+id+`"}`).Session = id
	for _, e := range s.events {
		e.TraceParent = fmt.Sprintf("00-%032x-%016x-01", n+1, n+1)
	}
	s.exited(0)
	return s
}

// Case 075: as many series after 5 000 runs as after 10.
func TestSeriesDoNotGrow(t *testing.T) {
	f := feed(t, testOptions())
	for n := range 10 {
		f.play(quick(n).events...)
	}
	ten := f.c.seriesCount()
	for n := range 5000 {
		f.play(quick(10 + n).events...)
		f.past, f.log = map[runKey][]*event.Event{}, nil
	}
	if got := f.c.seriesCount(); got != ten {
		t.Errorf("%d series after 5010 runs, %d after 10", got, ten)
	}
	if got := f.c.sum(mFinished); got != 5010 {
		t.Errorf("%d runs finished, want 5010", got)
	}
	if len(f.c.live) != 0 || f.c.folds.n != 0 || f.c.folds.cost != 0 {
		t.Errorf("%d live runs, %d folds of cost %d are left", len(f.c.live), f.c.folds.n, f.c.folds.cost)
	}
	text := f.text()
	for line := range strings.SplitSeq(text, "\n") {
		labels, _, _ := strings.Cut(line, " # ") // ids stand in exemplars only
		if strings.Contains(labels, "-aaaa-bbbb-") {
			t.Errorf("an id is a label: %s", line)
		}
	}
	if !strings.Contains(text, `# {trace_id="`) {
		t.Error("there is no exemplar with a trace")
	}
}

// Case 077: whatever a child, a tenant or a job calls itself, nothing panics and /metrics
// can be read.
func TestHostileLabels(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for i, bad := range []string{"\xff\xfe", "\xc0", "a\nb\"c\\d", long, "", " ", "\x00", "née", strings.Repeat("é", 100), "}{,=", "<script>"} {
		f := feed(t, Options{Config: Config{Repos: []string{bad}, Workflows: []string{bad}}, Version: bad, Revision: bad})
		s := &script{tenant: bad, run: "r" + fmt.Sprint(i) + bad, dialect: "claude"}
		if s.tenant == "" {
			s.tenant = "acme"
		}
		s.started(event.Started{Dialect: bad, CI: map[string]string{"ciprovider": bad, "cirepo": bad, "ciworkflow": bad}})
		s.init()
		q := fmt.Sprintf("%q", bad)
		raw := `"` + strings.NewReplacer("\n", " ", `"`, "", `\`, "", "\x00", "").Replace(bad) + `"`
		for _, name := range []string{q, raw} {
			s.out("assistant", `{"type":"assistant","message":{"content":[{"type":"tool_use","id":`+name+`,"name":`+name+`}]}}`)
			s.out("system.task_started", `{"type":"system","subtype":"task_started","task_id":`+name+`,"task_type":`+name+`}`)
			s.out("system.task_updated", `{"type":"system","subtype":"task_updated","task_id":`+name+`,"patch":{"status":"completed"}}`)
			s.out("result.success", `{"type":"result","subtype":`+name+`,"uuid":`+name+`,"num_turns":1,"total_cost_usd":0.01,"modelUsage":{`+name+`:{"inputTokens":1}}}`)
		}
		s.out("raw", bad).ContentType = event.Binary
		x := s.out("assistant", bad)
		x.Type, x.TraceParent = event.TypePrefix+bad+"."+bad, bad
		x.Redacted = []event.Span{{Rule: bad, Len: 1}}
		s.fact(event.TypeGap, event.Gap{Bytes: -1, Reason: bad})
		s.fact(event.TypeStalled, event.Stalled{What: bad})
		s.fact(event.TypeCommand, event.CommandFact{Command: bad + "c", Name: bad, Fact: event.Settled, Detail: map[string]string{"rung": bad}})
		s.exited(0)
		f.play(s.events...)
		f.play(fact(s.tenant, s.run, event.TypeLost, "liveness", map[string]string{"reason": bad}))
		f.text()
		out, err := f.c.text()
		if err != nil {
			t.Fatalf("%.20q: %v", bad, err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(string(out)))
		if err != nil {
			t.Fatalf("%.20q: /metrics cannot be read: %v", bad, err)
		}
		for _, m := range families {
			for _, x := range m.GetMetric() {
				for _, l := range x.GetLabel() {
					if v := l.GetValue(); l.GetName() != "le" && (v != clean(v) || len(v) > maxLabel) {
						t.Errorf("%.20q: label %s of %s is %.100q", bad, l.GetName(), m.GetName(), v)
					}
				}
			}
		}
	}
}

// Past their bounds tenants, models and task types are other, and nothing is lost.
func TestManyValues(t *testing.T) {
	o := testOptions()
	o.MaxTenants, o.MaxModels = 5, 6
	f := feed(t, o)
	for n := range 200 {
		s := quick(n)
		s.tenant = fmt.Sprint("tenant-", n)
		s.events = nil
		s.seq = 0
		s.started(event.Started{})
		s.out("system.init", fmt.Sprintf(`{"type":"system","subtype":"init","session_id":"s","model":"model-%d"}`, n))
		s.out("system.task_started", fmt.Sprintf(`{"type":"system","subtype":"task_started","task_id":"t","task_type":"type-%d"}`, n))
		s.result("u", 0.5, "")
		s.exited(0)
		f.play(s.events...)
	}
	for _, x := range []struct {
		def   *def
		label string
		want  int
	}{{mStarted, "tenant", 6}, {mFinished, "tenant", 6 * len(run.Verdicts)}, {mTasks, "task_type", 33}} {
		if got := len(f.c.families[x.def].series); got != x.want {
			t.Errorf("%s has %d series, want %d", x.def.name, got, x.want)
		}
	}
	if n := f.c.sum(mStarted); n != 200 {
		t.Errorf("%d runs started, want 200", n)
	}
	if n := f.c.sum(mCost); n != 100*1e9 {
		t.Errorf("cost %d nano dollars, want 100 dollars", n)
	}
	if n := f.c.sum(mStarted, "tenant", other); n != 195 {
		t.Errorf("%d runs of other tenants, want 195", n)
	}
}

// A metric never has more series than its bound; what no longer fits is other, and counted.
func TestSeriesBound(t *testing.T) {
	f := feed(t, testOptions())
	d := mFrames
	for n := range d.limit + 50 {
		f.c.inc(d, "claude", fmt.Sprint(n))
	}
	if got := len(f.c.families[d].series); got != d.limit+1 {
		t.Errorf("%d series, want %d", got, d.limit+1)
	}
	if got := f.c.sum(mFull); got != 50 {
		t.Errorf("%d counts were refused a series of their own, want 50", got)
	}
	if got := f.c.sum(d); got != int64(d.limit+50) {
		t.Errorf("%d counted, want %d", got, d.limit+50)
	}
}

// Only so many live runs are remembered. One that was forgotten is folded again.
func TestManyLiveRuns(t *testing.T) {
	o := testOptions()
	o.MaxRuns = 10
	f := feed(t, o)
	var all []*script
	for n := range 25 {
		s := claudeLive(fmt.Sprint("r", n))
		f.play(s.events...)
		all = append(all, s)
	}
	if got := len(f.c.live); got != 10 {
		t.Errorf("%d live runs, want 10", got)
	}
	if got := f.c.sum(mForgotten); got != 15 {
		t.Errorf("%d forgotten, want 15", got)
	}
	for _, s := range all {
		had := len(s.events)
		s.result("u", 0.5, "")
		s.exited(0)
		f.play(s.events[had:]...)
	}
	if a, b, cost := f.c.sum(mStarted), f.c.sum(mFinished, "dialect", "claude"), f.c.sum(mCost); a != 25 || b != 25 || cost != 12_500_000_000 {
		t.Errorf("started %d, finished %d, cost %d; want 25, 25, 12.5 dollars", a, b, cost)
	}
	if len(f.c.live) != 0 {
		t.Errorf("%d are still live", len(f.c.live))
	}
}

// The exposition names a run and its trace: that of the CI job where its start says one,
// else the run's own, as traces are exported. What the agent calls its trace is neither.
func TestExemplars(t *testing.T) {
	const agents, ci = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-000000000000000000000000000000ff-b7ad6b7169203331-01"
	const id = "00000007-aaaa-bbbb-cccc-dddddddddddd"
	for first, want := range map[string]string{
		"":     run.TraceContextOf(id, "").Trace.String(),
		"none": run.TraceContextOf(id, "").Trace.String(),
		ci:     ci[3:35],
	} {
		f := feed(t, testOptions())
		events := quick(7).events
		for _, e := range events {
			if e.TraceParent = agents; e.Type == event.TypeStarted {
				e.TraceParent = first
			}
		}
		f.play(events...)
		text := f.text()
		if want := `# {trace_id="` + want + `",run="` + id + `"}`; !strings.Contains(text, want) {
			t.Errorf("start with %q: no exemplar %s", first, want)
		}
		if strings.Contains(text, agents[3:35]) {
			t.Errorf("start with %q: the agent's own trace stands in an exemplar", first)
		}
	}
}
