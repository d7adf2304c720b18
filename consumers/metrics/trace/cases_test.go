package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

const sid = "00000000-0000-4000-8000-000000000001"

// play makes the events of a run told step by step: "> x" is a line on stdin, "wait 3s"
// time, "exit" the end, anything else a line on stdout.
func play(argv0 string, steps ...string) []*event.Event {
	c := &capture.Capture{Argv: []string{argv0}}
	var at time.Duration
	ends := false
	for _, s := range steps {
		if d, ok := strings.CutPrefix(s, "wait "); ok {
			wait, err := time.ParseDuration(d)
			if err != nil {
				panic(err)
			}
			at += wait
			continue
		}
		e := capture.Entry{At: at, Dir: capture.Out, Data: []byte(s)}
		if in, ok := strings.CutPrefix(s, "> "); ok {
			e.Dir, e.Data = capture.In, []byte(in)
		}
		if s == "exit" {
			e, ends = capture.Entry{At: at, Dir: capture.Exit}, true
		}
		c.Timeline = append(c.Timeline, e)
	}
	events := capture.Events(c, "acme", aRun)
	if !ends {
		events = events[:len(events)-1]
	}
	return events
}

func file(t *testing.T, name string) (steps []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "cases", name+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		steps = append(steps, l)
	}
	return append(steps, "exit")
}

// find is the span of a path.
func find(t *testing.T, spans []Span, path string) Span {
	t.Helper()
	i := slices.IndexFunc(spans, func(s Span) bool { return s.Path == path })
	if i < 0 {
		t.Fatalf("no span %s in\n%s", path, tree(spans))
	}
	return spans[i]
}

// above is the path of a span's parent.
func above(spans []Span, s Span) string {
	for _, p := range spans {
		if p.ID == s.Parent {
			return p.Path
		}
	}
	return ""
}

// Tasks that nothing told the end of are closed at the exit as unknown, never as
// completed (031, anthropics/claude-code#20754).
func TestTasksWithoutEnd(t *testing.T) {
	spans := build(BuilderOptions{}, play("claude", file(t, "031-missing-notifications")...))
	got := map[string]string{}
	for _, s := range spans {
		if id := get[string](s, "cbcast.task.id"); id != "" {
			got[id] = fmt.Sprint(get[string](s, "cbcast.outcome"), " ", get[bool](s, "cbcast.task.synthesised"), " ", s.Status)
		}
	}
	if d := cmp.Diff(map[string]string{"t1": "unknown true 0", "t2": "completed false 0", "t3": "unknown true 0"}, got); d != "" {
		t.Error(d)
	}
	if root := find(t, spans, "run"); get[string](root, "cbcast.verdict") != "incomplete" || root.Status != Error {
		t.Errorf("run: %+v", root)
	}
}

// Frames of sub-agents are below their agents, by the chain of calls; those of one whose
// call was never seen below an agent of the run, not below the turn. What one of them
// says is no failure (071, anomalyco/opencode#2294).
func TestSubagents(t *testing.T) {
	spans := build(BuilderOptions{}, play("claude", file(t, "071-subagent-frames-as-main")...))
	got := map[string]string{}
	for _, s := range spans {
		if strings.HasPrefix(s.Path, "chat/") || strings.HasPrefix(s.Path, "agent/") {
			got[s.Path[:strings.LastIndex(s.Path+"/", "/")]] = above(spans, s)
		}
	}
	want := map[string]string{
		"agent/toolu_A": "turn/1", "agent/toolu_B": "turn/1", "agent/toolu_AA": "agent/toolu_A", "agent/toolu_ZZ": "run",
	}
	for path, parent := range want {
		if s := find(t, spans, path); above(spans, s) != parent {
			t.Errorf("%s is below %s, want %s", path, above(spans, s), parent)
		}
	}
	for id, parent := range map[string]string{"ma1": "agent/toolu_A", "mb1": "agent/toolu_B", "maa1": "agent/toolu_AA", "mo1": "agent/toolu_ZZ", "m2": "turn/1"} {
		i := slices.IndexFunc(spans, func(s Span) bool { return get[string](s, "gen_ai.response.id") == id })
		if i < 0 || above(spans, spans[i]) != parent {
			t.Errorf("%s is not below %s:\n%s", id, parent, tree(spans))
		}
	}
	if s := find(t, spans, "agent/toolu_ZZ"); s.Name != "invoke_agent unattached" || get[bool](s, "cbcast.agent.attached") {
		t.Errorf("unattached: %+v", s)
	}
	if root := find(t, spans, "run"); root.Status != OK {
		t.Errorf("run: %+v", root)
	}
}

