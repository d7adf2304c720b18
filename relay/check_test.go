package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

const questions = `{"questions":[
	{"question":"Which library?","header":"Lib","multiSelect":false,"options":[{"label":"React","description":"usual"},{"label":"Vue"}]},
	{"question":"Which checks?","header":"Checks","multiSelect":true,"options":[{"label":"lint"},{"label":"test"}]}]}`

// A body that does not fit its ask is refused before anything is on the bus.
func TestAnswerForm(t *testing.T) {
	elicitation := frameOf(`{"type":"control_request","request_id":"q4","request":{"subtype":"elicitation","message":"Who?","requested_schema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]}}}`)
	elicitation.Type, elicitation.Kind, elicitation.Ext = "dev.cbcast.claude.control_request.elicitation", event.Ask, map[string]string{"ask": "a4"}
	twice := frameOf(`{"type":"control_request","request_id":"q5","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_name":"Read","input":{},"tool_use_id":"c5"}}`)
	twice.Type, twice.Kind, twice.Ext = "dev.cbcast.claude.control_request.can_use_tool", event.Ask, map[string]string{"ask": "a5"}
	r := newRig(t, small())
	e := r.asking("run-1", bash(1), request(2, "AskUserQuestion", questions), request(3, "ExitPlanMode", `{"plan":"do it"}`),
		elicitation, twice, bash(6), local(6), bash(7), cancel(7))
	s := r.relay(relay.Config{})
	both := `{"Which library?":"React","Which checks?":["lint","test"]}`
	for _, c := range []struct{ ask, body, want string }{
		// Whatever the ask.
		{"a1", ``, "400"},
		{"a1", `{}`, "400"},
		{"a1", `[]`, "400"},
		{"a1", `{"decision":"yes"}`, "400"},
		{"a1", `{"decision":true}`, "400"},
		{"a1", `{"decision":null}`, "400"},
		{"a1", `{"Decision":"allow"}`, "400"},
		{"a1", `{"decision":"deny","decision":"allow"}`, "400"},
		{"a1", `{"decision":"allow","extra":1}`, "400"},
		{"a1", "{\"decision\":\"deny\",\"message\":\"\xff\"}", "400"},
		{"a1", `{"decision":"allow","message":"so be it"}`, "400"},
		{"a1", `{"decision":"allow","interrupt":true}`, "400"},
		{"a1", `{"decision":"allow","vendor":"accept"}`, "400"},
		{"a1", `{"decision":"deny","session":true}`, "400"},
		{"a1", `{"decision":"deny","updated_input":{}}`, "400"},
		{"a1", `{"decision":"allow","updated_input":"x"}`, "400"},
		{"a1", `{"decision":"vendor"}`, "400"},
		{"a1", `{"decision":"vendor","vendor":null}`, "400"},
		{"a1", `{"decision":"vendor","vendor":1}`, "400"},
		{"a1", `{"decision":"allow","deliver_within":0.01}`, "400"},
		{"a1", `{"decision":"deny","message":"` + strings.Repeat("x", 4097) + `"}`, "400"},
		// An approval.
		{"a1", `{"decision":"answer","answers":{"x":"y"}}`, "400"},
		{"a1", `{"decision":"allow","answers":{"x":"y"}}`, "400"},
		{"a1", `{"decision":"allow","session":true}`, "400"}, // it is not offered
		// Questions.
		{"a2", allow, "400"},
		{"a2", `{"decision":"allow","answers":{}}`, "400"},
		{"a2", `{"decision":"answer"}`, "400"},
		{"a2", `{"decision":"answer","answers":{}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":"React"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":"React","Which checks?":"lint","Which?":"x"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"which library?":"React","Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":" ","Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":null,"Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":1,"Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":["React","Vue"],"Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":"React","Which checks?":[]}}`, "400"},
		{"a2", `{"decision":"answer","answers":{"Which library?":{"label":"React"},"Which checks?":"lint"}}`, "400"},
		{"a2", `{"decision":"allow","updated_input":{},"answers":` + both + `}`, "400"},
		// A plan, a form.
		{"a3", `{"decision":"answer","answers":{"plan":"yes"}}`, "400"},
		{"a4", `{"decision":"answer","answers":{"age":3}}`, "400"},
		{"a4", allow, "400"},
		{"a4", `{"decision":"answer","answers":{"name":"Ada","nick":"x"}}`, "400"},
		// Asks that take none.
		{"a5", allow, "409 not_answerable"},
		{"a6", allow, "410 ask_closed answered_local"},
		{"a7", allow, "410 ask_closed withdrawn"},
		{"a8", allow, "404"},
		{"x", allow, "404"},
		{"a1/x", allow, "404"},
		{strings.Repeat("a", 99), allow, "404"},
	} {
		got := s.post("/v1/runs/run-1/asks/"+c.ask, c.body, nil)
		var b relay.ErrorBody
		got.into(t, &b)
		if line := fmt.Sprint(got.status, " ", b.Code, " ", orNone(b.Details["reason"])); !strings.HasPrefix(line, c.want) {
			t.Errorf("%s %.100s: %s %s, want %s", c.ask, c.body, line, b.Message, c.want)
		}
	}
	if sent, audited := r.on("run-1"); len(sent)+len(audited) != 0 {
		t.Fatalf("on the bus: %q %q", sent, audited)
	}
	if got := s.do("POST", "/v1/runs/run-1/asks/a1", allow, nil); got.status != 401 {
		t.Errorf("without the token: %d", got.status)
	}
	for _, c := range []struct{ ask, body string }{
		{"a1", `{"decision":"allow","updated_input":{"command":"make -n"}}`},
		{"a2", `{"decision":"answer","answers":` + both + `}`},
		{"a3", allow},
		{"a4", `{"decision":"answer","answers":{"name":"Ada","age":36}}`},
	} {
		if g := s.reply("run-1", c.ask, c.body); g != "202 answer-run-1-"+c.ask+"-1" {
			t.Errorf("%s %s: %s", c.ask, c.body, g)
		}
	}
	e.emit(exited())
	e.shipped()
	if g := s.reply("run-1", "a1", deny); g != "409 already_answered" {
		t.Errorf("a decided ask after the end: %s", g)
	}
}
