package run_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

func TestCodexAsks(t *testing.T) {
	one := []string{itemBegins("T", "U", command("i", "inProgress")), asks("0", cmdAsk, "T", "U", "i")}
	two := append(one[:2:2], itemBegins("T", "U", command("j", "inProgress")), asks("1", cmdAsk, "T", "U", "j"))
	end := turnEnds("T", "U", "completed")
	cut := turnEnds("T", "U", "interrupted")
	for _, tc := range []struct {
		name  string
		steps []string
		want  string
	}{
		{"open", one, "waitingapproval a1=open"},
		{"told again", append(one[:2:2], one[1]), "waitingapproval a1=open"},
		{"another type of id is another ask", append(one[:2:2], asks(`"0"`, cmdAsk, "T", "U", "k")), "waitingapproval a1=open a2=open"},
		{"two at once", two, "waitingapproval a1=open a2=open"},
		{"one of two", append(two[:4:4], `> {"id":1,"result":{"decision":"accept"}}`, resolved("T", "1")), "waitingapproval a1=open a2=closed/answered_local/"},
		{
			"both, the last first", append(two[:4:4], `> {"id":1,"result":{"decision":"accept"}}`, resolved("T", "1"), itemEnds("T", "U", command("j", "completed")),
				`> {"id":0,"result":{"decision":"decline"}}`, resolved("T", "0"), itemEnds("T", "U", command("i", "declined")), end),
			"idle a1=closed/answered_local/denied a2=closed/answered_local/ran",
		},
		{"an approval before a question", append(one[:2:2], `{"method":"item/tool/requestUserInput","id":1,"params":{"threadId":"T","turnId":"U","itemId":"q","questions":[{"id":"q","question":"why?"}]}}`,
			`> {"id":0,"result":{"decision":"accept"}}`, resolved("T", "0")), "waitinginput a1=closed/answered_local/ a2=open"},
		{"written, not resolved", append(one[:2:2], `> {"id":0,"result":{"decision":"accept"}}`), "working a1=answered"},
		{"the wrong type of id answers nothing", append(one[:2:2], `> {"id":"0","result":{"decision":"accept"}}`), "waitingapproval a1=open"},
		{
			"cancel of a command", append(one[:2:2], `> {"id":0,"result":{"decision":"cancel"}}`, resolved("T", "0"), itemEnds("T", "U", command("i", "declined")), cut),
			"idle a1=closed/answered_local/denied",
		},
		{"cancel of a file change: its item never ends", []string{
			itemBegins("T", "U", `"type":"fileChange","id":"f","changes":[{"path":"/a"}],"status":"inProgress"`),
			asks("0", fileAsk, "T", "U", "f"), `> {"id":0,"result":{"decision":"cancel"}}`, resolved("T", "0"), cut,
		}, "idle a1=closed/answered_local/denied"},
		{
			"cancel of a sibling", append(two[:4:4], `> {"id":0,"result":{"decision":"cancel"}}`, resolved("T", "0"), itemEnds("T", "U", command("i", "declined")), cut, resolved("T", "1")),
			"idle a1=closed/answered_local/denied a2=closed/cleared/none",
		},
		{
			"interrupt, resolved after it", append(one[:2:2], `> {"id":9,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`, `{"id":9,"result":{}}`, cut, resolved("T", "0")),
			"idle a1=closed/cleared/none",
		},
		{"answered, but the interrupt was first", append(one[:2:2], `> {"id":9,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`, `> {"id":0,"result":{"decision":"accept"}}`,
			`{"id":9,"result":{}}`, cut, resolved("T", "0")), "idle a1=closed/cleared/none"},
		{
			"cancel of an MCP call",
			[]string{
				itemBegins("T", "U", `"type":"mcpToolCall","id":"m","server":"s","tool":"t","status":"inProgress"`),
				`{"method":"mcpServer/elicitation/request","id":0,"params":{"threadId":"T","turnId":"U","serverName":"s","_meta":{"codex_approval_kind":"mcp_tool_call"},"message":"Allow?"}}`,
				`> {"id":0,"result":{"action":"cancel","content":null}}`, resolved("T", "0"), itemEnds("T", "U", `"type":"mcpToolCall","id":"m","status":"failed"`), end,
			},
			"idle a1=closed/answered_local/denied",
		},
		{"nobody answered and it resolved", append(one[:2:2], resolved("T", "0")), "working a1=closed/withdrawn/none"},
		{"an amendment allows", append(one[:2:2], `> {"id":0,"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["make"]}}}}`, resolved("T", "0"),
			itemEnds("T", "U", command("i", "failed")), end), "idle a1=closed/answered_local/failed"},
		{"allowed, and the turn ends first", append(one[:2:2], `> {"id":0,"result":{"decision":"accept"}}`, resolved("T", "0"), cut), "idle a1=closed/answered_local/unknown"},
		{"allowed, and works on in the background", append(one[:2:2], `> {"id":0,"result":{"decision":"accept"}}`, resolved("T", "0"), end), "working a1=closed/answered_local/ i=running"},
		{"allowed, and ends in the background", append(one[:2:2], `> {"id":0,"result":{"decision":"accept"}}`, resolved("T", "0"), end, itemEnds("T", "U", command("i", "completed"))), "idle a1=closed/answered_local/ran i=completed"},
		{"resolved was lost", append(one[:2:2], `> {"id":0,"result":{"decision":"accept"}}`, itemEnds("T", "U", command("i", "completed"))), "working a1=closed/answered_local/ran"},
	} {
		if got := of(played(t, codexTalk(tc.steps...))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestCase066IdsOfAnyType(t *testing.T) {
	var steps []string
	for i, id := range []string{`0`, `""`, `"7"`, `7`, `null`} {
		steps = append(steps, `{"id":`+id+`,"method":"`+cmdAsk+`","params":{"threadId":"t1","turnId":"u1","itemId":"i`+fmt.Sprint(i)+`"}}`)
	}
	steps = append(steps, `{"id":999,"result":{}}`, `{"method":"turn/started","params":{"threadId":"t1"}}`)
	s := played(t, script("codex", steps...))
	if o := s.Open(); o.Asks != 4 || o.Approvals != 4 {
		t.Errorf("open %+v, want 4 approvals", o)
	}
	var flagged []string
	for _, w := range s.View().Warnings {
		flagged = append(flagged, w.What+" "+w.Text)
	}
	if d := cmp.Diff([]string{"ask_without_id " + cmdAsk, "stray_response 999"}, flagged); d != "" {
		t.Errorf("flagged (-want +got):\n%s", d)
	}
	for i, id := range []string{`0`, `""`, `"7"`, `7`} {
		s = played(t, script("codex", append(steps[:len(steps):len(steps)], `> {"id":`+id+`,"result":{"decision":"decline"}}`)...))
		for j, a := range s.Asks() {
			if (a.State == run.AskAnswered) != (i == j) {
				t.Errorf("an answer to %s: %s is %s", id, a.ID, a.State)
			}
		}
	}
}

func TestCodexAgentAsks(t *testing.T) {
	steps := []string{
		itemBegins("T", "U", spawned("c", "A", "writer")), turnBegins("A", "V"), itemBegins("A", "V", command("i", "inProgress")), asks("0", cmdAsk, "A", "V", "i"),
		turnEnds("T", "U", "completed"),
	}
	s := played(t, codexTalk(steps...))
	if got := of(s); got != "waitingapproval a1=open A=running" {
		t.Error(got)
	}
	if a := s.Asks()[0]; a.Task != "A" || a.Session != "A" || a.Title != "make" {
		t.Errorf("ask %+v", a)
	}
	if thread, turn := s.RunningTurn("A"); thread != "A" || turn != "V" {
		t.Errorf("running %s %s", thread, turn)
	}
	if thread, turn := s.RunningTurn(""); thread != "" || turn != "" {
		t.Errorf("the main thread runs %s %s", thread, turn)
	}
	s = played(t, codexTalk(append(steps, `> {"id":0,"result":{"decision":"decline"}}`, resolved("A", "0"), itemEnds("A", "V", command("i", "declined")), turnEnds("A", "V", "completed"))...))
	if got := of(s); got != "idle a1=closed/answered_local/denied A=completed" {
		t.Error(got)
	}
	if v := s.View().Turns[0]; v.Verdict == nil || v.Verdict.Verdict != run.Denied {
		t.Errorf("turn %+v", v.Verdict)
	}
}

func TestCodexForms(t *testing.T) {
	s := played(t, codexTalk(
		itemBegins("T", "U", `"type":"fileChange","id":"f","changes":[{"path":"/a","diff":"+x"},{"path":"/b","diff":"-y"}],"status":"inProgress"`),
		asks("0", fileAsk, "T", "U", "f"),
		`{"method":"item/commandExecution/requestApproval","id":1,"params":{`+at("T", "U")+`,"itemId":"i","command":"rm -r x","cwd":"/w","reason":"outside","availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["rm"]}},"cancel"]}}`,
		`{"method":"item/permissions/requestApproval","id":2,"params":{`+at("T", "U")+`,"itemId":"p","cwd":"/w","reason":"need network","permissions":{"network":{"enabled":true},"fileSystem":null}}}`,
		`{"method":"item/tool/requestUserInput","id":3,"params":{`+at("T", "U")+`,"itemId":"q","questions":[{"id":"k","header":"H","question":"Which?","isOther":true,"isSecret":false,"options":[{"label":"A","description":"a"}]}]}}`,
		`{"method":"mcpServer/elicitation/request","id":4,"params":{`+at("T", "U")+`,"serverName":"asker","mode":"form","_meta":null,"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`,
		itemBegins("T", "U", `"type":"mcpToolCall","id":"m","server":"asker","tool":"ask_name","status":"inProgress"`),
		`{"method":"mcpServer/elicitation/request","id":5,"params":{`+at("T", "U")+`,"serverName":"asker","mode":"form","_meta":{"codex_approval_kind":"mcp_tool_call","persist":["session"],"tool_params":{"a":1}},"message":"Allow?"}}`,
	))
	type form struct {
		Class, Kind, Tool, Title, Call string
		Form                           run.AskForm
	}
	var got []form
	for _, a := range s.Asks() {
		got = append(got, form{a.Class, a.Kind, a.Tool, a.Title, a.ToolUseID, *a.Form})
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	want := []form{
		{"approval", "file_change", "fileChange", "/a and 1 more", "f", run.AskForm{Session: true, Input: raw(`{"changes":[{"path":"/a","diff":"+x"},{"path":"/b","diff":"-y"}]}`)}},
		{"approval", "command", "commandExecution", "rm -r x", "i", run.AskForm{
			Session: true, Message: "outside", Input: raw(`{"command":"rm -r x","cwd":"/w"}`),
			Choices: []json.RawMessage{raw(`"accept"`), raw(`{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["rm"]}}`), raw(`"cancel"`)},
		}},
		{"approval", "permissions", "permissions", "need network", "p", run.AskForm{Session: true, Message: "need network", Input: raw(`{"permissions":{"network":{"enabled":true},"fileSystem":null},"cwd":"/w"}`)}},
		{"question", "question", "requestUserInput", "Which?", "q", run.AskForm{Questions: []run.AskQuestion{{ID: "k", Header: "H", Text: "Which?", Other: true, Options: []run.AskOption{{Label: "A", Description: "a"}}}}}},
		{"question", "elicitation", "asker", "Name?", "", run.AskForm{Message: "Name?", Input: raw(`{"requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}},"mode":"form"}`)}},
		{"approval", "permission", "asker/ask_name", "Allow?", "m", run.AskForm{Session: true, Message: "Allow?", Input: raw(`{"tool_params":{"a":1}}`)}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("forms (-want +got):\n%s", d)
	}
}

// The answer to a question for a secret is recorded nowhere; that there was one
// is.
func TestCodexSecretAnswered(t *testing.T) {
	s := played(t, script("codex",
		`{"method":"item/tool/requestUserInput","id":0,"params":{`+at("T", "U")+`,"itemId":"q","questions":[{"id":"k","question":"Key?","isSecret":true}]}}`))
	s.Apply(&event.Event{
		Seq: s.LastSeq() + 1, Type: event.TypeInput, Stream: event.Edge, Data: data(t, event.Input{Bytes: 40, Type: "other", Request: "0", Ask: "a1"}),
	})
	if a := s.Asks()[0]; a.State != run.AskAnswered || a.Decided == nil || a.Decided.By != run.ByHost || a.Decided.Decision != event.Answers {
		t.Errorf("%s, decided %+v", a.State, a.Decided)
	}
}
