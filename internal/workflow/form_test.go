package workflow_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/internal/dialect"
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
					switch a.Form {
					case "required":
						input = form
					case "optional":
						input = json.RawMessage(`{"message":"not now"}`)
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
