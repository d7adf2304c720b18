package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/relay"
)

// awaited reads a stream up to the next run.awaiting_input.
func awaited(t testing.TB, c *client) workflow.RunAwaitingInputData {
	t.Helper()
	return dataIn[workflow.RunAwaitingInputData](t, until(t, c, workflow.RunAwaitingInput))
}

func until(t testing.TB, c *client, name workflow.Event) sseEvent {
	t.Helper()
	for ev, ok := c.next(); ok; ev, ok = c.next() {
		if ev.name == string(name) {
			return ev
		}
	}
	t.Fatalf("the stream ended without %s: %v", name, c.sc.Err())
	return sseEvent{}
}

func dataIn[T any](t testing.TB, ev sseEvent) (d T) {
	t.Helper()
	var v workflow.Envelope
	if err := json.Unmarshal([]byte(ev.data), &v); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(v.Data, &d); err != nil {
		t.Fatalf("%s: %v", v.Data, err)
	}
	return d
}

func resumeBody(token, action, data string) string {
	b, _ := json.Marshal(token)
	body := fmt.Sprintf(`{"resumeToken":%s,"action":%q`, b, action)
	if data != "" {
		body += `,"data":` + data
	}
	return body + "}"
}

// resume is what a relay said, in short: status, command or code, reason.
func (s *served) resume(id, body string) string {
	s.t.Helper()
	a := s.post(workflows+id+"/resume", body, nil)
	if a.status < 300 {
		var c relay.CommandAccepted
		a.into(s.t, &c)
		return fmt.Sprint(a.status, " ", c.Command, " ", c.Ask, " ", c.Decision)
	}
	var e relay.ErrorBody
	a.into(s.t, &e)
	return strings.TrimSpace(fmt.Sprintf("%d %s %v", a.status, e.Code, orNone(e.Details["reason"])))
}

