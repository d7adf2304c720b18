package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
)

// steady waits until the edge knows the turn that codexHost began.
func (r *rig) steady() {
	r.Helper()
	mark := note("thread/name/updated", `"threadId":"T"`)
	r.say(mark)
	r.seen(mark)
}

// A message of its own waits until the turn of Codex has ended; a steer joins it.
func TestMessageCodex(t *testing.T) {
	r := codexHost(t)
	r.steady()
	waits := r.command("message", `{"content":"second"}`)
	steer := r.command("steer", `{"content":"also"}`)
	id, line := r.rpc()
	equal(t, "steer", line, fmt.Sprintf(`{"id":"ID","method":"turn/steer","params":{"threadId":"T","expectedTurnId":"U",`+
		`"clientUserMessageId":%q,"input":[{"type":"text","text":"also","text_elements":[]}]}}`, steer))
	r.say(`{"id":"` + id + `","result":{"turnId":"U"}}`)
	equal(t, "steer", r.final(steer), []string{written, acked, settled})
	equal(t, "the message waits", len(facts(r.w.history(t, r.run), waits)), 0)
	r.say(turnEnds("T", "U", "completed"))
	id, line = r.rpc()
	equal(t, "message", line, fmt.Sprintf(`{"id":"ID","method":"turn/start","params":{"threadId":"T",`+
		`"clientUserMessageId":%q,"input":[{"type":"text","text":"second","text_elements":[]}]}}`, waits))
	r.say(`{"id":"`+id+`","result":{"turn":{"id":"U2","status":"inProgress"}}}`, turnBegins("T", "U2"))
	r.fact(waits, event.Acked)
	r.say(turnEnds("T", "U2", "completed"))
	equal(t, "message", r.final(waits), []string{written, acked, settled})
	equal(t, "detail", last(r.w.history(t, r.run), waits), map[string]string{"uuid": waits, "turn": "2"})
	equal(t, "steer while idle", r.final(r.command("steer", `{"content":"x"}`)), []string{"no_effect: idle: no turn runs"})
	for _, name := range []string{"end_session", "set_model"} {
		equal(t, name, r.final(r.command(name, `{"model":"m"}`)), []string{"refused: unsupported: a codex child has no " + name})
	}
	refused := r.command("message", `{"content":"third"}`)
	id, _ = r.rpc()
	r.say(`{"error":{"code":-32600,"message":"thread is closed"},"id":"` + id + `"}`)
	equal(t, "refused", r.final(refused), []string{written, "refused: the child said: thread is closed"})
	r.exit(0)
	for _, e := range r.w.history(t, r.run) {
		if e.Stream != event.Out && (strings.Contains(string(e.Data), "second") || strings.Contains(string(e.Data), "also")) {
			t.Errorf("a prompt is on event %d: %s", e.Seq, e.Data)
		}
	}
}

// The first rung of an escalation ends the turn of Codex. Between turns there is
// nothing to interrupt: a command in the background is stopped at once, and where
// there is none the child is left alone.
func TestEscalateCodex(t *testing.T) {
	r := codexHost(t)
	r.steady()
	id := r.command("interrupt", escalate)
	req, line := r.rpc()
	equal(t, "interrupt", line, `{"id":"ID","method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`)
	r.say(`{"id":"`+req+`","result":{}}`, turnEnds("T", "U", "interrupted"))
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	equal(t, "idle", r.final(r.command("interrupt", escalate)), []string{"no_effect: nothing was open"})
	equal(t, "code", r.exit(4).Result.Code, 4)

	r = codexHost(t)
	r.say(
		codexItem("item/started", "U", `"type":"subAgentActivity","id":"c","kind":"started","agentThreadId":"A","agentPath":"/a"`), turnBegins("A", "V"),
		codexItem("item/started", "U", codexCommand("bg", "inProgress")), turnEnds("T", "U", "completed"),
	)
	r.steady()
	id = r.command("interrupt", escalate)
	req, line = r.rpc()
	equal(t, "agent", line, `{"id":"ID","method":"turn/interrupt","params":{"threadId":"A","turnId":"V"}}`)
	r.say(`{"id":"`+req+`","result":{}}`, turnEnds("A", "V", "interrupted"))
	req, line = r.rpc()
	equal(t, "command", line, `{"id":"ID","method":"thread/backgroundTerminals/terminate","params":{"threadId":"T","processId":"77"}}`)
	r.say(`{"id":"`+req+`","result":{"terminated":true}}`, codexItem("item/completed", "U", codexCommand("bg", "failed")))
	got := r.final(id)
	equal(t, "last", got[len(got)-1], settled)
	equal(t, "detail", last(r.w.history(t, r.run), id), map[string]string{"rung": "stop_task", "task A": "stopped", "task bg": "stopped"})
	equal(t, "code", r.exit(4).Result.Code, 4)
}
