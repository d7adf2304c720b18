package run_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// Of all recordings these ended on a question that nobody could answer. Whatever
// was answered, denied by a person or taken away by an interrupt is none.
func TestWaitsForResumeInRecordings(t *testing.T) {
	got := map[string][]string{}
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		s := run.New("r")
		for _, e := range capture.Events(c, "t", "r") {
			if w := s.View().WaitsForResume; w != nil && e.Type != event.TypeExited {
				t.Errorf("%s waits for resume while it lives", name)
			}
			s.Apply(e)
		}
		if w := s.View().WaitsForResume; w != nil {
			for _, q := range w.Asks {
				got[name] = append(got[name], q.ID+" "+q.Kind+" "+q.Tool)
			}
		}
	}
	want := map[string][]string{
		"claude-2.1.220/43-ask-user-question-no-prompt": {"q1 question AskUserQuestion"},
		"cbc-2.163.0/ask-user-nocap":                    {"q1 question AskUserQuestion"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// What Claude Code writes where a question cannot be answered in the run.
func TestWaitsForResume(t *testing.T) {
	colour := []run.AskQuestion{{
		ID: "Which colour?", Text: "Which colour?", Header: "Colour", Other: true,
		Options: []run.AskOption{{Label: "Red", Description: "red"}, {Label: "Blue", Description: "blue"}},
	}}
	for _, tc := range []struct {
		file string
		want run.ResumeAsk
	}{
		{"resume-claude-not-enabled", run.ResumeAsk{ID: "q1", Kind: "question", Tool: "AskUserQuestion", Call: "toolu_q1", Seq: 4, Questions: colour}},
		{"resume-claude-denied", run.ResumeAsk{ID: "q1", Kind: "question", Tool: "AskUserQuestion", Call: "toolu_q1", Seq: 4, Questions: colour}},
		{"resume-claude-plan", run.ResumeAsk{ID: "q1", Kind: "plan", Tool: "ExitPlanMode", Call: "toolu_mock_0001", Seq: 4, Text: "do x"}},
		{"resume-claude-deferred", run.ResumeAsk{ID: "q1", Kind: "permission", Tool: "Bash", Call: "toolu_mock_0001", Seq: 5, Text: "touch made-by"}},
	} {
		s := file(t, "claude", tc.file, 0)
		w := s.View().WaitsForResume
		if w == nil {
			t.Errorf("%s: waits for nothing", tc.file)
			continue
		}
		if d := cmp.Diff([]run.ResumeAsk{tc.want}, w.Asks); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.file, d)
		}
		if w.Session != s.Main() || w.Session == "" {
			t.Errorf("%s: session %q", tc.file, w.Session)
		}
		if v := s.View(); v.State != "done" || v.WaitingFor != "resume" || s.Summary().Waiting != "resume" {
			t.Errorf("%s: %s, waits for %q", tc.file, v.State, v.WaitingFor)
		}
	}
}

const (
	question = `{"type":"assistant","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"tool_use","id":"t1","name":"AskUserQuestion","input":{"questions":[{"question":"Q?"}]}}]}}`
	canUse   = `{"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Q?"}]},"tool_use_id":"t1"}}`
	refused  = `{"type":"user","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"no"}]}}`
	answered = `{"type":"user","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"yes"}]}}`
	denial   = `> {"type":"control_response","response":{"subtype":"success","request_id":"p1","response":{"behavior":"deny","message":"no"}}}`
	denied   = `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","num_turns":1,"result":"d","permission_denials":[{"tool_name":"AskUserQuestion","tool_use_id":"t1","tool_input":{"questions":[{"question":"Q?"}]}}]}`
	stop     = `> {"type":"control_request","request_id":"i1","request":{"subtype":"interrupt"}}`
)

