package dialect

import (
	"strings"
	"sync"

	"github.com/cbcast/cbcast/internal/event"
)

// Name is a dialect: how one kind of child writes frames.
type Name string

// The dialects. A child of Unknown is carried all the same; where its lines look
// like stream-json they are routed as such.
const (
	Claude  Name = "claude"
	CBC     Name = "cbc"
	Codex   Name = "codex"
	Unknown Name = "unknown"
)

// FromArgv0 guesses the dialect from the path of an executable. The init frame
// confirms or corrects it.
func FromArgv0(path string) Name {
	base := path[strings.LastIndexAny(path, `/\`)+1:]
	base = strings.TrimSuffix(strings.ToLower(base), ".exe")
	switch base {
	case "claude", "claude-code":
		return Claude
	case "cbc", "codebuddy", "codebuddy-headless", "codebuddy-code":
		return CBC
	case "codex":
		return Codex
	}
	return Unknown
}

// FromType returns the dialect that a ce-type names.
func FromType(ceType string) Name {
	name, _, _ := strings.Cut(strings.TrimPrefix(ceType, event.TypePrefix), ".")
	if n := Name(name); n == Claude || n == CBC || n == Codex {
		return n
	}
	return Unknown
}

// Frame types that decide something here.
const (
	typeAssistant       = "assistant"
	typeUser            = "user"
	typeResult          = "result"
	typeSystem          = "system"
	typeStreamEvent     = "stream_event"
	typeControlRequest  = "control_request"
	typeControlResponse = "control_response"
	typeControlCancel   = "control_cancel_request"
	typeReset           = "conversation_reset"
	subInit             = "init"
	subCanUseTool       = "can_use_tool"
	subSteer            = "steer"
)

// known lists the types and subtypes that have a ce-type of their own: what was
// seen of Claude Code 2.1.220 and CodeBuddy 2.117 and 2.163 on the wire, and the
// names in their code. Everything else is ".other": text of a frame never
// becomes part of a ce-type.
var known = [...]struct{ name, subs string }{
	{typeAssistant, ""},
	{typeUser, ""},
	{typeStreamEvent, ""},
	{typeSystem, "init status task_started task_progress task_updated task_notification background_tasks_changed " +
		"api_retry compact_boundary hook_started hook_progress hook_response session_state_changed thinking_tokens " +
		"commands_changed model_refusal_no_fallback model_refusal_fallback model_fallback mcp_status keepalive informational permission_retry " +
		"permission_denied notification turn_duration api_error stop_hook_summary local_command_output elicitation_complete"},
	{typeResult, "success error_during_execution error_max_turns error_max_budget_usd error_max_structured_output_retries"},
	{typeControlRequest, "can_use_tool hook_callback mcp_message elicitation elicitation_create request_user_dialog auth_url_callback auth_result_callback " +
		"oauth_token_refresh host_auth_token_refresh initialize interrupt end_session stop_task background_tasks cancel_async_message " +
		"set_permission_mode set_model set_config set_max_thinking_tokens rewind rewind_files steer update_sdk_config mcp_status " +
		"get_settings get_context_usage subscribe unsubscribe"},
	{typeControlResponse, "success error"},
	{typeControlCancel, ""},
	{"control_notification", ""},
	{"tool_progress", ""},
	{"command_lifecycle", ""},
	{typeReset, ""},
	{"file-history-snapshot", ""},
	{"error", ""},
	{"keep_alive", ""},
	{"rate_limit_event", ""},
	{"tool_use_summary", ""},
	{"prompt_suggestion", ""},
	{"auth_status", ""},
	{"update_environment_variables", ""},
}

// words interns the known types and subtypes, and the methods of Codex. Like names it is
// made when first asked for.
var words = sync.OnceValue(func() map[string]string {
	codex := codexTypes()
	m := make(map[string]string, 128+len(codex))
	for _, k := range known {
		m[k.name] = k.name
		for s := range strings.FieldsSeq(k.subs) {
			m[s] = s
		}
	}
	for s := range codex {
		m[s] = s
	}
	return m
})

type typeNames struct {
	plain, other string
	subs         map[string]string
}

// names holds the ce-type of each known type and subtype. It is made when first
// asked for: the start of the program does not wait for it.
var names = sync.OnceValue(func() map[Name]map[string]typeNames {
	all := map[Name]map[string]typeNames{}
	for _, d := range []Name{Claude, CBC, Unknown} {
		all[d] = make(map[string]typeNames, len(known))
		for _, k := range known {
			tn := typeNames{plain: event.TypePrefix + string(d) + "." + k.name, subs: map[string]string{}}
			tn.plain = strings.ReplaceAll(tn.plain, "file-history-snapshot", "file_history_snapshot")
			tn.other = tn.plain
			if k.subs != "" {
				tn.other = tn.plain + ".other"
			}
			for s := range strings.FieldsSeq(k.subs) {
				tn.subs[s] = tn.plain + "." + s
			}
			all[d][k.name] = tn
		}
	}
	return all
})

// Types lists every ce-type that [Tracker.Classify] can give for a dialect, in
// no particular order.
func Types(d Name) []string {
	if d == Codex {
		return codexTypeList()
	}
	list := []string{rawTypes[d].out, rawTypes[d].err, rawTypes[d].other}
	for _, tn := range names()[d] {
		list = append(list, tn.other)
		for _, s := range tn.subs {
			list = append(list, s)
		}
	}
	return list
}

type rawNames struct{ out, err, other string }

// rawTypes holds the ce-types of lines that are no frame, and of frames of an
// unknown type.
var rawTypes = map[Name]rawNames{
	Claude:  rawNamesOf(Claude),
	CBC:     rawNamesOf(CBC),
	Codex:   rawNamesOf(Codex),
	Unknown: rawNamesOf(Unknown),
}

func rawNamesOf(d Name) rawNames {
	p := event.TypePrefix + string(d)
	return rawNames{out: p + ".raw", err: p + ".stderr", other: p + ".other"}
}

// typeOf is the ce-type of a frame.
func typeOf(d Name, typ, sub string) string {
	tn, ok := names()[d][typ]
	if !ok {
		return rawTypes[d].other
	}
	if s, ok := tn.subs[sub]; ok {
		return s
	}
	return tn.other
}

// kindOf is the routing class of a frame. See the package documentation.
func (t *Tracker) kindOf(stream event.Stream, f *Frame) event.Kind {
	switch f.Type {
	case typeResult:
		return event.End
	case typeSystem:
		switch f.Subtype {
		case "task_notification":
			return event.End
		case "task_updated":
			if TerminalStatus(patchStatus(f)) {
				return event.End
			}
			return event.Task
		case "task_started", "task_progress", "background_tasks_changed":
			return event.Task
		}
	case typeControlRequest:
		switch {
		case stream == event.In:
			return event.Cmd
		case IsAsk(f.Subtype) && f.Answerable():
			return event.Ask
		}
	case typeControlCancel:
		return event.Ask
	case typeControlResponse:
		if stream == event.Out {
			return event.Cmd
		}
		if t.asks.find(f.ControlID()) != nil {
			return event.Ask
		}
	}
	return event.Msg
}

// IsAsk reports whether a control_request of the child with this subtype waits
// for a person: a permission, a question or an elicitation.
func IsAsk(subtype string) bool {
	switch subtype {
	case subCanUseTool, "elicitation", "elicitation_create", "request_user_dialog":
		return true
	}
	return false
}

// TerminalStatus reports whether a task with this status has ended.
func TerminalStatus(status string) bool {
	switch status {
	case "completed", "failed", "killed", "stopped", "cancelled", "canceled", "error":
		return true
	}
	return false
}

// patchStatus is the status a task_updated brings: Claude Code has it only inside
// "patch", CodeBuddy repeats it at the top.
func patchStatus(f *Frame) string {
	if s := f.field(keyPatch).Get("status"); !s.Null() {
		return s.Text()
	}
	return f.field(keyStatus).Text()
}

func foldKey(s string) string { return strings.ToLower(s) }
