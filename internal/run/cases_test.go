package run_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

const (
	sid      = "00000000-0000-4000-8000-000000000001"
	initLine = `{"type":"system","subtype":"init","session_id":"` + sid + `"}`
)

// script is a run told step by step: "> x" is a line on stdin, "wait 3s" time,
// anything else a line on stdout.
func script(argv0 string, steps ...string) *capture.Capture {
	c := &capture.Capture{Argv: []string{argv0}}
	var at time.Duration
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
		c.Timeline = append(c.Timeline, e)
	}
	return c
}

func exited(c *capture.Capture, code int) *capture.Capture {
	c.Code = code
	at := time.Duration(0)
	if n := len(c.Timeline); n > 0 {
		at = c.Timeline[n-1].At
	}
	c.Timeline = append(c.Timeline, capture.Entry{At: at, Dir: capture.Exit})
	return c
}

// played folds a script; without an exit in it the run still lives.
func played(t *testing.T, c *capture.Capture) *run.State {
	t.Helper()
	s := run.New("r")
	ends := len(c.Timeline) > 0 && c.Timeline[len(c.Timeline)-1].Dir == capture.Exit
	for _, e := range capture.Events(c, "t", "r") {
		if e.Type != event.TypeExited || ends {
			s.Apply(e)
		}
	}
	return s
}

// file plays a file as a child's stdout, then its exit.
func file(t *testing.T, argv0, name string, code int) *run.State {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "cases", name+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	c := &capture.Capture{Argv: []string{argv0}, Code: code}
	lines, tail := capture.Lines(b)
	for _, l := range lines {
		c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: l})
	}
	if len(tail) > 0 {
		c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: tail, Cut: true})
	}
	return played(t, exited(c, code))
}

func verdictOf(s *run.State) string {
	j := s.Verdict()
	if j == nil {
		return "none"
	}
	return string(j.Verdict)
}

// What is no frame is carried as raw bytes and changes nothing else.
// 007 anthropics/claude-agent-sdk-python#148; 010 anthropics/claude-agent-sdk-typescript#137;
// 012 delexw/claude-code-trace#88; 014 zszz3/AgentRecall#315; 018 mark3labs/mcp-go#913;
// 020 steemit/jussi#258; 077 oxyno-zeta/s3-proxy#121.
func TestOddOutput(t *testing.T) {
	for _, tc := range []struct {
		name        string
		frames, raw int
	}{
		{"007-banner-before-json", 3, 6},
		{"010-u2028-inside-string", 3, 0},
		{"012-lone-surrogate-escape", 5, 0},
		{"014-nul-utf16-console", 3, 0},
		{"018-int-over-2-53", 3, 0},
		{"020-html-escape", 3, 0},
		{"077-label-not-utf8-panics", 5, 0},
	} {
		s := file(t, "claude", tc.name, 0)
		v := s.View()
		if got := v.Counts.Types["raw"]; got != tc.raw {
			t.Errorf("%s: %d raw lines, want %d", tc.name, got, tc.raw)
		}
		if got := v.Counts.Frames["out"] - v.Counts.Types["raw"]; got != tc.frames {
			t.Errorf("%s: %d frames, want %d", tc.name, got, tc.frames)
		}
		if got := verdictOf(s); tc.name != "018-int-over-2-53" && got != "success" {
			t.Errorf("%s: %s", tc.name, got)
		}
		if b, err := json.Marshal(s); err != nil || bytes.Contains(b, []byte{0}) {
			t.Errorf("%s: state %v", tc.name, err)
		}
	}
}

