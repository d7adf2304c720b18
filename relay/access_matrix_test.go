package relay_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/relay"
)

// TestRights asks everything with everybody's token: 401 for a token that does not
// count, 403 for a scope that is missing, and for a run that is another's what is
// said of a run that is not there.
func TestRights(t *testing.T) {
	r := newRig(t, small())
	for _, run := range []string{"run-1", "run-2", "nightly-1"} {
		e := r.edge(run)
		e.emit(note(1))
		e.shipped()
	}
	r.stranger("foreign-1")
	type holder struct {
		relay.Token
		counts bool
		sees   string // the runs
	}
	all := "run-1 run-2 nightly-1 foreign-1"
	read, command, answer, admin := []relay.Scope{relay.ScopeRead}, []relay.Scope{relay.ScopeCommand}, []relay.Scope{relay.ScopeAnswer}, []relay.Scope{relay.ScopeAdmin}
	holders := []holder{
		{relay.Token{Name: "read", Scopes: read}, true, all},
		{relay.Token{Name: "command", Scopes: command}, true, all},
		{relay.Token{Name: "answer", Scopes: answer}, true, all},
		{relay.Token{Name: "both", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand}}, true, all},
		{relay.Token{Name: "admin", Scopes: admin}, true, all},
		{relay.Token{Name: "acme", Scopes: admin, Tenants: []string{tenant}}, true, "run-1 run-2 nightly-1"},
		{relay.Token{Name: "umbrella", Scopes: admin, Tenants: []string{"umbrella"}}, true, "foreign-1"},
		{relay.Token{Name: "nobody", Scopes: admin, Tenants: []string{"nobody"}}, true, ""},
		{relay.Token{Name: "one", Scopes: admin, Runs: []string{"run-1"}}, true, "run-1"},
		{relay.Token{Name: "prefix", Scopes: admin, Runs: []string{"nightly-*", "run-2"}}, true, "nightly-1 run-2"},
		{relay.Token{Name: "tenant-and-run", Scopes: admin, Tenants: []string{tenant}, Runs: []string{"foreign-*", "run-*"}}, true, "run-1 run-2"},
		{relay.Token{Name: "almost", Scopes: admin, Runs: []string{"run-", "run-11", "un-1", "*run-1"[1:] + "x"}}, true, ""},
		{relay.Token{Name: "later", Scopes: read, Expires: time.Now().Add(time.Hour)}, true, all},
		{relay.Token{Name: "over", Scopes: admin, Expires: time.Now().Add(-time.Second)}, false, all},
		{relay.Token{Name: "gone", Scopes: admin}, false, all},
	}
	k := newKeyring(t)
	for _, h := range holders {
		k.add(h.Token)
	}
	scraper := []relay.Scope{relay.ScopeMetrics}
	k.add(relay.Token{Name: "scraper", Scopes: scraper})
	k.add(relay.Token{Name: "scraper-of-one", Scopes: scraper, Tenants: []string{tenant}})
	s := r.relay(relay.Config{Closed: true, Tokens: k.json("gone")})
	type request struct {
		method, path, body string
		scope              relay.Scope
	}
	requests := []request{
		{"GET", "/v1/runs/{run}", "", relay.ScopeRead},
		{"GET", "/v1/runs/{run}/events", "", relay.ScopeRead},
		{"GET", "/v1/runs/{run}/asks", "", relay.ScopeRead},
		{"POST", "/v1/runs/{run}/interrupt", `{"reason":"r"}`, relay.ScopeCommand},
		{"POST", "/v1/runs/{run}/stop_task", `{"task":"t1"}`, relay.ScopeCommand},
		{"POST", "/v1/runs/{run}/commands", `{"name":"end_session"}`, relay.ScopeCommand},
		{"POST", "/v1/runs/{run}/asks/a1", `{"decision":"deny"}`, relay.ScopeAnswer},
	}
	for _, h := range holders {
		header := k.header(h.Name)
		for _, q := range requests {
			missing := s.do(q.method, strings.ReplaceAll(q.path, "{run}", "none-1"), q.body, header)
			for _, run := range strings.Fields(all) {
				got := s.do(q.method, strings.ReplaceAll(q.path, "{run}", run), q.body, header)
				holds := slices.Contains(h.Scopes, q.scope) || slices.Contains(h.Scopes, relay.ScopeAdmin) || q.scope == relay.ScopeRead
				want := 0
				switch {
				case !h.counts:
					want = 401
				case !holds:
					want = 403
				case !slices.Contains(strings.Fields(h.sees), run):
					want = 404
					if !bytes.Equal(got.body, missing.body) {
						t.Errorf("%s %s of %s by %s: %s, of a missing one %s", q.method, q.path, run, h.Name, got.body, missing.body)
					}
				case got.status == 401 || got.status == 403 || got.status >= 500 || got.status == 404 && bytes.Equal(got.body, missing.body):
					t.Errorf("%s %s of %s by %s: %d %s", q.method, q.path, run, h.Name, got.status, got.body)
				}
				if want != 0 && got.status != want {
					t.Errorf("%s %s of %s by %s: %d %s, want %d", q.method, q.path, run, h.Name, got.status, got.body, want)
				}
			}
		}
		if !h.counts {
			continue
		}
		var list relay.RunList
		s.get("/v1/runs", header).into(t, &list)
		var names []string
		for _, e := range list.Runs {
			names = append(names, e.Run)
		}
		want := strings.Fields(h.sees)
		slices.Sort(names)
		slices.Sort(want)
		if d := cmp.Diff(want, names); d != "" && len(want)+len(names) > 0 {
			t.Errorf("the list for %s (-want +got):\n%s", h.Name, d)
		}
		status := 403
		if h.Name == "admin" {
			status = 200
		}
		if got := s.get("/metrics", header); got.status != status {
			t.Errorf("/metrics for %s: %d, want %d", h.Name, got.status, status)
		}
	}
	for name, want := range map[string]int{"scraper": 200, "scraper-of-one": 403} {
		if got := s.get("/metrics", k.header(name)); got.status != want {
			t.Errorf("/metrics for %s: %d, want %d", name, got.status, want)
		}
	}
	// A command is as foreign as its run.
	if got := s.do("POST", "/v1/runs/run-1/interrupt", `{"id":"c-1"}`, k.header("admin")); got.status != 202 {
		t.Fatalf("command: %d %s", got.status, got.body)
	}
	for name, want := range map[string]int{"read": 200, "acme": 200, "one": 200, "umbrella": 404, "prefix": 404} {
		if got := s.get("/v1/commands/c-1", k.header(name)); got.status != want {
			t.Errorf("the command for %s: %d %s, want %d", name, got.status, got.body, want)
		}
	}
}

