package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/metrics"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/health"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/testbus"
)

// long is a safety net: nothing here takes that long.
const long = 3 * time.Minute

const deploy = "../../deploy"

// The rules are right, and each alert fires when it should, and not before.
func TestPromtoolRules(t *testing.T) {
	promtool := tool(t, "promtool")
	dir := t.TempDir() // nothing but what is shipped
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(deploy, "prometheus"))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "rules.yml", "alerts.yml"},
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "rules_test.yml", "rules_day_test.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// counted is a bus whose runs metrics counts, and where it shows them.
type counted struct {
	t    *testing.T
	b    *bus.Bus
	addr string
	n    int // runs that ended
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	_, b := testbus.Start(t, testbus.Streams)
	m, err := metrics.New(metrics.Options{Dir: t.TempDir(), Bus: b, Version: "test", Revision: "test"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := health.New(health.Options{Addr: "127.0.0.1:0", Ready: m.Ready, Metrics: health.Gatherers{m.Metrics(), health.Process()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- m.Run(ctx) }()
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("end: %v", err)
			}
		}
	})
	return &counted{t: t, b: b, addr: h.Addr()}
}

// play publishes every nth recording as a run of its own.
func (c *counted) play(from, step int) {
	c.t.Helper()
	for i, name := range capture.List() {
		if i%step != from {
			continue
		}
		rec, err := capture.Load(name)
		if err != nil {
			c.t.Fatal(err)
		}
		run := fmt.Sprintf("01a22b5c-84b8-7e83-bbee-%012d", c.n)
		list := capture.Events(rec, "acme", run)
		list[0].TraceParent = fmt.Sprintf("00-%032x-%016x-01", c.n+1, c.n+1)
		c.n++
		testbus.Publish(c.t, c.b, 0, list)
	}
}

// A prometheus is a real one that scrapes.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus runs one with the configuration of deploy until the test ends: only where
// the target is, and how often it is scraped, is another.
func startPrometheus(t *testing.T, target string, features ...string) *prometheus {
	t.Helper()
	program := tool(t, "prometheus")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(deploy, "prometheus"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shipped := string(config)
	if strings.Count(shipped, "_interval: 15s") != 2 || strings.Count(shipped, "127.0.0.1:8420") != 1 {
		t.Fatalf("prometheus.yml has changed:\n%s", shipped)
	}
	config = []byte(strings.NewReplacer("_interval: 15s", "_interval: 1s", "127.0.0.1:8420", target).Replace(shipped))
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--enable-feature="+strings.Join(features, ","))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log.String())
		}
	})
	p := &prometheus{t, "http://" + addr}
	p.await("that it is ready", func() bool {
		r, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p
}

func (p *prometheus) await(what string, ok func() bool) {
	p.t.Helper()
	for begin := time.Now(); !ok(); <-time.After(100 * time.Millisecond) {
		if time.Since(begin) > long {
			p.t.Fatalf("waited too long for %s", what)
		}
	}
}

// get asks the API and returns the data of its answer.
func (p *prometheus) get(path string, v url.Values, data any) error {
	r, err := http.Get(p.url + path + "?" + v.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          json.RawMessage
	}{}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s", answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// A point is one series of an instant query.
type point struct {
	Metric map[string]string
	Value  []any
}

func (x point) value() string { return fmt.Sprint(x.Value[1]) }

func (p *prometheus) query(expr string) ([]point, error) {
	var data struct{ Result []point }
	err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// is waits until an expression has one value.
func (p *prometheus) is(expr, want string) {
	p.t.Helper()
	p.await(expr+" = "+want, func() bool {
		got, err := p.query(expr)
		if err != nil {
			p.t.Fatalf("%s: %v", expr, err)
		}
		return len(got) == 1 && got[0].value() == want
	})
}

// panels are the expressions of the dashboard, by title.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deploy, "grafana", "cbcast.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	m := map[string][]string{}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if m[p.Title] != nil {
			t.Errorf("two panels are called %q", p.Title)
		}
		for _, x := range p.Targets {
			m[p.Title] = append(m[p.Title], x.Expr)
		}
	}
	return m
}

// quiet are the panels that show nothing here: what they show is of other programs, or did
// not happen.
var quiet = map[string]bool{
	"Archive lag": true, "Notices": true, "Redactions": true, "Agents that failed": true, "Interrupts that take effect": true,
}

