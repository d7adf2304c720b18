package dialect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// classified is the short form of what a tracker says of a line.
type classified struct {
	Type               string
	Kind               event.Kind
	Session, Task, Par string
	Ambiguous          bool
}

// Lines begin with ">" (host) or "<" (child).
func TestCodexClasses(t *testing.T) {
	tr := dialect.NewTracker(dialect.Codex) // the rows go to one, in order
	for _, tc := range []struct {
		name string
		line string
		want classified
	}{
		{"the host's first", `> {"id":1,"method":"initialize","params":{}}`, classified{Type: "request.initialize", Kind: "cmd"}},
		{"its answer", `< {"id":1,"result":{"userAgent":"x/0.153.4 (y)","codexHome":"/h"}}`, classified{Type: "response.success", Kind: "cmd"}},
		{"a note without a thread", `< {"method":"configWarning","params":{},"emittedAtMs":1}`, classified{Type: "configWarning", Kind: "msg"}},
		{"a thread is asked for", `> {"id":"two","method":"thread/start","params":{}}`, classified{Type: "request.thread.start", Kind: "cmd"}},
		{"an answer to another id type", `< {"id":2,"result":{"thread":{"id":"T9"}}}`, classified{Type: "response.success", Kind: "cmd", Session: "T9"}},
		{"the thread", `< {"id":"two","result":{"thread":{"id":"T0"},"approvalPolicy":"never"}}`, classified{Type: "response.success", Kind: "cmd", Session: "T0"}},
		{"a turn is asked for", `> {"id":3,"method":"turn/start","params":{"threadId":"T0"}}`, classified{Type: "request.turn.start", Kind: "msg", Session: "T0"}},
		{"its answer is the thread's", `< {"id":3,"result":{"turn":{"id":"U0"}}}`, classified{Type: "response.success", Kind: "cmd", Session: "T0"}},
		{"turn started", `< {"method":"turn/started","params":{"threadId":"T0","turn":{"id":"U0"}},"emittedAtMs":1}`, classified{Type: "turn.started", Kind: "msg", Session: "T0"}},
		{"a thread nobody named", `< {"method":"thread/status/changed","params":{"threadId":"T1","status":{"type":"idle"}},"emittedAtMs":1}`, classified{Type: "thread.status.changed", Kind: "msg", Session: "T1"}},
		{"it is a sub-agent", `< {"method":"item/started","params":{"item":{"type":"subAgentActivity","id":"c1","kind":"started","agentThreadId":"T1"},"threadId":"T0","turnId":"U0"},"emittedAtMs":1}`, classified{Type: "item.started", Kind: "task", Session: "T0"}},
		{"its turn", `< {"method":"turn/started","params":{"threadId":"T1","turn":{"id":"U1"}},"emittedAtMs":1}`, classified{Type: "turn.started", Kind: "task", Session: "T1", Task: "T1", Par: "c1"}},
		{"the root is nobody's agent", `< {"method":"item/started","params":{"item":{"type":"subAgentActivity","id":"c9","kind":"interacted","agentThreadId":"T0"},"threadId":"T1","turnId":"U1"},"emittedAtMs":1}`, classified{Type: "item.started", Kind: "task", Session: "T1", Task: "T1", Par: "c1"}},
		{"the root's item", `< {"method":"item/agentMessage/delta","params":{"threadId":"T0","turnId":"U0","itemId":"m"},"emittedAtMs":1}`, classified{Type: "item.agentMessage.delta", Kind: "msg", Session: "T0"}},
		{"an approval", `< {"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"T1","turnId":"U1","itemId":"i"}}`, classified{Type: "request.item.commandExecution.requestApproval", Kind: "ask", Session: "T1", Task: "T1", Par: "c1"}},
		{"a wrong id type answers nothing", `> {"id":"0","result":{"decision":"accept"}}`, classified{Type: "response.success", Kind: "msg", Session: "T0"}},
		{"the answer", `> {"id":0,"result":{"decision":"accept"}}`, classified{Type: "response.success", Kind: "ask", Session: "T0"}},
		{"resolved", `< {"method":"serverRequest/resolved","params":{"threadId":"T1","requestId":0},"emittedAtMs":1}`, classified{Type: "serverRequest.resolved", Kind: "ask", Session: "T1", Task: "T1", Par: "c1"}},
		{"id null", `< {"id":null,"method":"item/commandExecution/requestApproval","params":{"threadId":"T0"}}`, classified{Type: "request.item.commandExecution.requestApproval", Kind: "msg", Session: "T0", Ambiguous: true}},
		{"id torn", `< {"id":1,"id":2,"method":"item/fileChange/requestApproval","params":{"threadId":"T0"}}`, classified{Type: "request.item.fileChange.requestApproval", Kind: "msg", Session: "T0", Ambiguous: true}},
		{"a key twice inside", `< {"id":5,"method":"item/fileChange/requestApproval","params":{"threadId":"T0","a":{"b":1,"b":1}}}`, classified{Type: "request.item.fileChange.requestApproval", Kind: "ask", Session: "T0", Ambiguous: true}},
		{"a tool of the host", `< {"id":6,"method":"item/tool/call","params":{"threadId":"T0"}}`, classified{Type: "request.item.tool.call", Kind: "msg", Session: "T0"}},
		{"and its result", `> {"id":6,"result":{"success":true}}`, classified{Type: "response.success", Kind: "msg", Session: "T0"}},
		{"an unknown request", `< {"id":7,"method":"item/../x","params":{}}`, classified{Type: "request.other", Kind: "msg", Session: "T0"}},
		{"an unknown note", `< {"method":"new/thing","params":{"threadId":"T0"},"emittedAtMs":1}`, classified{Type: "other", Kind: "msg", Session: "T0"}},
		{"an error", `< {"error":{"code":-32600,"message":"no"},"id":9}`, classified{Type: "response.error", Kind: "cmd", Session: "T0"}},
		{"no JSON-RPC", `< {"a":1}`, classified{Type: "other", Kind: "msg", Session: "T0"}},
		{"a plan", `< {"method":"turn/plan/updated","params":{"threadId":"T0","turnId":"U0","plan":[]},"emittedAtMs":1}`, classified{Type: "turn.plan.updated", Kind: "task", Session: "T0"}},
		{"a command", `< {"method":"item/started","params":{"item":{"type":"commandExecution","id":"bg"},"threadId":"T0","turnId":"U0"},"emittedAtMs":1}`, classified{Type: "item.started", Kind: "msg", Session: "T0"}},
		{"the turn's end", `< {"method":"turn/completed","params":{"threadId":"T0","turn":{"id":"U0","status":"completed"}},"emittedAtMs":1}`, classified{Type: "turn.completed", Kind: "end", Session: "T0"}},
		{"the command goes on", `< {"method":"item/commandExecution/outputDelta","params":{"threadId":"T0","turnId":"U0","itemId":"bg"},"emittedAtMs":1}`, classified{Type: "item.commandExecution.outputDelta", Kind: "msg", Session: "T0", Task: "bg"}},
		{"the command's end", `< {"method":"item/completed","params":{"item":{"type":"commandExecution","id":"bg"},"threadId":"T0","turnId":"U0"},"emittedAtMs":1}`, classified{Type: "item.completed", Kind: "end", Session: "T0", Task: "bg"}},
		{"text", `< hello`, classified{Type: "raw", Kind: "raw", Session: "T0"}},
	} {
		stream := event.Out
		if tc.line[0] == '>' {
			stream = event.In
		}
		c := tr.Classify(stream, []byte(tc.line[2:]), false)
		got := classified{strings.TrimPrefix(c.Type, "dev.cbcast.codex."), c.Kind, c.Session, c.Task, c.Parent, c.Ambiguous}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
		if !slices.Contains(dialect.Types(dialect.Codex), c.Type) {
			t.Errorf("%s: %s is no type of the list", tc.name, c.Type)
		}
	}
	if tr.Main() != "T0" {
		t.Errorf("main %q", tr.Main())
	}
}

