package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cbcast/cbcast/internal/event"
)

// AskRequest is a request of the child that somebody answers. It aliases the line
// that it was read from.
type AskRequest struct {
	Method    string // or subtype
	ID        Value  // the vendor's id, with its JSON type
	Tool      string
	ToolUseID string
	Input     Value // of the tool
	Params    Value // of Codex; else the whole request
	// Ambiguous says that keys stand twice in it: readers differ in what it means,
	// and so it is not answered.
	Ambiguous bool
}

// AskRequests reads a line of the child as the requests that it makes or tells
// again, in the order of [Class.Ask].
func AskRequests(line []byte) (list []AskRequest) {
	f, ok := Parse(line)
	if !ok {
		return nil
	}
	if m, ok := f.RPC(); ok {
		if m.Kind != RPCRequest || !IsAskMethod(m.Method) {
			return nil
		}
		return []AskRequest{{Method: m.Method, ID: m.ID, Params: m.Params, Ambiguous: f.AmbiguousRPC(&m)}}
	}
	amb := f.AmbiguousControl()
	if f.Type == typeControlRequest {
		if !IsAsk(f.Subtype) || !f.Answerable() {
			return nil
		}
		return []AskRequest{askRequest(f.field(keyRequest), f.ControlID(), amb)}
	}
	for _, p := range f.PendingAsks() {
		list = append(list, askRequest(p.Get("request"), p.Get("request_id"), amb))
	}
	return list
}

func askRequest(req, id Value, amb bool) AskRequest {
	return AskRequest{
		Method: req.Get("subtype").Text(), ID: id, Tool: req.Get("tool_name").Text(), ToolUseID: req.Get("tool_use_id").Text(),
		Input: req.Get("input"), Params: req, Ambiguous: amb,
	}
}

// Command is what is to be run, "" where the request is about something else.
func (q *AskRequest) Command() string {
	in := q.Params
	if q.Tool != "" {
		_, in = EffectiveTool(q.Tool, q.Input)
	}
	return in.Get("command").Text()
}

// BeyondCommand reports whether a yes allows more than to run the command: without
// its sandbox, or with further permissions.
func (q *AskRequest) BeyondCommand() bool {
	_, in := EffectiveTool(q.Tool, q.Input)
	off := in.Get("dangerouslyDisableSandbox")
	return !off.Null() && string(off) != "false" ||
		!q.Params.Get("additionalPermissions").Null() || !q.Params.Get("networkApprovalContext").Null()
}

// ToolName is what the request wants to use: a tool, looked for through CodeBuddy's
// deferred calls; "elicitation" and the like where it is none.
func (q *AskRequest) ToolName() string {
	switch q.Method {
	case MethodCommandApproval:
		return "commandExecution"
	case MethodFileApproval:
		return "fileChange"
	case MethodPermissionsApproval:
		return "permissions"
	case MethodUserInput:
		return "requestUserInput"
	case MethodElicitation:
		return q.Params.Get("serverName").Text()
	case subCanUseTool:
		tool, _ := EffectiveTool(q.Tool, q.Input)
		return tool
	}
	return q.Method
}

// Class is approval or question: whether something is held back until it is
// allowed, or somebody is to say something.
func (q *AskRequest) Class() string {
	approval := false
	switch q.Method {
	case MethodCommandApproval, MethodFileApproval, MethodPermissionsApproval:
		approval = true
	case MethodElicitation:
		approval = !q.Params.Get("_meta").Get("codex_approval_kind").Null()
	case subCanUseTool:
		approval = !IsQuestionTool(q.ToolName())
	}
	if approval {
		return "approval"
	}
	return "question"
}

// DenialEnds reports whether a denial of a Codex request can end the turn by
// itself. Permissions and questions have no word for that, and the turn goes on
// after the cancel of a form or of an MCP call.
func DenialEnds(method string) bool {
	return method == MethodCommandApproval || method == MethodFileApproval
}

// AnswerLine returns the line, with its LF, that answers q in the strict form of
// the dialect, or why it cannot be answered so. What is missing never becomes a
// yes. The line is printable ASCII; the input that a yes repeats means what the
// child wrote, digit by digit and character by character.
func AnswerLine(d Name, q AskRequest, a event.Answer) ([]byte, error) {
	switch {
	case q.Ambiguous:
		return nil, errors.New("the request is ambiguous: keys stand twice in it")
	case d == Codex:
		return codexAnswer(q.Method, q.ID, q.Params, a)
	case q.ID.Null():
		return nil, errors.New("the request has no id that can be answered")
	}
	if err := checkAnswer(a); err != nil {
		return nil, err
	}
	var body Value
	var err error
	switch q.Method {
	case subCanUseTool:
		body, err = permission(d, &q, a)
	case "request_user_dialog":
		body, err = dialogAnswer(a)
	default:
		body, err = elicitation(&q, a)
	}
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), `{"type":"control_response","response":{"subtype":"success","request_id":`...)
	b = appendASCIIValue(b, q.ID)
	b = append(b, `,"response":`...)
	b = appendASCIIValue(b, body)
	return append(b, "}}\n"...), nil
}

