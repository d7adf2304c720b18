package main

import (
	"testing"

	"github.com/cbcast/cbcast/internal/event"
)

func TestCodexSummary(t *testing.T) {
	for _, tc := range []struct{ typ, line, want string }{
		{"item.completed", `{"method":"item/completed","params":{"item":{"type":"commandExecution","command":"make","status":"failed"}},"emittedAtMs":1}`, "item.completed  commandExecution make failed"},
		{"item.started", `{"method":"item/started","params":{"item":{"type":"fileChange","changes":[{"path":"/a\u001b"}],"status":"inProgress"}},"emittedAtMs":1}`, "item.started  fileChange inProgress /a\u241b"},
		{"turn.completed", `{"method":"turn/completed","params":{"turn":{"status":"failed","error":{"message":"no"}}},"emittedAtMs":1}`, "turn.completed  failed no"},
		{"turn.plan.updated", `{"method":"turn/plan/updated","params":{"plan":[{"step":"a","status":"completed"},{"step":"b","status":"inProgress"}]},"emittedAtMs":1}`, "turn.plan.updated  1/2 b"},
		{"request.item.tool.requestUserInput", `{"method":"item/tool/requestUserInput","id":0,"params":{"questions":[{"question":"Which?"}]}}`, "request.item.tool.requestUserInput  Which?"},
		{"response.error", `{"error":{"code":1,"message":"no"},"id":1}`, "response.error  error  no"},
		{"response.success", `{"id":1,"result":{}}`, "response.success"},
	} {
		e := &event.Event{Type: "dev.cbcast.codex." + tc.typ, Stream: event.Out, ContentType: event.JSON, Data: []byte(tc.line)}
		if got := summary(e); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.typ, got, tc.want)
		}
	}
}
