package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cbcast/cbcast/internal/event"
)

// codexAnswer returns the line that answers a request of Codex. method and id are
// those of the request, id with its JSON type. Codex takes no message and no other
// input; where it has no decision that also ends the turn, see [DenialEnds],
// a.Interrupt asks the caller to send [CodexInterrupt], too.
func codexAnswer(method string, id, params Value, a event.Answer) ([]byte, error) {
	if len(rpcID(id)) == 0 {
		return nil, errors.New("the request has no id that can be answered")
	}
	if a.UpdatedInput != nil {
		return nil, errors.New("codex takes no updated input")
	}
	result, err := codexResultOf(method, params, a)
	if err != nil {
		return nil, err
	}
	b := appendASCIIValue([]byte(`{"id":`), id)
	b = append(b, `,"result":`...)
	b = appendASCIIValue(b, result)
	return append(b, "}\n"...), nil
}

func codexResultOf(method string, params Value, a event.Answer) (Value, error) {
	if a.Decision != event.Deny && asksSecret(params) {
		return nil, errors.New("a question asks for a secret: answers are recorded, it is answered at the host only")
	}
	if a.Decision == event.Vendor {
		return codexVendor(method, Value(a.Vendor))
	}
	if a.Decision != event.Allow && a.Decision != event.Deny && a.Decision != event.Answers {
		return nil, fmt.Errorf("no decision %.40q", a.Decision)
	}
	switch method {
	case MethodCommandApproval, MethodFileApproval:
		if a.Decision == event.Answers || len(a.Answers) > 0 {
			return nil, errors.New("an approval is allowed or denied")
		}
		return Value(`{"decision":"` + codexDecision(a) + `"}`), nil
	case MethodPermissionsApproval:
		return codexPermissions(params, a)
	case MethodUserInput:
		return codexQuestions(params, a)
	case MethodElicitation:
		return codexElicitation(params, a)
	}
	return nil, fmt.Errorf("no answer to %.100q is known", method)
}

// asksSecret reports whether a question of the request is for a secret.
func asksSecret(params Value) bool {
	for q := range params.Get("questions").Items {
		if q.Get("isSecret").True() {
			return true
		}
	}
	return false
}

func codexDecision(a event.Answer) string {
	switch {
	case a.Decision == event.Allow && a.Session:
		return "acceptForSession"
	case a.Decision == event.Allow:
		return "accept"
	case a.Interrupt:
		return "cancel"
	}
	return "decline"
}

// codexPermissions grants what was asked for, or nothing.
func codexPermissions(params Value, a event.Answer) (Value, error) {
	if a.Decision == event.Answers || len(a.Answers) > 0 {
		return nil, errors.New("permissions are allowed or denied")
	}
	if a.Decision == event.Deny {
		return Value(`{"permissions":{},"scope":"turn"}`), nil
	}
	asked := params.Get("permissions")
	if !asked.IsObject() {
		return nil, errors.New("the request names no permissions")
	}
	scope := `,"scope":"turn"}`
	if a.Session {
		scope = `,"scope":"session"}`
	}
	b := append([]byte(`{"permissions":`), asked...)
	return append(b, scope...), nil
}

