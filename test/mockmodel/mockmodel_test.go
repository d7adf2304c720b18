package mockmodel_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/test/mockmodel"
)

func post(t *testing.T, url, body string) string {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Plain turns go to the agent's loop in order; a turn that asks for words goes to
// whoever says them, before and between.
func TestTurns(t *testing.T) {
	m := mockmodel.New(
		mockmodel.Turn{Name: "sub", Last: "CHILD", Times: -1, Steps: []mockmodel.Step{{Say: "child"}}},
		mockmodel.Turn{Name: "one", Steps: []mockmodel.Step{{Call: "Bash", Input: map[string]any{"command": "true"}}}},
		mockmodel.Turn{Name: "two", Steps: []mockmodel.Step{{Say: "done"}}},
	)
	srv := httptest.NewServer(m)
	defer srv.Close()
	ask := func(path, text string) string {
		return post(t, srv.URL+path, `{"stream":false,"model":"m","tools":[{}],"`+map[bool]string{true: "input", false: "messages"}[path == "/v1/responses"]+
			`":[{"role":"user","content":"`+text+`"}]}`)
	}
	for i, c := range []struct{ path, text, want string }{
		{"/v1/messages", "CHILD 1", `"text":"child"`},
		{"/v1/messages", "hello", `"stop_reason":"tool_use"`},
		{"/v1/chat/completions", "CHILD 2", `"content":"child"`},
		{"/v1/responses", "CHILD 3", `"text":"child"`},
		{"/v1/chat/completions", "hello", `"content":"done"`},
		{"/v1/chat/completions", "hello", `"content":"off script"`},
	} {
		if got := ask(c.path, c.text); !strings.Contains(got, c.want) {
			t.Errorf("answer %d is %s, want %s in it", i, got, c.want)
		}
	}
	if err := m.Await(t.Context(), "sub", 3); err != nil {
		t.Error(err)
	}
}

func TestGate(t *testing.T) {
	m := mockmodel.New(mockmodel.Turn{Name: "held", Times: -1, Steps: []mockmodel.Step{{Say: "before"}, {Gate: "g"}, {Say: "after"}}})
	srv := httptest.NewServer(m)
	defer srv.Close()
	const body = `{"stream":true,"tools":[{}],"messages":[{"role":"user","content":"go"}]}`

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := m.Await(t.Context(), "at g", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := m.Await(t.Context(), "left g", 1); err != nil {
		t.Fatal(err)
	}

	m.Open("g")
	got := post(t, srv.URL+"/v1/messages", body)
	if !strings.Contains(got, "before") || !strings.Contains(got, "after") || !strings.Contains(got, "message_stop") {
		t.Errorf("an open gate stopped the answer: %s", got)
	}
}

// Codex sends its history as items: only what came after the model's own last item
// counts. It streams items, a string for an input is a custom tool's.
func TestResponses(t *testing.T) {
	m := mockmodel.New(
		mockmodel.Turn{Name: "done", Last: "^exit 0", Steps: []mockmodel.Step{{Say: "all done"}}},
		mockmodel.Turn{Name: "call", Last: "hello", Steps: []mockmodel.Step{
			{Say: "I call"},
			{Call: "apply_patch", Input: "*** Begin"},
			{Call: "collaboration/spawn_agent", Input: map[string]any{"a": 1}},
		}},
	)
	srv := httptest.NewServer(m)
	defer srv.Close()
	const hello = `{"type":"message","role":"developer","content":"exit 0"},{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}`
	first := post(t, srv.URL+"/v1/responses", `{"stream":true,"tools":[{}],"input":[`+hello+`]}`)
	second := post(t, srv.URL+"/v1/responses", `{"stream":true,"tools":[{}],"input":[`+hello+`,
		{"type":"function_call","name":"x","call_id":"1","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"exit 0"}]}`)
	for text, wants := range map[string][]string{
		first: {
			`"delta":"I call"`, `"input":"*** Begin"`, `"arguments":"{\"a\":1}"`, `"name":"spawn_agent","namespace":"collaboration"`,
			`event: response.output_item.done`, `event: response.completed`,
		},
		second: {`"text":"all done"`},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
	}
}
