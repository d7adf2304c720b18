package workflow_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/workflow"
)

// person is a form of an MCP server with fields of every type.
func person() run.AskView {
	return run.AskView{ID: "a3", Class: run.Question, Kind: "elicitation", Form: &run.AskForm{Input: json.RawMessage(`{"requestedSchema":{"type":"object","properties":{
		"name":{"type":"string","minLength":2,"maxLength":4},"age":{"type":"integer","minimum":1,"maximum":9.5},"size":{"type":"number"},
		"ok":{"type":"boolean"},"pick":{"type":"string","enum":["a","b"]},"level":{"type":"integer","enum":[1,2]},"any":{},
		"many":{"type":"array","minItems":1,"uniqueItems":true,"items":{"type":"string","anyOf":[{"const":"x"},{"const":"y"}]}}},"required":["name"]}}`)}}
}

// views are asks of all kinds.
func views() map[string]run.AskView {
	ask := func(class, kind string, f *run.AskForm) run.AskView {
		return run.AskView{ID: "a2", Class: class, Kind: kind, State: run.AskOpen, Form: f}
	}
	ambiguous := ask(run.Approval, "permission", &run.AskForm{})
	ambiguous.Ambiguous = true
	return map[string]run.AskView{
		"permission":  ask(run.Approval, "permission", &run.AskForm{Session: true}),
		"command":     ask(run.Approval, "command", &run.AskForm{}),
		"file_change": ask(run.Approval, "file_change", &run.AskForm{}),
		"permissions": ask(run.Approval, "permissions", &run.AskForm{Session: true}),
		"plan":        ask(run.Question, "plan", &run.AskForm{}),
		"question":    question(),
		"form":        person(),
		"address":     ask(run.Question, "elicitation", &run.AskForm{Input: json.RawMessage(`{"mode":"url","requestedSchema":{}}`)}),
		"secret":      ask(run.Question, "question", &run.AskForm{Questions: []run.AskQuestion{{ID: "k", Text: "Key?", Secret: true}}}),
		"ambiguous":   ambiguous,
		"closed":      ask(run.Approval, "permission", nil),
	}
}

// What an action does not take is refused, whatever the ask, and named: it must not
// look as if the agent had been told.
func TestAnswerOfTakesNothingElse(t *testing.T) {
	has := map[string]string{ // the actions of each ask
		"permission": "allow allow_session deny deny_and_stop", "command": "allow deny deny_and_stop", "file_change": "allow deny deny_and_stop",
		"permissions": "allow allow_session deny deny_and_stop", "plan": "allow deny", "question": "answer deny", "form": "answer deny",
		"address": "allow deny", "secret": "deny",
	}
	const good = "-"
	takes := map[string]map[string]string{ // data of each action: the parameter that is refused
		"allow": {
			``: good, `null`: good, `{}`: "data", `{"updated_input":{"command":"ls"}}`: "data", `{"x":1}`: "data", `{"message":"m"}`: "data",
			`[]`: "data", `"x"`: "data",
		},
		"deny": {
			``: good, `null`: good, `{}`: good, `{"message":""}`: good, `{"message":"m"}`: good, `{"message":"m","x":1}`: "data.x", `{"x":1}`: "data.x",
			`{"updated_input":{}}`: "data.updated_input", `{"q1":"Red"}`: "data.q1", `{"name":"Bob"}`: "data.name", `{"interrupt":true}`: "data.interrupt",
			`{"message":1}`: "data.message", `{"message":null}`: "data.message", `{"message":["m"]}`: "data.message",
			`{"message":"m","message":"n"}`: "data.message", `{"Message":"m"}`: "data.Message", `[1]`: "data", `true`: "data", `7`: "data",
			`{"message":"` + strings.Repeat("x", 5000) + `"}`: "data.message",
		},
		"answer": {
			``: "data", `null`: "data", `{"message":"m"}`: "data.message", `{"x":1}`: "data.x", `{"updated_input":{}}`: "data.updated_input", `[]`: "data", `"x"`: "data",
		},
	}
	takes["allow_session"], takes["deny_and_stop"] = takes["allow"], takes["deny"]
	accepted := 0
	for kind, v := range views() {
		for action, list := range takes {
			for data, want := range list {
				if !strings.Contains(" "+has[kind]+" ", " "+action+" ") {
					want = "action"
				}
				got := good
				_, err := workflow.AnswerOf(v, action, json.RawMessage(data))
				var form *workflow.FormError
				if errors.As(err, &form) && errors.Is(err, workflow.ErrAnswer) {
					got = form.Parameter
				} else if err != nil {
					t.Errorf("%s %s: error %v", kind, action, err)
				}
				if got != want {
					t.Errorf("%s %s %.60s: %s, want %s (%v)", kind, action, data, got, want, err)
				}
				if got == good {
					accepted++
				}
			}
		}
	}
	if accepted < 50 {
		t.Errorf("only %d were taken", accepted)
	}
}