// An interrupt is three facts. What comes after the end of the task updates what is
// known of its agents, and neither its end nor its state (033, xintaofei/codeg#364).
func TestLateFrames(t *testing.T) {
	spans := build(BuilderOptions{}, play("cbc",
		`{"type":"system","subtype":"init","session_id":"`+sid+`","cwd":"/w","tools":[],"__timestamp":"x"}`,
		`{"type":"system","subtype":"task_started","task_id":"w1","task_type":"local_workflow","workflow_name":"n","description":"d","uuid":"u1","session_id":"`+sid+`"}`,
		"wait 1s",
		`> {"type":"control_request","request_id":"k1","request":{"subtype":"interrupt","session_id":"`+sid+`"}}`,
		`{"type":"control_response","response":{"subtype":"success","request_id":"k1"}}`,
		`{"type":"system","subtype":"task_updated","task_id":"w1","patch":{"status":"killed","end_time":1785000000000},"session_id":"`+sid+`"}`,
		`{"type":"system","subtype":"task_notification","task_id":"w1","status":"stopped","summary":"s","session_id":"`+sid+`"}`,
		"wait 1s",
		`{"type":"system","subtype":"task_progress","task_id":"w1","description":"d","usage":{"total_tokens":1,"tool_uses":0,"duration_ms":1},"workflow_progress":[{"type":"workflow_agent","index":1,"agentId":"v2:aa","state":"error","error":"subagent aborted: x","startedAt":1}],"session_id":"`+sid+`"}`,
		"wait 6s",
		`{"type":"system","subtype":"task_progress","task_id":"w1","description":"d","usage":{"total_tokens":2,"tool_uses":0,"duration_ms":2},"workflow_progress":[],"session_id":"`+sid+`"}`,
		`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"`+sid+`","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}`,
		"exit",
	))
	w := find(t, spans, "task/w1")
	if got := w.End.Sub(capture.Start); got != time.Second || get[string](w, "cbcast.outcome") != "killed" || get[int64](w, "cbcast.task.late_frames") != 2 {
		t.Errorf("workflow: ended after %s: %+v", got, w)
	}
	a := find(t, spans, "task/w1/agent//1")
	if a.Status != Error || a.End.After(w.End) || above(spans, a) != "task/w1" {
		t.Errorf("agent: %+v", a)
	}
	var facts []string
	for _, e := range find(t, spans, "turn/1").Events {
		if e.Name == "cbcast.interrupt" {
			facts = append(facts, fmt.Sprint(e.Attrs[2].Value))
		}
	}
	if d := cmp.Diff([]string{"asked", "acked", "ended"}, facts); d != "" {
		t.Error(d)
	}
}

// inCI makes a run that of a CI job.
func inCI(events []*event.Event, traceParent string, labels map[string]string) []*event.Event {
	first := *events[0]
	var s event.Started
	if err := json.Unmarshal(first.Data, &s); err != nil {
		panic(err)
	}
	s.CI = labels
	first.Data, _ = json.Marshal(s)
	first.TraceParent = traceParent
	return append([]*event.Event{&first}, events[1:]...)
}

var github = map[string]string{
	"ciprovider": "github", "cirepo": "a/b", "ciworkflow": "CI", "cirun": "7", "cijob": "test", "ciattempt": "2", "ciref": "main", "cisha": "abc",
	"ciurl": "https://h/a/b/actions/runs/7",
}

