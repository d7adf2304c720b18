package dialect_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

// letters is the short form of capabilities: the level, and one letter each.
func letters(c event.Capabilities) string {
	s := c.Level + " "
	for _, x := range []struct {
		letter string
		has    bool
	}{
		{"e", c.StructuredEvents},
		{"c", c.BidirectionalControl},
		{"q", c.InteractiveQuestions},
		{"a", c.HumanApproval},
		{"r", c.SessionResume},
		{"i", c.Interrupt},
		{"s", c.Sandbox},
	} {
		if x.has {
			s += x.letter
		} else {
			s += "-"
		}
	}
	return s
}

func TestProbeOfArguments(t *testing.T) {
	const stream = " --output-format stream-json --verbose"
	for _, tc := range []struct {
		d      dialect.Name
		argv   string
		noPipe bool
		want   string
	}{
		{dialect.Claude, "claude -p hi", false, "D ----r--"},
		{dialect.Claude, "claude -p hi --output-format json", false, "D ----r--"},
		{dialect.Claude, "claude -p hi" + stream, false, "C e---r--"},
		{dialect.Claude, "claude -p --no-session-persistence hi" + stream, false, "C e------"},
		{dialect.Claude, "claude -p --input-format stream-json" + stream, false, "B ec--ri-"},
		{dialect.Claude, "claude -p --input-format stream-json --permission-prompt-tool stdio" + stream, false, "A ecqari-"},
		{dialect.Claude, "claude -p --input-format stream-json --permission-prompt-tool stdio" + stream, true, "C e---r--"},
		{dialect.Claude, "claude -p --input-format stream-json --permission-prompt-tool mcp__x" + stream, false, "B ec--ri-"},
		{dialect.Claude, "claude --input-format=stream-json --permission-prompt-tool=stdio --permission-mode=bypassPermissions" + stream, false, "B ecq-ri-"},
		{dialect.Claude, "claude --input-format stream-json --permission-prompt-tool stdio --dangerously-skip-permissions" + stream, false, "B ecq-ri-"},
		{dialect.Claude, `claude --input-format stream-json --settings {"sandbox":{"enabled":true}}` + stream, false, "B ec--ris"},
		{dialect.Claude, "claude --input-format stream-json --settings {bad" + stream, false, "B ec--ri-"},
		{dialect.Claude, "claude -p --" + stream + " --input-format stream-json", false, "D ----r--"},
		{dialect.CBC, "cbc -p hi" + stream, false, "C e---r--"},
		{dialect.CBC, "cbc --input-format stream-json" + stream, false, "B ec-ari-"},
		{dialect.CBC, "cbc -y --sandbox --input-format stream-json" + stream, false, "B ec--ris"},
		{dialect.Codex, "codex app-server", false, "B ec--ri-"},
		{dialect.Codex, "codex --enable default_mode_request_user_input app-server", false, "B ecq-ri-"},
		{dialect.Codex, "codex -c features.default_mode_request_user_input=true app-server", false, "B ecq-ri-"},
		{dialect.Codex, "codex exec hi", false, "D -------"},
		{dialect.Unknown, "sh -c x --input-format stream-json", false, "D -------"},
	} {
		if got := letters(dialect.NewProbe(tc.d, strings.Fields(tc.argv), !tc.noPipe).Capabilities()); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.argv, got, tc.want)
		}
	}
}

// A line that may change what is known is asked for, and only such a line.
func feed(t *testing.T, p *dialect.Probe, tr *dialect.Tracker, s event.Stream, line string) (changed bool) {
	t.Helper()
	c := tr.Classify(s, []byte(line), false)
	return p.Wants(s, &c) && p.See(s, []byte(line), tr.Dialect())
}

