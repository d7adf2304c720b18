package ingest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Codex is driven over JSON-RPC: initialize, a thread, a turn for each prompt, and
// what only a host can do is refused.
func TestDriveCodex(t *testing.T) {
	o := options(t)
	r := drive(t, o, dialect.Codex, func(d *ingest.Drive) { d.Sandbox = "workspace-write" }, "one", "two \u00e9")
	type rpc struct {
		ID     json.RawMessage
		Method string
		Params map[string]any
		Error  map[string]any
	}
	next := func(method string) rpc {
		t.Helper()
		line, err := r.read()
		if err != nil {
			t.Fatalf("want %s, got %v", method, err)
		}
		var m rpc
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Method != method {
			t.Fatalf("want %s, got %q %v", method, line, err)
		}
		return m
	}
	answer := func(m rpc, result string) { r.say(`{"id":` + string(m.ID) + `,"result":` + result + `}`) }
	note := func(method, params string) string {
		return `{"method":"` + method + `","params":` + params + `,"emittedAtMs":1796012657709}`
	}
	const at = `"threadId":"th-1","turnId":"tu-%"`
	answer(next("initialize"), `{"userAgent":"x/0.153.4 (Debian; x86_64)","codexHome":"/h","platformFamily":"unix","platformOs":"linux"}`)
	next("initialized")
	start := next("thread/start")
	equal(t, "params", start.Params, map[string]any{"sandbox": "workspace-write"})
	thread := `{"id":"th-1","sessionId":"th-1","parentThreadId":null,"status":{"type":"idle"},"cliVersion":"0.153.4"}`
	answer(start, `{"thread":`+thread+`,"model":"m","approvalPolicy":"on-request","sandbox":{"type":"workspaceWrite"}}`)
	r.say(note("thread/started", `{"thread":`+thread+`}`))
	for i, prompt := range []string{"one", "two \u00e9"} {
		turn := next("turn/start")
		id := string('1' + rune(i))
		in := turn.Params["input"].([]any)[0].(map[string]any)
		equal(t, "prompt", in["text"], any(prompt))
		equal(t, "message id", len(turn.Params["clientUserMessageId"].(string)), 36)
		here := strings.ReplaceAll(at, "%", id)
		answer(turn, `{"turn":{"id":"tu-`+id+`","items":[],"status":"inProgress"}}`)
		last := note("turn/started", `{"threadId":"th-1","turn":{"id":"tu-`+id+`","items":[],"status":"inProgress"}}`)
		r.say(last, `{"id":0,"method":"item/tool/call","params":{`+here+`,"callId":"c","tool":"x","arguments":{}}}`)
		line, err := r.read()
		if err != nil || !strings.HasPrefix(line, `{"id":0,"error":{"code":-32601,`) {
			t.Fatalf("got %q %v, want an error", line, err)
		}
		r.silent()
		r.say(note("item/completed", `{"item":{"type":"agentMessage","id":"m-`+id+`","text":"answer `+id+`"},`+here+`}`),
			note("thread/status/changed", `{"threadId":"th-1","status":{"type":"idle"}}`),
			note("turn/completed", `{"threadId":"th-1","turn":{"id":"tu-`+id+`","items":[],"status":"completed"}}`))
	}
	r.eof()
	out := r.exit(0)
	equal(t, "driven", out.Driven, ingest.Driven{Answer: "answer 2"})
	equal(t, "verdict", out.State.Verdict().Verdict, run.Success)
	equal(t, "turns", len(out.State.View().Turns), 2)
	evs := r.w.history(t, r.run)
	equal(t, "told", len(load[event.Incompatible](t, evs, event.TypeIncompatible)), 2)
	st := one[event.Started](t, evs, event.TypeStarted)
	equal(t, "sandbox", st.Sandbox, "workspace-write")
	for _, e := range evs {
		if bytes.Contains(e.Data, []byte(`"one"`)) {
			t.Errorf("event %d has the prompt: %s", e.Seq, e.Data)
		}
	}
}
