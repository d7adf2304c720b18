package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

const (
	asst   = `{"type":"assistant","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"text","text":"hi"}]}}`
	done   = `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","num_turns":1,"result":"done"}`
	prompt = `> {"type":"user","message":{"role":"user","content":"x"}}`
)

func data(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// How a child ended makes the verdict of its last turn worse, never better.
func TestVerdictOfTheEnd(t *testing.T) {
	term := []event.Signal{{Signal: "SIGTERM", From: "parent"}}
	code := func(n int) *int { return &n }
	for _, tc := range []struct {
		name  string
		steps []string
		end   event.Exited
		want  string
	}{
		{"all well", []string{initLine, asst, done}, event.Exited{Code: code(0)}, "success"},
		{"a code that nothing explains", []string{initLine, asst, done}, event.Exited{Code: code(3)}, "failed"},
		{"143 after SIGTERM, idle", []string{initLine, asst, done}, event.Exited{Code: code(143), Forwarded: term}, "success"},
		{"143 without a signal", []string{initLine, asst, done}, event.Exited{Code: code(143)}, "failed"},
		{"SIGTERM in a turn, exit 0", []string{initLine, asst}, event.Exited{Code: code(0), Forwarded: term}, "interrupted"},
		{"SIGTERM in a turn, exit 1", []string{initLine, asst}, event.Exited{Code: code(1), Forwarded: term}, "failed"},
		{"died of a passed-on signal, idle", []string{initLine, asst, done}, event.Exited{Signal: "SIGTERM", Forwarded: term}, "success"},
		{"died of another signal", []string{initLine, asst, done}, event.Exited{Signal: "SIGSEGV", Forwarded: term}, "failed"},
		{"died by itself", []string{initLine, asst}, event.Exited{Signal: "SIGKILL"}, "failed"},
		{"stopped and continued", []string{initLine, asst}, event.Exited{Code: code(0), Forwarded: []event.Signal{{Signal: "SIGCONT", From: "parent"}}}, "incomplete"},
		{"ended by cbcast after the result", []string{initLine, asst, done}, event.Exited{Signal: "SIGKILL", Ended: "kill_after_result", Forwarded: []event.Signal{{Signal: "SIGKILL", From: "cbcast"}}}, "success"},
		{"a turn without a result", []string{initLine, asst}, event.Exited{Code: code(0)}, "incomplete"},
		{"a message without a turn", []string{initLine, asst, done, prompt}, event.Exited{Code: code(0)}, "incomplete"},
		{"the edge died", []string{initLine, asst, done}, event.Exited{Reason: "edge_died"}, "incomplete"},
		{"a pipe's end", []string{initLine, asst, done}, event.Exited{Reason: "eof"}, "success"},
		{"died of a passed-on signal, no turn yet", nil, event.Exited{Signal: "SIGTERM", Forwarded: term}, "interrupted"},
		{"143 after SIGTERM, no turn yet", []string{initLine}, event.Exited{Code: code(143), Forwarded: term}, "interrupted"},
		{"its time was over", []string{initLine, asst, done}, event.Exited{Code: code(0), Ended: "timeout"}, "incomplete"},
		{"its time was over before a turn", nil, event.Exited{Signal: "SIGTERM", Ended: "max_idle", Forwarded: []event.Signal{{Signal: "SIGTERM", From: "cbcast"}}}, "incomplete"},
		{"nothing at all", nil, event.Exited{Code: code(0)}, "success"},
	} {
		s := played(t, script("claude", tc.steps...))
		s.Apply(&event.Event{Seq: s.LastSeq() + 1, Type: event.TypeExited, Stream: event.Edge, Data: data(t, tc.end)})
		if got := verdictOf(s); got != tc.want {
			t.Errorf("%s: %s, want %s (%+v)", tc.name, got, tc.want, s.Verdict())
		}
		if s.Phase() != "done" || s.Open().Any() {
			t.Errorf("%s: %s, open %+v", tc.name, s.Phase(), s.Open())
		}
	}
}

// CodeBuddy lists in each result what was denied in any turn before: only the turn
// in which it was is denied.
func TestDenialsOfEarlierTurns(t *testing.T) {
	denied := func(ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, `{"tool_name":"Bash","tool_use_id":"`+id+`","tool_input":{}}`)
		}
		return strings.Replace(done, `"type":"result"`, `"type":"result","permission_denials":[`+strings.Join(list, ",")+`]`, 1)
	}
	s := played(t, exited(script("cbc", initLine, prompt, asst, denied("t1"), prompt, asst, denied("t1"), prompt, asst, denied("t1", "t2", "")), 0))
	var got []string
	for _, turn := range s.View().Turns {
		got = append(got, string(turn.Verdict.Verdict))
	}
	if want := []string{"denied", "success", "denied"}; !slices.Equal(got, want) {
		t.Errorf("turns %q, want %q", got, want)
	}
}

