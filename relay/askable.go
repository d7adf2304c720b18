package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// answerable says why an ask takes no answer.
func answerable(q Asked) error {
	v := q.View
	closed := func(reason string) error {
		e := fail(CodeAskClosed, "the ask is open no more").with("ask", q.ID).with("reason", reason)
		if d := v.Decided; d != nil {
			e = e.with("by", d.By).with("decision", d.Decision)
		}
		return e
	}
	switch {
	case v == nil:
		return noAsk(q.ID)
	case v.Closed != nil:
		return closed(v.Closed.Reason)
	case v.State != run.AskOpen && v.Decided != nil && v.Decided.By == run.ByHost:
		return closed(run.ReasonLocal)
	case v.State != run.AskOpen && v.Decided != nil && v.Decided.By == run.ByPolicy:
		return closed(run.ReasonPolicy)
	case v.State != run.AskOpen:
		return closed(v.State)
	case q.Ended:
		return closed(run.ReasonRunEnded)
	case v.Ambiguous:
		return fail(CodeUnanswerable, "the request says one thing twice; only the agent's own host can answer it").with("ask", q.ID)
	}
	return nil
}

// checkAnswer says what is wrong with an answer to this ask, as far as it shows
// here; the edge, which has the request itself, looks again. Nothing that is
// missing ever becomes an allowance.
func checkAnswer(v *run.AskView, a *event.Answer) error {
	f := v.Form
	if f == nil {
		f = &run.AskForm{}
	}
	bad := func(parameter, format string, args ...any) error {
		return fail(CodeBadRequest, fmt.Sprintf(format, args...)).with("parameter", parameter).with("ask", v.ID)
	}
	if a.Decision == event.Deny {
		return nil
	}
	if slices.ContainsFunc(f.Questions, func(q run.AskQuestion) bool { return q.Secret }) {
		return fail(CodeUnanswerable, "it asks for a secret, and answers are recorded; only the agent's own host can answer it").
			with("ask", v.ID)
	}
	if a.Decision == event.Vendor {
		if len(f.Choices) > 0 && !slices.ContainsFunc(f.Choices, func(c json.RawMessage) bool { return offered(c, a.Vendor) }) {
			return bad("vendor", "the agent does not offer this decision")
		}
		return nil
	}
	form := v.Kind == "question" || v.Kind == "elicitation" && v.Class == run.Question
	switch {
	case !form && a.Decision == event.Answers:
		return bad("decision", "this is no question: allow or deny it")
	case !form && a.Answers != nil:
		return bad("answers", "this is no question: allow or deny it")
	case a.UpdatedInput != nil && v.Kind != "permission" && v.Kind != "plan":
		return bad("updated_input", "the input of this ask cannot be changed")
	case a.Session && !f.Session:
		return bad("session", "the agent does not offer to allow the like for the session")
	case v.Kind == "question" && len(a.Answers) == 0:
		return bad("answers", "a question is not allowed without answers")
	}
	if !form {
		return nil
	}
	fields, whole := fieldsOf(v.Kind, f)
	for _, key := range slices.Sorted(maps.Keys(a.Answers)) {
		q, ok := fields[key]
		switch {
		case !ok && whole:
			return bad("answers", "the ask has no question %q", cut(key))
		case !ok:
			continue
		}
		if err := q.check(a.Answers[key]); err != nil {
			return bad("answers", "that to %q %v", cut(key), err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if _, ok := a.Answers[key]; !ok && fields[key].required {
			return bad("answers", "%q is not answered", cut(key))
		}
	}
	return nil
}

// A field is one thing that an answer has to fill in, or may.
type field struct {
	run.AskQuestion
	required, form bool
}

// What the fold keeps of a form. Past it the edge alone knows what is asked.
const (
	shownQuestions, shownOptions = 16, 32

	// cutMark ends a text that was cut: then it is not the whole key.
	cutMark = "…"
)

// fieldsOf lists what is asked by the key of its answer. whole says that nothing
// was left out.
func fieldsOf(kind string, f *run.AskForm) (fields map[string]field, whole bool) {
	fields, whole = map[string]field{}, len(f.Questions) < shownQuestions
	for n, q := range f.Questions {
		if strings.HasSuffix(q.ID, cutMark) || q.ID == dialect.QuestionAt(n) && q.ID != q.Text {
			whole = false // its text is an answer's key as well
			continue
		}
		fields[q.ID] = field{AskQuestion: q, required: true}
	}
	if kind != "elicitation" || len(f.Questions) > 0 {
		return fields, whole
	}
	form, ok := FormFields(f)
	for _, x := range form {
		fields[x.Name] = field{required: x.Required, form: true}
	}
	return fields, ok
}

// check says what is wrong with the form of an answer.
func (q field) check(v json.RawMessage) error {
	if q.form {
		return nil // the schema is the server's; it looks itself
	}
	var list []string
	var one string
	switch {
	case json.Unmarshal(v, &one) == nil:
		list = []string{one}
	case json.Unmarshal(v, &list) != nil:
		return errors.New("must be a text or a list of texts")
	case !q.Multi && len(list) > 1:
		return errors.New("must be one answer")
	}
	if q.Other || len(q.Options) == 0 || len(q.Options) >= shownOptions {
		return nil
	}
	for _, s := range list {
		if !slices.ContainsFunc(q.Options, func(o run.AskOption) bool { return o.Label == s || strings.HasSuffix(o.Label, cutMark) }) {
			return errors.New("must be one of its options")
		}
	}
	return nil
}

// offered reports whether a decision is the choice c: the same text, or an object
// of the same name, whose content the agent checks.
func offered(c, decision json.RawMessage) bool {
	var whole map[string]json.RawMessage
	if json.Unmarshal(decision, &whole) == nil && len(whole) == 1 && whole["decision"] != nil {
		decision = whole["decision"]
	}
	if bytes.Equal(canonical(c), canonical(decision)) {
		return true
	}
	var have, want map[string]json.RawMessage
	if json.Unmarshal(c, &have) != nil || json.Unmarshal(decision, &want) != nil || len(want) != 1 {
		return false
	}
	for name := range want {
		if _, ok := have[name]; ok {
			return true
		}
	}
	return false
}
