package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/run"
)

// What an ask can be answered with, beside no.
type offer string

const (
	offerYes    offer = "yes"    // allow: approvals and plans
	offerAnswer offer = "answer" // its questions
	offerNone   offer = ""       // not here
)

// offered says how an ask can be answered by somebody who sees no more of it than its
// view has, and why not where it cannot.
func offered(a *run.AskView) (o offer, why string) {
	f := a.Form
	switch {
	case a.State != run.AskOpen || a.Decided != nil:
		return offerNone, "It is answered already."
	case a.Ambiguous:
		return offerNone, "The request says one thing twice: only the agent's own host can answer it."
	case f == nil:
		return offerNone, "What is asked is not known here."
	case slices.ContainsFunc(f.Questions, func(q run.AskQuestion) bool { return q.Secret }):
		return offerNone, "It asks for a secret, and answers are recorded: only the agent's own host can answer it."
	case f.InputLeftOut || !titled(a):
		return offerNone, "The request is too long to be shown here: open the run to answer it."
	case a.Kind == "question":
		if len(f.Questions) == 0 || len(f.Questions) >= maxShownQuestions {
			return offerNone, "Its questions cannot be shown here: open the run to answer it."
		}
		return offerAnswer, ""
	case a.Kind == "elicitation" && a.Class == run.Question:
		return offerNone, "It is a form: open the run to fill it in."
	}
	return offerYes, ""
}

// tooLong reports whether nothing but its length keeps an ask from being offered: who
// reads its whole input elsewhere can say yes to it.
func tooLong(a *run.AskView) bool {
	if a.Form == nil || !a.Form.InputLeftOut || a.OpenedSeq == 0 || a.Kind != "permission" && a.Kind != "plan" {
		return false
	}
	how, _ := offered(filled(a, nil))
	return how == offerYes || !titled(filled(a, nil))
}

// filled is an ask with its whole input.
func filled(a *run.AskView, input json.RawMessage) *run.AskView {
	c, f := *a, *a.Form
	f.Input, f.InputLeftOut = input, false
	c.Form = &f
	return &c
}

// maxShownQuestions is how many the fold keeps: with that many, there may be more.
const maxShownQuestions = 16

// deniable reports whether no can be said: always, to what is answered at all.
func deniable(a *run.AskView) bool {
	return a.State == run.AskOpen && a.Decided == nil && !a.Ambiguous
}

// asked is all that an ask asks for, as text: whoever has read it knows what is
// approved. What the child names as title or description comes first and is only its
// own word.
func asked(a *run.AskView) string {
	var b strings.Builder
	f := a.Form
	if f == nil {
		return visible(a.Title)
	}
	if f.Message != "" {
		b.WriteString(strings.TrimSpace(f.Message) + "\n\n")
	}
	for _, q := range f.Questions {
		if q.Header != "" {
			b.WriteString(oneLine(q.Header) + ": ")
		}
		b.WriteString(strings.TrimSpace(q.Text) + "\n")
		for _, o := range q.Options {
			b.WriteString("  - " + o.Label)
			if o.Description != "" {
				b.WriteString(": " + o.Description)
			}
			b.WriteByte('\n')
		}
	}
	if len(f.Input) > 0 {
		b.WriteString(members(f.Input))
	}
	text := strings.TrimSpace(visible(b.String()))
	if title := strings.TrimSuffix(visible(a.Title), ellipsis); title != visible(a.Tool) && !strings.Contains(text, title) {
		text = strings.TrimSpace(visible(a.Title) + "\n" + text)
	}
	return text
}

// titled reports whether the title hides nothing: it is whole, or the rest of it
// stands in the input.
func titled(a *run.AskView) bool {
	title, cut := strings.CutSuffix(visible(a.Title), ellipsis)
	return !cut || a.Form != nil && strings.Contains(visible(members(a.Form.Input)), title)
}

// members shows every member of an object, in its order; texts as they are, all
// else as JSON. What is no object is shown as it stands.
func members(raw json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	t, err := dec.Token()
	if d, ok := t.(json.Delim); err != nil || !ok || d != '{' {
		return string(raw)
	}
	var b strings.Builder
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return string(raw)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return string(raw)
		}
		name, _ := key.(string)
		var text string
		switch {
		case json.Unmarshal(v, &text) == nil && strings.Contains(text, "\n"):
			// Set in, so that no line of it looks like another member.
			b.WriteString(name + ":\n  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n")
		case json.Unmarshal(v, &text) == nil:
			b.WriteString(name + ": " + text + "\n")
		default:
			var pretty bytes.Buffer
			if json.Indent(&pretty, v, "", "  ") != nil {
				pretty.Write(v)
			}
			b.WriteString(name + ": " + pretty.String() + "\n")
		}
	}
	return b.String()
}

// askHash is a hash over all that is asked, so that a decision is one on this and on
// nothing else: 64 hex digits.
func askHash(a *run.AskView) string {
	h := sha256.New()
	part := func(b []byte) {
		var size [8]byte
		for i := range size {
			size[i] = byte(len(b) >> (8 * i))
		}
		h.Write(size[:])
		h.Write(b)
	}
	for _, s := range []string{a.ID, a.Class, a.Kind, a.Tool, a.ToolUseID, a.Title} {
		part([]byte(strings.ToValidUTF8(s, "\ufffd"))) // as JSON has it
	}
	if f := a.Form; f != nil {
		part(canonical(f.Input))
		part([]byte(strings.ToValidUTF8(f.Message, "\ufffd")))
		for _, q := range f.Questions {
			question, _ := json.Marshal(q) // of strings and bools: cannot fail
			part(canonical(question))
		}
		for _, c := range f.Choices {
			part(canonical(c))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputHash is that of the tool's input alone, for the record.
func inputHash(a *run.AskView) string {
	if a.Form == nil {
		return ""
	}
	sum := sha256.Sum256(canonical(a.Form.Input))
	return hex.EncodeToString(sum[:])
}

// canonical is JSON in one form: keys in order, no space, no escapes that are not
// needed. Who passed it on may have changed those, and nothing else.
func canonical(raw json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return b
}