// An answer that names its child makes a codex of an unknown one.
func TestCodexConfirmed(t *testing.T) {
	tr := dialect.NewTracker(dialect.Unknown)
	tr.Classify(event.Out, []byte(`{"id":1,"result":{"jsonrpc":"x"}}`), false)
	if tr.Dialect() != dialect.Unknown {
		t.Fatalf("dialect %s after a JSON-RPC of somebody", tr.Dialect())
	}
	c := tr.Classify(event.Out, []byte(`{"id":1,"result":{"userAgent":"h/0.153.4","codexHome":"/h"}}`), false)
	if tr.Dialect() != dialect.Codex || c.Type != "dev.cbcast.codex.response.success" || !tr.Confirmed() {
		t.Errorf("dialect %s, %+v", tr.Dialect(), c)
	}
}

func TestCodexInput(t *testing.T) {
	tr := dialect.NewTracker(dialect.Codex)
	for _, tc := range []struct {
		line string
		want dialect.Input
	}{
		{`{"id":1,"method":"initialize","params":{}}`, dialect.Input{Control: true, Type: "other", Request: "1"}},
		{`{"method":"initialized"}`, dialect.Input{Control: true, Type: "other"}},
		{`{"id":"t","method":"thread/start","params":{"baseInstructions":"x"}}`, dialect.Input{Type: "other", Request: `"t"`}},
		{`{"id":3,"method":"turn/start","params":{"threadId":"T","clientUserMessageId":"u"}}`, dialect.Input{Type: "user", UUID: "u", Session: "T", Request: "3"}},
		{`{"id":4,"method":"account/login/start","params":{"apiKey":"k"}}`, dialect.Input{Type: "other", Request: "4"}},
		{`{"id":8,"result":{"decision":"accept"}}`, dialect.Input{Control: true, Type: "other", Request: "8"}},
		{`{"x":1}`, dialect.Input{Type: "other"}},
		{`text`, dialect.Input{}},
	} {
		tr.Classify(event.In, []byte(tc.line), false)
		if d := cmp.Diff(tc.want, tr.Input()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.line, d)
		}
	}
	tr.Classify(event.Out, []byte(`{"id":9,"method":"item/tool/requestUserInput","params":{"questions":[{"id":"q","isSecret":true}]}}`), false)
	for line, plain := range map[string]bool{
		`{"id":9,"result":{"answers":{"q":{"answers":["hunter2"]}}}}`: false,
		`{"id":9,"result":{"answers":{},"note":"hunter2"}}`:           false,
		`{"id":9,"result":{"answers":"hunter2"}}`:                     false,
		`{"id":9,"result":{"answers":{}}}`:                            true, // a refusal
		`{"id":9,"error":{"code":1,"message":"no"}}`:                  true,
	} {
		c := tr.Classify(event.In, []byte(line), false)
		if in := tr.Input(); in.Control != plain || c.Kind != event.Ask || c.Ask != "a1" {
			t.Errorf("to a secret question, %s: %+v %+v", line, in, c)
		}
	}
}