// The CI's own span is the run's parent. Where there is none, a job's span is made, and
// says that it is.
func TestJob(t *testing.T) {
	events := load(t, "claude-2.1.220/01-simple-text")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

	spans := build(BuilderOptions{}, inCI(events, parent, github))
	root := find(t, spans, "run")
	if !root.Remote || root.Parent.String() != "b7ad6b7169203331" || root.Context.Trace.String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("run: %+v", root)
	}
	for _, s := range spans {
		if s.Path == jobPath || s.Context != root.Context || s.Remote != (s.Path == runPath) {
			t.Errorf("%s: %+v", s.Path, s)
		}
	}
	for key, want := range map[string]string{
		"cicd.pipeline.name": "CI", "cicd.pipeline.run.id": "7", "cicd.pipeline.task.name": "test", "vcs.repository.name": "a/b",
		"vcs.ref.head.name": "main", "vcs.ref.head.revision": "abc", "cicd.pipeline.run.url.full": "https://h/a/b/actions/runs/7",
	} {
		if got := get[string](root, key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}

	spans = build(BuilderOptions{}, inCI(events, "", github))
	job := find(t, spans, jobPath)
	if above(spans, find(t, spans, "run")) != jobPath || !job.Parent.IsZero() || job.Remote || job.Name != "test" || job.Status != Unset || !get[bool](job, "cbcast.synthesised") {
		t.Errorf("job: %+v", job)
	}
	if id := get[string](job, "cicd.pipeline.task.run.id"); id != "7/test/2" {
		t.Errorf("task run %q", id)
	}

	if spans = build(BuilderOptions{}, events); spans[len(spans)-1].Path != runPath || !spans[len(spans)-1].Parent.IsZero() {
		t.Errorf("outside of CI: %+v", spans[len(spans)-1])
	}
	if spans = build(BuilderOptions{}, inCI(events, parent[:53]+"00", github)); len(spans) > 0 {
		t.Errorf("%d spans of a trace that nobody records", len(spans))
	}
}