// checkAnswer looks for parts that do not go together: who sends them means
// something that would not happen.
func checkAnswer(a event.Answer) error {
	yes := a.Decision == event.Allow || a.Decision == event.Answers
	switch {
	case a.Decision == event.Vendor && len(a.Vendor) == 0:
		return errors.New("vendor needs the decision in the child's own form")
	case a.Decision != event.Vendor && len(a.Vendor) > 0:
		return errors.New("a vendor form goes with the decision vendor alone")
	case a.Decision == event.Vendor && (a.Message != "" || len(a.Answers) > 0 || len(a.UpdatedInput) > 0 || a.Interrupt || a.Session):
		return errors.New("a vendor form goes alone")
	case !yes && a.Decision != event.Deny && a.Decision != event.Vendor:
		return fmt.Errorf("no decision %.40q", a.Decision)
	case a.Decision == event.Deny && (len(a.Answers) > 0 || len(a.UpdatedInput) > 0 || a.Session):
		return errors.New("a denial carries a message and interrupt alone")
	case yes && (a.Interrupt || a.Message != ""):
		return errors.New("message and interrupt go with a denial")
	case a.Decision == event.Answers && len(a.Answers) == 0:
		return errNoAnswer
	}
	for _, v := range []json.RawMessage{a.UpdatedInput, a.Vendor} {
		if len(v) > 0 {
			if err := checkObject(Value(bytes.TrimSpace(v))); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoAnswer = errors.New("a question is answered, not only allowed: answers are missing")

// checkObject accepts an object that reads the same everywhere.
func checkObject(v Value) error {
	switch {
	case !json.Valid(v) || !v.IsObject():
		return errors.New("want a JSON object")
	case !utf8.Valid(v):
		return errors.New("want UTF-8")
	case ambiguous(v, false, true):
		return errors.New("a key stands twice")
	}
	return nil
}

// permission answers can_use_tool.
func permission(d Name, q *AskRequest, a event.Answer) (Value, error) {
	tool, input := EffectiveTool(q.Tool, q.Input)
	question := tool == toolQuestion
	switch {
	case a.Decision == event.Vendor:
		return permissionVendor(d, Value(bytes.TrimSpace(a.Vendor)), question)
	case a.Decision == event.Deny:
		return denial(d, a), nil
	case a.Decision == event.Answers && !question, len(a.Answers) > 0 && !question:
		return nil, errors.New("the request is no question; allow or deny it")
	}
	// An answered question goes back as the tool's own input, without the wrapper
	// of a deferred call (seen with CodeBuddy 2.163.0).
	if !question {
		input = q.Input
	}
	if len(a.UpdatedInput) > 0 {
		input = Value(bytes.TrimSpace(a.UpdatedInput))
	}
	switch {
	case !input.IsObject():
		return nil, errors.New("the request has no input that could be allowed")
	case !utf8.Valid(input):
		return nil, errors.New("the input is not UTF-8 and cannot be repeated as it is")
	}
	if question {
		var err error
		if input, err = withAnswers(input, a.Answers); err != nil {
			return nil, err
		}
	}
	if d == CBC {
		if a.Session {
			return nil, errors.New("a cbc child cannot be told to allow the like for the session")
		}
		b := append([]byte(`{"allowed":true,"updatedInput":`), input...)
		if q.ToolUseID != "" {
			b = appendField(b, "tool_use_id", q.ToolUseID)
		}
		return append(b, '}'), nil
	}
	b := append([]byte(`{"behavior":"allow","updatedInput":`), input...)
	if a.Session {
		rules := SessionRules(q.Params)
		if rules == nil {
			return nil, errors.New("it cannot be allowed for the session: the child suggests no rule for that")
		}
		b = append(append(b, `,"updatedPermissions":`...), rules...)
	}
	return append(b, '}'), nil
}

// toolQuestion is the tool whose call is a question: allowed without answers it
// hangs CodeBuddy's turn for good.
const toolQuestion = "AskUserQuestion"

// denial says no. Claude Code wants a message, CodeBuddy shows the reason.
func denial(d Name, a event.Answer) Value {
	if a.Message == "" {
		a.Message = "The request was denied."
	}
	b := []byte(`{"behavior":"deny"`)
	key := "message"
	if d == CBC {
		b, key = []byte(`{"allowed":false`), "reason"
	}
	b = appendField(b, key, a.Message)
	if a.Interrupt {
		b = append(b, `,"interrupt":true`...)
	}
	return append(b, '}')
}

// SessionRules are those of the permission_suggestions of a can_use_tool request
// of Claude Code that allow the like of it, made to hold for the session and no
// longer; nil where there are none. A change of the permission mode allows more
// than the like, and is taken only where the child offers nothing else.
func SessionRules(req Value) Value {
	var rules, modes []Value
	for s := range req.Get("permission_suggestions").Items {
		switch s.Get("type").Text() {
		case "addRules":
			if s.Get("behavior").Text() == "allow" {
				rules = append(rules, forSession(s))
			}
		case "addDirectories":
			rules = append(rules, forSession(s))
		case "setMode":
			if s.Get("mode").Text() == "acceptEdits" {
				modes = append(modes, forSession(s))
			}
		}
	}
	if len(rules) == 0 {
		rules = modes
	}
	if len(rules) == 0 {
		return nil
	}
	return append(append(Value{'['}, bytes.Join(bytesOf(rules), []byte{','})...), ']')
}

func bytesOf(list []Value) (out [][]byte) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

func forSession(s Value) Value { return replaced(s, "destination", Value(`"session"`)) }

// replaced is an object with another value for a key, which comes last then.
func replaced(v Value, key string, value Value) Value {
	b := []byte{'{'}
	for k, field := range v.Fields {
		if unescape(k) == key {
			continue
		}
		b = append(append(append(b, '"'), k...), `":`...)
		b = append(append(b, field...), ',')
	}
	b = append(AppendASCII(b, key), ':')
	return append(append(b, value...), '}')
}
