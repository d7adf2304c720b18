package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// maxAnswers bounds the questions that one answer answers.
const maxAnswers = 64

// checkShape says what is wrong with an answer whatever its ask: fields that do
// not go with the decision are refused, for what is not sent to the agent must not
// look as if it were.
func checkShape(a *event.Answer) error {
	var takes []string
	switch a.Decision {
	case event.Allow:
		takes = []string{"answers", "updated_input", "session"}
	case event.Deny:
		takes = []string{"message", "interrupt"}
	case event.Answers:
		takes = []string{"answers"}
	case event.Vendor:
		takes = []string{"vendor"}
	default:
		return fail(CodeBadRequest, "decision must be allow, deny, answer or vendor").with("parameter", "decision")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"message", a.Message != ""},
		{"answers", a.Answers != nil},
		{"updated_input", a.UpdatedInput != nil},
		{"interrupt", a.Interrupt},
		{"session", a.Session},
		{"vendor", a.Vendor != nil},
	} {
		if f.set && !slices.Contains(takes, f.name) {
			return fail(CodeBadRequest, fmt.Sprintf("the decision %s takes no %s", a.Decision, f.name)).with("parameter", f.name)
		}
	}
	bad := func(parameter string, err error) error {
		return fail(CodeBadRequest, parameter+": "+err.Error()).with("parameter", parameter)
	}
	switch {
	case a.Decision == event.Answers && len(a.Answers) == 0:
		return bad("answers", errors.New("there is none"))
	case a.Decision == event.Vendor && kindOf(a.Vendor) != 's' && kindOf(a.Vendor) != 'o':
		return bad("vendor", errors.New("it must be a string or an object in the agent's own form"))
	case a.UpdatedInput != nil && kindOf(a.UpdatedInput) != 'o':
		return bad("updated_input", errors.New("it must be an object"))
	case len(a.Message) > maxReason:
		return bad("message", fmt.Errorf("it is longer than %d bytes", maxReason))
	case a.Answers != nil:
		if err := checkAnswers(a.Answers); err != nil {
			return bad("answers", err)
		}
	}
	return nil
}

func checkAnswers(answers map[string]json.RawMessage) error {
	if len(answers) > maxAnswers {
		return fmt.Errorf("there are more than %d", maxAnswers)
	}
	for key, v := range answers {
		if key == "" {
			return errors.New("one has no question")
		}
		switch kindOf(v) {
		case 's':
			if emptyText(v) {
				return fmt.Errorf("that to %q is empty", cut(key))
			}
		case 'l':
			var list []json.RawMessage
			_ = json.Unmarshal(v, &list) // it is one
			if len(list) == 0 || slices.ContainsFunc(list, func(o json.RawMessage) bool { return kindOf(o) != 's' || emptyText(o) }) {
				return fmt.Errorf("that to %q must be texts, and none empty", cut(key))
			}
		case 'n', 'b':
		default:
			return fmt.Errorf("that to %q must be a text or a list of texts", cut(key))
		}
	}
	return nil
}

func emptyText(v json.RawMessage) bool {
	var s string
	return json.Unmarshal(v, &s) == nil && strings.TrimSpace(s) == ""
}

// kindOf names the type of a JSON value by a letter: o, l, s, n, b, and 0 for null,
// nothing and what is no JSON.
func kindOf(v json.RawMessage) byte {
	if len(v) == 0 || !json.Valid(v) {
		return 0
	}
	switch c := strings.TrimSpace(string(v))[0]; c {
	case '{':
		return 'o'
	case '[':
		return 'l'
	case '"':
		return 's'
	case 't', 'f':
		return 'b'
	case 'n':
		return 0
	}
	return 'n'
}
