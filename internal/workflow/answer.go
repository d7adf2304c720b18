package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// ErrAnswer is returned by [AnswerOf] for an action or a form that the ask does not
// offer; its text says why.
var ErrAnswer = errors.New("not an answer to this ask")

// maxMessage bounds what goes with a denial, in bytes.
const maxMessage = 4 << 10

// AnswerOf makes the answer to an open ask of one of the actions of its
// run.awaiting_input and of the object that its formSchema describes (nil or null
// for none). With a denial only a "message" counts, with an allowance nothing.
func AnswerOf(a run.AskView, action string, input json.RawMessage) (event.Answer, error) {
	if !slices.ContainsFunc(actions(&a), func(have Action) bool { return have.ID == action }) {
		return event.Answer{}, fmt.Errorf("%w: it has no action %.40q", ErrAnswer, action)
	}
	var form map[string]json.RawMessage
	if err := json.Unmarshal(input, &form); len(input) > 0 && err != nil {
		return event.Answer{}, fmt.Errorf("%w: the form is no object", ErrAnswer)
	}
	ans := event.Answer{Ask: a.ID}
	switch action {
	case ActionAllow, ActionAllowSession:
		ans.Decision, ans.Session = event.Allow, action == ActionAllowSession
	case ActionDeny, ActionDenyStop:
		ans.Decision, ans.Interrupt = event.Deny, action == ActionDenyStop
		if v, ok := form[fieldMessage]; ok && json.Unmarshal(v, &ans.Message) != nil {
			return event.Answer{}, fmt.Errorf("%w: message is no string", ErrAnswer)
		}
		if len(ans.Message) > maxMessage {
			return event.Answer{}, fmt.Errorf("%w: message is over %d bytes", ErrAnswer, maxMessage)
		}
	case ActionAnswer:
		answers, err := answersOf(&a, form)
		if err != nil {
			return event.Answer{}, err
		}
		ans.Decision, ans.Answers = event.Answers, answers
	}
	return ans, nil
}

// answersOf reads the fields of a form.
func answersOf(a *run.AskView, form map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	answers := map[string]json.RawMessage{}
	fields := fieldsOf(a)
	for name := range form {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return nil, fmt.Errorf("%w: the form has no field %.100q", ErrAnswer, name)
		}
	}
	for i := range fields {
		f := &fields[i]
		v, ok := form[f.name]
		if f.question < 0 { // of an MCP server, which has its own rules
			if ok {
				answers[f.name] = v
			} else if f.required {
				return nil, fmt.Errorf("%w: field %.100q is missing", ErrAnswer, f.name)
			}
			continue
		}
		if f.other {
			continue // taken with the field before it
		}
		var other json.RawMessage
		if i+1 < len(fields) && fields[i+1].other {
			other = form[fields[i+1].name]
		}
		q := &a.Form.Questions[f.question]
		got, err := questionAnswer(q, v, other)
		if err != nil {
			return nil, fmt.Errorf("%w: field %q: %w", ErrAnswer, f.name, err)
		}
		answers[q.ID] = got
	}
	return answers, nil
}

// questionAnswer is the answer to one question: what was chosen, and what was
// written beside it.
func questionAnswer(q *run.AskQuestion, chosen, other json.RawMessage) (json.RawMessage, error) {
	list, err := texts(chosen)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if len(q.Options) > 0 && !slices.ContainsFunc(q.Options, func(o run.AskOption) bool { return o.Label == s }) {
			return nil, fmt.Errorf("%.100q is not offered", s)
		}
	}
	more, err := texts(other)
	if err != nil {
		return nil, err
	}
	list = append(list, more...)
	switch {
	case len(list) == 0:
		return nil, errors.New("no answer")
	case len(list) > 1 && !q.Multi:
		return nil, errors.New("only one answer is wanted")
	case !q.Multi:
		return appendString(nil, list[0]), nil
	}
	return encode(list), nil
}

// texts reads a string or a list of strings; empty ones are none.
func texts(v json.RawMessage) ([]string, error) {
	var one string
	var list []string
	switch {
	case len(v) == 0 || string(v) == "null":
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return nil, errors.New("want a string or a list of strings")
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" }), nil
}
