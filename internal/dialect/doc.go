// Package dialect knows how the wrapped programs speak: it turns a line of bytes
// into what the bus needs (session, task, kind, type) and builds the few lines
// that cbcast itself says to them. It is pure and never changes a byte of a frame.
//
// # Frames
//
// A line is a frame when it is exactly one valid JSON object. Keys match exactly
// (encoding/json would fold case), a key that stands twice is flagged and has no
// value where the two differ (encoding/json would take the last), bytes that are no UTF-8 and lone surrogates are let through,
// numbers stay text, nesting is bounded and walked without recursion.
//
// # Kinds
//
//	end   result; system/task_notification; system/task_updated with a terminal status
//	task  system/task_started, task_progress, background_tasks_changed, other task_updated
//	ask   control_request can_use_tool, elicitation(_create), request_user_dialog;
//	      control_cancel_request; the parent's control_response to one of those
//	cmd   the parent's control_request (interrupt, initialize, set_model …); every
//	      control_response of the child
//	msg   every other frame: assistant, user, stream_event, other system frames,
//	      hook_callback and mcp_message requests and their answers, unknown types
//	raw   stderr, lines that are no frame, all output of --output-format text and json
//
// # Types
//
// ce-type is dev.cbcast.<dialect>.<type>[.<subtype>] from a fixed list; a control
// frame's subtype is the one inside request or response. What is not on the list
// is <dialect>.other or <type>.other, raw output <dialect>.raw, stderr
// <dialect>.stderr. "file-history-snapshot" becomes file_history_snapshot.
//
// # Sessions and tasks
//
// A frame's session is its own session_id; a control_request without one has it
// in _meta.baggage (CodeBuddy); anything else belongs to the main session, "" while
// that is unknown. The main session is that of the first init (or of the first
// assistant or result frame, where none came before); CodeBuddy's sub-agents write init frames with ids of
// their own, which are never taken over; Claude Code changes it by
// conversation_reset (its init frames follow).
// A frame's task is its own task_id; a frame with parent_tool_use_id belongs to the
// task that the call started: task_started names the call, and for CodeBuddy's
// background Agents the text of the call's tool_result names the task.
//
// # Codex
//
// The frames of codex app-server are JSON-RPC and have no "type": see [RPC]. Their
// ce-type is the method, of requests after "request."; answers are
// response.success and response.error. Kinds:
//
//	end   turn/completed; the item/completed of a command that outlived its turn
//	task  turn/plan/updated, a sub-agent's turn/started, items that tell of sub-agents
//	ask   the requests of [IsAskMethod], their answers, serverRequest/resolved
//	cmd   other requests and notifications of the host; every answer of the child
//	msg   all else, turn/start and turn/steer among it
//
// A frame's session is its thread. The main session is the first thread that the
// host starts, resumes or forks. A thread that an item names as a sub-agent's is a
// task of that id, its parent the call; a command that outlives a completed turn
// is a task by its item's id. Ids are compared by their exact text: 0, "0" and ""
// are three. One that is null, or stands twice, is flagged as ambiguous.
package dialect
