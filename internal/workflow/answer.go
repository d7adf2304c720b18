package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// ErrAnswer is what every [FormError] of [AnswerOf] wraps.
var ErrAnswer = errors.New("not an answer to this ask")

// A FormError says that the ask does not have this action, or that what came with it is
// not the action's form.
type FormError struct {
	Parameter string // action, data, or data.<field>
	reason    string
}

func (e *FormError) Error() string { return ErrAnswer.Error() + ": " + e.reason }

func (e *FormError) Unwrap() error { return ErrAnswer }

func wrong(parameter, format string, args ...any) error {
	return &FormError{Parameter: parameter, reason: fmt.Sprintf(format, args...)}
}

// member is an error in one field of the form.
func member(name, format string, args ...any) error {
	name = clip(name, MaxTitle)
	return wrong("data."+name, "field %q "+format, append([]any{name}, args...)...)
}

// maxMessage bounds what goes with a denial, in bytes.
const maxMessage = 4 << 10

// AnswerOf makes the answer to an open ask of one of the actions of its
// run.awaiting_input and of the object that goes with it (nil or null for none). What the
// action does not take is refused with a [FormError], for what is not sent to the agent
// must not look as if it were: an allowance takes nothing, a denial a message, an answer
// the fields of the formSchema.
func AnswerOf(a run.AskView, action string, input json.RawMessage) (event.Answer, error) {
	have := actions(&a)
	i := slices.IndexFunc(have, func(have Action) bool { return have.ID == action })
	if i < 0 {
		return event.Answer{}, wrong("action", "it has no action %.40q", action)
	}
	form, err := readForm(have[i], input)
	if err != nil {
		return event.Answer{}, err
	}
	ans := event.Answer{Ask: a.ID}
	switch action {
	case ActionAllow, ActionAllowSession:
		ans.Decision, ans.Session = event.Allow, action == ActionAllowSession
	case ActionDeny, ActionDenyStop:
		ans.Decision, ans.Interrupt = event.Deny, action == ActionDenyStop
		ans.Message, err = denial(form)
	case ActionAnswer:
		ans.Decision = event.Answers
		ans.Answers, err = answersOf(&a, form)
	}
	if err != nil {
		return event.Answer{}, err
	}
	return ans, nil
}

// readForm reads the object that came with an action, nil where none did.
func readForm(a Action, input json.RawMessage) (map[string]json.RawMessage, error) {
	if len(input) == 0 || string(input) == "null" {
		if a.Form == formRequired {
			return nil, wrong("data", "the action %s needs a form", a.ID)
		}
		return nil, nil
	}
	if a.Form == formNone {
		return nil, wrong("data", "the action %s takes no data", a.ID)
	}
	d := json.NewDecoder(bytes.NewReader(input))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, wrong("data", "the form is no object")
	}
	form := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var v json.RawMessage
		if err != nil || !ok || d.Decode(&v) != nil {
			return nil, wrong("data", "the form is no object")
		}
		if _, twice := form[name]; twice {
			return nil, member(name, "stands there twice")
		}
		form[name] = v
	}
	return form, nil
}

// denial reads the form of a denial, which has a message for the agent or nothing.
func denial(form map[string]json.RawMessage) (message string, err error) {
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if name != fieldMessage {
			return "", member(name, "is none of a denial, which takes a message only")
		}
		s := schema{Type: "string"}
		if err := s.check(form[name]); err != nil {
			return "", member(name, "%v", err)
		}
		_ = json.Unmarshal(form[name], &message) // it is a string
		if len(message) > maxMessage {
			return "", member(name, "is over %d bytes", maxMessage)
		}
	}
	return message, nil
}

// answersOf reads the fields of a form.
func answersOf(a *run.AskView, form map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	fields := fieldsOf(a)
	for _, name := range slices.Sorted(maps.Keys(form)) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return nil, member(name, "is none of the form")
		}
		f := &fields[i]
		if f.question >= 0 && f.blank(form[name]) {
			delete(form, name) // a program that leaves out nothing
			continue
		}
		if err := f.schema.check(form[name]); err != nil {
			return nil, member(name, "%v", err)
		}
	}
	answers := map[string]json.RawMessage{}
	for i, f := range fields {
		v, ok := form[f.name]
		switch {
		case f.other: // taken with the field before it
		case f.question < 0 && ok && !tellable(v):
			return nil, member(f.name, "is empty, or nothing that an answer can say")
		case f.question < 0 && ok:
			answers[f.name] = v
		case f.question < 0 && f.required:
			return nil, member(f.name, "is missing")
		case f.question >= 0:
			var other json.RawMessage
			if i+1 < len(fields) && fields[i+1].other {
				other = form[fields[i+1].name]
			}
			q := &a.Form.Questions[f.question]
			got, err := questionAnswer(q, v, other)
			if err != nil {
				return nil, member(f.name, "%v", err)
			}
			answers[q.ID] = got
		}
	}
	if len(answers) == 0 {
		return nil, wrong("data", "no field is filled in")
	}
	return answers, nil
}

// blank reports whether a field of a question is there and empty.
func (f *field) blank(v json.RawMessage) bool {
	list, ok := texts(v)
	return ok && len(list) == 0 && (v[0] == '[') == (f.schema.Type == "array")
}

// tellable reports whether an answer can have the value: a text, texts, a number or a
// boolean, and no text empty.
func tellable(v json.RawMessage) bool {
	var one any
	_ = json.Unmarshal(v, &one) // it was read before
	list, ok := one.([]any)
	if !ok {
		_, object := one.(map[string]any)
		text, isText := one.(string)
		return one != nil && !object && (!isText || strings.TrimSpace(text) != "")
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(x any) bool {
		text, ok := x.(string)
		return !ok || strings.TrimSpace(text) == ""
	})
}

// questionAnswer is the answer to one question: what was chosen, and what was
// written beside it.
func questionAnswer(q *run.AskQuestion, chosen, other json.RawMessage) (json.RawMessage, error) {
	list, _ := texts(chosen)
	more, _ := texts(other)
	list = append(list, more...)
	switch {
	case len(list) == 0:
		return nil, errors.New("has no answer")
	case len(list) > 1 && !q.Multi:
		return nil, errors.New("has two answers; only one is wanted")
	case !q.Multi:
		return appendString(nil, list[0]), nil
	}
	return encode(list), nil
}

// texts reads a string or a list of strings, the empty ones left out.
func texts(v json.RawMessage) (list []string, ok bool) {
	var one string
	switch {
	case len(v) == 0 || string(v) == "null":
		return nil, false
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return nil, false
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" }), true
}
