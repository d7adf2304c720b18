package dialect_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// checkLine fails unless line is one object in printable ASCII and one LF.
func checkLine(t *testing.T, name string, line []byte) {
	t.Helper()
	body := strings.TrimSuffix(string(line), "\n")
	if len(body) != len(line)-1 || !json.Valid([]byte(body)) || strings.ContainsFunc(body, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%s: not one ASCII line: %q", name, line)
	}
}

func TestCodexLines(t *testing.T) {
	hello, ready := dialect.CodexInitialize("cbcast-1", "1.0")
	start, err := dialect.CodexTurnStart("cbcast-2", "T", "u\u2028", json.RawMessage(`[{"type":"text","text":"h\u00e9 \ud83d\ude00\n"},
		{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"image","source":{"type":"url","url":"https://x/y"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	steer, err := dialect.CodexTurnSteer("cbcast-3", "T", "U", "", json.RawMessage(`"go on"`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{"initialize", hello, `{"id":"cbcast-1","method":"initialize","params":{"clientInfo":{"name":"cbcast","title":"cbcast","version":"1.0"},"capabilities":{"experimentalApi":true}}}`},
		{"initialized", ready, `{"method":"initialized"}`},
		{"thread/start", dialect.CodexThreadStart("a", dialect.CodexThread{Cwd: "/w", Model: "m", Approval: "never", Sandbox: "read-only"}), `{"id":"a","method":"thread/start","params":{"cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"read-only"}}`},
		{"thread/start, all by default", dialect.CodexThreadStart("a", dialect.CodexThread{}), `{"id":"a","method":"thread/start","params":{}}`},
		{"thread/resume", dialect.CodexThreadResume("a", "T", dialect.CodexThread{Sandbox: "workspace-write"}), `{"id":"a","method":"thread/resume","params":{"threadId":"T","excludeTurns":true,"sandbox":"workspace-write"}}`},
		{"turn/start", start, `{"id":"cbcast-2","method":"turn/start","params":{"threadId":"T","clientUserMessageId":"u\u2028","input":[{"type":"text","text":"h\u00e9 \ud83d\ude00\u000a","text_elements":[]},{"type":"image","url":"data:image/png;base64,AA=="},{"type":"image","url":"https://x/y"}]}}`},
		{"turn/steer", steer, `{"id":"cbcast-3","method":"turn/steer","params":{"threadId":"T","expectedTurnId":"U","input":[{"type":"text","text":"go on","text_elements":[]}]}}`},
		{"turn/interrupt", dialect.CodexInterrupt("a", "T", "U"), `{"id":"a","method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`},
		{"terminate", dialect.CodexTerminate("a", "T", "77"), `{"id":"a","method":"thread/backgroundTerminals/terminate","params":{"threadId":"T","processId":"77"}}`},
		{"error, id 0", dialect.CodexError(dialect.Value(`0`), "no \"host\""), `{"id":0,"error":{"code":-32601,"message":"no \"host\""}}`},
		{"error, text id", dialect.CodexError(dialect.Value("\"\u00e9\""), "no"), `{"id":"\u00e9","error":{"code":-32601,"message":"no"}}`},
	} {
		checkLine(t, tc.name, tc.got)
		if d := cmp.Diff(tc.want+"\n", string(tc.got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
	for _, content := range []string{``, `1`, `[]`, `{}`, `[{"type":"tool_result"}]`, `[{"type":"text"}]`, `[{"type":"image","source":{"type":"file"}}]`, `"x`} {
		if line, err := dialect.CodexTurnStart("a", "T", "", json.RawMessage(content)); err == nil {
			t.Errorf("content %s: %s", content, line)
		}
	}
}

func TestCodexResponse(t *testing.T) {
	for _, tc := range []struct {
		line string
		want dialect.Response
		ok   bool
	}{
		{`{"id":"cbcast-1","result":{"turn":{}}}`, dialect.Response{ID: dialect.Value(`"cbcast-1"`), Body: dialect.Value(`{"turn":{}}`)}, true},
		{`{"error":{"code":-32600,"message":"no"},"id":7}`, dialect.Response{ID: dialect.Value(`7`), Error: "no"}, true},
		{`{"error":{},"id":7}`, dialect.Response{ID: dialect.Value(`7`), Error: "error without text"}, true},
		{`{"method":"x","id":7,"params":{}}`, dialect.Response{}, false},
		{`{"type":"result","id":7,"result":"x"}`, dialect.Response{}, false},
	} {
		got, ok := dialect.ResponseOf([]byte(tc.line))
		if d := cmp.Diff(tc.want, got); d != "" || ok != tc.ok {
			t.Errorf("%s: %t (-want +got):\n%s", tc.line, ok, d)
		}
	}
}

// Requests of Codex that are answered below, each with id 0.
const (
	askCommand   = `{"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"T","turnId":"U","itemId":"i","command":"make"}}`
	askFile      = `{"method":"item/fileChange/requestApproval","id":0,"params":{"threadId":"T","turnId":"U","itemId":"i"}}`
	askPerms     = `{"method":"item/permissions/requestApproval","id":0,"params":{"itemId":"p","permissions":{"network":{"enabled":true},"fileSystem":{"write":["/é"]}}}}`
	askUserInput = `{"method":"item/tool/requestUserInput","id":0,"params":{"questions":[{"id":"compat","question":"?"},{"id":"scope","question":"?"}]}}`
	askSecret    = `{"method":"item/tool/requestUserInput","id":0,"params":{"questions":[{"id":"k","isSecret":true}]}}`
	askMCPForm   = `{"method":"mcpServer/elicitation/request","id":0,"params":{"serverName":"s","mode":"form","_meta":null,"requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"age":{}},"required":["name"]}}}`
	askMCPURL    = `{"method":"mcpServer/elicitation/request","id":0,"params":{"serverName":"s","mode":"url","url":"https://x"}}`
	askMCP       = `{"method":"mcpServer/elicitation/request","id":0,"params":{"serverName":"s","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call","persist":["session","always"]}}}`
	askMCPOnce   = `{"method":"mcpServer/elicitation/request","id":0,"params":{"serverName":"s","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call"}}}`
)

func codexAnswer(request string, a event.Answer) (string, error) {
	list := dialect.AskRequests([]byte(request))
	if len(list) != 1 {
		return "", errors.New("no request that is answered")
	}
	line, err := dialect.AnswerLine(dialect.Codex, list[0], a)
	return string(line), err
}

func answersOf(s string) (m map[string]json.RawMessage) {
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		panic(err)
	}
	return m
}

func TestCodexAnswers(t *testing.T) {
	vendor := func(v string) event.Answer { return event.Answer{Decision: "vendor", Vendor: json.RawMessage(v)} }
	for _, tc := range []struct {
		request string
		answer  event.Answer
		want    string
	}{
		{askCommand, event.Answer{Decision: "allow"}, `{"decision":"accept"}`},
		{askCommand, event.Answer{Decision: "allow", Session: true}, `{"decision":"acceptForSession"}`},
		{askCommand, event.Answer{Decision: "deny", Message: "no"}, `{"decision":"decline"}`},
		{askCommand, event.Answer{Decision: "deny", Interrupt: true}, `{"decision":"cancel"}`},
		{askCommand, vendor(`"cancel"`), `{"decision":"cancel"}`},
		{askCommand, vendor(` {"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["é"]}} `), `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["\u00e9"]}}}`},
		{askCommand, vendor(`{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["make"]}}}`), `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["make"]}}}`},
		{askCommand, vendor(`{"applyNetworkPolicyAmendment":{"network_policy_amendment":{"action":"deny","host":"x"}}}`), `{"decision":{"applyNetworkPolicyAmendment":{"network_policy_amendment":{"action":"deny","host":"x"}}}}`},
		{askFile, event.Answer{Decision: "allow"}, `{"decision":"accept"}`},
		{askFile, event.Answer{Decision: "deny", Interrupt: true}, `{"decision":"cancel"}`},
		{askPerms, event.Answer{Decision: "allow"}, `{"permissions":{"network":{"enabled":true},"fileSystem":{"write":["/\u00e9"]}},"scope":"turn"}`},
		{askPerms, event.Answer{Decision: "allow", Session: true}, `{"permissions":{"network":{"enabled":true},"fileSystem":{"write":["/\u00e9"]}},"scope":"session"}`},
		{askPerms, event.Answer{Decision: "deny"}, `{"permissions":{},"scope":"turn"}`},
		{askPerms, vendor(`{"permissions":{"network":{"enabled":true}},"scope":"turn"}`), `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":"Drop","scope":["a","b"]}`)}, `{"answers":{"compat":{"answers":["Drop"]},"scope":{"answers":["a","b"]}}}`},
		{askUserInput, event.Answer{Decision: "deny"}, `{"answers":{}}`},
		{askSecret, event.Answer{Decision: "deny"}, `{"answers":{}}`},
		{askMCPForm, event.Answer{Decision: "answer", Answers: answersOf(`{"name":"Ada","age":7}`)}, `{"action":"accept","content":{"name":"Ada","age":7}}`},
		{askMCPForm, event.Answer{Decision: "deny"}, `{"action":"decline","content":null}`},
		{askMCPForm, event.Answer{Decision: "deny", Interrupt: true}, `{"action":"cancel","content":null}`},
		{askMCPURL, event.Answer{Decision: "allow"}, `{"action":"accept","content":null}`},
		{askMCP, event.Answer{Decision: "allow"}, `{"action":"accept","content":{}}`},
		{askMCP, event.Answer{Decision: "allow", Session: true}, `{"action":"accept","content":{},"_meta":{"persist":"session"}}`},
		{askMCP, vendor(`{"action":"accept","content":{},"_meta":{"persist":"always"}}`), `{"action":"accept","content":{},"_meta":{"persist":"always"}}`},
	} {
		got, err := codexAnswer(tc.request, tc.answer)
		if err != nil {
			t.Errorf("%+v to %.60s: %v", tc.answer, tc.request, err)
			continue
		}
		checkLine(t, tc.request, []byte(got))
		if d := cmp.Diff(`{"id":0,"result":`+tc.want+"}\n", got); d != "" {
			t.Errorf("%+v to %.60s (-want +got):\n%s", tc.answer, tc.request, d)
		}
	}
}

// Case 066: an answer has the id as asked, with its JSON type.
func TestCase066AnswersKeepTheId(t *testing.T) {
	for _, id := range []string{`0`, `""`, `"7"`, `7`, `-1`, `"a\"b"`} {
		got, err := codexAnswer(strings.Replace(askCommand, `"id":0`, `"id":`+id, 1), event.Answer{Decision: "deny"})
		if want := `{"id":` + id + `,"result":{"decision":"decline"}}` + "\n"; err != nil || got != want {
			t.Errorf("%s: %q %v", id, got, err)
		}
	}
	for _, id := range []string{`null`, `1.5`, `[1]`, `{}`, `true`} {
		if got, err := codexAnswer(strings.Replace(askCommand, `"id":0`, `"id":`+id, 1), event.Answer{Decision: "deny"}); err == nil {
			t.Errorf("%s: %q", id, got)
		}
	}
}

// What is missing never becomes a yes, and what Codex does not know is not sent.
func TestCodexBadAnswers(t *testing.T) {
	vendor := func(v string) event.Answer { return event.Answer{Decision: "vendor", Vendor: json.RawMessage(v)} }
	for _, tc := range []struct {
		request string
		answer  event.Answer
	}{
		{askCommand, event.Answer{}},
		{askCommand, event.Answer{Decision: "yes"}},
		{askCommand, event.Answer{Decision: "answer", Answers: answersOf(`{"a":"b"}`)}},
		{askCommand, event.Answer{Decision: "allow", UpdatedInput: json.RawMessage(`{}`)}},
		{askCommand, vendor(``)},
		{askCommand, vendor(`null`)},
		{askCommand, vendor(`"yes please"`)},
		{askCommand, vendor(`{"acceptWithExecpolicyAmendment":{}}`)},
		{askCommand, vendor(`{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":[]}}`)},
		{askCommand, vendor(`{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":[1]}}`)},
		{askCommand, vendor(`{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["a"]},"x":1}`)},
		{askCommand, vendor(`{"decision":"accept","decision":"decline"}`)},
		{askCommand, vendor(`{"applyNetworkPolicyAmendment":{"network_policy_amendment":{"action":"maybe","host":"x"}}}`)},
		{askFile, vendor(`{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["a"]}}`)},
		{askPerms, event.Answer{Decision: "answer", Answers: answersOf(`{"a":"b"}`)}},
		{askPerms, vendor(`{"scope":"turn"}`)},
		{strings.Replace(askPerms, `"permissions":{`, `"other":{`, 1), event.Answer{Decision: "allow"}},
		{askUserInput, event.Answer{Decision: "allow"}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":"Drop"}`)}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":"","scope":"x"}`)}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":[],"scope":"x"}`)}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":null,"scope":"x"}`)}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":1,"scope":"x"}`)}},
		{askUserInput, event.Answer{Decision: "answer", Answers: answersOf(`{"compat":"a","scope":"b","other":"c"}`)}},
		{askSecret, event.Answer{Decision: "answer", Answers: answersOf(`{"k":"hunter2"}`)}},
		{askSecret, vendor(`{"answers":{"k":{"answers":["hunter2"]}}}`)},
		{askMCPForm, event.Answer{Decision: "allow"}},
		{askMCPForm, event.Answer{Decision: "answer", Answers: answersOf(`{"age":7}`)}},
		{askMCPForm, event.Answer{Decision: "answer", Answers: answersOf(`{"name":"Ada","x":1}`)}},
		{askMCPForm, vendor(`{"content":{}}`)},
		{askMCP, event.Answer{Decision: "answer", Answers: answersOf(`{"a":"b"}`)}},
		{askMCPOnce, event.Answer{Decision: "allow", Session: true}},
		{strings.Replace(askFile, `"id":0`, `"id":null`, 1), event.Answer{Decision: "allow"}},
		{strings.Replace(askFile, `"itemId"`, `"turnId":"V","itemId"`, 1), event.Answer{Decision: "allow"}},
	} {
		if got, err := codexAnswer(tc.request, tc.answer); err == nil {
			t.Errorf("%+v to %.90s: %s", tc.answer, tc.request, got)
		}
	}
}

// Whatever is asked and answered, a line is one object in ASCII with the id as
// asked, or there is none; and nothing but "allow" or "answer" allows.
func FuzzCodexAnswer(f *testing.F) {
	for _, r := range []string{askCommand, askFile, askPerms, askUserInput, askSecret, askMCPForm, askMCPURL, askMCP} {
		f.Add([]byte(r), []byte(`"accept"`), uint8(0))
		f.Add([]byte(r), []byte(`{"compat":"a","scope":["b"],"name":"é"}`), uint8(2))
		f.Add([]byte(r), []byte(`{"action":"accept","answers":{},"permissions":{}}`), uint8(3))
	}
	f.Fuzz(func(t *testing.T, request, answer []byte, mode uint8) {
		a := event.Answer{Decision: []string{"allow", "deny", "answer", "vendor"}[mode%4], Session: mode&4 != 0, Interrupt: mode&8 != 0, Vendor: answer}
		if json.Unmarshal(answer, &a.Answers) != nil {
			a.Answers = nil
		}
		for _, q := range dialect.AskRequests(request) {
			line, err := dialect.AnswerLine(dialect.Codex, q, a)
			if err != nil {
				continue
			}
			checkLine(t, string(request), line)
			f, ok := dialect.Parse(line)
			m, rpc := f.RPC()
			if !ok || !rpc || m.Kind != dialect.RPCResponse || m.Error != nil {
				t.Fatalf("%q is no response", line)
			}
			if a.Decision == "deny" && (strings.Contains(string(m.Result), `"accept`) || len(m.Result.Get("permissions")) > 2 || len(m.Result.Get("answers")) > 2) {
				t.Fatalf("a denial became %s", m.Result)
			}
		}
	})
}
