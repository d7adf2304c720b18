package dialect

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported is returned when a dialect has no such command.
var ErrUnsupported = errors.New("the child has no such command")

// Commands lists all commands but the answer to an ask.
var Commands = []string{
	"interrupt", "stop_task", "message", "steer", "set_permission_mode", "set_model", "rewind_files", "rewind", "end_session",
}

var (
	// obeyed is what a child of each dialect does: what Claude Code 2.1.220 and
	// CodeBuddy 2.163 were seen to do.
	obeyed = map[Name][]string{
		Claude:  {"interrupt", "stop_task", "message", "set_permission_mode", "set_model", "rewind_files", "end_session"},
		CBC:     {"interrupt", "message", "steer", "set_permission_mode", "set_model", "rewind_files", "rewind"},
		Unknown: {"interrupt"},
	}
	// young are commands of CodeBuddy that 2.117 does not have. Which version had
	// them first is not known, so later ones are asked: one that does not know a
	// request says so, and does nothing.
	young = []string{"steer", "rewind_files", "rewind"}
)

// Supports reports whether a child of dialect d obeys a command. version is the
// child's; "" and any that nobody tried count as the newest.
func Supports(d Name, version, command string) bool {
	if d == CBC && slices.Contains(young, command) && upTo(version, 2, 117) {
		return false
	}
	return slices.Contains(obeyed[d], command)
}

// Capabilities lists the commands that a child of dialect d obeys.
func Capabilities(d Name, version string) []string {
	var list []string
	for _, c := range Commands {
		if Supports(d, version, c) {
			list = append(list, c)
		}
	}
	return list
}

// upTo reports whether version is known and at most major.minor with any patch.
func upTo(version string, major, minor int) bool {
	a, rest, ok := strings.Cut(version, ".")
	if !ok {
		return false
	}
	b, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	return errX == nil && errY == nil && (x < major || x == major && y <= minor)
}

// UnknownRequest reads the error of a control_response that says that the child
// has no such request, and returns the request's subtype: CodeBuddy calls it
// unknown, Claude Code unsupported.
func UnknownRequest(text string) (subtype string, ok bool) {
	head, subtype, ok := strings.Cut(text, " control request subtype: ")
	return subtype, ok && (head == "Unknown" || head == "Unsupported")
}

// Interrupt returns the line, with its LF, that asks the child to stop what it
// does. reason is always sent ("" becomes "interrupted by cbcast"), session is
// the main one and left out only while it is unknown. Like every line that is
// built here it is pure ASCII: CodeBuddy splits stdin at a bare CR and at raw
// U+2028 and U+2029.
func Interrupt(_ Name, requestID, session, reason string) []byte {
	if reason == "" {
		reason = "interrupted by cbcast"
	}
	b := controlRequest(requestID, "interrupt")
	if session != "" {
		b = appendField(b, "session_id", session)
	}
	b = appendField(b, "reason", reason)
	return append(b, "}}\n"...)
}

// StopTask returns the line that stops one task, or [ErrUnsupported].
func StopTask(d Name, requestID, task string) ([]byte, error) {
	if !Supports(d, "", "stop_task") {
		return nil, ErrUnsupported
	}
	b := appendField(controlRequest(requestID, "stop_task"), "task_id", task)
	return append(b, "}}\n"...), nil
}

func controlRequest(requestID, subtype string) []byte {
	b := append([]byte(nil), `{"type":"control_request","request_id":`...)
	b = AppendASCII(b, requestID)
	b = append(b, `,"request":{"subtype":"`...)
	b = append(b, subtype...)
	return append(b, '"')
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return AppendASCII(b, value)
}

// AppendASCII appends s as a JSON string of printable ASCII only.
func AppendASCII(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= ' ' && r < 0x7f:
			b = append(b, byte(r))
		default:
			b = appendRune(b, r)
		}
	}
	return append(b, '"')
}

func appendHex4(b []byte, n uint64) []byte {
	s := strconv.FormatUint(0x10000+n, 16)
	b = append(b, '\\', 'u')
	return append(b, s[1:]...)
}

// A Response is a control_response of the child, or a JSON-RPC response of Codex.
type Response struct {
	ID    Value  // the request id, as exact text
	Error string // "" for a success
	Body  Value  // the inner response, nil where there is none
}

// ResponseOf reads line as a response. Compare IDs by their exact text
// with that of the request: [RequestID] gives it for an id that was sent by
// [Interrupt] or [StopTask].
func ResponseOf(line []byte) (Response, bool) {
	f, ok := Parse(line)
	if m, is := f.RPC(); ok && is && m.Kind == RPCResponse {
		return codexResponse(&m), true
	}
	if !ok || f.Type != typeControlResponse {
		return Response{}, false
	}
	r := f.field(keyResponse)
	resp := Response{ID: f.ControlID(), Body: r.Get("response")}
	if f.Subtype == "error" {
		if resp.Error = r.Get("error").Text(); resp.Error == "" {
			resp.Error = "error without text"
		}
	}
	return resp, true
}

// RequestID is the exact text of a request id as [Interrupt] writes it.
func RequestID(id string) []byte { return AppendASCII(nil, id) }
