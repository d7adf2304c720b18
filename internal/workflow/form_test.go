package workflow_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/test/capture"
)

// Each ask of each recording has a form that a program can fill, and each action
// with that form makes an answer that the child takes.
func TestForms(t *testing.T) {
	asks, answers := 0, map[string]int{}
	for _, name := range capture.List() {
		evs := events(t, name)
		state := run.New("r")
		m := workflow.New(workflow.ID{Run: "r"})
		for _, e := range evs {
			state.Apply(e)
			out, err := m.Apply(e)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range out {
				if v.Event != workflow.RunAwaitingInput {
					continue
				}
				asks++
				var d workflow.RunAwaitingInputData
				if err := json.Unmarshal(v.Data, &d); err != nil {
					t.Fatal(err)
				}
				view, _ := state.Ask(d.AskID)
				form := fill(t, d.FormSchema)
				for _, a := range d.Actions {
					answers[d.Kind+" "+a.ID]++
					var input json.RawMessage
					if a.Form != "none" {
						input = form
					}
					ans, err := workflow.AnswerOf(view, a.ID, input)
					if err != nil {
						t.Errorf("%s %s %s: %v", name, d.AskID, a.ID, err)
						continue
					}
					q := dialect.AskRequests(e.Data)
					if len(q) == 0 {
						t.Errorf("%s: event %d is no request", name, e.Seq)
						continue
					}
					if _, err := dialect.AnswerLine(state.Dialect(), q[0], ans); err != nil {
						t.Errorf("%s %s %s with %s: %v", name, d.AskID, a.ID, input, err)
					}
				}
			}
		}
	}
	t.Logf("%d asks, actions %v", asks, answers)
	if asks < 50 || len(answers) < 10 {
		t.Errorf("only %d asks with %d actions", asks, len(answers))
	}
}

