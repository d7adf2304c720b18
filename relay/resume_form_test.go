package relay_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// What an ask's action does not take is refused, with its name, before anything is on
// the bus: the agent would go on as if nobody had said it. Neither does it use up the
// token.
func TestWorkflowResumeTakesNothingElse(t *testing.T) {
	r := newRig(t, small())
	form := frameOf(`{"type":"control_request","request_id":"q4","request":{"subtype":"elicitation","message":"Who?","requested_schema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}}}`)
	form.Type, form.Kind, form.Ext = "dev.cbcast.claude.control_request.elicitation", event.Ask, map[string]string{"ask": "a4"}
	r.asking("run-1", bash(1), request(2, "ExitPlanMode", `{"plan":"p"}`),
		request(3, "AskUserQuestion", `{"questions":[{"question":"Which?","header":"H","multiSelect":false,"options":[{"label":"red","description":"r"},{"label":"blue","description":"b"}]}]}`), form)
	s := r.relay(relay.Config{})
	c := s.stream(workflows+"run-1/stream", nil)
	tokens := map[string]string{}
	for range 4 {
		d := awaited(t, c)
		tokens[d.Kind] = d.ResumeToken
	}
	for _, tt := range []struct{ kind, action, data, parameter string }{
		{"permission", "allow", `{"updated_input":{"command":"ls"}}`, "data"},
		{"permission", "allow", `{"x":1}`, "data"},
		{"permission", "allow", `[]`, "data"},
		{"permission", "deny", `{"message":"no","interrupt":true}`, "data.interrupt"},
		{"permission", "deny", `{"message":1}`, "data.message"},
		{"permission", "deny_and_stop", `{"x":1}`, "data.x"},
		{"permission", "answer", `{"q1":"x"}`, "action"},
		{"plan", "allow", `{"updated_input":{"plan":"mine"}}`, "data"},
		{"plan", "deny", `{"why":"no"}`, "data.why"},
		{"plan", "allow_session", ``, "action"},
		{"question", "answer", ``, "data"},
		{"question", "answer", `{}`, "data.q1"},
		{"question", "answer", `{"q1":["red"]}`, "data.q1"},
		{"question", "answer", `{"q1":"red","note":"x"}`, "data.note"},
		{"question", "deny", `{"q1":"red"}`, "data.q1"},
		{"question", "allow", ``, "action"},
		{"elicitation", "answer", `{"age":3}`, "data.name"},
		{"elicitation", "answer", `{"name":"Bob","age":"3"}`, "data.age"},
		{"elicitation", "answer", `{"name":"Bob","x":1}`, "data.x"},
		{"elicitation", "deny", `{"name":"Bob"}`, "data.name"},
	} {
		a := s.post(workflows+"run-1/resume", resumeBody(tokens[tt.kind], tt.action, tt.data), nil)
		var e relay.ErrorBody
		a.into(t, &e)
		if a.status != http.StatusBadRequest || e.Code != relay.CodeBadRequest || e.Details["parameter"] != tt.parameter {
			t.Errorf("%s %s %s: %d %s, want 400 for %s", tt.kind, tt.action, tt.data, a.status, a.body, tt.parameter)
		}
	}
	for e, err := range r.bus.Controls(t.Context(), tenant, "run-1") {
		t.Errorf("on the bus: %s %s, %v", e.Type, e.Data, err)
	}
	for n, tt := range []struct{ kind, action, data, want string }{
		{"permission", "allow", ``, "allow"},
		{"plan", "deny", `{"message":"more"}`, "deny"},
		{"question", "answer", `{"q1":"red"}`, "answer"},
		{"elicitation", "answer", `{"name":"Bob","age":3}`, "answer"},
	} {
		want := fmt.Sprintf("202 answer-run-1-a%d-1 a%d %s", n+1, n+1, tt.want)
		if got := s.resume("run-1", resumeBody(tokens[tt.kind], tt.action, tt.data)); got != want {
			t.Errorf("%s %s %s: %s, want %s", tt.kind, tt.action, tt.data, got, want)
		}
	}
}
