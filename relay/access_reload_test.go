package relay_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/relay"
)

// A token that leaves its file is worth nothing 2 s later, and the streams that it
// opened end then; the others go on.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.edge("run-1")
		e.emit(note(1))
		e.shipped()
		k := newKeyring(t, relay.Token{Name: "old", Scopes: []relay.Scope{relay.ScopeRead}}, relay.Token{Name: "new", Scopes: []relay.Scope{relay.ScopeRead}},
			relay.Token{Name: "stays", Scopes: []relay.Scope{relay.ScopeRead}})
		file := k.file("new")
		s := r.relayInBubble(patient(relay.Config{Closed: true, TokensFile: file}))
		stream := func(name string) *client {
			c := s.stream("/v1/runs/run-1/stream", k.header(name))
			if ev, ok := c.next(); !ok || ev.id != "1" {
				t.Fatalf("%s: %+v", name, ev)
			}
			return c
		}
		gone, on := stream("old"), stream("stays")
		if got := s.get("/v1/runs", k.header("new")); got.status != 401 {
			t.Errorf("new, before: %d", got.status)
		}
		writeFile(t, file, k.json("old"))
		began := time.Now()
		if ev, ok := gone.next(); ok {
			t.Errorf("the stream of a token that is gone: %+v", ev)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it ended after %v", took)
		}
		for name, want := range map[string]int{"old": 401, "new": 200, "stays": 200} {
			if got := s.get("/v1/runs", k.header(name)); got.status != want {
				t.Errorf("%s, after: %d, want %d", name, got.status, want)
			}
		}
		e.emit(note(2), exited())
		if got := ids(on.all()); got != "2 3" {
			t.Errorf("the stream of a token that stays: %s", got)
		}
		// A file that cannot be read changes nothing.
		for _, bad := range []string{"", "[", `[{"name":"x"}]`} {
			writeFile(t, file, bad)
			<-time.After(5 * time.Second) // of the bubble
			if got := s.get("/v1/runs", k.header("stays")); got.status != 200 {
				t.Errorf("after the file %q: %d", bad, got.status)
			}
		}
		local := map[string]string{"Authorization": "Bearer " + token}
		if got := s.get("/metrics", local); !strings.Contains(string(got.body), "cbcast_relay_reload_ok 0") {
			t.Errorf("the figures do not tell of a bad file")
		}
		writeFile(t, file, "[]")
		<-time.After(3 * time.Second) // of the bubble
		if got := s.get("/v1/runs", k.header("stays")); got.status != 401 {
			t.Errorf("after an empty list: %d", got.status)
		}
		if got := s.get("/metrics", local); !strings.Contains(string(got.body), "cbcast_relay_reload_ok 1") {
			t.Errorf("the figures tell of a bad file for ever")
		}
	})
}

// A token's end ends its streams and its sessions, too.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.edge("run-1")
		e.emit(note(1))
		e.shipped()
		k := newKeyring(t, relay.Token{Name: "short", Scopes: []relay.Scope{relay.ScopeRead}, Expires: time.Now().Add(time.Minute)},
			relay.Token{Name: "ever", Scopes: []relay.Scope{relay.ScopeRead}})
		s := r.relayInBubble(patient(relay.Config{Closed: true, Tokens: k.json()}))
		ends := func(what string, header map[string]string, in time.Duration) {
			t.Helper()
			began := time.Now()
			c := s.stream("/v1/runs/run-1/stream", header)
			c.all()
			if took := time.Since(began); took < in-2*time.Second || took > in+2*time.Second {
				t.Errorf("the stream of %s ended after %v, want %v", what, took, in)
			}
			if got := s.get("/v1/runs", header); got.status != 401 {
				t.Errorf("%s after its end: %d", what, got.status)
			}
		}
		short := s.logIn(k.tokens["short"])
		ends("the token", k.header("short"), time.Minute)
		if got := s.get("/v1/runs", short); got.status != 401 {
			t.Errorf("the session of a token that is over: %d", got.status)
		}
		ends("a session", map[string]string{"Cookie": s.relay.Cookie(k.tokens["ever"], 2*time.Minute)}, 2*time.Minute)
		if got := s.get("/v1/runs", k.header("ever")); got.status != 200 {
			t.Errorf("the token of a session that is over: %d", got.status)
		}
	})
}

// A stream that has the connection itself ends with the token, too, and counts for
// it no more.
func TestRotationOfAParkedStream(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	k := newKeyring(t, relay.Token{Name: "old", Scopes: []relay.Scope{relay.ScopeRead}})
	file := k.file()
	s := r.relay(relay.Config{TokensFile: file, MaxPerToken: 2})
	open := func(want int) *client {
		t.Helper()
		c := s.stream("/v1/runs/run-1/stream", k.header("old"))
		if c.res.StatusCode != want {
			t.Fatalf("status %d, want %d", c.res.StatusCode, want)
		}
		return c
	}
	a, b := open(200), open(200)
	for _, c := range []*client{a, b} {
		if ev, ok := c.next(); !ok || ev.id != "1" {
			t.Fatalf("%+v", ev)
		}
	}
	if c := open(http.StatusTooManyRequests); c.res.Header.Get("Retry-After") == "" {
		t.Error("429 does not say when to come again")
	}
	a.close()
	s.until(func() bool { // the relay notices that by itself
		c := s.stream("/v1/runs/run-1/stream", k.header("old"))
		defer c.close()
		return c.res.StatusCode == 200
	})
	writeFile(t, file, "[]")
	s.relay.Reload()
	if ev, ok := b.next(); ok {
		t.Errorf("after the token is gone: %+v", ev)
	}
	if got := s.get("/v1/runs/run-1", k.header("old")); got.status != 401 {
		t.Errorf("status %d", got.status)
	}
}

func TestBadConfiguration(t *testing.T) {
	dir := t.TempDir()
	for what, cfg := range map[string]relay.Config{
		"CBCAST_RELAY_TOKENS: ":                     {Tokens: "{"},
		"no such file":                              {TokensFile: filepath.Join(dir, "none")},
		"CBCAST_RELAY_PROXIES: \"x\" is no address": {Proxies: []string{"x"}},
		"both or neither":                           {TLSCert: "x"},
		"CBCAST_RELAY_TLS_CERT: open":               {TLSCert: filepath.Join(dir, "c"), TLSKey: filepath.Join(dir, "k")},
	} {
		rel := relay.New(relay.Options{Config: cfg, Token: token})
		for _, err := range []error{rel.Check(), rel.Run(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%+v: %v, want %q", cfg, err, what)
			}
		}
	}
}
