package relay_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// Only a token with the scope delegate acts for others, and then the audit has both
// names, also of an answer that came too late.
func TestOnBehalfOf(t *testing.T) {
	r := newRig(t, small())
	r.asking("run-1", bash(1), bash(2))
	k := newKeyring(t,
		relay.Token{Name: "chat", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand, relay.ScopeDelegate}},
		relay.Token{Name: "plain", Scopes: []relay.Scope{relay.ScopeAnswer, relay.ScopeCommand}},
		relay.Token{Name: "named", Scopes: []relay.Scope{relay.ScopeDelegate}},
		relay.Token{Name: "all", Scopes: []relay.Scope{relay.ScopeAdmin}},
	)
	s := r.relay(relay.Config{Closed: true, Tokens: k.json()})
	const asks, interrupt = "/v1/runs/run-1/asks/", "/v1/runs/run-1/interrupt"
	as := func(who, behalf string) map[string]string {
		return merged(k.header(who), map[string]string{"Cbcast-On-Behalf-Of": behalf})
	}
	for _, c := range []struct {
		name, method, path, body, who, behalf string
		want                                  int
		code                                  relay.Code
	}{
		{"no scope to do it", "POST", asks + "a1", `{"decision":"allow"}`, "named", "slack:T1/U1", 403, relay.CodeForbidden},
		{"no scope to say it", "POST", asks + "a1", `{"decision":"allow"}`, "plain", "slack:T1/U1", 403, relay.CodeForbidden},
		{"no scope to say it of a command", "POST", interrupt, `{"id":"c0"}`, "plain", "slack:T1/U1", 403, relay.CodeForbidden},
		{"with a space", "POST", asks + "a1", `{"decision":"allow"}`, "chat", "slack U1", 400, relay.CodeBadRequest},
		{"of other letters", "POST", asks + "a1", `{"decision":"allow"}`, "chat", "slack:\u00dc1", 400, relay.CodeBadRequest},
		{"empty", "POST", asks + "a1", `{"decision":"allow"}`, "chat", "", 400, relay.CodeBadRequest},
		{"too long", "POST", asks + "a1", `{"decision":"allow"}`, "chat", strings.Repeat("u", 201), 400, relay.CodeBadRequest},
		{"reading needs no scope", "GET", "/v1/runs/run-1/asks", "", "plain", "slack:T1/U1", 200, ""},
		{"answer", "POST", asks + "a1", `{"decision":"allow"}`, "chat", "slack:T1/U1", 202, ""},
		{"the same by another", "POST", asks + "a1", `{"decision":"allow"}`, "chat", "slack:T1/U2", 200, ""},
		{"another one", "POST", asks + "a1", `{"decision":"deny"}`, "chat", "slack:T1/U2", 409, relay.CodeAnswered},
		{"and one more", "POST", asks + "a1", `{"decision":"deny"}`, "chat", "slack:T1/U3", 409, relay.CodeAnswered},
		{"command", "POST", interrupt, `{"id":"c1"}`, "chat", "slack:T1/U1", 202, ""},
		{"admin", "POST", asks + "a2", `{"decision":"deny"}`, "all", "slack:T1/U9", 202, ""},
	} {
		got := s.do(c.method, c.path, c.body, as(c.who, c.behalf))
		var body relay.ErrorBody
		if c.code != "" {
			got.into(t, &body)
		}
		if got.status != c.want || body.Code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, got.status, got.body, c.want, c.code)
		}
		if c.code == relay.CodeAnswered && (body.Details["actor"] != "chat" || body.Details["for"] != "slack:T1/U1") {
			t.Errorf("%s: who was first: %v", c.name, body.Details)
		}
	}
	got := map[string]string{}
	late := map[string]bool{}
	for e, err := range r.bus.Controls(t.Context(), tenant, "run-1") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != event.TypeAudit {
			continue
		}
		a := r.audit("run-1", strings.TrimPrefix(e.Ref, "audit-"))
		if a.Refused != "" {
			late[a.Actor+" "+a.For] = true
			continue
		}
		got[a.Command] = a.Actor + " " + a.For
	}
	want := map[string]string{"answer-run-1-a1-1": "chat slack:T1/U1", "answer-run-1-a2-1": "all slack:T1/U9", "c1": "chat slack:T1/U1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audits (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]bool{"chat slack:T1/U2": true, "chat slack:T1/U3": true}, late); d != "" {
		t.Errorf("audits of what did not count (-want +got):\n%s", d)
	}
}