// decides is what the edge records when an answer came: it is written, and the ask
// is closed.
func (e *edge) decides(n int) {
	id := fmt.Sprintf("answer-%s-a%d-1", e.ref.Run, n)
	line := frameOf(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":"q%d","response":{"behavior":"allow","updatedInput":{}}}}`, n))
	line.Type, line.Kind, line.Stream, line.Ext = "dev.cbcast.claude.control_response.success", event.Ask, event.In, map[string]string{"command": id}
	e.emit(line)
	e.emit(fact(event.TypeAsk, event.Ask, event.AskClosed{Ask: fmt.Sprint("a", n), Reason: "answered", By: "bus", Decision: "allow", Command: id, Outcome: "ran"}))
	e.say(id, "answer", event.Settled, "")
}

// A run waits; whoever has the token of its stream, and may answer, goes on with it,
// once, at any relay. Every replay shows the same token; the view of the run has none.
func TestWorkflowResume(t *testing.T) {
	r := newRig(t, small())
	e := r.asking("run-1", bash(1))
	a, b := r.relay(relay.Config{}), r.relay(relay.Config{})
	c := a.stream(workflows+"run-1/stream", nil)
	got := awaited(t, c)
	if got.AskID != "a1" || got.ResumeToken == "" || len(got.Actions) == 0 || got.Tool != "Bash" {
		t.Errorf("it waits: %+v", got)
	}
	if other := awaited(t, b.stream(workflows+"run-1/stream", nil)); other.ResumeToken != got.ResumeToken {
		t.Errorf("the other relay's token: %q, want %q", other.ResumeToken, got.ResumeToken)
	}
	view := a.get(workflows+"run-1", nil)
	if s := string(view.body); strings.Contains(s, "resumeToken") || strings.Contains(s, got.ResumeToken) || !strings.Contains(s, `"awaiting_input"`) || !strings.Contains(s, `"askId":"a1"`) {
		t.Errorf("the view: %s", s)
	}
	token := got.ResumeToken
	for _, tt := range []struct{ body, want string }{
		{resumeBody("", "allow", ""), "400 bad_request"},
		{resumeBody(token, "", ""), "400 bad_request"},
		{resumeBody(token, "dance", ""), "400 bad_request"},
		{`{"token":"x"}`, "400 bad_request"},
		{`[]`, "400 bad_request"},
		{resumeBody(token+"x", "allow", ""), "403 bad_resume_token"},
		{resumeBody(strings.Replace(token, "a1.", "a2.", 1), "allow", ""), "403 bad_resume_token"},
		{resumeBody("a1.", "allow", ""), "403 bad_resume_token"},
		{resumeBody("a1\n.x", "allow", ""), "403 bad_resume_token"},
		{resumeBody(strings.Repeat("a", 5000), "allow", ""), "403 bad_resume_token"},
	} {
		if got := a.resume("run-1", tt.body); got != tt.want {
			t.Errorf("%.80s: %s, want %s", tt.body, got, tt.want)
		}
	}
	if got := a.resume("run-none", resumeBody(token, "allow", "")); got != "404 not_found" {
		t.Errorf("another run: %s", got)
	}
	h := map[string]string{"Authorization": ""}
	if got := a.post(workflows+"run-1/resume", resumeBody(token, "allow", ""), h); got.status != http.StatusUnauthorized && got.status != http.StatusForbidden {
		t.Errorf("without the scope: %d %s", got.status, got.body)
	}

	if got := a.resume("run-1", resumeBody(token, "allow", "")); got != "202 answer-run-1-a1-1 a1 allow" {
		t.Errorf("allow: %s", got)
	}
	for _, s := range []*served{a, b} {
		if got := s.resume("run-1", resumeBody(token, "allow", "")); got != "200 answer-run-1-a1-1 a1 allow" {
			t.Errorf("the same again: %s", got)
		}
		if got := s.resume("run-1", resumeBody(token, "deny", "")); got != "409 already_answered" {
			t.Errorf("another one: %s", got)
		}
	}
	e.decides(1)
	if d := dataIn[workflow.RunResumedData](t, until(t, c, workflow.RunResumed)); d.AskID != "a1" || d.Action != "allow" {
		t.Errorf("it goes on: %+v", d)
	}
	for body, want := range map[string]string{
		resumeBody(token, "allow", ""): "200 answer-run-1-a1-1 a1 allow", resumeBody(token, "deny", ""): "409 already_answered",
	} {
		if got := b.resume("run-1", body); got != want {
			t.Errorf("when it is closed: %s, want %s", got, want)
		}
	}

	// Another ask, which nobody waits for any more.
	e.emit(bash(2))
	second := awaited(t, c)
	if second.ResumeToken == token || second.AskID != "a2" {
		t.Errorf("the second ask: %+v", second)
	}
	e.emit(cancel(2))
	until(t, c, workflow.RunResumed)
	if got := a.resume("run-1", resumeBody(second.ResumeToken, "allow", "")); got != "410 ask_closed withdrawn" {
		t.Errorf("a withdrawn ask: %s", got)
	}
	sent, _ := r.on("run-1")
	if d := cmp.Diff([]string{"answer-run-1-a1-1"}, sent); d != "" {
		t.Errorf("on the bus: %s", d)
	}
	e.emit(exited())
	if rest := c.all(); len(rest) == 0 || !workflow.Event(rest[len(rest)-1].name).Terminal() {
		t.Errorf("the end: %+v", rest)
	}
	if got := awaited(t, a.stream(workflows+"run-1/stream", nil)); got.ResumeToken != token {
		t.Errorf("replayed: %q", got.ResumeToken)
	}
}

// The answers to questions come in the form that the event describes.
func TestWorkflowResumeQuestion(t *testing.T) {
	r := newRig(t, small())
	r.asking("run-1", request(1, "AskUserQuestion",
		`{"questions":[{"question":"Which?","header":"H","multiSelect":false,"options":[{"label":"red","description":"r"},{"label":"blue","description":"b"}]}]}`))
	s := r.relay(relay.Config{})
	d := awaited(t, s.stream(workflows+"run-1/stream", nil))
	var schema struct {
		Type       string
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(d.FormSchema, &schema); err != nil || schema.Type != "object" || len(schema.Properties) == 0 {
		t.Fatalf("form %s: %v", d.FormSchema, err)
	}
	var required string
	for _, a := range d.Actions {
		if a.Form == "required" {
			required = a.ID
		}
	}
	for _, data := range []string{"", `{}`, `{"Which?":"green of my own"}`} {
		if got := s.resume("run-1", resumeBody(d.ResumeToken, required, data)); got != "400 bad_request" {
			t.Errorf("%s %q: %s", required, data, got)
		}
	}
	var name string
	for n := range schema.Properties {
		if strings.Contains(string(schema.Properties[n]), "blue") {
			name = n
		}
	}
	data, _ := json.Marshal(map[string]string{name: "blue"})
	if got := s.resume("run-1", resumeBody(d.ResumeToken, required, string(data))); got != "202 answer-run-1-a1-1 a1 answer" && got != "202 answer-run-1-a1-1 a1 allow" {
		t.Errorf("%s: %s", data, got)
	}
	cmd, err := r.bus.FindCommand(t.Context(), "answer-run-1-a1-1")
	if err != nil || !strings.Contains(string(cmd.Data), `"Which?":"blue"`) {
		t.Errorf("on the bus: %s, %v", cmd.Data, err)
	}
}

// Cancelling gives a command; what the edge records of it are the events.
func TestWorkflowCancel(t *testing.T) {
	r := newRig(t, small())
	e := r.talking("run-1")
	task := frameOf(`{"type":"system","subtype":"task_started","session_id":"s1","task_id":"t 1","task_type":"local_workflow","description":"d"}`)
	task.Type, task.Kind, task.Task = "dev.cbcast.claude.system.task_started", event.Task, "t 1"
	e.emit(task)
	e.shipped()
	s := r.relay(relay.Config{})
	id := workflow.ID{Run: "run-1", Task: "t 1"}.String()
	c := s.stream(workflows+"run-1/stream", nil)
	cancel := func(id, body string) string {
		t.Helper()
		a := s.post(workflows+id+"/cancel", body, nil)
		if a.status < 300 {
			var c relay.CommandAccepted
			a.into(t, &c)
			return fmt.Sprint(a.status, " ", c.Name, " ", c.Duplicate)
		}
		var e relay.ErrorBody
		a.into(t, &e)
		return fmt.Sprint(a.status, " ", e.Code)
	}
	for _, tt := range []struct{ id, body, want string }{
		{id, `{"id":"k1","reason":"enough"}`, "202 stop_task false"},
		{id, `{"id":"k1"}`, "202 stop_task true"},
		{"run-1", `{"id":"k1"}`, "409 id_reused"},
		{id, `{"escalate":true}`, "400 bad_request"},
		{id, `{"task":"t2"}`, "400 bad_request"},
		{"run-1:none", "", "404 not_found"},
		{"run-1:", "", "404 not_found"},
		{"none", "", "404 not_found"},
		{"run-1", `{"id":"k2"}`, "202 interrupt false"},
	} {
		if got := cancel(tt.id, tt.body); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.id, tt.body, got, tt.want)
		}
	}
	cmd, err := r.bus.FindCommand(t.Context(), "k1")
	if err != nil || string(cmd.Data) != `{"reason":"enough","task":"t 1"}` {
		t.Errorf("on the bus: %s, %v", cmd.Data, err)
	}

	line := frameOf(`{"type":"control_request","request_id":"cbcast-1","request":{"subtype":"interrupt"}}`)
	line.Type, line.Kind, line.Stream, line.Ext = "dev.cbcast.claude.control_request.interrupt", event.Msg, event.In, map[string]string{"command": "k2"}
	e.emit(line)
	e.say("k2", "interrupt", event.Written, "")
	until(t, c, workflow.RunCancelRequested)
	end := frameOf(`{"type":"result","subtype":"error_during_execution","session_id":"s1","is_error":true,"terminal_reason":"aborted_streaming"}`)
	end.Type, end.Kind = "dev.cbcast.claude.result.error_during_execution", event.End
	killed := frameOf(`{"type":"system","subtype":"task_notification","session_id":"s1","task_id":"t 1","status":"killed"}`)
	killed.Type, killed.Kind, killed.Task = "dev.cbcast.claude.system.task_notification", event.End, "t 1"
	e.emit(killed, end)
	e.say("k2", "interrupt", event.Settled, "")
	if got := cancel(id, ""); got != "409 already_ended" {
		t.Errorf("a task that has ended: %s", got)
	}
	e.emit(exited())
	list := c.all()
	if last := list[len(list)-1]; last.name != string(workflow.RunCancelled) {
		t.Errorf("the end: %s %s", last.name, last.data)
	}
	if got := cancel("run-1", ""); got != "409 already_ended" {
		t.Errorf("a run that has ended: %s", got)
	}
	if got := s.stream(workflows+id+"/stream", nil).all(); got[len(got)-1].name != string(workflow.RunCancelled) {
		t.Errorf("the task's end: %+v", got[len(got)-1])
	}
}

