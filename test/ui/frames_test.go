package ui

import (
	"encoding/json"
	"fmt"
)

// obj is a JSON object of a frame.
type obj = map[string]any

func frame(v obj) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const session = "5e551010-0000-4000-8000-000000000001"

func initFrame() string {
	return frame(obj{"type": "system", "subtype": "init", "session_id": session, "claude_code_version": "2.1.220", "model": "claude-opus-4", "permissionMode": "default", "cwd": "/srv/ci/web"})
}

func assistant(content ...any) string {
	return frame(obj{"type": "assistant", "session_id": session, "message": obj{"role": "assistant", "content": content}})
}

func words(s string) any { return obj{"type": "text", "text": s} }

func call(id, name string, input obj) any {
	return obj{"type": "tool_use", "id": id, "name": name, "input": input}
}

func result(id, s string, failed bool) string {
	return frame(obj{"type": "user", "session_id": session, "message": obj{"role": "user", "content": []any{
		obj{"type": "tool_result", "tool_use_id": id, "content": s, "is_error": failed},
	}}})
}

func ask(request, call, tool string, input obj) string {
	return frame(obj{"type": "control_request", "request_id": request, "session_id": session, "request": obj{
		"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": call,
	}})
}

func delta(s string) string {
	return frame(obj{"type": "stream_event", "session_id": session, "parent_tool_use_id": nil, "event": obj{
		"type": "content_block_delta", "index": 0, "delta": obj{"type": "text_delta", "text": s},
	}})
}

func done(s string) string {
	return frame(obj{
		"type": "result", "subtype": "success", "is_error": false, "result": s, "session_id": session, "duration_ms": 4200, "total_cost_usd": 0.0123,
		"usage": obj{"input_tokens": 1200, "output_tokens": 340},
	})
}

// workflow is a snapshot of a task with phases and agents.
func workflow(task string, agents ...obj) string {
	list := []any{}
	for i, title := range []string{"Gather", "Review", "Write"} {
		list = append(list, obj{"type": "workflow_phase", "index": i + 1, "title": title})
	}
	for _, a := range agents {
		a["type"] = "workflow_agent"
		list = append(list, a)
	}
	return frame(obj{
		"type": "system", "subtype": "task_progress", "task_id": task, "session_id": session, "workflow_progress": list,
		"usage": obj{"total_tokens": 52_000, "tool_uses": 31, "duration_ms": 60_000},
	})
}

func taskStarted(task, name string) string {
	return frame(obj{"type": "system", "subtype": "task_started", "task_id": task, "task_type": "local_workflow", "workflow_name": name, "description": name, "session_id": session})
}

func taskOver(task, status string) string {
	return frame(obj{"type": "system", "subtype": "task_notification", "task_id": task, "status": status, "summary": fmt.Sprintf("the workflow %s", status), "session_id": session})
}