func TestCutTail(t *testing.T) {
	c := script("claude", initLine, asst, done)
	c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: []byte(`{"type":"assist`), Cut: true})
	if got := verdictOf(played(t, exited(c, 0))); got != "incomplete" {
		t.Errorf("cut: %s", got)
	}
	c = script("claude", initLine, asst)
	c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: []byte(done), Cut: true})
	if got := verdictOf(played(t, exited(c, 0))); got != "success" {
		t.Errorf("a whole result without LF: %s", got)
	}
}

// In text format only the exit speaks; a missing last LF is normal there.
func TestTextOutput(t *testing.T) {
	for code, want := range map[int]string{0: "success", 1: "failed"} {
		c := script("cbc", "The answer")
		c.Argv = []string{"cbc", "-p", "--output-format", "text"}
		c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: []byte("is 42"), Cut: true})
		s := played(t, exited(c, code))
		j := s.Verdict()
		if string(j.Verdict) != want || len(j.Evidence) != 1 || !strings.HasPrefix(j.Evidence[0].What, "exit") || len(s.View().Turns) != 0 {
			t.Errorf("code %d: %+v", code, j)
		}
	}
}

// A one-shot run works until it ends: a signal that was passed on cut it off.
func TestOneShotSignalled(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		c := script("cbc")
		c.Argv = []string{"cbc", "-p", "--output-format", format}
		if s := played(t, c); s.Phase() != "working" || s.Idle() {
			t.Errorf("%s: %s", format, s.Phase())
		}
		c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Signal, Data: []byte("SIGTERM")})
		if got := verdictOf(played(t, exited(c, 0))); got != "interrupted" {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// A reset changes the main session; the old one stays listed.
func TestConversationReset(t *testing.T) {
	s := played(t, script("claude", `{"type":"system","subtype":"init","session_id":"a"}`, `{"type":"result","subtype":"success","session_id":"a","num_turns":0}`,
		`{"type":"conversation_reset","new_conversation_id":"b","session_id":"a"}`, `{"type":"system","subtype":"init","session_id":"b"}`))
	var roles []string
	for _, v := range s.View().Sessions {
		roles = append(roles, v.ID+" "+v.Role)
	}
	if d := cmp.Diff([]string{"a former", "b main"}, roles); d != "" || s.Main() != "b" {
		t.Error(s.Main(), d)
	}
}

func TestLastTurnAborted(t *testing.T) {
	aborted := `{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","session_id":"` + sid + `","num_turns":1}`
	if s := played(t, script("claude", initLine, asst, aborted)); !s.LastTurnAborted() || s.TurnsEnded() != 1 {
		t.Error("not aborted")
	}
	if s := played(t, script("claude", initLine, asst, aborted, initLine, asst, done)); s.LastTurnAborted() || s.TurnsEnded() != 2 {
		t.Error("still aborted")
	}
}

func TestHooksThatSayNo(t *testing.T) {
	for _, line := range []string{
		`{"type":"system","subtype":"hook_response","hook_event":"PreToolUse","exit_code":2,"outcome":"error","session_id":"` + sid + `"}`,
		`{"type":"system","subtype":"informational","prevent_continuation":true,"content":"no","session_id":"` + sid + `"}`,
		`> {"type":"control_response","response":{"subtype":"success","request_id":"hook_1","response":{"continue":true,"hookSpecificOutput":{"permissionDecision":"deny"}}}}`,
		`> {"type":"control_response","response":{"subtype":"success","request_id":"hook_1","response":{"decision":"block"}}}`,
		`> {"type":"control_response","response":{"subtype":"success","request_id":"hook_1","response":{"continue":false}}}`,
	} {
		if got := verdictOf(played(t, exited(script("claude", initLine, asst, line, done), 0))); got != "denied" {
			t.Errorf("%s: %s", line, got)
		}
	}
}

func TestJSONOutput(t *testing.T) {
	for _, tc := range []struct {
		lines []string
		want  string
		cost  float64
		extra string
	}{
		{[]string{`{"type":"result","subtype":"success","is_error":false,"total_cost_usd":0.5,"num_turns":1,"session_id":"s","structured_output":{"a": 1}}`}, "success", 0.5, `{"a": 1}`},
		{[]string{"[", ` {"type":"assistant"},`, ` {"type":"result","subtype":"success","is_error":true,"result":"API Error","session_id":"s"}`, "]"}, "failed", 0, ""},
		{[]string{"Max turns (1) exceeded"}, "success", 0, ""}, // CodeBuddy's plain text: only the exit speaks
	} {
		c := script("cbc", tc.lines...)
		c.Argv = []string{"cbc", "-p", "--output-format=json"}
		s := played(t, exited(c, 0))
		v := s.View()
		if verdictOf(s) != tc.want || v.Usage.CostUSD != tc.cost {
			t.Errorf("%s: %s, cost %v", tc.lines[0], verdictOf(s), v.Usage.CostUSD)
		}
		if tc.extra != "" && string(v.Result.Structure) != tc.extra {
			t.Errorf("structured output %s", v.Result.Structure)
		}
	}
}

// A lost run gets a provisional verdict that its spool replaces.
func TestLostAndResumed(t *testing.T) {
	c := script("claude", initLine, asst, done)
	events := capture.Events(exited(c, 0), "t", "r")
	s := run.New("r")
	for _, e := range events[:3] {
		s.Apply(e)
	}
	lost := &event.Event{Ref: "lost", Type: event.TypeLost, Stream: event.Edge, Time: capture.Start, Data: []byte(`{"reason":"presence expired"}`)}
	s.Apply(lost)
	if v := s.View(); v.State != "lost" || !v.Provisional || v.Verdict.Verdict != run.Lost || s.Ended() {
		t.Errorf("lost: %s %+v", v.State, v.Verdict)
	}
	s.Apply(&event.Event{Ref: "resumed", Type: event.TypeResumed, Stream: event.Edge})
	if v := s.View(); v.State != "working" || v.Verdict != nil || v.Provisional {
		t.Errorf("resumed: %s %+v", v.State, v.Verdict)
	}
	s.Apply(lost)
	for _, e := range events[3:] {
		s.Apply(e)
	}
	if v := s.View(); v.State != "done" || v.Provisional || v.Verdict.Verdict != run.Success {
		t.Errorf("shipped: %s %+v", v.State, v.Verdict)
	}
	s.Apply(lost) // a relay that is late changes nothing
	if got := verdictOf(s); got != "success" || s.Lost() {
		t.Error(got)
	}
}

func TestRepeatedAndMissingEvents(t *testing.T) {
	events := capture.Events(exited(script("claude", initLine, asst, done), 0), "t", "r")
	s := run.New("r")
	for _, e := range events {
		s.Apply(e)
		s.Apply(e)
		s.Apply(events[0])
	}
	if v := s.View(); v.Counts.Frames["out"] != 3 || v.Counts.Missing != 0 || v.Turns[0].Results != 1 {
		t.Errorf("%+v", v.Counts)
	}
	s = run.New("r")
	s.Apply(events[0])
	s.Apply(events[3])
	if got := s.View().Counts.Missing; got != 2 {
		t.Errorf("missing %d, want 2", got)
	}
}

// Frames that were split over events and messages fold as one.
func TestChunks(t *testing.T) {
	events := capture.Events(exited(script("claude", initLine, asst, done), 0), "t", "r")
	s := run.New("r")
	seq := uint64(0)
	for _, e := range events {
		pieces := event.Split(e.Data, 40)
		buf := make([]byte, 40)
		for i, p := range pieces {
			ev := *e
			seq++
			ev.Seq = seq
			if len(pieces) > 1 {
				ev.Chunk = event.Part{I: i + 1, N: len(pieces)}
			}
			ev.Data = buf[:copy(buf, p)] // the caller may use its memory again
			s.Apply(&ev)
			clear(buf)
		}
	}
	if got := verdictOf(s); got != "success" || s.View().Counts.Frames["out"] != 3 || s.LastSeq() != seq {
		t.Errorf("%s %+v", got, s.View().Counts)
	}
}

// Parts of one event have one seq; a part that comes again changes nothing.
func TestRepeatedParts(t *testing.T) {
	s := run.New("r")
	for _, e := range capture.Events(exited(script("claude", initLine, asst, done), 0), "t", "r") {
		pieces := event.Split(e.Data, 100)
		for range 2 {
			for i, p := range pieces {
				ev := *e
				ev.Data = p
				if len(pieces) > 1 {
					ev.Part = event.Part{I: i + 1, N: len(pieces)}
				}
				s.Apply(&ev)
			}
		}
	}
	if got := verdictOf(s); got != "success" || s.View().Counts.Frames["out"] != 3 {
		t.Errorf("%s %+v", got, s.View().Counts)
	}
}

func TestCommands(t *testing.T) {
	s := run.New("r")
	fact := func(seq uint64, f event.Fact, reason string) *event.Event {
		typ := event.TypeCommand
		if seq == 0 {
			typ = event.TypeCommandFact
		}
		return &event.Event{Seq: seq, Ref: "x", Type: typ, Stream: event.Edge, Data: data(t, event.CommandFact{Command: "c1", Name: "interrupt", Fact: f, Reason: reason})}
	}
	for _, e := range []*event.Event{fact(1, event.Written, ""), fact(2, event.Acked, ""), fact(3, event.Settled, ""), fact(0, event.UnknownF, "edge died"), fact(0, event.UnknownF, "edge died")} {
		s.Apply(e)
	}
	c := s.View().Commands[0]
	var facts []string
	for _, f := range c.Facts {
		facts = append(facts, f.Fact)
	}
	if d := cmp.Diff([]string{"written", "acked", "settled", "unknown"}, facts); d != "" || c.State != "settled" {
		t.Error(c.State, d)
	}
}

func TestAsks(t *testing.T) {
	ask := func(id, tool string) string {
		return fmt.Sprintf(`{"type":"control_request","request_id":%s,"request":{"subtype":"can_use_tool","tool_name":%q,"input":{},"tool_use_id":"c%s"}}`, id, tool, strings.Trim(id, `"`))
	}
	answer := func(id, body string) string {
		return `> {"type":"control_response","response":{"subtype":"success","request_id":` + id + `,"response":` + body + `}}`
	}
	toolResult := func(call string) string {
		return `{"type":"user","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"` + call + `","content":"x"}]}}`
	}
	steps := []string{initLine, asst, ask(`"1"`, "Bash"), ask("1", "AskUserQuestion"), ask(`"1"`, "Bash")}
	s := played(t, script("claude", steps...))
	if v := s.View(); v.State != "waiting" || v.WaitingFor != "approval" || v.Open.Asks != 2 || len(v.Asks) != 2 {
		t.Errorf("%s for %s: %+v", v.State, v.WaitingFor, v.Asks)
	}
	steps = append(steps, answer(`"1"`, `{"behavior":"allow"}`))
	s = played(t, script("claude", steps...))
	if v := s.View(); v.State != "waiting" || v.WaitingFor != "input" || v.Asks[0].State != "answered" || v.Asks[0].Decided.Decision != "allow" || v.Open.Questions != 1 {
		t.Errorf("%s for %s: %+v", v.State, v.WaitingFor, v.Asks)
	}
	steps = append(steps, toolResult("c1"), answer(`"1"`, `{"behavior":"deny"}`))
	s = played(t, script("claude", steps...))
	if v := s.View(); v.State != "working" || v.Asks[0].Closed.Reason != "answered_local" || v.Asks[0].Outcome != "ran" || len(v.Warnings) != 1 {
		t.Errorf("%s: %+v", v.State, v.Asks)
	}
	steps = append(steps, done)
	if got := verdictOf(played(t, exited(script("claude", steps...), 0))); got != "success" {
		t.Error(got)
	}
}

// What the child repeats or makes up without end is bounded.
func TestBounds(t *testing.T) {
	var steps []string
	long := strings.Repeat("x", 5000)
	for i := range 600 {
		id := fmt.Sprintf("%d%s", i, long[:i%2*4000])
		steps = append(steps,
			`{"type":"system","subtype":"init","session_id":"s`+id+`"}`,
			`{"type":"system","subtype":"task_started","task_id":"t`+id+`","description":"`+long+`","session_id":"`+sid+`"}`,
			`{"type":"control_request","request_id":"q`+id+`","request":{"subtype":"can_use_tool","tool_name":"`+long+`"}}`,
			`{"type":"assistant","session_id":"`+sid+`","parent_tool_use_id":"p`+id+`","uuid":"u`+id+`","message":{"content":[{"type":"tool_use","id":"c`+id+`"}]}}`,
			`{"type":"error","error":"`+long+`"}`,
			`> {"type":"control_request","request_id":"k`+id+`","request":{"subtype":"interrupt"}}`,
			`> {"type":"user","uuid":"m`+id+`"}`,
			`{"type":"result","subtype":"success","session_id":"`+sid+`","uuid":"r`+id+`","num_turns":1,"result":"`+long+`"}`,
		)
	}
	v := played(t, exited(script("cbc", steps...), 0)).View()
	b := data(t, v)
	if len(b) > 2<<20 {
		t.Errorf("the state has %d bytes", len(b))
	}
	if len(v.Turns) > 256 || len(v.Tasks) > 512 || len(v.Asks) > 256 || len(v.Sessions) > 64 || len(v.Interrupts) > 64 || len(v.Warnings) > 64 {
		t.Errorf("turns %d tasks %d asks %d sessions %d", len(v.Turns), len(v.Tasks), len(v.Asks), len(v.Sessions))
	}
	if d := v.Dropped; d == nil || d.Turns == 0 || d.Tasks == 0 || d.Asks == 0 {
		t.Errorf("dropped %+v", d)
	}
}

func TestViewRoundTrip(t *testing.T) {
	c, err := capture.Load("cbc-2.163.0/workflow-live-interrupt")
	if err != nil {
		t.Fatal(err)
	}
	s := played(t, c)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var v run.View
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s.View(), v); d != "" {
		t.Error(d)
	}
	if sum := s.Summary(); sum.Verdict != "success" || sum.State != "done" || sum.Sessions[0] != s.Main() || sum.Ended.IsZero() {
		t.Errorf("%+v", sum)
	}
}

