package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// Lines of a codex app-server and of its host (with ">"), shortened to the keys
// that matter.
func note(method, params string) string {
	return `{"method":"` + method + `","params":{` + params + `},"emittedAtMs":1796012673000}`
}

func at(thread, turn string) string { return `"threadId":"` + thread + `","turnId":"` + turn + `"` }

func turnBegins(thread, turn string) string {
	return note("turn/started", `"threadId":"`+thread+`","turn":{"id":"`+turn+`","status":"inProgress"}`)
}

func turnEnds(thread, turn, status string) string {
	return note("turn/completed", `"threadId":"`+thread+`","turn":{"id":"`+turn+`","items":[],"status":"`+status+`","error":null}`)
}

func itemBegins(thread, turn, item string) string {
	return note("item/started", `"item":{`+item+`},`+at(thread, turn))
}

func itemEnds(thread, turn, item string) string {
	return note("item/completed", `"item":{`+item+`},`+at(thread, turn))
}

func command(id, status string) string {
	return `"type":"commandExecution","id":"` + id + `","command":"make","processId":"77","status":"` + status + `","exitCode":null`
}

// spawned names a sub-agent. The first part of its path stands for the main one.
func spawned(id, thread, name string) string {
	return `"type":"subAgentActivity","id":"` + id + `","kind":"started","agentThreadId":"` + thread + `","agentPath":"\/root\/` + name + `"`
}

func asks(id, method, thread, turn, item string) string {
	return `{"method":"` + method + `","id":` + id + `,"params":{` + at(thread, turn) + `,"itemId":"` + item + `","command":"make"}}`
}

func resolved(thread, id string) string {
	return note("serverRequest/resolved", `"threadId":"`+thread+`","requestId":`+id)
}

const (
	cmdAsk  = "item/commandExecution/requestApproval"
	fileAsk = "item/fileChange/requestApproval"
)

// codexTalk is a run whose host has thread T and started turn U by request 3,
// with more lines after that.
func codexTalk(lines ...string) *capture.Capture {
	return script("codex", append([]string{
		`> {"id":2,"method":"thread/start","params":{}}`,
		`{"id":2,"result":{"thread":{"id":"T","cliVersion":"0.153.4"},"model":"m","approvalPolicy":"untrusted","sandbox":{"type":"workspaceWrite"}}}`,
		`> {"id":3,"method":"turn/start","params":{"threadId":"T","input":[]}}`,
		`{"id":3,"result":{"turn":{"id":"U","status":"inProgress"}}}`,
		turnBegins("T", "U"),
	}, lines...)...)
}