// codexQuestions answers every question, or none: an empty answer is how Codex is
// told that there is none.
func codexQuestions(params Value, a event.Answer) (Value, error) {
	if a.Decision == event.Deny {
		return Value(`{"answers":{}}`), nil
	}
	b := []byte(`{"answers":{`)
	n := 0
	for q := range params.Get("questions").Items {
		id := q.Get("id")
		list, err := answerList(a.Answers[id.Text()])
		if err != nil {
			return nil, fmt.Errorf("question %.100q: %w", id.Text(), err)
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = AppendASCII(b, id.Text())
		b = append(b, `:{"answers":`...)
		b = append(append(b, list...), '}')
	}
	switch {
	case n == 0:
		return nil, errors.New("the request has no questions")
	case n != len(a.Answers):
		return nil, errors.New("an answer is to no question of the request")
	}
	return append(b, "}}"...), nil
}

// answerList makes a list of strings of one answer: a string or several.
func answerList(v json.RawMessage) ([]byte, error) {
	var list []string
	var one string
	switch {
	case len(v) == 0:
		return nil, errors.New("no answer")
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return nil, errors.New("an answer is a string or a list of strings")
	}
	b := []byte{'['}
	for i, s := range list {
		if s == "" {
			return nil, errors.New("empty answer")
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendASCII(b, s)
	}
	if len(list) == 0 || string(v) == "null" {
		return nil, errors.New("no answer")
	}
	return append(b, ']'), nil
}

// codexElicitation answers a form or an approval of an MCP server.
func codexElicitation(params Value, a event.Answer) (Value, error) {
	if a.Decision == event.Deny {
		if a.Interrupt {
			return Value(`{"action":"cancel","content":null}`), nil
		}
		return Value(`{"action":"decline","content":null}`), nil
	}
	meta := params.Get("_meta")
	if !meta.Get("codex_approval_kind").Null() {
		if a.Decision == event.Answers || len(a.Answers) > 0 {
			return nil, errors.New("an approval is allowed or denied")
		}
		if !a.Session {
			return Value(`{"action":"accept","content":{}}`), nil
		}
		for v := range meta.Get("persist").Items {
			if v.Text() == "session" {
				return Value(`{"action":"accept","content":{},"_meta":{"persist":"session"}}`), nil
			}
		}
		return nil, errors.New("it cannot be allowed for the session")
	}
	if params.Get("mode").Text() == "url" {
		return Value(`{"action":"accept","content":null}`), nil
	}
	return codexForm(params.Get("requestedSchema"), a.Answers)
}

// codexForm fills the fields of a form; those that it requires are there.
func codexForm(schema Value, answers map[string]json.RawMessage) (Value, error) {
	if len(answers) == 0 {
		return nil, errors.New("no answer")
	}
	b := []byte(`{"action":"accept","content":{`)
	n := 0
	for key := range schema.Get("properties").Fields {
		name := unescape(key)
		v, ok := answers[name]
		if !ok {
			continue
		}
		if !json.Valid(v) || string(bytes.TrimSpace(v)) == "null" {
			return nil, fmt.Errorf("field %.100q: no answer", name)
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(AppendASCII(b, name), ':')
		b = append(b, v...)
	}
	if n != len(answers) {
		return nil, errors.New("an answer is to no field of the form")
	}
	for name := range schema.Get("required").Items {
		if _, ok := answers[name.Text()]; !ok {
			return nil, fmt.Errorf("field %.100q is required", name.Text())
		}
	}
	return append(b, "}}"...), nil
}

// codexVendor checks a decision in Codex's own form: what the schema of the
// method's response does not have would be taken as a no, or as less than meant.
func codexVendor(method string, v Value) (Value, error) {
	if !json.Valid(v) {
		return nil, errors.New("the decision is no JSON")
	}
	v = Value(bytes.TrimSpace(v))
	switch method {
	case MethodCommandApproval, MethodFileApproval:
		d := v
		if v.IsObject() && v.Get("decision") != nil && onlyKeys(v, "decision") {
			d = v.Get("decision")
		}
		if !codexDecides(method, d) {
			return nil, fmt.Errorf("codex has no such decision: %.200s", d)
		}
		return append(append(Value(`{"decision":`), d...), '}'), nil
	case MethodPermissionsApproval:
		if v.Get("permissions").IsObject() && onlyKeys(v, "permissions", "scope", "strictAutoReview") {
			return v, nil
		}
	case MethodUserInput:
		if v.Get("answers").IsObject() && onlyKeys(v, "answers") {
			return v, nil
		}
	case MethodElicitation:
		switch v.Get("action").Text() {
		case "accept", "decline", "cancel":
			if onlyKeys(v, "action", "content", "_meta") {
				return v, nil
			}
		}
	}
	return nil, fmt.Errorf("codex has no such answer: %.200s", v)
}

// codexDecides reports whether d is a decision on a command or a file change.
func codexDecides(method string, d Value) bool {
	if d.IsString() {
		switch d.Text() {
		case "accept", "acceptForSession", "decline", "cancel":
			return true
		}
		return false
	}
	if method != MethodCommandApproval {
		return false
	}
	if amend := d.Get("acceptWithExecpolicyAmendment"); amend != nil && onlyKeys(d, "acceptWithExecpolicyAmendment") {
		words := 0
		for w := range amend.Get("execpolicy_amendment").Items {
			if !w.IsString() {
				return false
			}
			words++
		}
		return words > 0 && onlyKeys(amend, "execpolicy_amendment")
	}
	rule := d.Get("applyNetworkPolicyAmendment").Get("network_policy_amendment")
	action := rule.Get("action").Text()
	return onlyKeys(d, "applyNetworkPolicyAmendment") && onlyKeys(rule, "action", "host") &&
		rule.Get("host").IsString() && (action == "allow" || action == "deny")
}

// onlyKeys reports whether v is an object with each of its keys among keys, none
// of them twice.
func onlyKeys(v Value, keys ...string) bool {
	if !v.IsObject() {
		return false
	}
	seen := map[string]bool{}
	for k := range v.Fields {
		name := unescape(k)
		ok := false
		for _, want := range keys {
			ok = ok || name == want
		}
		if !ok || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}
