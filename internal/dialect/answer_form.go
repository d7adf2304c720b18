package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// QuestionAt names the n-th question of an AskUserQuestion, from 0, where its text
// does not: an answer is to that text, else to its place.
func QuestionAt(n int) string { return "#" + strconv.Itoa(n+1) }

// withAnswers puts the answers to an AskUserQuestion into its input: every
// question has one, and nothing else has. Where none are given the input must
// bring its own.
func withAnswers(input Value, answers map[string]json.RawMessage) (Value, error) {
	if len(answers) == 0 {
		if !answered(input) {
			return nil, errNoAnswer
		}
		return input, nil
	}
	b := []byte{'{'}
	n, seen := 0, map[string]bool{}
	for q := range input.Get("questions").Items {
		text := q.Get("question").Text()
		given, ok := answers[text]
		if !ok {
			given, ok = answers[QuestionAt(n)]
		}
		if seen[text] {
			return nil, fmt.Errorf("question %.100q stands twice", text)
		}
		if seen[text] = true; !ok {
			return nil, fmt.Errorf("question %.100q has no answer", text)
		}
		answer, err := answerText(given, q.Get("multiSelect").True())
		if err != nil {
			return nil, fmt.Errorf("question %.100q: %w", text, err)
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(AppendASCII(b, text), ':')
		b = AppendASCII(b, answer)
	}
	switch {
	case n == 0:
		return nil, errors.New("the request has no questions")
	case n != len(answers):
		return nil, errors.New("an answer is to no question of the request")
	}
	return replaced(input, "answers", append(b, '}')), nil
}

// answered reports whether an input of AskUserQuestion has an answer to each of
// its questions.
func answered(input Value) bool {
	n := 0
	for q := range input.Get("questions").Items {
		v := input.Get("answers").Get(q.Get("question").Text())
		if !v.IsString() || v.Text() == "" {
			return false
		}
		n++
	}
	return n > 0
}

// answerText is one answer as the tool wants it: several labels are joined.
func answerText(v json.RawMessage, multi bool) (string, error) {
	list, err := answerStrings(v)
	switch {
	case err != nil:
		return "", err
	case len(list) > 1 && !multi:
		return "", errors.New("only one option may be chosen")
	}
	return strings.Join(list, ", "), nil
}

// answerStrings reads an answer: a string, or a list of them; none is empty.
func answerStrings(v json.RawMessage) ([]string, error) {
	var list []string
	var one string
	v = bytes.TrimSpace(v)
	switch {
	case len(v) == 0 || string(v) == "null":
		return nil, errors.New("no answer")
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return nil, errors.New("an answer is a string or a list of strings")
	}
	if len(list) == 0 {
		return nil, errors.New("no answer")
	}
	for _, s := range list {
		if s == "" {
			return nil, errors.New("empty answer")
		}
	}
	return list, nil
}

// permissionVendor checks an answer in the child's own form: one that the child
// would take for another than it says, or that would hang it, is none.
func permissionVendor(d Name, v Value, question bool) (Value, error) {
	var yes, no bool
	why, keys := "message", []string{"behavior", "updatedInput", "updatedPermissions", "message", "interrupt", "toolUseID", "decisionClassification"}
	if d == CBC {
		why, keys = "reason", []string{"allowed", "updatedInput", "tool_use_id", "reason", "interrupt"}
		yes, no = v.Get("allowed").True(), string(v.Get("allowed")) == "false"
	} else {
		yes, no = v.Get("behavior").Text() == "allow", v.Get("behavior").Text() == "deny"
	}
	input := v.Get("updatedInput")
	switch {
	case !onlyKeys(v, keys...):
		return nil, fmt.Errorf("a %s child has no such answer: %.200s", d, v)
	case no && v.Get(why).Text() == "":
		return nil, fmt.Errorf("a denial needs a %s", why)
	case no:
		return v, nil
	case !yes:
		return nil, fmt.Errorf("a %s child reads neither yes nor no in %.200s", d, v)
	case !input.IsObject():
		return nil, errors.New("updatedInput is missing")
	case question && !answered(input):
		return nil, errNoAnswer
	}
	return v, nil
}

// elicitation answers the form of an MCP server.
func elicitation(q *AskRequest, a event.Answer) (Value, error) {
	switch {
	case a.Decision == event.Vendor:
		v := Value(bytes.TrimSpace(a.Vendor))
		switch v.Get("action").Text() {
		case "accept", "decline", "cancel":
			if onlyKeys(v, "action", "content", "_meta") {
				return v, nil
			}
		}
		return nil, fmt.Errorf("a form has no such answer: %.200s", v)
	case a.Decision == event.Deny && a.Interrupt:
		return Value(`{"action":"cancel"}`), nil
	case a.Decision == event.Deny:
		return Value(`{"action":"decline"}`), nil
	case a.Session || len(a.UpdatedInput) > 0:
		return nil, errors.New("a form is answered, nothing else")
	}
	schema := q.Params.Get("requested_schema")
	if schema.Null() {
		schema = q.Params.Get("requestedSchema")
	}
	if q.Params.Get("mode").Text() == "url" || schema.Null() {
		if len(a.Answers) > 0 {
			return nil, errors.New("the request has no form")
		}
		return Value(`{"action":"accept"}`), nil
	}
	return codexForm(schema, a.Answers)
}

// dialogAnswer answers a dialog of Claude Code, whose results are of many forms.
func dialogAnswer(a event.Answer) (Value, error) {
	switch {
	case a.Decision == event.Deny:
		return Value(`{"behavior":"cancelled"}`), nil
	case a.Decision == event.Vendor:
		v := Value(bytes.TrimSpace(a.Vendor))
		done := v.Get("behavior").Text() == "completed" && v.Get("result") != nil
		if onlyKeys(v, "behavior", "result") && (done || v.Get("behavior").Text() == "cancelled") {
			return v, nil
		}
	}
	return nil, errors.New(`a dialog is denied, or answered with vendor {"behavior":"completed","result":…}`)
}