// of tells what a state came to, in short.
func of(s *run.State) string {
	v := s.View()
	var b strings.Builder
	if v.Verdict != nil {
		fmt.Fprintf(&b, "%s ", v.Verdict.Verdict)
	} else {
		fmt.Fprintf(&b, "%s%s ", v.State, v.WaitingFor)
	}
	for _, a := range v.Asks {
		fmt.Fprintf(&b, "%s=%s", a.ID, a.State)
		if a.Closed != nil {
			fmt.Fprintf(&b, "/%s/%s", a.Closed.Reason, a.Outcome)
		}
		b.WriteByte(' ')
	}
	for _, k := range v.Tasks {
		fmt.Fprintf(&b, "%s=%s", k.ID, k.Status)
		if k.By != "" {
			b.WriteString("/" + k.By)
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

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

// Case 066: ids are keys with their type, 0 and "" are ids, null is none.
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

func TestCodexVerdicts(t *testing.T) {
	bg := []string{itemBegins("T", "U", command("bg", "inProgress")), turnEnds("T", "U", "completed")}
	agent := []string{note("thread/status/changed", `"threadId":"A","status":{"type":"idle"}`), itemBegins("T", "U", spawned("c", "A", "a")), turnBegins("A", "V")}
	for _, tc := range []struct {
		name  string
		steps []string
		want  string
	}{
		{"done", []string{turnEnds("T", "U", "completed")}, "success"},
		{"cut off by EOF with code 0", nil, "incomplete"},
		{"failed", []string{note("error", `"error":{"message":"no"},"willRetry":false,`+at("T", "U")), turnEnds("T", "U", "failed")}, "failed"},
		{"an error that is tried again", []string{note("error", `"error":{"message":"Reconnecting"},"willRetry":true,`+at("T", "U")), turnEnds("T", "U", "completed")}, "success"},
		{"an error and then the end", []string{note("error", `"error":{"message":"no"},"willRetry":false,`+at("T", "U"))}, "failed"},
		{"interrupted", []string{`> {"id":9,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`, turnEnds("T", "U", "interrupted")}, "interrupted"},
		{"a command outlives the turn and ends", append(bg[:2:2], itemEnds("T", "U", command("bg", "completed"))), "success bg=completed"},
		{"a command outlives the turn and fails", append(bg[:2:2], itemEnds("T", "U", command("bg", "failed"))), "incomplete bg=failed"},
		{"a command is stopped", append(bg[:2:2], `> {"id":9,"method":"thread/backgroundTerminals/terminate","params":{"threadId":"T","processId":"77"}}`, `{"id":9,"result":{"terminated":true}}`,
			itemEnds("T", "U", command("bg", "failed"))), "interrupted bg=stopped/stop_task"},
		{"a command fails that could not be stopped", append(bg[:2:2], `> {"id":9,"method":"thread/backgroundTerminals/terminate","params":{"threadId":"T","processId":"77"}}`, `{"id":9,"result":{"terminated":false}}`,
			itemEnds("T", "U", command("bg", "failed"))), "incomplete bg=failed"},
		{"a command outlives the run", bg, "incomplete bg=unknown"},
		{"an agent outlives the turn and ends", append(agent[:3:3], turnEnds("T", "U", "completed"), turnEnds("A", "V", "completed")), "success A=completed"},
		{"an agent outlives the run", append(agent[:3:3], turnEnds("T", "U", "completed")), "incomplete A=unknown"},
		{"an agent fails", append(agent[:3:3], turnEnds("A", "V", "failed"), turnEnds("T", "U", "completed")), "incomplete A=failed"},
		{"an agent is interrupted by itself", append(agent[:3:3], `> {"id":9,"method":"turn/interrupt","params":{"threadId":"A","turnId":"V"}}`, turnEnds("A", "V", "interrupted"),
			turnEnds("T", "U", "completed")), "interrupted A=stopped/interrupt"},
		{"an interrupt of the parent leaves it", append(agent[:3:3], `> {"id":9,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`, turnEnds("T", "U", "interrupted"),
			turnEnds("A", "V", "completed")), "interrupted A=completed"},
		{"an agent works twice", append(agent[:3:3], turnEnds("A", "V", "failed"), turnBegins("A", "W"), turnEnds("A", "W", "completed"), turnEnds("T", "U", "completed")), "incomplete A=completed"},
		{"an agent is closed", append(agent[:3:3], turnEnds("A", "V", "completed"), note("thread/status/changed", `"threadId":"A","status":{"type":"notLoaded"}`), turnEnds("T", "U", "completed")), "success A=completed"},
		{"an agent is closed before it began", []string{itemBegins("T", "U", spawned("c", "A", "a")), note("thread/status/changed", `"threadId":"A","status":{"type":"notLoaded"}`), turnEnds("T", "U", "completed")}, "incomplete A=stopped"},
		{"a review says no", []string{note("item/autoApprovalReview/completed", `"review":{"status":"denied"},"action":{"command":"rm"},`+at("T", "U")), turnEnds("T", "U", "completed")}, "denied"},
		{"a hook says no", []string{note("hook/completed", `"run":{"status":"blocked","eventName":"preToolUse"},`+at("T", "U")), turnEnds("T", "U", "completed")}, "denied"},
		{"the next turn counts", []string{
			turnEnds("T", "U", "failed"), `> {"id":4,"method":"turn/start","params":{"threadId":"T"}}`, `{"id":4,"result":{"turn":{"id":"X"}}}`,
			turnBegins("T", "X"), turnEnds("T", "X", "completed"),
		}, "success"},
		{"a message that Codex refuses", []string{turnEnds("T", "U", "completed"), `> {"id":4,"method":"turn/start","params":{"threadId":"T"}}`, `{"error":{"code":-32602,"message":"too large"},"id":4}`}, "incomplete"},
		{"a steer that comes too late", []string{`> {"id":4,"method":"turn/steer","params":{"threadId":"T","expectedTurnId":"X"}}`, `{"error":{"code":-32600,"message":"no"},"id":4}`, turnEnds("T", "U", "completed")}, "success"},
		{"a message without an answer", []string{turnEnds("T", "U", "completed"), `> {"id":4,"method":"turn/start","params":{"threadId":"T"}}`}, "incomplete"},
	} {
		if got := of(played(t, exited(codexTalk(tc.steps...), 0))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// An ask of a sub-agent makes the run wait, and belongs to its thread.
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

// A thread that nothing names is kept, and not shown. One that is named later
// brings what it did before.
func TestCodexBuffersThreads(t *testing.T) {
	tokens := func(thread, turn string, total, last int) string {
		use := func(n int) string { return fmt.Sprintf(`{"inputTokens":%d,"cachedInputTokens":0,"outputTokens":1}`, n) }
		return note("thread/tokenUsage/updated", at(thread, turn)+`,"tokenUsage":{"total":`+use(total)+`,"last":`+use(last)+`}`)
	}
	steps := []string{turnBegins("A", "V"), tokens("A", "V", 100, 100)}
	s := played(t, codexTalk(steps...))
	if v := s.View(); len(v.Tasks)+len(v.Turns[0].Agents) != 0 || len(v.Sessions) != 1 || s.Open().Turns != 1 {
		t.Errorf("an unknown thread is shown: %+v %+v", v.Tasks, v.Sessions)
	}
	s = played(t, codexTalk(append(steps, itemBegins("T", "U", spawned("c", "A", "a")), tokens("A", "V", 150, 50), tokens("T", "U", 10, 10), tokens("T", "U", 10, 10))...))
	v := s.View()
	if len(v.Turns[0].Agents) != 1 || v.Turns[0].Agents[0].State != "progress" || v.Turns[0].Agents[0].Tokens != 151 {
		t.Errorf("agents %+v", v.Turns[0].Agents)
	}
	if v.Turns[0].Tokens.Input != 160 || v.Usage.Tokens.Input != 160 || v.Tasks[0].Usage.Tokens != 151 {
		t.Errorf("turn %+v, run %+v, task %+v", v.Turns[0].Tokens, v.Usage.Tokens, v.Tasks[0].Usage)
	}
}

// What an ask shows is enough to answer it.
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

// The state stays small whatever a child claims to have.
func TestCodexBounds(t *testing.T) {
	s := run.New("r")
	seq := uint64(0)
	apply := func(line string) {
		seq++
		s.Apply(&event.Event{Seq: seq, Type: "dev.cbcast.codex.item.started", Stream: event.Out, ContentType: event.JSON, Data: []byte(line)})
	}
	apply(turnBegins("T", "U"))
	for i := range 1500 {
		n := fmt.Sprint(i)
		if i%2 == 0 {
			apply(turnBegins("X"+n, "U"))
		}
		apply(itemBegins("T", "U", spawned("c"+n, "A"+n, "a"+n)))
		apply(itemBegins("T", "U", command("i"+n, "inProgress")))
		apply(asks(n, cmdAsk, "T", "U", "i"+n))
	}
	b, err := json.Marshal(s)
	if err != nil || len(b) > 2<<20 {
		t.Errorf("%d bytes of state, %v", len(b), err)
	}
	if v := s.View(); len(v.Asks) > 256 || len(v.Tasks) > 512 || v.Turns[0].Items.Started > 1024 || len(v.Turns[0].Agents) > 1024 || len(v.Turns[0].Agents) < 256 {
		t.Errorf("asks %d, tasks %d, agents %d, items %+v", len(v.Asks), len(v.Tasks), len(v.Turns[0].Agents), v.Turns[0].Items)
	}
}