// A real Prometheus scrapes what metrics shows: counts agree, exemplars lead to traces, the
// rules are evaluated, and every panel of the dashboard can be.
func TestPrometheusScrapes(t *testing.T) {
	tool(t, "prometheus")
	c := newCounted(t)
	c.play(0, 12)
	p := startPrometheus(t, c.addr, "exemplar-storage")
	p.is("sum(cbcast_runs_finished_total)", fmt.Sprint(c.n))
	first := c.n
	c.play(1, 12)
	p.is("sum(cbcast_runs_finished_total)", fmt.Sprint(c.n))
	p.is(`sum(cbcast_run_duration_seconds_bucket{le="+Inf"})`, fmt.Sprint(c.n))
	p.is("up", "1")
	p.is("cbcast_consumer_lag_messages", "0")

	var exemplars []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	p.await("exemplars", func() bool {
		v := url.Values{"query": {"cbcast_run_duration_seconds_bucket"}, "start": {"0"}, "end": {fmt.Sprint(time.Now().Unix() + 3600)}}
		if err := p.get("/api/v1/query_exemplars", v, &exemplars); err != nil {
			t.Fatal(err)
		}
		return len(exemplars) > 0
	})
	for _, s := range exemplars {
		for _, e := range s.Exemplars {
			if len(e.Labels["trace_id"]) != 32 || !strings.HasPrefix(e.Labels["run"], "01a22b5c-") {
				t.Errorf("exemplar %v has no trace or run", e.Labels)
			}
		}
	}

	vars := strings.NewReplacer("$__rate_interval", "2m", "$__range", "5m", "$tenant", ".*", "$dialect", ".*")
	p.await("a rise of the counts", func() bool {
		got, err := p.query("sum(increase(cbcast_runs_finished_total[2m])) > 0")
		return err == nil && len(got) > 0 && c.n > first
	})
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			expr = vars.Replace(expr)
			got, err := p.query(expr)
			if err != nil {
				t.Errorf("panel %q: %s: %v", title, expr, err)
			} else if len(got) == 0 && !quiet[title] {
				t.Errorf("panel %q shows nothing: %s", title, expr)
			}
		}
	}

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.await("that every rule was evaluated", func() bool {
		if err := p.get("/api/v1/rules", nil, &rules); err != nil {
			t.Fatal(err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(rules.Groups) > 0
	})
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	p.is(`sum(cbcast:runs_finished:increase1h > 0) > bool 0`, "1")
}

// With native histograms on, the durations come as such, with all their observations.
func TestPrometheusNativeHistograms(t *testing.T) {
	tool(t, "prometheus")
	c := newCounted(t)
	c.play(2, 12)
	p := startPrometheus(t, c.addr, "native-histograms", "exemplar-storage")
	p.is("sum(histogram_count(cbcast_run_duration_seconds))", fmt.Sprint(c.n))
	// The rules and the dashboard work with these alone: the classic ones are not scraped.
	c.play(3, 12)
	p.await("the quantiles of the rules", func() bool {
		got, err := p.query("cbcast:run_duration_seconds:p95_1h > 0")
		return err == nil && len(got) > 0
	})
	if got, err := p.query("cbcast_run_duration_seconds_bucket"); err != nil || len(got) > 0 {
		t.Errorf("there are %d series of classic buckets, %v: this tests nothing", len(got), err)
	}
	vars := strings.NewReplacer("$__rate_interval", "2m", "$__range", "5m", "$tenant", ".*", "$dialect", ".*")
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			if !strings.Contains(expr, "_bucket") {
				continue
			}
			if got, err := p.query(vars.Replace(expr)); err != nil || len(got) == 0 && !quiet[title] {
				t.Errorf("panel %q shows %d series, %v: %s", title, len(got), err, expr)
			}
		}
	}
	got, err := p.query("histogram_quantile(0.5, sum(cbcast_run_duration_seconds))")
	if err != nil || len(got) != 1 || got[0].value() == "NaN" || got[0].value() == "0" {
		t.Errorf("half of the runs took %v, %v", got, err)
	}
	// The classic form of the same figures, as served.
	r, err := http.Get("http://" + c.addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
