package dialect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	askBash  = `{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"a && b <c>","n":9007199254740993},"tool_use_id":"toolu_1"}}`
	askLine  = "{\"type\":\"control_request\",\"request_id\":7,\"request\":{\"subtype\":\"can_use_tool\",\"tool_name\":\"Write\",\"input\":{\"t\":\"\u2028é😀\x7f\\ud800\", \"e\" : \"\\u00e9\\/\"}}}"
	askQuest = `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}],"multiSelect":false},{"question":"How?","multiSelect":true}]},"tool_use_id":"t"}}`
	askDefer = `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"DeferExecuteTool","input":{"toolName":"AskUserQuestion","params":{"questions":[{"question":"Which?"}],"answers":{"old":"x"}}},"tool_use_id":"t"}}`
	askRules = `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch *"}],"behavior":"allow","destination":"localSettings"},{"type":"setMode","mode":"acceptEdits","destination":"session"}]}}`
	askMode  = `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Write","input":{},"permission_suggestions":[{"type":"setMode","mode":"acceptEdits","destination":"userSettings"}]}}`
	askPlan  = `{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"ExitPlanMode","input":{"plan":"do x"},"tool_use_id":"t"}}`
	askForm  = `{"type":"control_request","request_id":"q","request":{"subtype":"elicitation","message":"who?","requested_schema":{"type":"object","properties":{"name":{},"n":{}},"required":["name"]}}}`
	askURL   = `{"type":"control_request","request_id":"q","request":{"subtype":"elicitation","mode":"url","message":"go there"}}`
	askDlg   = `{"type":"control_request","request_id":"q","request":{"subtype":"request_user_dialog","dialogKind":"x"}}`
	askTwice = `{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls","command":"rm"}}}`
	askTorn  = `{"type":"control_request","request_id":"q1","request_id":"q2","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}`
)

func answers(kv ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = json.RawMessage(kv[i+1])
	}
	return m
}