// What is refused is refused in one form, and what may not be seen is not there.
func TestWorkflowErrors(t *testing.T) {
	r := newRig(t, small())
	e := r.talking("run-1")
	e.emit(result(), exited())
	e.shipped()
	s := r.relay(relay.Config{})
	for _, tt := range []struct {
		path, cursor string
		want         string
	}{
		{path: "run-2/stream", want: "404 not_found"},
		{path: "run-2", want: "404 not_found"},
		{path: "run-2/events", want: "404 not_found"},
		{path: "run-1:none/stream", want: "404 not_found"},
		{path: "run-1:none/events", want: "404 not_found"},
		{path: "run-1:none", want: "404 not_found"},
		{path: "run-1:a:b/stream", want: "404 not_found"},
		{path: "run-1%20/stream", want: "404 not_found"},
		{path: "run-1%2F..%2Frun-2/stream", want: "404 not_found"},
		{path: strings.Repeat("x", 2000), want: "404 not_found"},
		{path: "run-1/stream?after=x", want: "400 bad_cursor"},
		{path: "run-1/stream?after=-1", want: "400 bad_cursor"},
		{path: "run-1/stream?after_seq=1&after_seq=2", want: "400 bad_cursor"},
		{path: "run-1/stream", cursor: "run-2/7", want: "400 bad_cursor"},
		{path: "run-1/stream", cursor: "18446744073709551616", want: "400 bad_cursor"},
		{path: "run-1/events?after=x", want: "400 bad_cursor"},
		{path: "run-1/events?limit=0", want: "400 bad_request"},
		{path: "run-1/nothing", want: "404 not_found"},
	} {
		h := map[string]string{}
		if tt.cursor != "" {
			h["Last-Event-ID"] = tt.cursor
		}
		a := s.get(workflows+tt.path, h)
		var body relay.ErrorBody
		if a.into(t, &body); fmt.Sprint(a.status, " ", body.Code) != tt.want {
			t.Errorf("%.60s: %d %s, want %s", tt.path, a.status, a.body, tt.want)
		}
		var fields map[string]json.RawMessage
		a.into(t, &fields)
		for _, name := range []string{"code", "message", "retryable", "nodeId", "details"} {
			if fields[name] == nil {
				t.Errorf("%.60s: no %s in %s", tt.path, name, a.body)
			}
		}
	}
}