func TestWhoWaitsForResume(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []string
		want  string // id of the question, "" where nothing waits
	}{
		{"refused, and gone on", []string{initLine, question, refused, done}, "q1"},
		{"answered", []string{initLine, question, answered, done}, ""},
		{"denied by the host", []string{initLine, question, canUse, denial, refused, denied}, ""},
		{"asked, and nobody answered", []string{initLine, question, canUse, refused, denied}, "a1"},
		{"asked when it ended", []string{initLine, question, canUse}, "a1"},
		{"interrupted", []string{initLine, question, canUse, stop, refused, done}, ""},
		{"told only by the result", []string{initLine, denied}, "q1"},
		{"a later turn went on", []string{initLine, question, refused, done, prompt, initLine, asst, done}, ""},
		{"a sub-agent cannot ask", []string{initLine, `{"type":"assistant","session_id":"` + sid + `","parent_tool_use_id":"x","message":{"content":[{"type":"tool_use","id":"t2","name":"AskUserQuestion","input":{}}]}}`, done}, ""},
	} {
		s := played(t, exited(script("claude", append([]string{prompt}, tc.steps...)...), 0))
		var got string
		if w := s.View().WaitsForResume; w != nil {
			got = w.Asks[0].ID
		}
		if got != tc.want {
			t.Errorf("%s: waits for %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The list is bounded whatever a child does.
func TestWaitsForResumeIsBounded(t *testing.T) {
	steps := []string{prompt, initLine}
	for i := range 40 {
		steps = append(steps, `{"type":"assistant","session_id":"`+sid+`","message":{"content":[{"type":"tool_use","id":"c`+string(rune('A'+i))+`","name":"ExitPlanMode","input":{"plan":"p"}}]}}`)
	}
	s := played(t, exited(script("claude", append(steps, done)...), 0))
	if n := len(s.View().WaitsForResume.Asks); n != 16 {
		t.Errorf("%d questions", n)
	}
}

// The message that answers in a resumed session.
func TestResumePrompt(t *testing.T) {
	q := run.ResumeAsk{ID: "q1", Kind: "question", Questions: []run.AskQuestion{{ID: "Which colour?", Text: "Which colour?"}, {ID: "Which sizes?", Text: "Which sizes?"}}}
	plan := run.ResumeAsk{ID: "q1", Kind: "plan", Tool: "ExitPlanMode"}
	call := run.ResumeAsk{ID: "q1", Kind: "permission", Tool: "Bash"}
	for _, tc := range []struct {
		q    run.ResumeAsk
		a    event.Answer
		want string
	}{
		{q, q.Answer([]string{"Red", "S"}), "Answer to \"Which colour?\": Red\nAnswer to \"Which sizes?\": S"},
		{q, event.Answer{Decision: event.Answers, Answers: map[string]json.RawMessage{"Which sizes?": json.RawMessage(`["S","M"]`)}}, "Answer to \"Which sizes?\": S, M"},
		{run.ResumeAsk{Kind: "question"}, run.ResumeAsk{}.Answer([]string{"just do it", "soon"}), "just do it\nsoon"},
		{q, event.Answer{Decision: event.Deny}, "The question is declined"},
		{plan, event.Answer{Decision: event.Allow}, "The plan is approved. Go on."},
		{plan, event.Answer{Decision: event.Deny, Message: "too large"}, "The plan is declined: too large"},
		{call, event.Answer{Decision: event.Allow}, "The call of Bash that was put off is approved. Go on."},
	} {
		if got := tc.q.Prompt(tc.a); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	w := &run.WaitsView{Asks: []run.ResumeAsk{q}}
	for id, want := range map[string]bool{"q1": true, "": true, "q2": false} {
		if _, ok := w.Find(id); ok != want {
			t.Errorf("Find(%q) = %v", id, ok)
		}
	}
}

// The latest word about capabilities holds.
func TestCapabilitiesFold(t *testing.T) {
	s := run.New("r")
	if s.Capabilities() != nil {
		t.Error("nothing is known yet")
	}
	s.Apply(&event.Event{Seq: 1, Type: event.TypeStarted, Stream: event.Edge, Data: data(t, event.Started{Capabilities: &event.Capabilities{Level: "B"}})})
	s.Apply(&event.Event{Seq: 2, Type: event.TypeCapabilities, Stream: event.Edge, Data: data(t, event.Capabilities{Level: "A", InteractiveQuestions: true, Commands: []string{"interrupt"}})})
	want := &event.Capabilities{Level: "A", InteractiveQuestions: true, Commands: []string{"interrupt"}}
	if d := cmp.Diff(want, s.View().Capabilities); d != "" {
		t.Errorf("view (-want +got)\n%s", d)
	}
	if d := cmp.Diff(want, s.Summary().Capabilities); d != "" {
		t.Errorf("summary (-want +got)\n%s", d)
	}
}