// Each dialect gets its own strict form, and nothing that is missing becomes a yes.
func TestAnswerLine(t *testing.T) {
	const c, b = dialect.Claude, dialect.CBC
	both := answers("Which?", `"Blue"`, "How?", `["fast","well"]`)
	tests := []struct {
		name string
		d    dialect.Name
		ask  string
		a    event.Answer
		want string // the inner response; "!" and part of the error otherwise
	}{
		{"allow", c, askBash, event.Answer{Decision: "allow"}, `{"behavior":"allow","updatedInput":{"command":"a && b <c>","n":9007199254740993}}`},
		{"allow cbc", b, askBash, event.Answer{Decision: "allow"}, `{"allowed":true,"updatedInput":{"command":"a && b <c>","n":9007199254740993},"tool_use_id":"toolu_1"}`},
		{"any character", c, askLine, event.Answer{Decision: "allow"}, `{"behavior":"allow","updatedInput":{"t":"\u2028\u00e9\ud83d\ude00\u007f\ud800", "e" : "\u00e9\/"}}`},
		{"other input", c, askBash, event.Answer{Decision: "allow", UpdatedInput: []byte(` {"command":"ls"} `)}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{"other input, no object", c, askBash, event.Answer{Decision: "allow", UpdatedInput: []byte(`[]`)}, "!JSON object"},
		{"other input, twice", c, askBash, event.Answer{Decision: "allow", UpdatedInput: []byte(`{"command":"ls","command":"rm"}`)}, "!twice"},
		{"deny", c, askBash, event.Answer{Decision: "deny"}, `{"behavior":"deny","message":"The request was denied."}`},
		{"deny with all", c, askBash, event.Answer{Decision: "deny", Message: "no\n", Interrupt: true}, `{"behavior":"deny","message":"no\u000a","interrupt":true}`},
		{"deny cbc", b, askBash, event.Answer{Decision: "deny", Message: "no", Interrupt: true}, `{"allowed":false,"reason":"no","interrupt":true}`},
		{"by place", c, askQuest, event.Answer{Decision: "answer", Answers: answers("#1", `"Blue"`, "How?", `"x"`)}, `{"behavior":"allow","updatedInput":{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}],"multiSelect":false},{"question":"How?","multiSelect":true}],"answers":{"Which?":"Blue","How?":"x"}}}`},
		{"by place and text", c, askQuest, event.Answer{Decision: "answer", Answers: answers("#1", `"Blue"`, "Which?", `"Red"`, "How?", `"x"`)}, "!no question of the request"},
		{"one question twice", c, strings.Replace(askQuest, "How?", "Which?", 1), event.Answer{Decision: "answer", Answers: answers("Which?", `"Red"`, "#2", `"Blue"`)}, "!stands twice"},
		{"nothing", c, askBash, event.Answer{}, "!no decision"},
		{"a word", c, askBash, event.Answer{Decision: "Allow"}, "!no decision"},
		{"allow with a message", c, askBash, event.Answer{Decision: "allow", Message: "but"}, "!go with a denial"},
		{"deny with input", c, askBash, event.Answer{Decision: "deny", UpdatedInput: []byte(`{}`)}, "!a message and interrupt alone"},
		{"answers to no question", c, askBash, event.Answer{Decision: "answer", Answers: both}, "!no question"},
		{"no answers", c, askBash, event.Answer{Decision: "answer"}, "!answers are missing"},

		{"question", c, askQuest, event.Answer{Decision: "answer", Answers: both}, `{"behavior":"allow","updatedInput":{"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}],"multiSelect":false},{"question":"How?","multiSelect":true}],"answers":{"Which?":"Blue","How?":"fast, well"}}}`},
		{"question allowed", c, askQuest, event.Answer{Decision: "allow"}, "!answers are missing"},
		{"question allowed cbc", b, askQuest, event.Answer{Decision: "allow"}, "!answers are missing"},
		{"half an answer", b, askQuest, event.Answer{Decision: "answer", Answers: answers("Which?", `"Red"`)}, "!has no answer"},
		{"one too many", b, askQuest, event.Answer{Decision: "answer", Answers: answers("Which?", `"Red"`, "How?", `"x"`, "Why?", `"x"`)}, "!no question of the request"},
		{"two of one", b, askQuest, event.Answer{Decision: "answer", Answers: answers("Which?", `["Red","Blue"]`, "How?", `"x"`)}, "!only one option"},
		{"empty answer", b, askQuest, event.Answer{Decision: "answer", Answers: answers("Which?", `""`, "How?", `"x"`)}, "!empty answer"},
		{"null answer", b, askQuest, event.Answer{Decision: "answer", Answers: answers("Which?", `null`, "How?", `"x"`)}, "!no answer"},
		{"own input with answers", c, askQuest, event.Answer{Decision: "allow", UpdatedInput: []byte(`{"questions":[{"question":"Which?"}],"answers":{"Which?":"Red"}}`)}, `{"behavior":"allow","updatedInput":{"questions":[{"question":"Which?"}],"answers":{"Which?":"Red"}}}`},
		{"own input without", c, askQuest, event.Answer{Decision: "allow", UpdatedInput: []byte(`{"questions":[{"question":"Which?"}],"answers":{}}`)}, "!answers are missing"},
		{"question denied", b, askQuest, event.Answer{Decision: "deny", Message: "later"}, `{"allowed":false,"reason":"later"}`},
		{"deferred question", b, askDefer, event.Answer{Decision: "answer", Answers: answers("Which?", `"Blue"`)}, `{"allowed":true,"updatedInput":{"questions":[{"question":"Which?"}],"answers":{"Which?":"Blue"}},"tool_use_id":"t"}`},
		{"plan", c, askPlan, event.Answer{Decision: "allow"}, `{"behavior":"allow","updatedInput":{"plan":"do x"}}`},

		{"session", c, askRules, event.Answer{Decision: "allow", Session: true}, `{"behavior":"allow","updatedInput":{},"updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch *"}],"behavior":"allow","destination":"session"}]}`},
		{"session by mode", c, askMode, event.Answer{Decision: "allow", Session: true}, `{"behavior":"allow","updatedInput":{},"updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}]}`},
		{"session without rules", c, askBash, event.Answer{Decision: "allow", Session: true}, "!suggests no rule"},
		{"session cbc", b, askBash, event.Answer{Decision: "allow", Session: true}, "!cbc child cannot"},

		{"vendor", c, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"allow","updatedInput":{"command":"é"}}`)}, `{"behavior":"allow","updatedInput":{"command":"\u00e9"}}`},
		{"vendor of the other", c, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"allowed":true,"updatedInput":{}}`)}, "!no such answer"},
		{"vendor of the other cbc", b, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"allow","updatedInput":{}}`)}, "!no such answer"},
		{"vendor neither", b, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"allowed":"true","updatedInput":{}}`)}, "!neither yes nor no"},
		{"vendor without input", c, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"allow"}`)}, "!updatedInput"},
		{"vendor without message", c, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"deny"}`)}, "!needs a message"},
		{"vendor to a question", b, askQuest, event.Answer{Decision: "vendor", Vendor: []byte(`{"allowed":true,"updatedInput":{"questions":[{"question":"Which?"}]}}`)}, "!answers are missing"},
		{"vendor with more", c, askBash, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"deny","message":"x"}`), Interrupt: true}, "!goes alone"},
		{"vendor missing", c, askBash, event.Answer{Decision: "vendor"}, "!needs the decision"},

		{"form", c, askForm, event.Answer{Decision: "answer", Answers: answers("name", `"Ann"`, "n", `3`)}, `{"action":"accept","content":{"name":"Ann","n":3}}`},
		{"form without a required field", c, askForm, event.Answer{Decision: "answer", Answers: answers("n", `3`)}, "!required"},
		{"form allowed", c, askForm, event.Answer{Decision: "allow"}, "!no answer"},
		{"form denied", c, askForm, event.Answer{Decision: "deny"}, `{"action":"decline"}`},
		{"link", c, askURL, event.Answer{Decision: "allow"}, `{"action":"accept"}`},
		{"dialog", c, askDlg, event.Answer{Decision: "deny"}, `{"behavior":"cancelled"}`},
		{"dialog allowed", c, askDlg, event.Answer{Decision: "allow"}, "!a dialog is denied"},
		{"dialog done", c, askDlg, event.Answer{Decision: "vendor", Vendor: []byte(`{"behavior":"completed","result":{"x":1}}`)}, `{"behavior":"completed","result":{"x":1}}`},

		{"ambiguous", c, askTwice, event.Answer{Decision: "allow"}, "!ambiguous"},
		{"ambiguous id", c, askTorn, event.Answer{Decision: "deny"}, "!ambiguous"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := dialect.AskRequests([]byte(tt.ask))
			if len(q) != 1 {
				t.Fatalf("%d requests", len(q))
			}
			line, err := dialect.AnswerLine(tt.d, q[0], tt.a)
			if want, ok := strings.CutPrefix(tt.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("%s %v, want %q", line, err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := `{"type":"control_response","response":{"subtype":"success","request_id":` + string(q[0].ID) + `,"response":` + tt.want + "}}\n"
			if d := cmp.Diff(want, string(line)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for i := range len(line) - 1 {
				if line[i] < ' ' || line[i] > '~' {
					t.Errorf("byte %d is %#x", i, line[i])
				}
			}
		})
	}
}

// An input that is no UTF-8 cannot be repeated as it is, and is not.
func TestAnswerNoUTF8(t *testing.T) {
	q := dialect.AskRequests([]byte("{\"type\":\"control_request\",\"request_id\":\"q\",\"request\":{\"subtype\":\"can_use_tool\",\"tool_name\":\"Bash\",\"input\":{\"command\":\"\xff\"}}}"))
	if len(q) != 1 {
		t.Fatal("no request")
	}
	if line, err := dialect.AnswerLine(dialect.Claude, q[0], event.Answer{Decision: "allow"}); err == nil {
		t.Errorf("allowed with %q", line)
	}
	if _, err := dialect.AnswerLine(dialect.Claude, q[0], event.Answer{Decision: "deny"}); err != nil {
		t.Error(err)
	}
}

// 066: 0, "", "7" and 7 are four asks; null and no id are none. The same request
// again is the same ask, and answers and cancellations name theirs.
func TestAskIDs(t *testing.T) {
	ask := func(id string) string {
		return `{"type":"control_request","request_id":` + id + `,"request":{"subtype":"can_use_tool","tool_name":"Bash"}}`
	}
	response := func(id string) string {
		return `{"type":"control_response","response":{"subtype":"success","request_id":` + id + `}}`
	}
	pending := `{"type":"control_response","response":{"subtype":"success","request_id":"init","pending_permission_requests":[` + ask(`"7"`) + "," + ask(`"new"`) + `]}}`
	tr := dialect.NewTracker(dialect.Claude)
	for _, tt := range []struct {
		stream event.Stream
		line   string
		want   string
	}{
		{event.Out, ask("0"), "ask a1 opens"},
		{event.Out, ask(`""`), "ask a2 opens"},
		{event.Out, ask(`"7"`), "ask a3 opens"},
		{event.Out, ask("7"), "ask a4 opens"},
		{event.Out, ask("null"), "msg  ambiguous"},
		{event.Out, `{"type":"control_request","request":{"subtype":"can_use_tool"}}`, "msg  ambiguous"},
		{event.Out, ask("7"), "ask a4 opens"},
		{event.In, response("999"), "msg "},
		{event.In, response("7"), "ask a4"},
		{event.In, response(`"7"`), "ask a3"},
		{event.In, response("0"), "ask a1"},
		{event.In, response("0"), "ask a1"},
		{event.Out, `{"type":"control_cancel_request","request_id":""}`, "ask a2"},
		{event.Out, pending, "cmd a3,a5 opens"},
		{event.Out, askTorn, "ask a6 opens ambiguous"},
		{event.Out, askTorn, "ask a7 opens ambiguous"},
		{event.In, response(`"q1"`), "msg "},
		{event.Out, `{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback"}}`, "msg "},
		{event.In, ask(`"of the host"`), "cmd "},
	} {
		c := tr.Classify(tt.stream, []byte(tt.line), false)
		got := string(c.Kind) + " " + c.Ask
		if c.AskOpens {
			got += " opens"
		}
		if c.Ambiguous {
			got += " ambiguous"
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.stream, tt.line, got, tt.want)
		}
		if n := len(dialect.AskRequests([]byte(tt.line))); c.AskOpens && n != len(dialect.SplitAsks(c.Ask)) {
			t.Errorf("%s: %d requests for %s", tt.line, n, c.Ask)
		}
	}
}
