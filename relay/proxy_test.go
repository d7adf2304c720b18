package relay_test

import (
	"strings"
	"testing"

	"github.com/cbcast/cbcast/relay"
)

// Who gave a command and from where: behind a proxy that is configured what it says
// counts, from anybody else's it is not believed. Nobody reads through a proxy on
// this machine as if he were here.
func TestProxies(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	k := newKeyring(t, relay.Token{Name: "alice", Scopes: []relay.Scope{relay.ScopeCommand}})
	trusting := r.relay(relay.Config{Tokens: k.json(), Proxies: []string{"127.0.0.1", "10.0.0.0/8", "2001:db8::/32"}})
	plain := r.relay(relay.Config{Tokens: k.json()})
	for n, x := range []struct {
		s         *served
		forwarded string
		from      string
	}{
		{trusting, "203.0.113.9", "203.0.113.9 via 127.0.0.1"},
		{trusting, "203.0.113.9, 10.1.2.3", "203.0.113.9 via 127.0.0.1"},
		{trusting, "192.0.2.1, 203.0.113.9, 10.1.2.3, 2001:db8::1", "203.0.113.9 via 127.0.0.1"}, // the first was the client's own word
		{trusting, "::ffff:203.0.113.9", "203.0.113.9 via 127.0.0.1"},
		{trusting, "10.0.0.1", "127.0.0.1:"},
		{trusting, "203.0.113.9, nonsense", "127.0.0.1:"},
		{trusting, "", "127.0.0.1:"},
		{plain, "203.0.113.9", "127.0.0.1:"},
	} {
		id := "c-" + itoa(uint64(n))
		header := k.header("alice")
		if x.forwarded != "" {
			header["X-Forwarded-For"] = x.forwarded
		}
		if got := x.s.do("POST", "/v1/runs/run-1/interrupt", `{"id":"`+id+`"}`, header); got.status != 202 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if a := r.audit("run-1", id); a.Actor != "alice" || !strings.HasPrefix(a.From, x.from) {
			t.Errorf("%q: by %q from %q, want alice from %q", x.forwarded, a.Actor, a.From, x.from)
		}
	}
	for what, x := range map[string]struct {
		s      *served
		header map[string]string
		status int
	}{
		"here":                     {plain, nil, 200},
		"through some proxy":       {plain, map[string]string{"X-Forwarded-For": "203.0.113.9"}, 401},
		"through another":          {plain, map[string]string{"Forwarded": "for=203.0.113.9"}, 401},
		"through ours":             {trusting, map[string]string{"X-Forwarded-For": "203.0.113.9"}, 401},
		"through ours, silent":     {trusting, nil, 401},
		"through ours, as from it": {trusting, map[string]string{"X-Forwarded-For": "127.0.0.1"}, 401},
		"through ours, with token": {trusting, merged(k.header("alice"), map[string]string{"X-Forwarded-For": "203.0.113.9"}), 200},
	} {
		if got := x.s.get("/v1/runs", x.header); got.status != x.status {
			t.Errorf("%s: %d, want %d", what, got.status, x.status)
		}
	}
}
