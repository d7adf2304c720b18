package ingest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Frames of a codex app-server, shortened, on thread T.

func note(method, params string) string {
	return fmt.Sprintf(`{"method":%q,"params":{%s},"emittedAtMs":1796012673000}`, method, params)
}

func turnBegins(thread, turn string) string {
	return note("turn/started", fmt.Sprintf(`"threadId":%q,"turn":{"id":%q,"status":"inProgress"}`, thread, turn))
}

func turnEnds(thread, turn, status string) string {
	return note("turn/completed", fmt.Sprintf(`"threadId":%q,"turn":{"id":%q,"items":[],"status":%q}`, thread, turn, status))
}

func codexItem(method, turn, item string) string {
	return note(method, fmt.Sprintf(`"item":{%s},"threadId":"T","turnId":%q`, item, turn))
}

func codexCommand(id, status string) string {
	return fmt.Sprintf(`"type":"commandExecution","id":%q,"command":"make","processId":"77","status":%q,"exitCode":-1`, id, status)
}

// codexAsk is an approval that waits for item i of turn U; id is JSON text.
func codexAsk(id, item string) string {
	return fmt.Sprintf(`{"method":"item/commandExecution/requestApproval","id":%s,"params":{"threadId":"T","turnId":"U","itemId":%q,"command":"make"}}`, id, item)
}

func codexResolved(id string) string {
	return note("serverRequest/resolved", `"threadId":"T","requestId":`+id)
}

// codexHost wraps a codex app-server whose host has begun turn U on thread T.
func codexHost(t *testing.T, change ...func(*ingest.Options)) *rig {
	t.Helper()
	o := options(t)
	o.Dialect = dialect.Codex
	for _, f := range change {
		f(&o)
	}
	r := wrap(t, o, "app-server")
	ask := func(line, answer string) {
		t.Helper()
		r.write(line + "\n")
		if got, err := r.read(); err != nil || got != line+"\n" {
			t.Fatalf("the agent read %q %v, want %q", got, err, line)
		}
		r.say(answer)
	}
	ask(`{"id":1,"method":"initialize","params":{"clientInfo":{"name":"h"}}}`, `{"id":1,"result":{"userAgent":"h/0.153.4 (x)","codexHome":"/h"}}`)
	ask(`{"id":2,"method":"thread/start","params":{"baseInstructions":"keep this"}}`, `{"id":2,"result":{"thread":{"id":"T"},"approvalPolicy":"untrusted"}}`)
	ask(`{"id":3,"method":"turn/start","params":{"threadId":"T","input":[{"type":"text","text":"do this"}]}}`, `{"id":3,"result":{"turn":{"id":"U"}}}`)
	r.say(turnBegins("T", "U"))
	return r
}

// rpc waits for a request of ours.
func (r *rig) rpc() (id, line string) {
	r.Helper()
	line, err := r.read()
	var m struct{ ID string }
	if err != nil || json.Unmarshal([]byte(line), &m) != nil || !strings.HasPrefix(m.ID, "cbcast-") {
		r.Fatalf("not a request of ours: %q %v", line, err)
	}
	return m.ID, strings.ReplaceAll(strings.TrimSuffix(line, "\n"), m.ID, "ID")
}