func TestProbeOfLines(t *testing.T) {
	const (
		out  = event.Out
		in   = event.In
		args = " --input-format stream-json --output-format stream-json --verbose"
	)
	type line struct {
		stream event.Stream
		text   string
		want   string // "" where it changes nothing
	}
	for _, tc := range []struct {
		name, argv string
		lines      []line
	}{
		{"claude: initialize switches nothing on", "claude -p" + args, []line{
			{in, `{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}`, ""},
			{out, `{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.220","permissionMode":"default","tools":["Bash"]}`, ""},
		}},
		{"claude: the list of tools decides", "claude -p --permission-prompt-tool stdio" + args, []line{
			{out, `{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.220","permissionMode":"default","tools":["Bash"]}`, "B ec-ari-"},
			{out, `{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.220","permissionMode":"default","tools":["AskUserQuestion"]}`, "A ecqari-"},
			{out, `{"type":"system","subtype":"status","session_id":"s","status":null,"permissionMode":"bypassPermissions"}`, "B ecq-ri-"},
			{out, `{"type":"assistant","session_id":"s","permissionMode":"default","message":{}}`, ""},
		}},
		{"claude behind another name", "agent" + args, []line{
			{out, `{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.220","tools":["AskUserQuestion"]}`, "B ecq-ri-"},
			{out, `{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash"}}`, "A ecqari-"},
		}},
		{"cbc: questions where initialize asks for them, and it was answered", "cbc" + args, []line{
			{in, `{"type":"control_request","request_id":7,"request":{"subtype":"initialize","capabilities":{"askUserQuestion":true}}}`, ""},
			{out, `{"type":"control_response","response":{"subtype":"success","request_id":"7","response":{}}}`, ""},
			{out, `{"type":"control_response","response":{"subtype":"success","request_id":7,"response":{}}}`, "A ecqari-"},
			{out, `{"type":"system","subtype":"init","session_id":"s","permissionMode":"default","tools":["AskUserQuestion"],"__timestamp":"x"}`, ""},
			{in, `{"type":"control_request","request_id":8,"request":{"subtype":"initialize"}}`, "B ec-ari-"},
		}},
		{"cbc: refused", "cbc" + args, []line{
			{in, `{"type":"control_request","request_id":"1","request":{"subtype":"initialize","capabilities":{"askUserQuestion":true}}}`, ""},
			{out, `{"type":"control_response","response":{"subtype":"error","request_id":"1","error":"no"}}`, ""},
		}},
		{"cbc: the mode changes", "cbc" + args, []line{
			{out, `{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"session_id":"s","mode":"bypassPermissions"}}}`, "B ec--ri-"},
		}},
		{"a host that speaks control", "cbc --output-format stream-json", []line{
			{in, `{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}`, "B ec-ari-"},
		}},
		{"codex", "codex app-server", []line{
			{out, `{"id":2,"result":{"thread":{"id":"t","ephemeral":false,"cliVersion":"0.153.4"},"approvalPolicy":"untrusted","approvalsReviewer":"user","sandbox":{"type":"workspaceWrite"}}}`, "B ec-aris"},
			{in, `{"id":3,"method":"turn/start","params":{"threadId":"t","collaborationMode":{"mode":"plan"}}}`, "A ecqaris"},
			{in, `{"id":4,"method":"turn/start","params":{"threadId":"t","collaborationMode":{"mode":"default"}}}`, "B ec-aris"},
			{out, `{"id":0,"method":"item/tool/requestUserInput","params":{"threadId":"t"}}`, "A ecqaris"},
			{out, `{"id":5,"result":{"thread":{"id":"u","ephemeral":true},"approvalPolicy":"never","sandbox":{"type":"dangerFullAccess"}}}`, "B ecq--i-"},
		}},
		{"codex: an agent approves", "codex app-server", []line{
			{out, `{"id":2,"result":{"thread":{"id":"t"},"approvalPolicy":"on-request","approvalsReviewer":"guardian","sandbox":{"type":"readOnly"}}}`, "B ec--ris"},
		}},
	} {
		argv := strings.Fields(tc.argv)
		tr := dialect.NewTracker(dialect.FromArgv0(argv[0]))
		p := dialect.NewProbe(tr.Dialect(), argv, true)
		for i, l := range tc.lines {
			before := letters(p.Capabilities())
			want := l.want
			if want == "" {
				want = before
			}
			changed := feed(t, p, tr, l.stream, l.text)
			if got := letters(p.Capabilities()); got != want || changed != (got != before) {
				t.Errorf("%s, line %d: %s, want %s; changed %v", tc.name, i+1, got, want, changed)
			}
		}
	}
}

