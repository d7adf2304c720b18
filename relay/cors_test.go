package relay_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cbcast/cbcast/relay"
)

// status is what a handler answers without a network.
func status(h http.Handler, method, path string, header map[string]string) int {
	q := httptest.NewRequest(method, path, nil)
	q.Host, q.RemoteAddr = "localhost", "127.0.0.1:1"
	for k, v := range header {
		q.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w.Code
}

func TestCORS(t *testing.T) {
	r := newRig(t, small())
	k := newKeyring(t, relay.Token{Name: "alice", Scopes: []relay.Scope{relay.ScopeRead}})
	ask := map[string]string{"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
	from := func(origin string) map[string]string { return map[string]string{"Origin": origin} }

	// Off by default: no page of another origin hears anything that lets it in.
	s := r.relay(relay.Config{Tokens: k.json()})
	for _, x := range []struct {
		method string
		header map[string]string
		status int
	}{
		{"OPTIONS", merged(ask, from("https://ci.example")), 403},
		{"GET", from("https://ci.example"), 403},
		{"GET", from(s.url), 200},
		{"OPTIONS", nil, 405},
	} {
		got := s.do(x.method, "/v1/runs", "", x.header)
		if got.status != x.status {
			t.Errorf("%s %v: %d, want %d", x.method, x.header, got.status, x.status)
		}
		for name := range got.header {
			if len(name) > 14 && name[:14] == "Access-Control" {
				t.Errorf("%s %v: %s", x.method, x.header, name)
			}
		}
	}

	s = r.relay(relay.Config{Tokens: k.json(), Closed: true, Origins: []string{"https://ci.example"}})
	got := s.do("OPTIONS", "/v1/runs/any/interrupt", "", merged(ask, from("https://ci.example")))
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://ci.example", "Access-Control-Allow-Methods": "GET, POST, DELETE",
		"Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Cache-Control",
		"Access-Control-Max-Age":       "600", "Vary": "Origin", "Access-Control-Allow-Credentials": "",
	} {
		if have := got.header.Get(name); have != want {
			t.Errorf("preflight: %s is %q, want %q", name, have, want)
		}
	}
	if got.status != 204 {
		t.Errorf("preflight: %d", got.status)
	}
	for origin, want := range map[string]int{"https://ci.example": 200, "https://ci.example.evil": 403, "http://ci.example": 403, "https://CI.example": 403, "null": 403} {
		got := s.get("/v1/runs", merged(k.header("alice"), from(origin)))
		allowed := got.header.Get("Access-Control-Allow-Origin")
		if got.status != want || (allowed == origin) != (want == 200) || want != 200 && allowed != "" || got.header.Get("Vary") != "Origin" {
			t.Errorf("%s: %d, allowed %q, want %d", origin, got.status, allowed, want)
		}
	}
	// The page is told why it is refused, and its browser's session is not used.
	if got := s.get("/v1/runs", merged(s.logIn(k.tokens["alice"]), from("https://ci.example"))); got.status != 401 || got.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("with the cookie of a session: %d %v", got.status, got.header)
	}
	// A request that was sent to another host is not answered to anybody.
	if got := s.do("OPTIONS", "/v1/runs", "", merged(ask, from("https://ci.example"), map[string]string{"Host": "evil.example"})); got.status != 403 || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight to another host: %d", got.status)
	}
}
