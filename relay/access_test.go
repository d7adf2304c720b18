package relay_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/relay"
)

func TestAccess(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	s := r.relay(relay.Config{Hosts: []string{"relay.example"}, Origins: []string{"https://ci.example"}})
	host := strings.TrimPrefix(s.url, "http://")
	_, port, _ := strings.Cut(host, ":")
	const interrupt = "/v1/runs/run-1/interrupt"
	for _, c := range []struct {
		method, path string
		header       map[string]string
		status       int
		code         relay.Code
	}{
		{"GET", "/v1/runs", nil, 200, ""},
		{"GET", "/", nil, 200, ""},
		{"GET", "/livez", nil, 200, ""},
		{"GET", "/readyz", nil, 200, ""},
		{"GET", "/nothing", nil, 404, relay.CodeNotFound},
		{"GET", "/v1/runs/none", nil, 404, relay.CodeNotFound},
		{"GET", "/v1/runs/none/stream", nil, 404, relay.CodeNotFound},
		{"GET", "/v1/runs/none/events", nil, 404, relay.CodeNotFound},
		{"GET", "/v1/commands/none", nil, 404, relay.CodeNotFound},
		{"GET", "/v1/commands/a%20b", nil, 404, relay.CodeNotFound},
		{"DELETE", "/v1/runs/run-1", nil, 405, relay.CodeBadMethod},
		{"GET", interrupt, nil, 405, relay.CodeBadMethod},
		{"POST", interrupt, nil, 401, relay.CodeUnauthorized},
		{"POST", interrupt, map[string]string{"Authorization": "Bearer wrong"}, 401, relay.CodeUnauthorized},
		{"POST", interrupt, map[string]string{"Authorization": "Bearer "}, 401, relay.CodeUnauthorized},
		{"POST", interrupt, map[string]string{"Authorization": "Basic " + token}, 401, relay.CodeUnauthorized},
		{"POST", "/v1/runs/none/interrupt", map[string]string{"Authorization": "Bearer " + token}, 404, relay.CodeNotFound},
		{"GET", "/v1/runs", map[string]string{"Host": "evil.example"}, 403, relay.CodeBadHost},
		{"GET", "/livez", map[string]string{"Host": "evil.example"}, 403, relay.CodeBadHost},
		{"GET", "/v1/runs", map[string]string{"Host": "evil.example:" + port}, 403, relay.CodeBadHost},
		{"GET", "/v1/runs", map[string]string{"Host": "127.0.0.1.evil.example"}, 403, relay.CodeBadHost},
		{"GET", "/v1/runs", map[string]string{"Host": "192.0.2.1"}, 403, relay.CodeBadHost},
		{"GET", "/v1/runs", map[string]string{"Host": "localhost:" + port}, 200, ""},
		{"GET", "/v1/runs", map[string]string{"Host": "[::1]:" + port}, 200, ""},
		{"GET", "/v1/runs", map[string]string{"Host": "Relay.Example"}, 200, ""},
		{"GET", "/v1/runs", map[string]string{"Origin": "http://" + host}, 200, ""},
		{"GET", "/v1/runs", map[string]string{"Origin": "https://ci.example"}, 200, ""},
		{"GET", "/v1/runs", map[string]string{"Origin": "https://evil.example"}, 403, relay.CodeBadOrigin},
		{"GET", "/v1/runs", map[string]string{"Origin": "http://127.0.0.1:1"}, 403, relay.CodeBadOrigin},
		{"GET", "/v1/runs/run-1/stream", map[string]string{"Origin": "null"}, 403, relay.CodeBadOrigin},
		{"POST", interrupt, map[string]string{"Origin": "http://evil.example", "Authorization": "Bearer " + token}, 403, relay.CodeBadOrigin},
	} {
		got := s.do(c.method, c.path, "", c.header)
		var body relay.ErrorBody
		if c.code != "" {
			got.into(t, &body)
		}
		if got.status != c.status || body.Code != c.code {
			t.Errorf("%s %s %v: %d %.200s, want %d %s", c.method, c.path, c.header, got.status, got.body, c.status, c.code)
		}
	}
}

