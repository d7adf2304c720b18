package dialect_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

func TestFromArgv0(t *testing.T) {
	for path, want := range map[string]dialect.Name{
		"/usr/bin/cbc": dialect.CBC, "codebuddy-headless": dialect.CBC, `C:\bin\CBC.EXE`: dialect.CBC, "/opt/claude": dialect.Claude,
		"claude.exe": dialect.Claude, "codex": dialect.Codex, "/x/codex.exe": dialect.Codex, "codex-helper": dialect.Unknown, "/usr/bin/python3": dialect.Unknown, "": dialect.Unknown,
	} {
		if got := dialect.FromArgv0(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

// what is the short form of a class in the tables below.
type what struct {
	Type               string
	Kind               event.Kind
	Session, Task, Par string
}

func classify(t *dialect.Tracker, s event.Stream, line string) what {
	c := t.Classify(s, []byte(line), false)
	return what{strings.TrimPrefix(c.Type, "dev.cbcast."), c.Kind, c.Session, c.Task, c.Parent}
}

func TestClassify(t *testing.T) {
	tr := dialect.NewTracker(dialect.Unknown)
	for _, tc := range []struct {
		stream event.Stream
		line   string
		want   what
	}{
		{event.Out, `Welcome • a, b`, what{Type: "unknown.raw", Kind: event.Raw}},
		{event.Out, `{"hello":1}`, what{Type: "unknown.raw", Kind: event.Raw}},
		{event.Out, `{"type":"control_response","response":{"subtype":"success","request_id":"init"}}`, what{Type: "unknown.control_response.success", Kind: event.Cmd}},
		{event.Err, `{"type":"result"}`, what{Type: "unknown.stderr", Kind: event.Raw}},
		{event.Out, `{"type":"system","subtype":"init","session_id":"s1","__timestamp":"t"}`, what{"cbc.system.init", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"system","subtype":"init","session_id":"sub","__timestamp":"t"}`, what{"cbc.system.init", event.Msg, "sub", "", ""}},
		{event.Out, `{"type":"system","subtype":"brand_new","session_id":"s1"}`, what{"cbc.system.other", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"nats.>","session_id":"s1"}`, what{"cbc.other", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":7}`, what{"cbc.other", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"file-history-snapshot","messageId":"m"}`, what{"cbc.file_history_snapshot", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"assistant","session_id":"s1","parent_tool_use_id":null}`, what{"cbc.assistant", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"system","subtype":"task_started","task_id":"t1","tool_use_id":"c1","session_id":"s1"}`, what{"cbc.system.task_started", event.Task, "s1", "t1", ""}},
		{event.Out, `{"type":"system","subtype":"task_progress","task_id":"t1","workflow_progress":[{"type":"workflow_agent","agentId":"ag1"}],"session_id":"s1"}`, what{"cbc.system.task_progress", event.Task, "s1", "t1", ""}},
		{event.Out, `{"type":"assistant","session_id":"s1","parent_tool_use_id":"c1"}`, what{"cbc.assistant", event.Msg, "s1", "t1", "c1"}},
		{event.Out, `{"type":"assistant","session_id":"s1","parent_tool_use_id":"unseen"}`, what{"cbc.assistant", event.Msg, "s1", "", "unseen"}},
		{event.Out, `{"type":"user","session_id":"s1","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"Spawned.\ntask_id: agent-9f-1\nname: x"}]}]}}`, what{"cbc.user", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"assistant","session_id":"s1","parent_tool_use_id":"c2"}`, what{"cbc.assistant", event.Msg, "s1", "agent-9f-1", "c2"}},
		{event.Out, `{"type":"user","session_id":"s1","parent_tool_use_id":"c7","message":{"content":[{"type":"tool_result","tool_use_id":"c7","content":"own result"}]}}`, what{"cbc.user", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"control_request","request_id":"perm_1_1","request":{"subtype":"can_use_tool","agent_id":"ag1"},"_meta":{"baggage":"codebuddy.session_id=s9,codebuddy.conversation_request_id=x"}}`, what{"cbc.control_request.can_use_tool", event.Ask, "s9", "t1", ""}},
		{event.Out, `{"type":"control_request","request_id":"hook_1","request":{"subtype":"hook_callback"}}`, what{"cbc.control_request.hook_callback", event.Msg, "s1", "", ""}},
		{event.In, `{"type":"control_response","response":{"subtype":"success","request_id":"hook_1"}}`, what{"cbc.control_response.success", event.Msg, "s1", "", ""}},
		{event.In, `{"type":"control_response","response":{"subtype":"success","request_id":"perm_1_1"}}`, what{"cbc.control_response.success", event.Ask, "s1", "", ""}},
		{event.In, `{"type":"control_response","response":{"subtype":"success","request_id":"perm_1_1"}}`, what{"cbc.control_response.success", event.Ask, "s1", "", ""}},
		{event.Out, `{"type":"control_cancel_request","request_id":"perm_1_1"}`, what{"cbc.control_cancel_request", event.Ask, "s1", "", ""}},
		{event.In, `{"type":"control_request","request_id":"1","request":{"subtype":"interrupt","session_id":"other"}}`, what{"cbc.control_request.interrupt", event.Cmd, "s1", "", ""}},
		{event.In, `{"type":"user","session_id":"made up","message":{}}`, what{"cbc.user", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"system","subtype":"task_updated","task_id":"t1","patch":{"status":"running"},"session_id":"s1"}`, what{"cbc.system.task_updated", event.Task, "s1", "t1", ""}},
		{event.Out, `{"type":"system","subtype":"task_updated","task_id":"t1","patch":{"status":"killed"},"session_id":"s1"}`, what{"cbc.system.task_updated", event.End, "s1", "t1", ""}},
		{event.Out, `{"type":"system","subtype":"task_updated","task_id":"t1","status":"failed","session_id":"s1"}`, what{"cbc.system.task_updated", event.End, "s1", "t1", ""}},
		{event.Out, `{"type":"system","subtype":"task_notification","task_id":"t1","status":"stopped","session_id":"s1"}`, what{"cbc.system.task_notification", event.End, "s1", "t1", ""}},
		{event.Out, `{"is_error":false,"session_id":"s1","subtype":"success","type":"result"}`, what{"cbc.result.success", event.End, "s1", "", ""}},
		{event.Out, `{"type":"error","error":"x"}`, what{"cbc.error", event.Msg, "s1", "", ""}},
		{event.Out, `{"type":"result","session_id":"s1"`, what{"cbc.raw", event.Raw, "s1", "", ""}},
		{event.Out, `[{"type":"result"}]`, what{"cbc.raw", event.Raw, "s1", "", ""}},
	} {
		if d := cmp.Diff(tc.want, classify(tr, tc.stream, tc.line)); d != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.stream, tc.line, d)
		}
	}
	if tr.Main() != "s1" || tr.Dialect() != dialect.CBC || !tr.Confirmed() {
		t.Errorf("main %q, dialect %s, confirmed %t", tr.Main(), tr.Dialect(), tr.Confirmed())
	}
}

func TestClassifyTraceParent(t *testing.T) {
	tr := dialect.NewTracker(dialect.CBC)
	c := tr.Classify(event.Out, []byte(`{"type":"assistant","_meta":{"traceparent":"00-6879b07f4a2fc54921c2a04e79db2b31-28ac2889cb7da860-01"}}`), false)
	if want := "00-6879b07f4a2fc54921c2a04e79db2b31-28ac2889cb7da860-01"; c.TraceParent != want {
		t.Errorf("%q, want %q", c.TraceParent, want)
	}
}

// A cut tail that is a whole object lost nothing; any other is raw.
func TestClassifyCut(t *testing.T) {
	tr := dialect.NewTracker(dialect.Claude)
	if c := tr.Classify(event.Out, []byte(`{"type":"result","subtype":"success"}`), true); !c.Frame || c.Kind != event.End {
		t.Errorf("whole: %+v", c)
	}
	if c := tr.Classify(event.Out, []byte(`{"type":"result","subtype":"succ`), true); c.Frame || c.Kind != event.Raw {
		t.Errorf("cut: %+v", c)
	}
}

func TestMainSession(t *testing.T) {
	init := func(id string) string { return `{"type":"system","subtype":"init","session_id":"` + id + `"}` }
	for _, tc := range []struct {
		name  string
		d     dialect.Name
		lines []string
		want  string
	}{
		{"first init", dialect.CBC, []string{init("a"), init("b")}, "a"},
		{"sub-agents never", dialect.CBC, []string{init("a"), `{"type":"assistant","session_id":"a"}`, init("b"), `{"type":"result","session_id":"a"}`, init("c")}, "a"},
		{"a concurrent session's result", dialect.CBC, []string{init("a"), init("b"), `{"type":"result","session_id":"b"}`}, "a"},
		{"no init", dialect.CBC, []string{`{"type":"result","session_id":"r"}`}, "r"},
		{"empty id", dialect.CBC, []string{init(""), `{"type":"control_request","session_id":""}`}, ""},
		{"init every turn", dialect.Claude, []string{init("a"), `{"type":"result","session_id":"a"}`, init("a")}, "a"},
		{"reset", dialect.Claude, []string{init("a"), `{"type":"conversation_reset","new_conversation_id":"b","session_id":"a"}`, init("b")}, "b"},
		{"clear without the new id", dialect.Claude, []string{init("a"), `{"type":"conversation_reset","session_id":"a"}`, init("b")}, "b"},
	} {
		tr := dialect.NewTracker(tc.d)
		for _, l := range tc.lines {
			tr.Classify(event.Out, []byte(l), false)
		}
		if got := tr.Main(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Every frame that was recorded has a ce-type of its own, from the list, and the
// dialect that wrote it.
func TestClassifyRecordings(t *testing.T) {
	types := map[string]bool{}
	for _, d := range []dialect.Name{dialect.Claude, dialect.CBC, dialect.Codex} {
		for _, n := range dialect.Types(d) {
			types[n] = true
		}
	}
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		tr := dialect.NewTracker(dialect.Unknown)
		tr.SetOutput(dialect.OutputOf(c.Argv))
		frames := 0
		for _, e := range c.Timeline {
			if e.Dir != capture.Out {
				continue
			}
			cl := tr.Classify(event.Out, e.Data, e.Cut)
			if cl.Frame {
				frames++
			}
			if cl.Frame && (strings.HasSuffix(cl.Type, ".other") || cl.Ambiguous) {
				t.Errorf("%s: %s %t: %.120s", name, cl.Type, cl.Ambiguous, e.Data)
			}
			if tr.Confirmed() && !types[cl.Type] {
				t.Errorf("%s: type %s is not listed", name, cl.Type)
			}
		}
		want := dialect.FromArgv0(c.Argv[0])
		if frames > 3 && tr.Dialect() != want {
			t.Errorf("%s: dialect %s, want %s", name, tr.Dialect(), want)
		}
	}
}

func TestOneShotOutputIsRaw(t *testing.T) {
	for _, o := range []dialect.Output{dialect.OutputText, dialect.OutputJSON} {
		tr := dialect.NewTracker(dialect.Claude)
		tr.SetOutput(o)
		if c := tr.Classify(event.Out, []byte(`{"type":"result","subtype":"success"}`), false); c.Kind != event.Raw || c.Frame {
			t.Errorf("%s: %+v", o, c)
		}
	}
}

func TestOutputOf(t *testing.T) {
	for _, tc := range []struct {
		argv string
		want dialect.Output
	}{
		{"cbc -p hi", dialect.OutputAuto},
		{"cbc --output-format json -p hi", dialect.OutputJSON},
		{"cbc --output-format=text", dialect.OutputText},
		{"cbc --output-format text --output-format stream-json", dialect.OutputStream},
		{"cbc --output-format yaml", dialect.OutputAuto},
		{"cbc --output-format", dialect.OutputAuto},
		{"cbc -- --output-format json", dialect.OutputAuto},
	} {
		if got := dialect.OutputOf(strings.Fields(tc.argv)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.argv, got, tc.want)
		}
	}
}

func TestFinalResult(t *testing.T) {
	for _, tc := range []struct {
		doc  string
		want string // the result's text; "-" for none
	}{
		{`{"type":"result","subtype":"success","result":"a"}` + "\n", "a"},
		{"[\n {\"type\":\"user\"},\n {\"type\":\"result\",\"result\":\"x\"},\n {\"type\":\"result\",\"result\":\"b\"}\n]\n", "b"},
		{`[{"type":"assistant"}]`, "-"},
		{`[{"type":"result"}] tail`, "-"},
		{`{"type":"assistant"}`, "-"},
		{"Max turns (1) exceeded\n", "-"},
		{"", "-"},
		{"[", "-"},
	} {
		f, ok := dialect.FinalResult([]byte(tc.doc))
		got := "-"
		if ok {
			got = f.Get("result").Text()
		}
		if got != tc.want {
			t.Errorf("%q: %q, want %q", tc.doc, got, tc.want)
		}
	}
}

func TestControlLines(t *testing.T) {
	reason := "a \"b\" \\ \r\n\u2028\u2029é😀\x00\x7f\xff"
	lines := [][]byte{dialect.Interrupt(dialect.CBC, "cbcast-1\u2028", "s é", reason), dialect.Interrupt(dialect.Claude, "i", "", "")}
	stop, err := dialect.StopTask(dialect.Claude, "st", "t\n1")
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, stop)
	for _, l := range lines {
		if i := slices.IndexFunc(l[:len(l)-1], func(b byte) bool { return b < ' ' || b > '~' }); i >= 0 || l[len(l)-1] != '\n' {
			t.Errorf("%q is not printable ASCII and one LF", l)
		}
	}
	var got struct {
		Type      string `json:"type"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype string `json:"subtype"`
			Session string `json:"session_id"`
			Reason  string `json:"reason"`
		} `json:"request"`
	}
	if err := json.Unmarshal(lines[0], &got); err != nil {
		t.Fatal(err)
	}
	if got.Request.Reason != strings.ToValidUTF8(reason, "\ufffd") || got.Request.Session != "s é" || got.RequestID != "cbcast-1\u2028" || got.Request.Subtype != "interrupt" {
		t.Errorf("%+v", got)
	}
	if want := `{"type":"control_request","request_id":"i","request":{"subtype":"interrupt","reason":"interrupted by cbcast"}}` + "\n"; string(lines[1]) != want {
		t.Errorf("%s", lines[1])
	}
	if _, err := dialect.StopTask(dialect.CBC, "a", "b"); err == nil {
		t.Error("CodeBuddy has no stop_task")
	}
}

func TestResponseOf(t *testing.T) {
	for _, tc := range []struct {
		line, id, err string
		ok            bool
	}{
		{`{"type":"control_response","response":{"subtype":"success","request_id":"a\u0062","response":{}}}`, `"a\u0062"`, "", true},
		{`{"type":"control_response","response":{"subtype":"success","request_id":7}}`, "7", "", true},
		{`{"type":"control_response","response":{"subtype":"success"}}`, "", "", true},
		{`{"type":"control_response","response":{"subtype":"error","request_id":"x","error":"no"}}`, `"x"`, "no", true},
		{`{"type":"control_request","request_id":"x"}`, "", "", false},
		{`control_response`, "", "", false},
	} {
		r, ok := dialect.ResponseOf([]byte(tc.line))
		if ok != tc.ok || string(r.ID) != tc.id || r.Error != tc.err {
			t.Errorf("%s: %t %s %q", tc.line, ok, r.ID, r.Error)
		}
	}
	if got := string(dialect.RequestID("cbcast-1")); got != `"cbcast-1"` {
		t.Error(got)
	}
}

// Ids of the child never become part of a ce-type, and none makes Classify fail.
func FuzzClassify(f *testing.F) {
	f.Add([]byte(`{"type":"system","subtype":"init","session_id":"a.b","claude_code_version":"2"}`), false)
	f.Add([]byte(`{"type":"control_request","request_id":1,"request":{"subtype":"can_use_tool"}}`), true)
	f.Add([]byte(`{"type":"user","parent_tool_use_id":"p","message":{"content":[{"type":"tool_result","content":"task_id: agent-é"}]}}`), false)
	f.Add([]byte(`{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t.*","itemId":"i"}}`), false)
	f.Add([]byte(`{"method":"item/started","params":{"item":{"type":"collabAgentToolCall","tool":"spawnAgent","receiverThreadIds":["a",1]},"threadId":"t"},"emittedAtMs":1}`), false)
	f.Add([]byte(`{"error":{"code":-32600,"message":"no"},"id":"x"}`), true)
	f.Add([]byte(`{"id":1,"id":2,"result":{"thread":{"id":"t"},"approvalPolicy":"never"}}`), false)
	types := map[string]bool{}
	all := []dialect.Name{dialect.Claude, dialect.CBC, dialect.Codex, dialect.Unknown}
	for _, d := range all {
		for _, n := range dialect.Types(d) {
			types[n] = true
		}
	}
	f.Fuzz(func(t *testing.T, line []byte, cut bool) {
		for _, d := range all {
			tr := dialect.NewTracker(d)
			for _, s := range []event.Stream{event.Out, event.In, event.Err, event.Out} {
				c := tr.Classify(s, line, cut)
				if !types[c.Type] || !slices.Contains(event.Kinds, c.Kind) || c.Kind == event.Life {
					t.Fatalf("%s %q: %+v", s, line, c)
				}
				tr.Input()
			}
		}
	})
}
