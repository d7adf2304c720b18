package relay_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/relay"
)

// logIn begins a session and returns the header that a browser then sends.
func (s *served) logIn(token string) map[string]string {
	s.t.Helper()
	got := s.do("POST", "/v1/session", `{"token":"`+token+`"}`, map[string]string{"Content-Type": "application/json"})
	if got.status != 200 {
		s.t.Fatalf("log in: %d %s", got.status, got.body)
	}
	c, err := http.ParseSetCookie(got.header.Get("Set-Cookie"))
	if err != nil {
		s.t.Fatal(err)
	}
	return map[string]string{"Cookie": c.Name + "=" + c.Value}
}

func TestSession(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	k := newKeyring(t, relay.Token{Name: "alice", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand}, Tenants: []string{tenant}},
		relay.Token{Name: "reader", Scopes: []relay.Scope{relay.ScopeRead}})
	file := k.file()
	s := r.relay(relay.Config{Closed: true, TokensFile: file})
	json := map[string]string{"Content-Type": "application/json"}
	in := s.do("POST", "/v1/session", `{"token":"`+k.tokens["alice"]+`"}`, json)
	c, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.Domain != "" || c.MaxAge < 11*3600 || c.MaxAge > 13*3600 {
		t.Errorf("cookie %+v", c)
	}
	if strings.Contains(in.header.Get("Set-Cookie"), k.tokens["alice"][8:]) {
		t.Error("the cookie has the token in it")
	}
	cookie := map[string]string{"Cookie": c.Name + "=" + c.Value}
	var who relay.SessionDoc
	s.get("/v1/session", cookie).into(t, &who)
	if who.Expires == nil || time.Until(*who.Expires) > 12*time.Hour {
		t.Errorf("expires %v", who.Expires)
	}
	who.Expires = nil
	want := relay.SessionDoc{Name: "alice", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand}, Tenants: []string{tenant}, Via: "session"}
	if d := cmp.Diff(want, who); d != "" {
		t.Errorf("who (-want +got):\n%s", d)
	}

	// Writes with the cookie come from the relay's own page, as JSON.
	const interrupt = "/v1/runs/run-1/interrupt"
	own := map[string]string{"Origin": s.url}
	for _, x := range []struct {
		what   string
		header map[string]string
		status int
	}{
		{"own page", merged(cookie, own, json), 202},
		{"own page by fetch metadata", merged(cookie, map[string]string{"Sec-Fetch-Site": "same-origin"}, json), 202},
		{"no origin at all", merged(cookie, json), 403},
		{"typed", merged(cookie, map[string]string{"Sec-Fetch-Site": "none"}, json), 403},
		{"another port", merged(cookie, map[string]string{"Origin": "http://127.0.0.1:1"}, json), 403},
		{"another site", merged(cookie, map[string]string{"Origin": "https://evil.example"}, json), 403},
		{"another site that hides", merged(cookie, map[string]string{"Sec-Fetch-Site": "cross-site"}, json), 403},
		{"null", merged(cookie, map[string]string{"Origin": "null"}, json), 403},
		{"a form", merged(cookie, own, map[string]string{"Content-Type": "text/plain"}), 400},
		{"a form of the usual kind", merged(cookie, own, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}), 400},
		{"no type", merged(cookie, own), 400},
		{"type with a parameter", merged(cookie, own, map[string]string{"Content-Type": "application/json; charset=utf-8"}), 202},
		{"the token beside the cookie", merged(cookie, k.header("alice")), 202},
		{"a wrong token beside the cookie", merged(cookie, own, json, map[string]string{"Authorization": "Bearer x"}), 401},
	} {
		if got := s.do("POST", interrupt, "{}", x.header); got.status != x.status {
			t.Errorf("%s: %d %s, want %d", x.what, got.status, got.body, x.status)
		}
	}
	got := s.do("POST", interrupt, `{"id":"c-1"}`, merged(cookie, own, json))
	if got.status != 202 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if a := r.audit("run-1", "c-1"); a.Actor != "alice" || !strings.HasPrefix(a.From, "127.0.0.1:") {
		t.Errorf("audit: by %q from %q", a.Actor, a.From)
	}
	// Reads: not for other origins' pages, even where the browser sends the cookie.
	for what, x := range map[string]struct {
		header map[string]string
		status int
	}{
		"plain":       {cookie, 200},
		"own":         {merged(cookie, map[string]string{"Sec-Fetch-Site": "same-origin"}), 200},
		"typed":       {merged(cookie, map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}), 200},
		"a link":      {merged(cookie, map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}), 401},
		"an image":    {merged(cookie, map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}), 403},
		"a frame":     {merged(cookie, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}), 403},
		"another one": {merged(cookie, map[string]string{"Origin": "http://127.0.0.1:1"}), 403},
	} {
		if got := s.get("/v1/runs/run-1", x.header); got.status != x.status {
			t.Errorf("read, %s: %d %s, want %d", what, got.status, got.body, x.status)
		}
	}
	// What is not signed by this relay is no session.
	for n := range len(c.Value) {
		b := []byte(c.Value)
		b[n] ^= 1
		if n == len(b)-1 {
			b[n] = c.Value[n] ^ 2 // the last character's low bits are padding
			if strings.IndexByte("AEIMQUYcgkosw048", c.Value[n]) >= 0 {
				b[n] = "QAMI"[strings.IndexByte("AQIM", c.Value[n])&3]
			}
		}
		if string(b) == c.Value || b[n] < '!' || b[n] == ';' || b[n] == '"' || b[n] == ',' || b[n] == '\\' || b[n] > '~' {
			continue
		}
		if got := s.get("/v1/runs", map[string]string{"Cookie": c.Name + "=" + string(b)}); got.status != 401 {
			t.Errorf("character %d changed: %d", n, got.status)
		}
	}
	// Log out: by the own page only.
	if got := s.do("DELETE", "/v1/session", "", cookie); got.status != 403 {
		t.Errorf("log out without an origin: %d", got.status)
	}
	out := s.do("DELETE", "/v1/session", "", merged(cookie, own))
	if c, err := http.ParseSetCookie(out.header.Get("Set-Cookie")); err != nil || out.status != 204 || c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("log out: %d %+v %v", out.status, c, err)
	}
	// The list decides, at each request.
	writeFile(t, file, k.json("alice"))
	s.relay.Reload()
	s.until(func() bool { return s.get("/v1/runs", cookie).status == 401 })
	if got := s.get("/v1/runs", s.logIn(k.tokens["reader"])); got.status != 200 {
		t.Errorf("the session of another token: %d", got.status)
	}
}