func TestInterruptibleTasks(t *testing.T) {
	started := func(id, typ string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"task_started","task_id":%q,"task_type":%q,"session_id":%q}`, id, typ, sid)
	}
	s := played(t, script("claude", initLine, started("w", "local_workflow"), started("b", "local_bash"), done))
	if d := cmp.Diff([]string{"w"}, s.InterruptibleTasks()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"w", "b"}, s.OpenTasks()); d != "" {
		t.Error(d)
	}
	if known, ended := s.TaskEnded("w"); !known || ended || s.TaskStatus("w") != "running" || s.TurnsEnded() != 1 || s.TurnOpen() {
		t.Errorf("known %t ended %t status %q", known, ended, s.TaskStatus("w"))
	}
	if known, _ := s.TaskEnded("nope"); known {
		t.Error("nope is known")
	}
}

// A task that left Claude Code's list of background tasks has ended, whatever
// else is said; a later frame may still say how.
func TestAbsenceEndsATask(t *testing.T) {
	list := func(tasks string) string {
		return `{"type":"system","subtype":"background_tasks_changed","tasks":[` + tasks + `],"session_id":"` + sid + `"}`
	}
	steps := []string{initLine, asst, list(`{"task_id":"w"}`), `{"type":"system","subtype":"task_started","task_id":"w","session_id":"` + sid + `"}`, done, list("")}
	s := played(t, script("claude", steps...))
	if k := s.View().Tasks[0]; k.Status != "ended" || !k.Synthesised || s.Phase() != "idle" {
		t.Errorf("%+v", k)
	}
	s = played(t, script("claude", append(steps, `{"type":"system","subtype":"task_notification","task_id":"w","status":"failed","session_id":"`+sid+`"}`)...))
	if k := s.View().Tasks[0]; k.Status != "failed" || k.Synthesised || k.Late != 0 || s.View().Turns[0].Verdict.Verdict != run.Incomplete {
		t.Errorf("%+v", k)
	}
}

// CodeBuddy links a background Agent to its call only by a text.
func TestAgentJoin(t *testing.T) {
	v := played(t, script(
		"cbc", `{"type":"system","subtype":"init","session_id":"`+sid+`","__timestamp":"t"}`,
		`{"type":"assistant","session_id":"`+sid+`","parent_tool_use_id":null,"message":{"content":[{"type":"tool_use","id":"call_1","name":"Agent"}]}}`,
		`{"type":"user","session_id":"`+sid+`","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"Spawned successfully.\nagent_id: x\ntask_id: agent-00f6\n"}]}]}}`,
		`{"type":"system","subtype":"task_started","task_id":"agent-00f6","task_type":"Agent","description":"bg","session_id":"`+sid+`"}`,
		`{"type":"assistant","session_id":"`+sid+`","parent_tool_use_id":"call_1","message":{"content":[]}}`,
	)).View()
	if v.Tasks[0].ToolUseID != "call_1" || v.Subagents[0].Task != "agent-00f6" || v.Subagents[0].Parent != "main" {
		t.Errorf("%+v %+v", v.Tasks[0], v.Subagents)
	}
}

