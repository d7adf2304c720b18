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
		return post(t, srv.URL+path, `{"stream":false,"model":"m","tools":[{}],"messages":[{"role":"user","content":"`+text+`"}]}`)
	}
	for i, c := range []struct{ path, text, want string }{
		{"/v1/messages", "CHILD 1", `"text":"child"`},
		{"/v1/messages", "hello", `"stop_reason":"tool_use"`},
		{"/v1/chat/completions", "CHILD 2", `"content":"child"`},
		{"/v1/chat/completions", "hello", `"content":"done"`},
		{"/v1/chat/completions", "hello", `"content":"off script"`},
	} {
		if got := ask(c.path, c.text); !strings.Contains(got, c.want) {
			t.Errorf("answer %d is %s, want %s in it", i, got, c.want)
		}
	}
	if err := m.Await(t.Context(), "sub", 2); err != nil {
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
