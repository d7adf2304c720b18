package dialect

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrUnsupported is returned when a dialect has no such command.
var ErrUnsupported = errors.New("the child has no such command")

// Supports reports whether a child of dialect d obeys the command: "interrupt"
// (all), "stop_task" (Claude Code only; CodeBuddy 2.117 and 2.163 answer
// "Unknown control request subtype"). version is the child's, "" is unknown; it
// does not matter yet.
func Supports(d Name, version, command string) bool {
	switch command {
	case "interrupt":
		return true
	case "stop_task":
		return d == Claude
	}
	return false
}

// Capabilities lists the commands that a child of dialect d obeys.
func Capabilities(d Name, version string) []string {
	var list []string
	for _, c := range []string{"interrupt", "stop_task"} {
		if Supports(d, version, c) {
			list = append(list, c)
		}
	}
	return list
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
		case r < 0x10000:
			b = appendHex4(b, uint64(r))
		case r <= utf8.MaxRune:
			r -= 0x10000
			b = appendHex4(b, uint64(0xd800+(r>>10)))
			b = appendHex4(b, uint64(0xdc00+(r&0x3ff)))
		}
	}
	return append(b, '"')
}

func appendHex4(b []byte, n uint64) []byte {
	s := strconv.FormatUint(0x10000+n, 16)
	b = append(b, '\\', 'u')
	return append(b, s[1:]...)
}

// A Response is a control_response of the child.
type Response struct {
	ID    Value  // the request id, as exact text
	Error string // "" for a success
	Body  Value  // the inner response, nil where there is none
}

// ResponseOf reads line as a control_response. Compare IDs by their exact text
// with that of the request: [RequestID] gives it for an id that was sent by
// [Interrupt] or [StopTask].
func ResponseOf(line []byte) (Response, bool) {
	f, ok := Parse(line)
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
