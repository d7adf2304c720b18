package ingest_test

import (
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/event"
)

// A denial that has no word for the turn's end is followed by an interrupt of the
// turn that asked; the host sees the answer to neither.
func TestCodexDenialEndsTurn(t *testing.T) {
	r := codexHost(t)
	r.asked(`{"method":"item/permissions/requestApproval","id":0,"params":{"threadId":"T","turnId":"U","itemId":"i","permissions":{"network":{"enabled":true}},"reason":"more"}}`)
	id := r.answer("a1", `"decision":"deny","interrupt":true`)
	line, _ := r.read()
	equal(t, "answer", line, `{"id":0,"result":{"permissions":{},"scope":"turn"}}`+"\n")
	req, line := r.rpc()
	equal(t, "interrupt", line, `{"id":"ID","method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`)
	r.say(codexResolved("0"), `{"id":"`+req+`","result":{}}`, turnEnds("T", "U", "interrupted"))
	end := note("warning", `"threadId":"T","message":"behind"`)
	r.asked(end)
	got := r.final(id)
	equal(t, "facts", got[0], written)
	if !strings.Contains(strings.Join(got, "; "), settled) {
		t.Errorf("facts %q", got)
	}
	r.quietly()
	r.exit(0)
	if host := r.stdout(); strings.Contains(host, req) {
		t.Errorf("the host saw %s", host)
	}
	equal(t, "closed", closedAsks(t, r.w.history(t, r.run)), []string{"a1 answered bus deny denied"})
}

// A command of Codex is denied by its words, and that ends the turn by itself.
func TestCodexPolicy(t *testing.T) {
	r := codexHost(t, policed(t, `{"rules":[{"name":"makes","tool":"commandExecution","command":"make.*","then":"deny"}]}`))
	r.say(codexItem("item/started", "U", codexCommand("i", "inProgress")), codexAsk("0", "i"))
	line, _ := r.read()
	equal(t, "answer", line, `{"id":0,"result":{"decision":"decline"}}`+"\n")
	r.say(codexResolved("0"), codexItem("item/completed", "U", codexCommand("i", "declined")), turnEnds("T", "U", "completed"))
	r.await("closed", func(e *event.Event) bool { return e.Type == event.TypeAsk })
	r.quietly()
	r.exit(0)
	evs := r.w.history(t, r.run)
	neverWaits(t, evs)
	equal(t, "decisions", decisions(t, evs), []string{"a1 commandExecution deny rule makes"})
	equal(t, "closed", closedAsks(t, evs), []string{"a1 policy policy deny denied"})
}