// A codex app-server behind its host: asks are answered in Codex's form, the turn
// is ended by its id, and the host sees nothing of it but the effects.
func TestCodexBehindHost(t *testing.T) {
	r := codexHost(t)
	r.asked(codexItem("item/started", "U", codexCommand("i", "inProgress")), codexAsk("0", "i"), codexItem("item/started", "U", codexCommand("j", "inProgress")), codexAsk(`"0"`, "j"))
	if v := view(r.w.history(t, r.run)); v.State != "waiting" || v.WaitingFor != "approval" || v.Open.Approvals != 2 || v.Session != "T" {
		t.Errorf("%s for %s, %+v", v.State, v.WaitingFor, v.Open)
	}
	second := r.answer("a2", `"decision":"deny"`)
	line, _ := r.read()
	equal(t, "second", line, `{"id":"0","result":{"decision":"decline"}}`+"\n")
	first := r.answer("a1", `"decision":"vendor","vendor":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["make"]}}`)
	line, _ = r.read()
	equal(t, "first", line, `{"id":0,"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["make"]}}}}`+"\n")
	r.say(codexResolved(`"0"`), codexItem("item/completed", "U", codexCommand("j", "declined")), codexResolved("0"), codexItem("item/completed", "U", codexCommand("i", "completed")))
	equal(t, "second", r.final(second), []string{written, settled})
	equal(t, "first", r.final(first), []string{written, settled})

	stop := r.command("interrupt", "")
	id, line := r.rpc()
	equal(t, "interrupt", line, `{"id":"ID","method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`)
	r.say(`{"id":"`+id+`","result":{}}`, turnEnds("T", "U", "interrupted"))
	equal(t, "interrupt", r.final(stop), []string{written, acked, settled})
	equal(t, "between turns", r.final(r.command("interrupt", "")), []string{"no_effect: no turn runs"})
	equal(t, "the tasks alone", r.final(r.command("interrupt", `{"turn":"keep"}`)), []string{"refused: unsupported: an interrupt ends the turn of a codex child; stop_task ends a task"})

	r.quietly()
	out := r.exit(0)
	if host := r.stdout(); strings.Contains(host, "cbcast-") || !strings.Contains(host, `"interrupted"`) {
		t.Errorf("the host saw %s", host)
	}
	evs := r.w.history(t, r.run)
	v := view(evs)
	var asks []string
	for _, a := range v.Asks {
		asks = append(asks, fmt.Sprintf("%s %s %s %s %s", a.ID, a.Decided.By, a.Decided.Decision, a.Closed.Reason, a.Outcome))
	}
	equal(t, "asks", asks, []string{"a1 bus allow answered ran", "a2 bus deny answered denied"})
	equal(t, "verdict", out.State.Verdict().Verdict, v.Verdict.Verdict)
	equal(t, "turn's inputs", len(v.Turns[0].Inputs), 1)
	for _, e := range evs {
		if strings.Contains(string(e.Data), "keep this") || strings.Contains(string(e.Data), "do this") {
			t.Errorf("a prompt is on event %d: %s", e.Seq, e.Data)
		}
	}
}

// A sub-agent is stopped by its own turn, a background command by its process.
func TestCodexStopTask(t *testing.T) {
	r := codexHost(t)
	r.say(
		codexItem("item/started", "U", `"type":"subAgentActivity","id":"c","kind":"started","agentThreadId":"A","agentPath":"a"`), turnBegins("A", "V"),
		codexItem("item/started", "U", codexCommand("bg", "inProgress")),
	)
	r.asked(turnEnds("T", "U", "completed"))
	agent := r.command("stop_task", `{"task":"A"}`)
	id, line := r.rpc()
	equal(t, "agent", line, `{"id":"ID","method":"turn/interrupt","params":{"threadId":"A","turnId":"V"}}`)
	r.say(`{"id":"`+id+`","result":{}}`, turnEnds("A", "V", "interrupted"))
	equal(t, "agent", r.final(agent), []string{written, acked, settled})
	equal(t, "agent, again", r.final(r.command("stop_task", `{"task":"A"}`)), []string{"refused: already_ended"})
	shell := r.command("stop_task", `{"task":"bg"}`)
	id, line = r.rpc()
	equal(t, "command", line, `{"id":"ID","method":"thread/backgroundTerminals/terminate","params":{"threadId":"T","processId":"77"}}`)
	r.say(`{"id":"`+id+`","result":{"terminated":true}}`, codexItem("item/completed", "U", codexCommand("bg", "failed")))
	equal(t, "command", r.final(shell), []string{written, acked, settled})
	r.quietly()
	r.exit(0)
	v := view(r.w.history(t, r.run))
	var tasks []string
	for _, k := range v.Tasks {
		tasks = append(tasks, k.ID+" "+k.Status+" "+k.By)
	}
	equal(t, "tasks", tasks, []string{"A stopped interrupt", "bg stopped stop_task"})
	equal(t, "verdict", string(v.Verdict.Verdict), "interrupted")
	if !slices.ContainsFunc(r.w.history(t, r.run), func(e *event.Event) bool { return e.Kind == event.End && e.Task == "bg" }) {
		t.Error("the command's end is no end of its task")
	}
}

// Nothing of ours is written before the host's initialize is answered.
func TestCodexGate(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Codex
	r := wrap(t, o, "app-server")
	hello := `{"id":"x","method":"initialize","params":{}}` + "\n"
	r.write(hello)
	line, _ := r.read()
	equal(t, "first line", line, hello)
	r.say(turnBegins("T", "U"))
	r.seen("turn/started")
	stop := r.command("interrupt", "")
	r.say(`{"id":"x","result":{"userAgent":"h/0.153.4","codexHome":"/h"}}`)
	id, _ := r.rpc()
	r.say(`{"error":{"code":-32600,"message":"no"},"id":"` + id + `"}`)
	equal(t, "refused", r.final(stop), []string{written, "refused: the child said: no"})
	r.quietly()
	r.exit(0)
	if host := r.stdout(); strings.Contains(host, "cbcast-") {
		t.Errorf("the host saw %s", host)
	}
}
