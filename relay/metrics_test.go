package relay_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/relay"
)

// series are the figures by name and labels.
func (s *served) series() map[string]float64 {
	s.t.Helper()
	got := s.get("/metrics", nil)
	if got.status != 200 {
		s.t.Fatalf("/metrics: %d %s", got.status, got.body)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(got.body)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		all[line[:i]] = v
	}
	return all
}

// TestCase075 is case 075: there are as many series after 5 000 runs as after ten.
func TestCase075(t *testing.T) {
	r := newRig(t, small())
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeAdmin}, Tenants: []string{"none"}})
	s := r.relay(relay.Config{Tokens: k.json()})
	runs := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			id := fmt.Sprintf("run-%d", i)
			state := []string{"working", "waiting", "done", "a state of its own " + id}[i%4]
			info := bus.RunInfo{Run: id, Tenant: "tenant-" + id, Dialect: "dialect-" + id, Sessions: []string{"s-" + id}, State: state, Verdict: "success"}
			if err := r.bus.PutRun(t.Context(), info); err != nil {
				t.Fatal(err)
			}
			if i%100 != 0 {
				continue
			}
			s.get("/v1/runs/"+id+"?x="+id, k.header("a"))
			s.get("/path/"+id, nil)
			s.get("/v1/runs", map[string]string{"Authorization": "Bearer " + id, "Origin": "http://" + id})
			s.post("/v1/runs/"+id+"/commands", `{"name":"command-`+id+`"}`, nil)
			s.post("/v1/runs/"+id+"/asks/"+id, `{"decision":"deny"}`, nil)
			s.post("/v1/runs/"+id+"/stop_task", `{"task":"t-`+id+`"}`, nil)
		}
		s.until(func() bool {
			all := s.series()
			return all[`cbcast_relay_runs{state="waiting"}`]+all[`cbcast_relay_runs{state="working"}`]+all[`cbcast_relay_runs{state="done"}`]+
				all[`cbcast_relay_runs{state="other"}`]+all[`cbcast_relay_runs{state="lost"}`] == float64(to)
		})
	}
	runs(0, 10)
	before := s.series()
	runs(10, 5000)
	after := s.series()
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("a new series: %s", name)
		}
	}
	labels := map[string]bool{"state": true, "code": true, "name": true, "result": true, "limit": true, "file": true, "partition": true}
	for name := range after {
		if !strings.HasPrefix(name, "cbcast_") {
			continue // of the runtime
		}
		for _, m := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(name, -1) {
			if !labels[m[1]] {
				t.Errorf("label %s in %s", m[1], name)
			}
		}
		if strings.Contains(name, "run-") {
			t.Errorf("a run in %s", name)
		}
	}
	if len(before) != len(after) || len(after) < 80 {
		t.Errorf("%d series before, %d after", len(before), len(after))
	}
}

// The figures say what happened.
func TestMetrics(t *testing.T) {
	r := newRig(t, small())
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeRead}, Tenants: []string{"none"}})
	s := r.relay(relay.Config{Tokens: k.json()})
	e := r.edge("run-1")
	e.emit(notes(3)...)
	e.shipped()
	c := s.stream("/v1/runs/run-1/stream", nil)
	for range 3 {
		if _, ok := c.next(); !ok {
			t.Fatal("no event")
		}
	}
	for range 2 {
		s.post("/v1/runs/run-1/interrupt", `{"id":"c-1"}`, nil)
	}
	s.post("/v1/runs/run-1/asks/a1", `{"decision":"deny"}`, nil)
	s.get("/v1/runs/run-1", k.header("a"))
	s.do("POST", "/v1/runs/run-1/interrupt", "", k.header("a"))
	s.do("POST", "/v1/runs/run-1/interrupt", "", nil)
	s.get("/v1/runs", map[string]string{"Host": "evil.example"})
	s.until(func() bool { return s.series()["cbcast_relay_events_total"] >= 4 }) // the audit fact, too
	all := s.series()
	for name, want := range map[string]float64{
		"cbcast_relay_streams": 1, "cbcast_relay_bus_connected": 1, "cbcast_relay_ready": 1, "cbcast_relay_readers_away": 0,
		`cbcast_relay_runs{state="working"}`: 1, `cbcast_relay_runs{state="lost"}`: 0,
		`cbcast_relay_commands_total{name="interrupt",result="accepted"}`:  1,
		`cbcast_relay_commands_total{name="interrupt",result="duplicate"}`: 1,
		`cbcast_relay_commands_total{name="answer",result="not_found"}`:    1,
		`cbcast_relay_requests_total{code="forbidden"}`:                    1,
		`cbcast_relay_requests_total{code="unauthorized"}`:                 1,
		`cbcast_relay_requests_total{code="bad_host"}`:                     1,
		`cbcast_relay_foreign_runs_total`:                                  1,
		`cbcast_relay_reader_lag_events{partition="0"}`:                    0,
		`cbcast_relay_tokens`:                                              2,
		`cbcast_relay_reload_ok`:                                           1,
	} {
		if got, ok := all[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if all["cbcast_relay_stream_bytes_total"] < 300 || all["go_goroutines"] < 5 || all["cbcast_relay_connections"] < 1 {
		t.Errorf("bytes %v, goroutines %v, connections %v", all["cbcast_relay_stream_bytes_total"], all["go_goroutines"], all["cbcast_relay_connections"])
	}
	c.close()
	s.until(func() bool { return s.series()["cbcast_relay_streams"] == 0 })

	closedRelay := r.relay(relay.Config{Closed: true})
	if got := closedRelay.get("/metrics", nil); got.status != 401 {
		t.Errorf("without a token: %d", got.status)
	}
}