func TestWorkflowLabel(t *testing.T) {
	for script, want := range map[string]string{
		`export const meta = { name: 'mock-flow', description: 'x' }`: "mock-flow",
		"export const meta={\n  \"name\" : \"a b\",\n}":               "a b",
		"const meta = {filename: 'no', name: `t`}":                    "t",
		`export const meta = { description: "by name", name: 'n2' }`:  "n2",
		`agent('no meta at all', {name: 'x'})`:                        "",
		`export const meta = { name: compute() }`:                     "",
		`export const meta = { name: 'unfinished`:                     "",
		``: "",
		strings.Repeat("x", 1<<20) + `export const meta = {name: 'far'}`: "",
	} {
		in := data(t, script)
		v := played(t, s(in)).View()
		if v.Tasks[0].Label != want {
			t.Errorf("%.60s: %q, want %q", script, v.Tasks[0].Label, want)
		}
	}
}

func s(script []byte) *capture.Capture {
	return scriptOf(`{"type":"assistant","session_id":"` + sid + `","parent_tool_use_id":null,"message":{"content":[{"type":"tool_use","id":"c","name":"DeferExecuteTool","input":{"toolName":"Workflow","params":{"script":` + string(script) + `}}}]}}`)
}

func scriptOf(launch string) *capture.Capture {
	return script("cbc", initLine, launch, `{"type":"system","subtype":"task_started","task_id":"w","tool_use_id":"c","task_type":"local_workflow","workflow_name":"inline-1","session_id":"`+sid+`"}`)
}