// Nothing of what is said, asked, passed to a tool or given back by it is on a span,
// unless it is wanted.
func TestContent(t *testing.T) {
	const secret = "the quick brown fox"
	steps := []string{
		`{"type":"system","subtype":"init","session_id":"` + sid + `","claude_code_version":"2","model":"m"}`,
		`{"type":"assistant","session_id":"` + sid + `","message":{"id":"m1","model":"m","content":[{"type":"text","text":"` + secret + `"},{"type":"tool_use","id":"c1","name":"Bash","input":{"command":"` + secret + `"}}]}}`,
		`{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"` + secret + `"},"tool_use_id":"c1"}}`,
		`> {"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"behavior":"deny","message":"` + secret + `"}}}`,
		`{"type":"user","session_id":"` + sid + `","message":{"content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":"` + secret + `"}]}}`,
		`{"type":"assistant","session_id":"` + sid + `","message":{"id":"m2","content":[{"type":"tool_use","id":"c2","name":"Agent","input":{"subagent_type":"explore","description":"` + secret + `","prompt":"` + secret + `"}}]}}`,
		`{"type":"system","subtype":"task_started","task_id":"t1","tool_use_id":"c2","task_type":"local_agent","description":"` + secret + `","prompt":"` + secret + `","session_id":"` + sid + `"}`,
		`{"type":"system","subtype":"task_updated","task_id":"t1","patch":{"status":"failed","error":"` + secret + `"},"session_id":"` + sid + `"}`,
		`{"type":"system","subtype":"task_notification","task_id":"t1","status":"failed","summary":"` + secret + `","session_id":"` + sid + `"}`,
		`{"type":"result","subtype":"success","is_error":true,"session_id":"` + sid + `","result":"` + secret + `","terminal_reason":"api_error"}`,
		"exit",
	}
	text := tree(build(BuilderOptions{}, play("claude", steps...)))
	if strings.Contains(text, "fox") {
		t.Errorf("content on a span:\n%s", text)
	}
	for _, want := range []string{"cbcast.tool.arguments.length=33", "cbcast.tool.result.length=21", "cbcast.text.length=21", "invoke_agent explore", "ERROR denied"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	text = tree(build(BuilderOptions{Content: true}, play("claude", steps...)))
	for _, key := range []string{"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.agent.description", "cbcast.ask.title", "cbcast.task.error", "cbcast.task.summary"} {
		if !strings.Contains(text, key+"=") || !strings.Contains(text, "fox") {
			t.Errorf("no %s with content in\n%s", key, text)
		}
	}
}

// Who answered an ask is on its span, with the name of the token and for whom it spoke.
func TestWhoAnswered(t *testing.T) {
	events := play("claude",
		`{"type":"system","subtype":"init","session_id":"`+sid+`","claude_code_version":"2","model":"m"}`,
		`{"type":"assistant","session_id":"`+sid+`","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Bash","input":{}}]}}`,
		`{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"c1"}}`,
		"wait 2s",
		`> {"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"behavior":"allow"}}}`,
		"wait 1s",
		`{"type":"user","session_id":"`+sid+`","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]}}`,
		`{"type":"result","subtype":"success","session_id":"`+sid+`","result":"done"}`,
		"exit",
	)
	i := slices.IndexFunc(events, func(e *event.Event) bool { return e.Stream == event.In })
	events[i].Ext = map[string]string{"origin": "cbcast"}
	fact, _ := json.Marshal(event.CommandFact{Command: "answer-1", Name: "answer", Fact: event.Written, Detail: map[string]string{"ask": "a1", "decision": "allow"}})
	written := &event.Event{Tenant: "acme", Run: aRun, Time: events[i].Time, Type: event.TypeCommand, Kind: event.Cmd, Stream: event.Edge, ContentType: event.JSON, Data: fact}
	events = slices.Insert(events, i+1, written)
	for n, e := range events {
		e.Seq = uint64(n + 1)
	}
	audit, _ := json.Marshal(event.Audit{Command: "answer-1", Name: "answer", Actor: "slack", For: "slack:U1"})
	asked := 0
	spans := build(BuilderOptions{Facts: func(tenant, run string) []*event.Event {
		asked++
		return []*event.Event{{Tenant: tenant, Run: run, Type: event.TypeAudit, Data: audit}}
	}}, events)
	ask := find(t, spans, "ask/a1")
	for key, want := range map[string]string{
		"cbcast.ask.decision": "allow", "cbcast.ask.decided_by": "bus", "cbcast.ask.actor": "slack", "cbcast.ask.on_behalf_of": "slack:U1", "cbcast.outcome": "ran",
	} {
		if got := get[string](ask, key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	if above(spans, ask) != "tool/c1" || ask.End.Sub(ask.Start) != 3*time.Second || asked != 1 {
		t.Errorf("below %s for %s, facts asked for %d times", above(spans, ask), ask.End.Sub(ask.Start), asked)
	}
	if e := find(t, spans, "run").Events; len(e) != 1 || e[0].Name != "cbcast.command" {
		t.Errorf("run has %v", e)
	}
}

// A run that says too much: its spans are bounded, and the root says how many are missing.
func TestBounds(t *testing.T) {
	steps := []string{`{"type":"system","subtype":"init","session_id":"` + sid + `","claude_code_version":"2","model":"m"}`}
	for i := range 100 {
		steps = append(steps,
			fmt.Sprintf(`{"type":"assistant","session_id":"%s","message":{"id":"m%d","content":[{"type":"tool_use","id":"c%d","name":"Bash","input":{}}]}}`, sid, i, i),
			fmt.Sprintf(`{"type":"user","session_id":"%s","message":{"content":[{"type":"tool_result","tool_use_id":"c%d","content":"x"}]}}`, sid, i))
	}
	steps = append(steps, `{"type":"result","subtype":"success","session_id":"`+sid+`","result":"done"}`, "exit")
	spans := build(BuilderOptions{MaxSpans: 40}, play("claude", steps...))
	if want := 30 + 1 + 1; len(spans) != want { // leaves, the turn, the run
		t.Errorf("%d spans, want %d", len(spans), want)
	}
	if n := get[int64](find(t, spans, "run"), "cbcast.spans.dropped"); n != 200-30 {
		t.Errorf("%d dropped", n)
	}
}

// A child says whatever it likes: texts stay bounded and valid, ids distinct, and what is
// open is bounded, too.
func TestHostile(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	steps := []string{`{"type":"system","subtype":"init","session_id":"` + sid + `","claude_code_version":"` + long + `","model":"` + long + `"}`}
	for i := range maxOpen + 200 {
		steps = append(steps, fmt.Sprintf(`{"type":"assistant","session_id":"%s","parent_tool_use_id":"p%d","message":{"id":"%s%d","model":"\ud800%s","content":[{"type":"tool_use","id":"%s%d","name":"%s","input":{"a":1}}]}}`, sid, i, long, i, long, long, i, long))
	}
	steps = append(steps,
		`{"type":"system","subtype":"task_started","task_id":"`+long+`","task_type":"`+long+`","session_id":"`+sid+`"}`,
		`{"type":"system","subtype":"task_started","task_id":"w","task_type":"local_workflow","workflow_name":"`+long+`","session_id":"`+sid+`"}`,
		`{"type":"system","subtype":"task_progress","task_id":"w","workflow_progress":[{"type":"workflow_phase","index":-9223372036854775808,"title":"`+long+`"},{"type":"workflow_agent","index":1e400,"phaseIndex":-9223372036854775808,"label":"`+long+`","state":"`+long+`","startedAt":9223372036854775807,"endedAt":-1}],"session_id":"`+sid+`"}`,
		"exit")
	b := NewBuilder(aRun, BuilderOptions{MaxSpans: 1e6})
	var spans []Span
	for _, e := range play("claude", steps...) {
		spans = append(spans, b.Apply(e)...)
		if len(b.tools.m) > maxOpen || len(b.agents.m) > maxOpen || len(b.chats.m) > maxOpen || len(b.calls.m) > maxCalls {
			t.Fatalf("open: %d tools, %d agents, %d chats, %d calls", len(b.tools.m), len(b.agents.m), len(b.chats.m), len(b.calls.m))
		}
	}
	ids := map[SpanID]string{}
	for _, s := range spans {
		if other, ok := ids[s.ID]; ok {
			t.Fatalf("%s and %s have one id", s.Path, other)
		}
		ids[s.ID] = s.Path
		if errs := wrongAttrs(s.Attrs); len(errs) > 0 || len(s.Name) > maxName+len("…") || s.End.Before(s.Start) {
			t.Fatalf("%s: %v", s.Name, errs)
		}
	}
	for _, s := range spans {
		if !s.Parent.IsZero() && ids[s.Parent] == "" {
			t.Fatalf("%s has no parent", s.Path)
		}
	}
	if len(spans) < 3*maxOpen {
		t.Errorf("only %d spans", len(spans))
	}
}

// Turns go out while the run goes on, and are not held until its end.
func TestLongChat(t *testing.T) {
	b := NewBuilder(aRun, BuilderOptions{})
	var steps []string
	const n = 600
	for i := range n {
		steps = append(steps, `> {"type":"user","message":{"content":"x"}}`,
			`{"type":"system","subtype":"init","session_id":"`+sid+`","claude_code_version":"2","model":"m"}`,
			fmt.Sprintf(`{"type":"assistant","session_id":"%s","message":{"id":"m%d","content":[{"type":"text","text":"x"}]}}`, sid, i),
			`{"type":"result","subtype":"success","session_id":"`+sid+`","result":"done"}`)
	}
	turns := 0
	for _, e := range play("claude", append(steps, "exit")...) {
		for _, s := range b.Apply(e) {
			if strings.HasPrefix(s.Path, "turn/") {
				turns++
			}
		}
		if len(b.turns) > turnRest+1 {
			t.Fatalf("%d turns held", len(b.turns))
		}
	}
	if turns != n {
		t.Errorf("%d turns, want %d", turns, n)
	}
}

// A run whose edge is gone for good: what was open is closed at the last word as unknown,
// and the run says that its verdict is provisional.
func TestLost(t *testing.T) {
	b := NewBuilder(aRun, BuilderOptions{})
	var spans []Span
	for _, e := range play("claude",
		`{"type":"system","subtype":"init","session_id":"`+sid+`","claude_code_version":"2","model":"m"}`,
		`{"type":"assistant","session_id":"`+sid+`","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Bash","input":{}}]}}`,
		"wait 5s",
		`{"type":"system","subtype":"task_started","task_id":"t1","task_type":"local_bash","tool_use_id":"c1","session_id":"`+sid+`"}`,
	) {
		spans = append(spans, b.Apply(e)...)
	}
	lost := &event.Event{Tenant: "acme", Run: aRun, Ref: "lost", Time: capture.Start.Add(time.Minute), Type: event.TypeLost, Data: []byte(`{"reason":"presence"}`)}
	spans = append(spans, b.Apply(lost)...)
	if len(spans) > 0 || !b.IsLost() {
		t.Fatalf("%d spans before anything ended, lost: %t", len(spans), b.IsLost())
	}
	spans = b.Lost()
	root := find(t, spans, "run")
	if get[string](root, "cbcast.verdict") != "lost" || !get[bool](root, "cbcast.run.provisional") || root.End.Sub(capture.Start) != 5*time.Second ||
		len(root.Events) != 1 || root.Events[0].Name != "cbcast.lost" {
		t.Errorf("run: %+v", root)
	}
	for _, path := range []string{"tool/c1", "task/t1"} {
		if s := find(t, spans, path); get[string](s, "cbcast.outcome") != endUnknown || s.Status == OK {
			t.Errorf("%s: %+v", path, s)
		}
	}
	if s := find(t, spans, "turn/1"); s.Status != Error {
		t.Errorf("turn: %+v", s)
	}
	// It was not lost after all: the same spans again, as they really ended.
	again := build(BuilderOptions{}, append(play("claude",
		`{"type":"system","subtype":"init","session_id":"`+sid+`","claude_code_version":"2","model":"m"}`, "exit"), lost))
	if find(t, again, "run").ID != root.ID {
		t.Error("the run's span has another id")
	}
}

// A background Agent of CodeBuddy is joined to its call by the text of the call's result,
// whether its frames come before or after that.
func TestBackgroundAgent(t *testing.T) {
	call := `{"type":"assistant","session_id":"` + sid + `","__timestamp":"x","message":{"id":"m1","content":[{"type":"tool_use","id":"c1","name":"Agent","input":{"subagent_type":"explore"}}]}}`
	started := `{"type":"system","subtype":"task_started","task_id":"agent-7","task_type":"Agent","session_id":"` + sid + `"}`
	result := `{"type":"user","session_id":"` + sid + `","message":{"content":[{"type":"tool_result","tool_use_id":"c1","content":"Spawned.\ntask_id: agent-7\n"}]}}`
	frame := `{"type":"assistant","session_id":"` + sid + `","parent_tool_use_id":"c1","message":{"id":"m2","content":[{"type":"text","text":"x"}]}}`
	ended := `{"type":"system","subtype":"task_updated","task_id":"agent-7","patch":{"status":"completed"},"session_id":"` + sid + `"}`
	over := `{"type":"result","subtype":"success","session_id":"` + sid + `","result":"done"}`
	for _, order := range [][]string{{started, result, frame, ended}, {result, started, frame, ended}, {frame, started, result, ended}, {started, frame, result, ended}} {
		spans := build(BuilderOptions{}, play("cbc", append(append([]string{call}, order...), over, "exit")...))
		var agents []string
		for _, s := range spans {
			if strings.HasPrefix(s.Path, "agent/") || strings.HasPrefix(s.Path, "task/") {
				agents = append(agents, s.Path+" "+s.Name+" "+get[string](s, "cbcast.task.id")+" "+get[string](s, "cbcast.outcome"))
			}
		}
		if d := cmp.Diff([]string{"agent/c1 invoke_agent explore agent-7 completed"}, agents); d != "" {
			t.Errorf("%.60q: %s\n%s", order, d, tree(spans))
		}
	}
}

// The times of a workflow's phases and agents are those that the child tells, within the
// workflow's own.
func TestWorkflowTimes(t *testing.T) {
	at := func(s int) string { return fmt.Sprint(capture.Start.Add(time.Duration(s) * time.Second).UnixMilli()) }
	spans := build(BuilderOptions{}, play("claude",
		`{"type":"system","subtype":"init","session_id":"`+sid+`","claude_code_version":"2"}`,
		`{"type":"system","subtype":"task_started","task_id":"w","task_type":"local_workflow","workflow_name":"flow","session_id":"`+sid+`"}`,
		"wait 10s",
		`{"type":"system","subtype":"task_progress","task_id":"w","workflow_progress":[{"type":"workflow_phase","index":1,"title":"P"},`+
			`{"type":"workflow_agent","index":1,"phaseIndex":1,"label":"a","state":"done","startedAt":`+at(2)+`,"endedAt":`+at(5)+`},`+
			`{"type":"workflow_agent","index":2,"phaseIndex":1,"label":"b","state":"done","startedAt":`+at(3)+`,"endedAt":`+at(99)+`},`+
			`{"type":"workflow_agent","index":3,"phaseIndex":1,"label":"c","state":"start"},`+
			`{"type":"workflow_agent","index":4,"label":"d","state":"done","cached":true,"startedAt":`+at(4)+`,"endedAt":1}],"session_id":"`+sid+`"}`,
		`{"type":"system","subtype":"task_notification","task_id":"w","status":"completed","session_id":"`+sid+`"}`,
		"exit",
	))
	got := map[string]string{}
	for _, s := range spans {
		if strings.HasPrefix(s.Path, "task/") {
			got[s.Path] = fmt.Sprint(above(spans, s), " ", s.Start.Sub(capture.Start), " ", s.End.Sub(capture.Start))
		}
	}
	want := map[string]string{
		"task/w": "turn/1 0s 10s", "task/w/phase/1": "task/w 2s 10s", "task/w/agent/1/1": "task/w/phase/1 2s 5s",
		"task/w/agent/1/2": "task/w/phase/1 3s 10s", "task/w/agent/1/3": "task/w/phase/1 10s 10s", "task/w/agent//4": "task/w 4s 4s",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