func TestEverythingNeedsTheTokenBeyondLoopback(t *testing.T) {
	r := newRig(t, small())
	rel := relay.New(relay.Options{Config: relay.Config{Addr: "0.0.0.0:0"}, Bus: r.bus, Token: token})
	for path, want := range map[string]int{"/v1/runs": 401, "/v1/runs/x/stream": 401, "/": 200, "/other": 401, "/livez": 200} {
		for auth, status := range map[string]int{"": want, "Bearer " + token: 0} {
			w := httptest.NewRecorder()
			q := httptest.NewRequest("GET", path, nil)
			q.Host = "localhost"
			q.Header.Set("Authorization", auth)
			rel.Handler().ServeHTTP(w, q)
			if status != 0 && w.Code != status || status == 0 && w.Code == 401 {
				t.Errorf("%s with %q: %d", path, auth, w.Code)
			}
		}
	}
	// Without a token nothing is let in, an empty one neither.
	rel = relay.New(relay.Options{Config: relay.Config{Addr: "0.0.0.0:0"}, Bus: r.bus})
	w := httptest.NewRecorder()
	q := httptest.NewRequest("GET", "/v1/runs", nil)
	q.Host = "localhost"
	q.Header.Set("Authorization", "Bearer ")
	rel.Handler().ServeHTTP(w, q)
	if w.Code != 401 {
		t.Errorf("no token: %d", w.Code)
	}
}

func TestRequestLimits(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	s := r.relay(relay.Config{})
	const path = "/v1/runs/run-1/interrupt"
	for body, want := range map[string]int{
		strings.Repeat(" ", 1<<20+1) + "{}": 413, "{": 400, "[]": 400, `{"tsak":"t1"}`: 400, `{} {}`: 400, `{"id":"a b"}`: 400,
		`{"id":"` + strings.Repeat("x", 65) + `"}`: 400, `{"deliver_within":-1}`: 400, `{"deliver_within":1e99}`: 400,
		`{"turn":"x"}`: 400, `{"TASK":"t1"}`: 400, `{"deliver_within":1e-9}`: 400, `{"id":".."}`: 400,
		// A byte order mark is no part of the JSON; inside a string it stays.
		"\ufeff" + `{"id":"bom","reason":"a` + "\ufeff" + `b"}` + "\r\n": 202,
	} {
		if got := s.post(path, body, nil); got.status != want {
			t.Errorf("body %.40q: %d %s, want %d", body, got.status, got.body, want)
		}
	}
	if got := s.post("/v1/runs/run-1/stop_task", "", nil); got.status != 400 {
		t.Errorf("stop_task without a task: %d", got.status)
	}
	if got := s.get("/v1/runs?limit=0", nil); got.status != 400 {
		t.Errorf("limit 0: %d", got.status)
	}
	if got := s.get("/v1/runs?cursor=!", nil); got.status != 400 {
		t.Errorf("bad list cursor: %d", got.status)
	}
}

// noFlush hides what a plain http.ResponseWriter can do.
type noFlush struct{ http.ResponseWriter }

// Silence behind something that cannot flush is refused at once (case 099).
func TestNoFlusherIsRefused(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	s := r.relay(relay.Config{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.relay.Handler().ServeHTTP(noFlush{w}, q)
	}))
	defer front.Close()
	res, err := http.Get(front.URL + "/v1/runs/run-1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", res.StatusCode)
	}
}

func TestListRuns(t *testing.T) {
	r := silentRig(t)
	for i := range 7 {
		e := r.edge(fmt.Sprintf("run-%d", i))
		e.info.Started = e.info.Started.AddDate(0, 0, i)
		if i%2 == 1 {
			e.info.State, e.info.Tenant = "idle", "other"
		}
		e.register()
		if i == 5 {
			e.present(24 * time.Hour)
		}
	}
	s := r.relay(relay.Config{})
	list := func(query string) (string, relay.RunList) {
		var l relay.RunList
		s.get("/v1/runs"+query, nil).into(t, &l)
		var names []string
		for _, e := range l.Runs {
			n := strings.TrimPrefix(e.Run, "run-")
			if e.Alive {
				n += "+"
			}
			names = append(names, n)
		}
		return strings.Join(names, " "), l
	}
	for query, want := range map[string]string{
		"": "6 5+ 4 3 2 1 0", "?state=idle": "5+ 3 1", "?tenant=other": "5+ 3 1", "?dialect=cbc": "", "?dialect=claude&state=working&limit=2": "6 4",
	} {
		if got, _ := list(query); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?state=asleep", "?waiting_for=godot"} {
		if got := s.get("/v1/runs"+query, nil); got.status != http.StatusBadRequest {
			t.Errorf("%q: status %d", query, got.status)
		}
	}
	var all []string
	for query := "?limit=3"; ; {
		got, l := list(query)
		all = append(all, got)
		if l.Next == "" {
			break
		}
		query = "?limit=3&cursor=" + l.Next
	}
	if got := strings.Join(all, "|"); got != "6 5+ 4|3 2 1|0" {
		t.Errorf("pages %s", got)
	}
}