// TestCase105 is case 105: a position is one of the run in the path only, and a run
// of others is as one that is not there, whatever the path looks like.
func TestCase105(t *testing.T) {
	r := newRig(t, small())
	for _, run := range []string{"r1", "r2"} {
		e := r.edge(run)
		e.emit(frameOf(`{"type":"assistant","message":{"content":[{"type":"text","text":"secret of ` + run + `"}]}}`))
		e.emit(notes(map[string]int{"r1": 1, "r2": 7}[run])...)
		e.emit(exited())
		e.shipped()
	}
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeAdmin}, Runs: []string{"r1"}})
	s := r.relay(relay.Config{Closed: true, Tokens: k.json()})
	// An id of r2 in the stream of r1 is a place that r1 does not have.
	got := s.stream("/v1/runs/r1/stream", merged(k.header("a"), map[string]string{"Last-Event-ID": "8"})).all()
	if ids(got) != "reset 1 2 3" {
		t.Errorf("r1 from an id of r2: %s", ids(got))
	}
	for _, e := range got {
		if strings.Contains(e.data, "secret of r2") {
			t.Errorf("r1 tells of r2: %s", e.data)
		}
	}
	same := func(a, b answer) string {
		for _, h := range []string{"Date"} {
			a.header.Del(h)
			b.header.Del(h)
		}
		return cmp.Diff(a.header, b.header) + cmp.Diff(string(a.body), string(b.body))
	}
	for _, rest := range []string{"", "/events", "/stream", "/asks", "/stream?after=1"} {
		missing := s.get("/v1/runs/r9"+rest, k.header("a"))
		for _, run := range []string{"r2", "r1%2F..%2Fr2", "r1%2f%2e%2e%2fr2", "r1/../r2", "./r2", "r2/.", "/r2", "r2%00", "r2 ", "R2", "r2*"} {
			got := s.get("/v1/runs/"+strings.ReplaceAll(run, " ", "%20")+rest, k.header("a"))
			if got.status != 404 || same(got, missing) != "" {
				t.Errorf("%s%s: %d\n%s", run, rest, got.status, same(got, missing))
			}
		}
	}
	for path, body := range map[string]string{"/interrupt": "", "/commands": `{"name":"interrupt"}`, "/asks/a1": `{"decision":"deny"}`} {
		missing, got := s.do("POST", "/v1/runs/r9"+path, body, k.header("a")), s.do("POST", "/v1/runs/r2"+path, body, k.header("a"))
		if got.status != 404 || same(got, missing) != "" {
			t.Errorf("POST %s: %d\n%s", path, got.status, same(got, missing))
		}
	}
	// The token is asked for again at each connect.
	if got := s.get("/v1/runs/r1/stream", map[string]string{"Authorization": "Bearer " + k.tokens["a"] + "x"}); got.status != 401 {
		t.Errorf("another token: %d", got.status)
	}
}