// fill makes a form that the schema takes, the first of what is offered.
func fill(t *testing.T, raw json.RawMessage) json.RawMessage {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("form.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("form.json")
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	form := map[string]any{}
	for name, p := range doc.(map[string]any)["properties"].(map[string]any) {
		if !strings.HasSuffix(name, "_other") {
			form[name] = example(p.(map[string]any))
		}
	}
	b, err := json.Marshal(form)
	if err != nil {
		t.Fatal(err)
	}
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(got); err != nil {
		t.Fatalf("%v\n%s\n%s", err, raw, b)
	}
	return b
}

func example(p map[string]any) any {
	if list, ok := p["oneOf"].([]any); ok {
		return list[0].(map[string]any)["const"]
	}
	if list, ok := p["enum"].([]any); ok {
		return list[0]
	}
	switch p["type"] {
	case "array":
		return []any{example(p["items"].(map[string]any))}
	case "boolean":
		return true
	case "number", "integer":
		return 3
	}
	return "an answer"
}

// question is an ask of two questions, one of which takes several answers.
func question() run.AskView {
	return run.AskView{
		ID: "a1", Class: run.Question, Kind: "question", State: run.AskOpen, Form: &run.AskForm{Questions: []run.AskQuestion{
			{ID: "Which colour?", Text: "Which colour?", Options: []run.AskOption{{Label: "Red"}, {Label: "Blue"}}},
			{ID: "What else?", Text: "What else?", Multi: true, Other: true, Options: []run.AskOption{{Label: "A"}, {Label: "B"}}},
			{ID: "Why?", Text: "Why?"},
		}},
	}
}

func TestAnswerOf(t *testing.T) {
	approval := run.AskView{ID: "a2", Class: run.Approval, Kind: "permission", Form: &run.AskForm{Session: true}}
	secret := question()
	secret.Form = &run.AskForm{Questions: []run.AskQuestion{{ID: "k", Text: "Key?", Secret: true}}}
	ambiguous := approval
	ambiguous.Ambiguous = true
	closed := approval
	closed.Form = nil
	answers := func(list ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(list); i += 2 {
			m[list[i]] = json.RawMessage(list[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name, action, form string
		ask                run.AskView
		want               event.Answer
		err                string
	}{
		{"allow", "allow", ``, approval, event.Answer{Ask: "a2", Decision: event.Allow}, ""},
		{"allow, the form is ignored", "allow", `{"message":"x"}`, approval, event.Answer{Ask: "a2", Decision: event.Allow}, ""},
		{"for the session", "allow_session", `null`, approval, event.Answer{Ask: "a2", Decision: event.Allow, Session: true}, ""},
		{"deny", "deny", `{"message":"no"}`, approval, event.Answer{Ask: "a2", Decision: event.Deny, Message: "no"}, ""},
		{"deny and stop", "deny_and_stop", `{}`, approval, event.Answer{Ask: "a2", Decision: event.Deny, Interrupt: true}, ""},
		{"deny with a number", "deny", `{"message":1}`, approval, event.Answer{}, "message is no string"},
		{"too long", "deny", `{"message":"` + strings.Repeat("x", 5000) + `"}`, approval, event.Answer{}, "over 4096 bytes"},
		{"no such action", "answer", `{}`, approval, event.Answer{}, `no action "answer"`},
		{"no form", "deny", `[1]`, approval, event.Answer{}, "no object"},
		{"ambiguous", "allow", ``, ambiguous, event.Answer{}, "no action"},
		{"closed", "allow", ``, closed, event.Answer{}, "no action"},
		{"secret", "answer", `{"q1":"x"}`, secret, event.Answer{}, "no action"},
		{"secret denied", "deny", ``, secret, event.Answer{Ask: "a1", Decision: event.Deny}, ""},
		{
			"answers", "answer", `{"q1":"Blue","q2":["A"],"q2_other":"mine","q3":"so"}`, question(),
			event.Answer{Ask: "a1", Decision: event.Answers, Answers: answers("Which colour?", `"Blue"`, "What else?", `["A","mine"]`, "Why?", `"so"`)},
			"",
		},
		{
			"own answer alone", "answer", `{"q1":"Red","q2_other":"mine","q3":"so"}`, question(),
			event.Answer{Ask: "a1", Decision: event.Answers, Answers: answers("Which colour?", `"Red"`, "What else?", `["mine"]`, "Why?", `"so"`)},
			"",
		},
		{"not offered", "answer", `{"q1":"Green","q2":["A"],"q3":"so"}`, question(), event.Answer{}, `"Green" is not offered`},
		{"one missing", "answer", `{"q1":"Red","q2":["A"]}`, question(), event.Answer{}, `field "q3": no answer`},
		{"two for one", "answer", `{"q1":["Red","Blue"],"q2":["A"],"q3":"so"}`, question(), event.Answer{}, "only one answer"},
		{"unknown field", "answer", `{"q9":"Red"}`, question(), event.Answer{}, `no field "q9"`},
		{"a number", "answer", `{"q1":7,"q2":["A"],"q3":"so"}`, question(), event.Answer{}, "want a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := workflow.AnswerOf(c.ask, c.action, json.RawMessage(c.form))
			if c.err != "" {
				if !errors.Is(err, workflow.ErrAnswer) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// The form of an MCP server is taken over field by field: what could fetch or run
// something is left behind.
func TestElicitation(t *testing.T) {
	ask := `{"type":"control_request","request_id":"7","request":{"subtype":"elicitation","message":"who?","requested_schema":{"type":"object","$ref":"http://x/","properties":{` +
		`"name":{"type":"string","title":"Name","pattern":"(a+)+$","minLength":1,"$ref":"http://x/"},"age":{"type":"integer","minimum":1,"maximum":9.5},` +
		`"ok":{"type":"boolean","default":true},"pick":{"type":"string","enum":["a","b",{"c":1}]},"many":{"type":"array","items":{"type":"string","anyOf":[{"const":"x","title":"X"}]}}},"required":["name"]}},"session_id":"s"}`
	evs := claude(initLine, ask, resultLine)
	all, err := mapAll(t, workflow.ID{Run: "r"}, evs)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(v workflow.Envelope) bool { return v.Event == workflow.RunAwaitingInput })
	if i < 0 {
		t.Fatal("it is not asked")
	}
	var d workflow.RunAwaitingInputData
	if err := json.Unmarshal(all[i].Data, &d); err != nil {
		t.Fatal(err)
	}
	want := `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{` +
		`"name":{"type":"string","title":"Name","minLength":1},"age":{"type":"integer","minimum":1,"maximum":9.5},"ok":{"type":"boolean","default":true},` +
		`"pick":{"type":"string","enum":["a","b"]},"many":{"type":"array","items":{"type":"string","oneOf":[{"title":"X","const":"x"}]}}},"required":["name"],"additionalProperties":false}`
	if string(d.FormSchema) != want {
		t.Errorf("schema\n%s\nwant\n%s", d.FormSchema, want)
	}
	fill(t, d.FormSchema)
	if d.ResumeToken != "token-of-a1" || len(d.Actions) != 2 {
		t.Errorf("token %q, actions %v", d.ResumeToken, d.Actions)
	}
}