func TestAnswerOf(t *testing.T) {
	asks := views()
	answers := func(list ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(list); i += 2 {
			m[list[i]] = json.RawMessage(list[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name, ask, action, form string
		want                    event.Answer
	}{
		{"allow", "permission", "allow", ``, event.Answer{Ask: "a2", Decision: event.Allow}},
		{"for the session", "permission", "allow_session", `null`, event.Answer{Ask: "a2", Decision: event.Allow, Session: true}},
		{"deny", "permission", "deny", `{"message":"no"}`, event.Answer{Ask: "a2", Decision: event.Deny, Message: "no"}},
		{"deny and stop", "permission", "deny_and_stop", `{}`, event.Answer{Ask: "a2", Decision: event.Deny, Interrupt: true}},
		{"secret denied", "secret", "deny", ``, event.Answer{Ask: "a2", Decision: event.Deny}},
		{"question denied", "question", "deny", `{"message":"no"}`, event.Answer{Ask: "a1", Decision: event.Deny, Message: "no"}},
		{
			"answers", "question", "answer", `{"q1":"Blue","q2":["A"],"q2_other":"mine","q3":"so"}`,
			event.Answer{Ask: "a1", Decision: event.Answers, Answers: answers("Which colour?", `"Blue"`, "What else?", `["A","mine"]`, "Why?", `"so"`)},
		},
		{
			"own answer alone", "question", "answer", `{"q1":"Red","q2_other":"mine","q3":"so"}`,
			event.Answer{Ask: "a1", Decision: event.Answers, Answers: answers("Which colour?", `"Red"`, "What else?", `["mine"]`, "Why?", `"so"`)},
		},
		{
			"empty fields", "question", "answer", `{"q1":"Red","q2":[],"q2_other":"mine","q3":"so"}`,
			event.Answer{Ask: "a1", Decision: event.Answers, Answers: answers("Which colour?", `"Red"`, "What else?", `["mine"]`, "Why?", `"so"`)},
		},
		{
			"a form", "form", "answer", ` {"name":"Bob","age":3,"ok":false,"many":["x","y"],"level":2.0,"any":7}`,
			event.Answer{Ask: "a3", Decision: event.Answers, Answers: answers("name", `"Bob"`, "age", `3`, "ok", `false`, "many", `["x","y"]`, "level", `2.0`, "any", `7`)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := workflow.AnswerOf(asks[c.ask], c.action, json.RawMessage(c.form))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// The fields of a form are what its formSchema says.
func TestAnswerOfFields(t *testing.T) {
	asks := views()
	for _, c := range []struct{ ask, form, parameter, text string }{
		{"question", `{"q1":"Green","q2":["A"],"q3":"so"}`, "data.q1", `"Green", which is not offered`},
		{"question", `{"q1":["Red"],"q2":["A"],"q3":"so"}`, "data.q1", "must be a string"},
		{"question", `{"q1":null,"q2":["A"],"q3":"so"}`, "data.q1", "must be a string"},
		{"question", `{"q1":7,"q2":["A"],"q3":"so"}`, "data.q1", "must be a string"},
		{"question", `{"q1":[],"q2":["A"],"q3":"so"}`, "data.q1", "must be a string"},
		{"question", `{"q1":"Red","q2":"A","q3":"so"}`, "data.q2", "must be a list"},
		{"question", `{"q1":"Red","q2":["A","A"],"q3":"so"}`, "data.q2", `"A" twice`},
		{"question", `{"q1":"Red","q2":["A",1],"q3":"so"}`, "data.q2", "an item that must be a string"},
		{"question", `{"q1":"Red","q2":["C"],"q3":"so"}`, "data.q2", `"C", which is not offered`},
		{"question", `{"q1":"Red","q2":["A"]}`, "data.q3", "no answer"},
		{"question", `{"q1":"Red","q2":["A"],"q3":""}`, "data.q3", "no answer"},
		{"question", `{"q1":"Red","q3":"so"}`, "data.q2", "no answer"},
		{"question", `{"q1":"Red","q2":["A"],"q2_other":["mine"],"q3":"so"}`, "data.q2_other", "must be a string"},
		{"question", `{"q1":"Red","q2":["A"],"q3":"so","q1_other":"mine"}`, "data.q1_other", "none of the form"},
		{"question", `{"Which colour?":"Red","q1":"Red","q2":["A"],"q3":"so"}`, "data.Which colour?", "none of the form"},
		{"question", `{"q1":"Red","q1":"Blue","q2":["A"],"q3":"so"}`, "data.q1", "twice"},
		{"question", `{}`, "data.q1", "no answer"},
		{"form", `{}`, "data.name", "is missing"},
		{"form", `{"age":3}`, "data.name", "is missing"},
		{"form", `{"name":"Bob","age":"3"}`, "data.age", "must be a whole number"},
		{"form", `{"name":"Bob","age":3.5}`, "data.age", "must be a whole number"},
		{"form", `{"name":"Bob","age":0}`, "data.age", "less than 1"},
		{"form", `{"name":"Bob","age":10}`, "data.age", "more than 9.5"},
		{"form", `{"name":"Bob","size":"big"}`, "data.size", "must be a number"},
		{"form", `{"name":"Bob","size":1e999}`, "data.size", "out of range"},
		{"form", `{"name":"Bob","ok":"true"}`, "data.ok", "must be true or false"},
		{"form", `{"name":"Bob","ok":null}`, "data.ok", "must be true or false"},
		{"form", `{"name":"Bob","pick":"c"}`, "data.pick", "not offered"},
		{"form", `{"name":"Bob","level":3}`, "data.level", "not offered"},
		{"form", `{"name":"B"}`, "data.name", "less than 2"},
		{"form", `{"name":"Robert"}`, "data.name", "more than 4"},
		{"form", `{"name":{"x":1}}`, "data.name", "must be a string"},
		{"form", `{"name":"   "}`, "data.name", "is empty"},
		{"form", `{"name":"Bob","many":"x"}`, "data.many", "must be a list"},
		{"form", `{"name":"Bob","many":[]}`, "data.many", "less than 1"},
		{"form", `{"name":"Bob","many":["x","x"]}`, "data.many", "twice"},
		{"form", `{"name":"Bob","many":["z"]}`, "data.many", "not offered"},
		{"form", `{"name":"Bob","any":{"deep":1}}`, "data.any", "nothing that an answer can say"},
		{"form", `{"name":"Bob","` + strings.Repeat("x", 5000) + `":1}`, "data." + strings.Repeat("x", 200) + "…", "none of the form"},
	} {
		_, err := workflow.AnswerOf(asks[c.ask], "answer", json.RawMessage(c.form))
		var form *workflow.FormError
		if !errors.As(err, &form) || form.Parameter != c.parameter || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s %.80s: %+v, want %s: … %s", c.ask, c.form, err, c.parameter, c.text)
		}
	}
}
