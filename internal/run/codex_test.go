package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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

// Case 066: ids are keys with their type, 0 and "" are ids, null is none.
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

// A host may want no word of a turn's end: then the thread's rest is its end.
func TestCodexWithoutTurnEnds(t *testing.T) {
	status := func(s string) string {
		return note("thread/status/changed", `"threadId":"T","status":{"type":"`+s+`"}`)
	}
	for _, tc := range []struct {
		steps []string
		want  string
	}{
		{[]string{status("idle")}, "success"},
		{[]string{status("systemError")}, "failed"},
		{[]string{`> {"id":9,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`, status("idle")}, "interrupted"},
		{[]string{status("active")}, "incomplete"},
	} {
		c := codexTalk(tc.steps...)
		hello := capture.Entry{Dir: capture.In, Data: []byte(`{"id":1,"method":"initialize","params":{"capabilities":{"optOutNotificationMethods":["turn/completed"]}}}`)}
		c.Timeline = append([]capture.Entry{hello}, c.Timeline...)
		if got := of(played(t, exited(c, 0))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.steps, got, tc.want)
		}
	}
	if got := of(played(t, exited(codexTalk(status("idle")), 0))); got != "incomplete" {
		t.Errorf("a host that wants all: %s", got)
	}
}

// An ask of a sub-agent makes the run wait, and belongs to its thread.
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
