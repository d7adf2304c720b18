package ingest_test

import (
	"fmt"
	"sync/atomic"
)

// Frames as the children write them, shortened. Session is always "s-main".

var uuids atomic.Int64

func uuid() string { return fmt.Sprintf("u-%d", uuids.Add(1)) }

// speaker writes the frames of one dialect.
type speaker struct{ stamp string }

var (
	claude = speaker{}
	cbc    = speaker{`,"__timestamp":1796023722460`}
)

func (s speaker) frame(format string, args ...any) string {
	return "{" + fmt.Sprintf(format, args...) + `,"session_id":"s-main","uuid":"` + uuid() + `"` + s.stamp + "}"
}

func (s speaker) init() string {
	if s == claude {
		return s.frame(`"type":"system","subtype":"init","claude_code_version":"2.1.220","cwd":"/w","tools":["Bash"]`)
	}
	return s.frame(`"type":"system","subtype":"init","cwd":"/w","tools":["Bash"]`)
}

func (s speaker) text(text string) string {
	return s.frame(`"type":"assistant","parent_tool_use_id":null,"message":{"id":"m","role":"assistant","content":[{"type":"text","text":%q}]}`, text)
}

func (s speaker) result() string {
	return s.frame(`"type":"result","subtype":"success","is_error":false,"num_turns":1,"total_cost_usd":0.01,"result":"done"`)
}

func (s speaker) aborted() string {
	if s == claude {
		return s.frame(`"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":1,"terminal_reason":"aborted_streaming"`)
	}
	return s.frame(`"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","terminal_reason":"aborted_streaming"`)
}

func (s speaker) started(task, kind string) string {
	return s.frame(`"type":"system","subtype":"task_started","task_id":%q,"tool_use_id":"tu-%s","description":"d","task_type":%q`, task, task, kind)
}

func (s speaker) updated(task, status string) string {
	if s == claude {
		return s.frame(`"type":"system","subtype":"task_updated","task_id":%q,"patch":{"status":%q,"end_time":1}`, task, status)
	}
	return s.frame(`"type":"system","subtype":"task_updated","task_id":%q,"patch":{"status":%q},"status":%q`, task, status, status)
}

func (s speaker) notified(task, status string) string {
	return s.frame(`"type":"system","subtype":"task_notification","task_id":%q,"status":%q,"summary":"s","output_file":""`, task, status)
}

func (s speaker) background(tasks ...string) string {
	list := ""
	for i, t := range tasks {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"task_id":%q,"task_type":"local_workflow","description":"d"}`, t)
	}
	return s.frame(`"type":"system","subtype":"background_tasks_changed","tasks":[%s]`, list)
}

const (
	user       = `{"type":"user","message":{"role":"user","content":"do it"},"session_id":"","uuid":"c-1"}` + "\n"
	initialize = `{"type":"control_request","request_id":"req_1","request":{"subtype":"initialize","hooks":{}}}` + "\n"
	ready      = `{"type":"control_response","response":{"subtype":"success","request_id":"req_1","response":{"commands":[]}}}`
	permission = `{"type":"control_request","request_id":"ask-1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"tu-ask"}}`
)