func TestLogIn(t *testing.T) {
	r := newRig(t, small())
	k := newKeyring(t, relay.Token{Name: "alice", Scopes: []relay.Scope{relay.ScopeRead}})
	s := r.relay(relay.Config{Tokens: k.json(), Origins: []string{"https://ci.example"}, Proxies: []string{"127.0.0.0/8"}})
	json := map[string]string{"Content-Type": "application/json"}
	good := `{"token":"` + k.tokens["alice"] + `"}`
	for _, x := range []struct {
		body   string
		header map[string]string
		status int
	}{
		{good, json, 200},
		{good, merged(json, map[string]string{"Origin": s.url}), 200},
		{good, merged(json, map[string]string{"Origin": "https://ci.example"}), 403}, // may read with a token, and not log browsers in
		{good, merged(json, map[string]string{"Origin": "https://evil.example"}), 403},
		{good, merged(json, map[string]string{"Sec-Fetch-Site": "cross-site"}), 403},
		{good, map[string]string{"Content-Type": "text/plain"}, 400},
		{`{"token":"x"}`, json, 401},
		{`{"code":"x"}`, json, 401},
		{`{}`, json, 400},
		{`{"token":"x","code":"y"}`, json, 400},
		{`{"password":"x"}`, json, 400},
	} {
		got := s.do("POST", "/v1/session", x.body, x.header)
		if got.status != x.status || (got.header.Get("Set-Cookie") != "") != (x.status == 200) {
			t.Errorf("%.20s %v: %d %s, want %d", x.body, x.header, got.status, got.body, x.status)
		}
	}
	// Behind a proxy that says so, the cookie is for TLS only.
	got := s.do("POST", "/v1/session", good, merged(json, map[string]string{"X-Forwarded-Proto": "https"}))
	if c, err := http.ParseSetCookie(got.header.Get("Set-Cookie")); err != nil || !c.Secure || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("over TLS: %+v %v", c, err)
	}
	// A relay with the same secret takes the session, another does not.
	for secret, want := range map[string]int{"": 200, strings.Repeat("s", relay.MinSecret): 401} {
		cookie := s.logIn(k.tokens["alice"])
		other := relay.New(relay.Options{Config: relay.Config{Tokens: k.json(), Closed: true}, Token: token, Secret: []byte(secret)})
		if got := status(other.Handler(), "GET", "/v1/session", cookie); got != want {
			t.Errorf("a relay with the secret %q: %d, want %d", secret, got, want)
		}
	}
}

func TestLoginCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		k := newKeyring(t, relay.Token{Name: "alice", Scopes: []relay.Scope{relay.ScopeRead}}, relay.Token{Name: "bob", Scopes: []relay.Scope{relay.ScopeRead}})
		file := k.file()
		s := r.relayInBubble(relay.Config{TokensFile: file})
		json := map[string]string{"Content-Type": "application/json"}
		code := func(name string) string {
			var d relay.CodeDoc
			s.do("POST", "/v1/session/code", "", k.header(name)).into(t, &d)
			if d.Path != "/login#"+d.Code || len(d.Code) != 32 {
				t.Fatalf("code %+v", d)
			}
			return `{"code":"` + d.Code + `"}`
		}
		use := func(what, body string, want int) {
			t.Helper()
			got := s.do("POST", "/v1/session", body, json)
			if got.status != want {
				t.Errorf("%s: %d %s, want %d", what, got.status, got.body, want)
			}
		}
		c := code("alice")
		use("once", c, 200)
		use("twice", c, 401)
		c = code("alice")
		<-time.After(10*time.Minute - time.Second) // of the bubble
		use("in time", c, 200)
		c = code("alice")
		<-time.After(10*time.Minute + time.Second) // of the bubble
		use("too late", c, 401)
		c = code("bob")
		writeFile(t, file, k.json("bob"))
		<-time.After(3 * time.Second) // of the bubble
		use("of a token that is gone", c, 401)
		first := code("alice")
		for range 64 {
			c = code("alice")
		}
		use("the oldest of too many", first, 401)
		use("the newest", c, 200)
		// Neither a session nor the loopback makes codes.
		if got := s.do("POST", "/v1/session/code", "", nil); got.status != 401 {
			t.Errorf("a code for the loopback: %d", got.status)
		}
		if got := s.do("POST", "/v1/session/code", "{}", merged(s.logIn(k.tokens["alice"]), json, map[string]string{"Origin": s.url})); got.status != 403 {
			t.Errorf("a code for a session: %d", got.status)
		}
	})
}

// The login page may run its own script and nothing else.
func TestLoginPage(t *testing.T) {
	s := newRig(t, small()).relay(relay.Config{Closed: true})
	got := s.get("/login", nil)
	if got.status != 200 {
		t.Fatalf("%d", got.status)
	}
	page, policy := string(got.body), got.header.Get("Content-Security-Policy")
	for _, el := range []string{"script", "style"} {
		_, rest, _ := strings.Cut(page, "<"+el+">")
		text, _, _ := strings.Cut(rest, "</"+el+">")
		sum := sha256.Sum256([]byte(text))
		if want := fmt.Sprintf("%s-src 'sha256-%s'", el, base64.StdEncoding.EncodeToString(sum[:])); len(text) < 100 || !strings.Contains(policy, want) {
			t.Errorf("%s: the policy %q has no %q", el, policy, want)
		}
		if strings.Count(page, "<"+el) != 1 {
			t.Errorf("more than one %s", el)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(page, "innerHTML") || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("policy %q", policy)
	}
}