// What each recorded program could do at the end of its session.
func TestProbeOfRecordings(t *testing.T) {
	got := map[string]string{}
	for _, name := range []string{
		"claude-2.1.220/40-ask-user-question", "claude-2.1.220/43-ask-user-question-no-prompt", "claude-2.1.220/b5-oneshot-stream-json",
		"claude-2.1.220/b6-oneshot-json", "claude-2.1.220/kf-plan-mode", "cbc-2.163.0/ask-user", "cbc-2.163.0/ask-user-nocap",
		"cbc-2.163.0/bash-bypass", "cbc-2.117.0/ask-user", "codex-0.153.4/10-cmd-approval-accept", "codex-0.153.4/20c-question-plan-mode",
		"codex-0.153.4/70c-sandbox-danger",
	} {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		tr := dialect.NewTracker(dialect.FromArgv0(c.Argv[0]))
		p := dialect.NewProbe(tr.Dialect(), c.Argv, true)
		for _, e := range c.Timeline {
			if e.Dir == capture.In || e.Dir == capture.Out {
				feed(t, p, tr, event.Stream(e.Dir), string(e.Data))
			}
		}
		got[name] = letters(p.Capabilities())
	}
	want := map[string]string{
		"claude-2.1.220/40-ask-user-question":           "A ecqari-",
		"claude-2.1.220/43-ask-user-question-no-prompt": "B ec--ri-",
		"claude-2.1.220/b5-oneshot-stream-json":         "C e---r--",
		"claude-2.1.220/b6-oneshot-json":                "D ----r--",
		"claude-2.1.220/kf-plan-mode":                   "A ecqari-",
		"cbc-2.163.0/ask-user":                          "A ecqari-",
		"cbc-2.163.0/ask-user-nocap":                    "B ec-ari-",
		"cbc-2.163.0/bash-bypass":                       "B ec--ri-",
		"cbc-2.117.0/ask-user":                          "A ecqari-",
		"codex-0.153.4/10-cmd-approval-accept":          "B ec-aris",
		"codex-0.153.4/20c-question-plan-mode":          "A ecqaris",
		"codex-0.153.4/70c-sandbox-danger":              "B ecq-ri-",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Whoever follows the advice is at level A, or told what only shows later.
func TestAdvise(t *testing.T) {
	for _, tc := range []struct {
		d    dialect.Name
		argv string
		want []string // lacks, "!" where the arguments do not work, "~" for later
	}{
		{dialect.Claude, "claude -p --input-format stream-json --output-format stream-json --verbose --permission-prompt-tool stdio", nil},
		{dialect.Claude, "claude -p --output-format stream-json hi", []string{"!", "bidirectionalControl", "interactiveQuestions"}},
		{dialect.Claude, "claude -p hi", []string{"structuredEvents", "bidirectionalControl", "interactiveQuestions"}},
		{dialect.Claude, "claude --input-format stream-json --output-format stream-json --permission-prompt-tool stdio --permission-mode dontAsk", []string{"humanApproval"}},
		{dialect.CBC, "cbc --input-format stream-json --output-format stream-json", []string{"~interactiveQuestions"}},
		{dialect.CBC, "cbc --permission-prompt-tool stdio -y", []string{"!", "structuredEvents", "bidirectionalControl", "humanApproval"}},
		{dialect.Codex, "codex exec", []string{"structuredEvents"}},
		{dialect.Codex, "codex app-server", []string{"interactiveQuestions", "~humanApproval", "~sandbox"}},
		{dialect.Unknown, "x", []string{"~structuredEvents"}},
	} {
		argv := strings.Fields(tc.argv)
		var got []string
		for _, a := range dialect.Advise(tc.d, argv, dialect.NewProbe(tc.d, argv, true).Capabilities()) {
			s := a.Lacks
			if s == "" {
				s = "!"
			}
			if a.Later {
				s = "~" + s
			}
			if a.Why == "" || a.Do == "" {
				t.Errorf("%s: %s without words", tc.argv, s)
			}
			got = append(got, s)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", tc.argv, d)
		}
	}
}