// The events carry the child's bytes: digits, spaces, escapes and raw U+2028 stay.
func TestEventsKeepBytes(t *testing.T) {
	for _, name := range []string{"010-u2028-inside-string", "012-lone-surrogate-escape", "014-nul-utf16-console", "018-int-over-2-53", "020-html-escape", "077-label-not-utf8-panics"} {
		b, err := os.ReadFile(filepath.Join("testdata", "cases", name+".ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		c := &capture.Capture{Argv: []string{"cbc"}}
		lines, _ := capture.Lines(b)
		for _, l := range lines {
			c.Timeline = append(c.Timeline, capture.Entry{Dir: capture.Out, Data: l})
		}
		var joined []byte
		for _, e := range capture.Events(exited(c, 0), "t", "r") {
			if e.Stream == event.Out {
				joined = append(append(joined, e.Data...), '\n')
			}
		}
		if !bytes.Equal(joined, b) {
			t.Errorf("%s: bytes differ", name)
		}
	}
}

// 022 golang/go#14750: what two parsers read differently decides nothing.
func TestDuplicateKeys(t *testing.T) {
	v := file(t, "claude", "022-duplicate-keys", 0).View()
	if len(v.Turns) != 1 || v.Turns[0].Results != 1 {
		t.Errorf("a frame of two types ended a turn: %+v", v.Turns)
	}
	if len(v.Asks) != 1 || !v.Asks[0].Ambiguous || v.Asks[0].Tool != "" || v.Asks[0].ID != "a1" {
		t.Errorf("asks %+v", v.Asks)
	}
	if v.Counts.Ambiguous == 0 {
		t.Error("nothing was flagged")
	}
}

// 025 anthropics/claude-code#25629: a turn is done at its result, not at EOF.
func TestNoExitAfterResult(t *testing.T) {
	s := played(t, script("claude", initLine, `{"type":"result","subtype":"success","is_error":false,"session_id":"`+sid+`","num_turns":1,"result":"done"}`))
	v := s.View()
	if s.Phase() != "idle" || v.Turns[0].State != "done" || v.Turns[0].Verdict.Verdict != run.Success || v.Verdict != nil || !s.Idle() {
		t.Errorf("phase %s, turn %+v", s.Phase(), v.Turns)
	}
	// The edge then ends the child; that changes nothing.
	c := script("claude", initLine, `{"type":"result","subtype":"success","is_error":false,"session_id":"`+sid+`","num_turns":1,"result":"done"}`)
	c.Signal, c.Killed = "SIGKILL", true
	if got := verdictOf(played(t, exited(c, -1))); got != "success" {
		t.Errorf("killed after the result: %s", got)
	}
}

// 027 anthropics/claude-code#16768: a second result that belongs to no turn is a
// warning; the exit code speaks for itself.
func TestSecondResultError(t *testing.T) {
	for code, want := range map[int]string{0: "success", 1: "failed"} {
		s := file(t, "claude", "027-second-result-error", code)
		v := s.View()
		if len(v.Turns) != 1 || v.Turns[0].Verdict.Verdict != run.Success || v.Turns[0].Results != 1 {
			t.Errorf("turns %+v", v.Turns)
		}
		if len(v.Warnings) != 1 || v.Warnings[0].What != "result_without_turn" {
			t.Errorf("warnings %+v", v.Warnings)
		}
		if got := verdictOf(s); got != want {
			t.Errorf("exit %d: %s, want %s", code, got, want)
		}
	}
}

// 029 multica-ai/multica#8340: a turn is over when its tasks are.
func TestSuccessWhileTaskRuns(t *testing.T) {
	started := func(id, typ string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"task_started","task_id":%q,"tool_use_id":"c-%s","task_type":%q,"session_id":%q}`, id, id, typ, sid)
	}
	result := `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","num_turns":1,"result":"done"}`
	steps := []string{initLine, started("t1", "local_workflow"), started("sh2", "Bash"), result}
	s := played(t, script("cbc", steps...))
	if o := s.Open(); s.Phase() != "working" || o != (run.Open{Tasks: 2}) || s.View().Turns[0].State != "open" {
		t.Errorf("at the result: %s %+v", s.Phase(), o)
	}
	steps = append(steps, "wait 3s",
		`{"type":"system","subtype":"task_updated","task_id":"t1","patch":{"status":"completed"},"status":"completed","session_id":"`+sid+`"}`,
		`{"type":"system","subtype":"task_notification","task_id":"t1","status":"completed","session_id":"`+sid+`"}`)
	if s = played(t, script("cbc", steps...)); s.Phase() != "working" {
		t.Errorf("one task left: %s", s.Phase())
	}
	steps = append(steps, `{"type":"system","subtype":"task_updated","task_id":"sh2","patch":{"status":"failed"},"session_id":"`+sid+`"}`)
	s = played(t, script("cbc", steps...))
	turn := s.View().Turns[0]
	// A background Agent is open, too; whoever waits for an end need not wait for it.
	a := played(t, script("cbc", initLine, started("agent-1", "Agent"), result))
	if o := a.Open(); o != (run.Open{Tasks: 1, Silent: 1}) || o.Any() || !a.Idle() || a.Phase() != "working" || a.View().Turns[0].State != "open" {
		t.Errorf("an Agent: %s %+v", a.Phase(), o)
	}
	if s.Phase() != "idle" || turn.State != "done" || turn.Verdict.Verdict != run.Incomplete {
		t.Errorf("at the end: %s %+v", s.Phase(), turn)
	}
}

// 031 anthropics/claude-code#20754: what was never reported is closed by us, never
// as completed.
func TestMissingNotifications(t *testing.T) {
	s := file(t, "claude", "031-missing-notifications", 0)
	got := map[string]string{}
	for _, k := range s.View().Tasks {
		got[k.ID] = fmt.Sprint(k.Status, " ", k.Synthesised)
	}
	if d := cmp.Diff(map[string]string{"t1": "unknown true", "t2": "completed false", "t3": "unknown true"}, got); d != "" {
		t.Error(d)
	}
	if got := verdictOf(s); got != "incomplete" {
		t.Error(got)
	}
	// CodeBuddy never reports the end of a background Agent.
	s = file(t, "cbc", "031-missing-notifications", 0)
	if s.TaskStatus("t1") != "not_reported" || verdictOf(s) != "success" {
		t.Errorf("cbc: %s %s", s.TaskStatus("t1"), verdictOf(s))
	}
}

// 033 xintaofei/codeg#364: three facts of an interrupt; late frames revive nothing.
func TestLateProgress(t *testing.T) {
	progress := func(list string) string {
		return `{"type":"system","subtype":"task_progress","task_id":"w1","workflow_progress":` + list + `,"session_id":"` + sid + `"}`
	}
	steps := []string{
		initLine,
		`{"type":"system","subtype":"task_started","task_id":"w1","task_type":"local_workflow","session_id":"` + sid + `"}`,
		`> {"type":"control_request","request_id":"k1","request":{"subtype":"interrupt","session_id":"` + sid + `"}}`,
		`{"type":"control_response","response":{"subtype":"success","request_id":"k1"}}`,
		`{"type":"system","subtype":"task_updated","task_id":"w1","patch":{"status":"killed"},"session_id":"` + sid + `"}`,
		`{"type":"system","subtype":"task_notification","task_id":"w1","status":"stopped","session_id":"` + sid + `"}`,
		"wait 1s", progress(`[{"type":"workflow_agent","index":1,"agentId":"v2:aa","state":"error","error":"aborted"}]`),
		"wait 6s", progress(`[]`),
		`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"` + sid + `","num_turns":1}`,
	}
	s := played(t, exited(script("cbc", steps...), 0))
	v := s.View()
	k := v.Tasks[0]
	if k.Status != "killed" || k.By != "interrupt" || k.Late != 2 || len(k.Agents) != 1 || k.Agents[0].State != "error" {
		t.Errorf("%+v", k)
	}
	i := v.Interrupts[0]
	if i.AskedSeq == 0 || i.AckedSeq <= i.AskedSeq || i.EndedSeq <= i.AckedSeq || i.Effect != "task" {
		t.Errorf("%+v", i)
	}
	if got := verdictOf(s); got != "interrupted" {
		t.Error(got)
	}
}

// 048: two interrupts at once; acks come twice, for nobody, and as an error.
func TestInterruptAckedTwice(t *testing.T) {
	ack := func(id, rest string) string {
		return `{"type":"control_response","response":{"request_id":"` + id + `",` + rest + `}}`
	}
	s := played(t, exited(script(
		"cbc", initLine, `{"type":"assistant","session_id":"`+sid+`","parent_tool_use_id":null,"message":{"content":[]}}`,
		`> {"type":"control_request","request_id":"a","request":{"subtype":"interrupt"}}`,
		`> {"type":"control_request","request_id":"b","request":{"subtype":"interrupt"}}`,
		ack("a", `"subtype":"success"`), ack("a", `"subtype":"success"`), ack("nobody-1", `"subtype":"success"`),
		`{"type":"system","subtype":"task_notification","task_id":"w0","status":"stopped","session_id":"`+sid+`"}`,
		ack("b", `"subtype":"error","error":"no active turn"`),
		`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"`+sid+`","num_turns":1}`,
	), 0))
	v := s.View()
	if len(v.Interrupts) != 2 || v.Interrupts[0].Effect == "" || v.Interrupts[1].Error != "no active turn" || v.Interrupts[1].Effect != "" {
		t.Errorf("%+v", v.Interrupts)
	}
	if v.Counts.AcksRepeated != 1 || v.Counts.AcksUnknown != 1 {
		t.Errorf("repeated %d, unknown %d", v.Counts.AcksRepeated, v.Counts.AcksUnknown)
	}
	if got := verdictOf(s); got != "interrupted" {
		t.Error(got)
	}
}

// 067 anthropics/claude-code#58760: the id that the frames give is the one to use.
func TestResumedSessionID(t *testing.T) {
	c := script("claude", `{"type":"system","subtype":"init","session_id":"two"}`, `{"type":"result","subtype":"success","is_error":false,"session_id":"two","num_turns":1}`)
	c.Argv = append(c.Argv, "--resume", "one")
	s := played(t, c)
	if s.Main() != "two" || s.View().Argv[2] != "one" {
		t.Errorf("main %s", s.Main())
	}
}

// 069 pingdotgg/t3code#4930: a frame that comes again counts once.
func TestRepeatedFrame(t *testing.T) {
	old := `{"type":"assistant","message":{"content":[{"type":"text","text":"API Error: 502"},{"type":"tool_use","id":"c","name":"Bash"}]},"parent_tool_use_id":null,"session_id":"` + sid + `","uuid":"u-7","error":"unknown"}`
	good := `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","uuid":"r","num_turns":1,"total_cost_usd":0.01,"usage":{"input_tokens":5}}`
	v := played(t, exited(script("claude", initLine, old, old, good, good), 0)).View()
	if v.Counts.Messages != 1 || v.Counts.ToolCalls != 1 || v.Counts.Repeats != 2 || v.Usage.Tokens.Input != 5 || v.Turns[0].Results != 1 {
		t.Errorf("%+v %+v", v.Counts, v.Usage)
	}
	if v.Verdict.Verdict != run.Success {
		t.Error(v.Verdict)
	}
}

// 071 anomalyco/opencode#2294: frames are grouped by the call they belong to.
func TestSubagentFrames(t *testing.T) {
	s := file(t, "claude", "071-subagent-frames-as-main", 0)
	got := map[string]string{}
	for _, g := range s.View().Subagents {
		got[g.Call] = fmt.Sprintf("%s %d", g.Parent, g.Frames)
	}
	want := map[string]string{"toolu_A": "main 2", "toolu_B": "main 1", "toolu_AA": "toolu_A 1", "toolu_ZZ": "unattached 1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := verdictOf(s); got != "success" {
		t.Errorf("a sub-agent's text made it %s", got)
	}
}

// 073 anthropics/claude-code#83239: total_cost_usd is a running total of a process.
func TestCumulativeCost(t *testing.T) {
	result := func(uuid string, cost float64) string {
		return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"session_id":%q,"uuid":%q,"num_turns":1,"total_cost_usd":%v}`, sid, uuid, cost)
	}
	total := 0.0
	for _, steps := range [][]string{
		{initLine, result("a", 0.10), initLine, result("b", 0.25), initLine, result("c", 0.25), initLine, result("d", 0.2)},
		{initLine, result("d", 0.05)},
	} {
		v := played(t, exited(script("claude", steps...), 0)).View()
		total += v.Usage.CostUSD
		sum := 0.0
		for _, turn := range v.Turns {
			sum += turn.CostUSD
		}
		if fmt.Sprintf("%.2f", sum) != fmt.Sprintf("%.2f", v.Usage.CostUSD) {
			t.Errorf("turns cost %v, the run %v", sum, v.Usage.CostUSD)
		}
	}
	if got := fmt.Sprintf("%.2f", total); got != "0.30" {
		t.Errorf("total %s, want 0.30", got)
	}
}

// 089 nats-io/nats-architecture-and-design#236: ids stay as they are in the state.
func TestStrangeSessionIDs(t *testing.T) {
	s := file(t, "cbc", "089-subject-injection", 0)
	if s.Main() != "a.b" {
		t.Errorf("main %q", s.Main())
	}
	ids := map[string]bool{}
	for _, id := range s.Sessions() {
		if ids[id] {
			t.Errorf("%q twice", id)
		}
		ids[id] = true
	}
	for _, id := range []string{"a.b", "x y", "*", ">", "a..b", "é", "$JS.API.STREAM.DELETE.EVENTS", "a\r\nPUB evil 0\r\n"} {
		if !ids[id] {
			t.Errorf("%q is missing", id)
		}
	}
}