// Whatever bytes come, with whatever attributes, the fold does not panic, its
// state is valid JSON, and after an exit nothing is open.
func FuzzApply(f *testing.F) {
	for _, l := range []string{initLine, asst, done, `{"type":"control_request","request_id":[1],"request":{"subtype":"can_use_tool"}}`, `{"is_error":{}}`, "\xff", `[{"type":"result"}]`} {
		f.Add([]byte(l), "dev.cbcast.cbc.result.success", uint8(0), true)
	}
	for _, n := range []string{"cbc-2.163.0/workflow-live-interrupt", "claude-2.1.220/75-agent-permission"} {
		c, err := capture.Load(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(append([]byte{}, c.Stdin...), c.Stdout...), "dev.cbcast.claude.assistant", uint8(1), false)
	}
	c, err := capture.Load("codex-0.153.4/81-collab-v2")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(append([]byte{}, c.Stdin...), c.Stdout...), "dev.cbcast.codex.item.started", uint8(3), false)
	f.Add([]byte(strings.Join([]string{
		turnBegins("T", "U"), itemBegins("T", "U", command("i", "inProgress")), asks("0", cmdAsk, "T", "U", "i"), `{"id":0,"result":{"decision":"accept"}}`, resolved("T", "0"),
		itemBegins("T", "U", spawned("c", "A", "a")), turnBegins("A", "V"), turnEnds("T", "U", "completed"), itemEnds("T", "U", command("i", "completed")),
	}, "\n")), "dev.cbcast.codex.other", uint8(2), false)
	types := []string{event.TypeStarted, event.TypeSession, event.TypeInput, event.TypeGap, event.TypeCommand, event.TypeStalled, event.TypeLost, event.TypeResumed, event.TypeCommandFact, event.TypeAsk, event.TypeDecision}
	f.Fuzz(func(t *testing.T, b []byte, typ string, mode uint8, cut bool) {
		s := run.New("r")
		seq := uint64(0)
		apply := func(e event.Event) {
			if seq++; mode&64 != 0 {
				seq += 2
			}
			e.Seq = seq
			s.Apply(&e)
		}
		for i, line := range strings.Split(string(b), "\n") {
			e := event.Event{Type: typ, Stream: event.Out, ContentType: event.JSON, Data: []byte(line), Cut: cut, Session: typ[:len(typ)/2], Time: time.Unix(int64(i), 0)}
			switch (int(mode) + i) % 5 {
			case 1:
				e.Stream = event.In
			case 2:
				e.ContentType = ""
			case 3:
				e.Chunk = event.Part{I: 1 + i%2, N: 2}
			case 4:
				e.Stream, e.Type = event.Edge, types[i%len(types)]
			}
			apply(e)
		}
		s.Apply(&event.Event{Type: event.TypeLost, Data: b})
		if _, err := json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		apply(event.Event{Type: event.TypeExited, Stream: event.Edge, Data: []byte(`{"code":0}`)})
		if o := s.Open(); o.Any() || s.Verdict() == nil {
			t.Fatalf("open at the end: %+v", o)
		}
		if out, err := json.Marshal(s); err != nil || !json.Valid(out) {
			t.Fatal(err)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	for _, name := range []string{"cbc-2.163.0/workflow-live-partial", "claude-2.1.220/81-workflow-ok-partial", "codex-0.153.4/81-collab-v2"} {
		c, err := capture.Load(name)
		if err != nil {
			b.Fatal(err)
		}
		events := capture.Events(c, "t", "r")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := run.New("r")
				for _, e := range events {
					s.Apply(e)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}

// Counts of tokens that cannot be any are not counted, and said.
func TestOddUsage(t *testing.T) {
	result := func(uuid, in, out string) string {
		return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"session_id":%q,"uuid":%q,"num_turns":1,"usage":{"input_tokens":%s,"output_tokens":%s},`+
			`"modelUsage":{"m":{"inputTokens":%s,"outputTokens":%s}}}`, sid, uuid, in, out, in, out)
	}
	for _, tc := range []struct {
		in, out string
		want    run.Tokens
		odd     bool
	}{
		{"7", "8", run.Tokens{Input: 7, Output: 8}, false},
		{"0", "0", run.Tokens{}, false},
		{"-5", "8", run.Tokens{Output: 8}, true},
		{"7", "1e300", run.Tokens{Input: 7}, true},
		{"-1e300", "9223372036854775807", run.Tokens{}, true},
	} {
		s := played(t, script("claude", initLine, asst, result("r", tc.in, tc.out)))
		u, odd := s.Usage(), false
		for _, w := range s.View().Warnings {
			odd = odd || w.What == "odd_usage"
		}
		if u.Tokens != tc.want || u.Models["m"].Tokens != tc.want || odd != tc.odd {
			t.Errorf("%s, %s: %+v, of the model %+v, odd %t", tc.in, tc.out, u.Tokens, u.Models["m"].Tokens, odd)
		}
	}
}

// A cost that cannot be any is none, and said: of the run, its turn and its models.
func TestOddCost(t *testing.T) {
	for _, tc := range []struct {
		cost string
		want float64
		odd  bool
	}{
		{"0.25", 0.25, false}, {"0", 0, false}, {"-1", 0, true}, {"1e300", 0, true}, {"1e9", 1e9, false}, {"1000000001", 0, true}, {"1e999", 0, false}, {`"NaN"`, 0, false},
	} {
		line := `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","uuid":"r","num_turns":1,"total_cost_usd":` + tc.cost + `,"modelUsage":{"m":{"costUSD":` + tc.cost + `}}}`
		s := played(t, script("claude", initLine, asst, line))
		u, odd := s.Usage(), false
		for _, w := range s.View().Warnings {
			odd = odd || w.What == "odd_usage"
		}
		if u.CostUSD != tc.want || u.Models["m"].CostUSD != tc.want || odd != tc.odd {
			t.Errorf("%s: %v, of the model %v, odd %t", tc.cost, u.CostUSD, u.Models["m"].CostUSD, odd)
		}
	}
}
