package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay"
)

// answerHelp is what the help of every answer says.
const answerHelp = `RUN is an id of cbcast ls, an unambiguous part of one, or "last"; ASK is an id of
cbcast asks. The first answer counts, wherever it comes from.

Without --wait it returns when the bus has the answer. With --wait it prints each
fact as it comes and returns at the last one: settled, when the agent has gone on.

Exit codes with --wait: 0 settled   1 refused, or too late   2 usage
  4 expired, or nobody knows what became of it
Without --wait: 0 the bus has this answer, or had the same   1 somebody else was
  first, or the ask is open no more`

// answerFlags adds the flags that all answers share.
func (o *giving) answerFlags(c *cobra.Command) {
	o.flags(c)
	c.Flags().Lookup("deliver-within").Usage += "\n(default 24h)"
}

func newAllow(a *app) *cobra.Command {
	var o giving
	var session bool
	c := &cobra.Command{
		Use:   "allow [flags] RUN ASK",
		Short: "Let an agent do what it asks for",
		Long: `allow lets the agent of RUN do what ASK is about, as it was asked.

` + answerHelp,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, words []string) error {
			return a.answer(c, words, o, func(*run.AskView) (event.Answer, error) {
				return event.Answer{Decision: event.Allow, Session: session}, nil
			})
		},
	}
	o.answerFlags(c)
	c.Flags().BoolVar(&session, "session", false, "and the like for the rest of the session, where the agent offers that")
	return c
}

func newDeny(a *app) *cobra.Command {
	var o giving
	var message string
	var interrupt bool
	c := &cobra.Command{
		Use:   "deny [flags] RUN ASK",
		Short: "Do not let an agent do what it asks for",
		Long: `deny tells the agent of RUN that it may not do what ASK is about, or that its
question is not answered. It goes on without, unless --interrupt ends its turn.

` + answerHelp,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, words []string) error {
			return a.answer(c, words, o, func(*run.AskView) (event.Answer, error) {
				return event.Answer{Decision: event.Deny, Message: message, Interrupt: interrupt}, nil
			})
		},
	}
	o.answerFlags(c)
	c.Flags().StringVarP(&message, "message", "m", "", "why, for the agent")
	c.Flags().BoolVar(&interrupt, "interrupt", false, "end the turn, too")
	return c
}

func newAnswer(a *app) *cobra.Command {
	var o giving
	var vendor string
	c := &cobra.Command{
		Use:   "answer [flags] RUN ASK [ANSWER …]",
		Short: "Answer an agent's questions",
		Long: `answer answers what the agent of RUN asks in ASK: one ANSWER a question, in the
order of cbcast asks. An ANSWER is

  2          the second option
  1,3        several options, where several may be chosen
  some text  an option by its name, or an answer of your own
  =2         the text behind the "="
  KEY=TEXT   the answer to the question, or the field of a form, with that key

--vendor gives a decision in the agent's own form instead (Codex).

` + answerHelp,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, words []string) error {
			if (vendor == "") == (len(words) == 2) {
				return &exitError{exitUsage, errors.New("give one ANSWER a question, or --vendor")}
			}
			return a.answer(c, words, o, func(v *run.AskView) (event.Answer, error) {
				if vendor != "" {
					return event.Answer{Decision: event.Vendor, Vendor: json.RawMessage(vendor)}, vendorJSON(vendor)
				}
				answers, err := answersOf(v, words[2:])
				return event.Answer{Decision: event.Answers, Answers: answers}, err
			})
		},
	}
	o.answerFlags(c)
	c.Flags().StringVar(&vendor, "vendor", "", "a decision that the agent offers, in JSON")
	return c
}

func vendorJSON(s string) error {
	if !json.Valid([]byte(s)) {
		return errors.New("--vendor is no JSON; a text stands in quotes, as '\"accept\"'")
	}
	return nil
}

// answer answers the ask that words begin with.
func (a *app) answer(c *cobra.Command, words []string, o giving, make func(*run.AskView) (event.Answer, error)) error {
	if err := o.check(c); err != nil {
		return &exitError{exitUsage, err}
	}
	return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
		r, err := resolve(ctx, b, words[0])
		if err != nil {
			return err
		}
		reading, err := relay.Read(ctx, b, r)
		if err != nil {
			return fmt.Errorf("read run %s: %w", r.Run, err)
		}
		if q, ok := reading.View().WaitsForResume.Find(words[1]); ok {
			ans, err := make(q.View())
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.tellResume(reading.View(), q, ans)
		}
		asked := reading.Asked(words[1])
		if asked.View == nil {
			return &exitError{exitUsage, fmt.Errorf("run %s has no ask %q; cbcast asks lists them", r.Run, words[1])}
		}
		ans, err := make(asked.View)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		g, err := giver(b).Answer(ctx, r, asked, ans, o.deliver)
		if err != nil {
			return refusedErr(r.Run, err)
		}
		return a.given(ctx, b, r, reading.View().LastSeq, g, o)
	})
}

// answersOf reads one answer a word.
func answersOf(v *run.AskView, words []string) (map[string]json.RawMessage, error) {
	var questions []run.AskQuestion
	if v.Form != nil {
		questions = v.Form.Questions
	}
	form, _ := relay.FormFields(v.Form)
	answers := map[string]json.RawMessage{}
	next := 0
	for _, w := range words {
		for next < len(questions) && answers[questions[next].ID] != nil {
			next++
		}
		key, text, keyed := strings.Cut(w, "=")
		at := slices.IndexFunc(questions, func(q run.AskQuestion) bool { return q.ID == key })
		field := slices.IndexFunc(form, func(f relay.FormField) bool { return f.Name == key })
		switch {
		case keyed && key != "" && at >= 0:
		case keyed && len(questions) == 0 && field >= 0:
			if _, twice := answers[key]; twice {
				return nil, fmt.Errorf("%q is answered twice", key)
			}
			answers[key] = fieldValue(form[field], text)
			continue
		case next < len(questions):
			at, text = next, w
		case len(questions) > 0:
			return nil, fmt.Errorf("ask %s has %d questions; %q is one answer too many", v.ID, len(questions), w)
		default:
			return nil, fmt.Errorf("ask %s has no question for %q%s", v.ID, w, listed(form))
		}
		q := questions[at]
		if _, twice := answers[q.ID]; twice {
			return nil, fmt.Errorf("%q is answered twice", q.ID)
		}
		value, err := choice(q, text)
		if err != nil {
			return nil, err
		}
		answers[q.ID] = value
	}
	if len(answers) < len(questions) {
		return nil, fmt.Errorf("ask %s has %d questions, and %d are answered", v.ID, len(questions), len(answers))
	}
	return answers, nil
}

func listed(form []relay.FormField) string {
	if len(form) == 0 {
		return ""
	}
	var names []string
	for _, f := range form {
		names = append(names, f.Name)
	}
	return "; its fields are " + strings.Join(names, ", ") + ", as FIELD=VALUE"
}

// choice is the answer to q that a person means by text.
func choice(q run.AskQuestion, text string) (json.RawMessage, error) {
	if rest, ok := strings.CutPrefix(text, "="); ok {
		return quote(rest), nil
	}
	if slices.ContainsFunc(q.Options, func(o run.AskOption) bool { return o.Label == text }) {
		return quote(text), nil
	}
	var labels []string
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || len(q.Options) == 0 {
			return quote(text), nil
		}
		if n < 1 || n > len(q.Options) {
			return nil, fmt.Errorf("%q has %d options, and none has the number %d", q.Text, len(q.Options), n)
		}
		label := q.Options[n-1].Label
		if strings.HasSuffix(label, "…") || strings.Contains(label, "[redacted:") {
			return nil, fmt.Errorf("option %d of %q is not known whole here; write its text instead of its number", n, q.Text)
		}
		labels = append(labels, label)
	}
	switch {
	case len(labels) == 1:
		return quote(labels[0]), nil
	case !q.Multi:
		return nil, fmt.Errorf("%q takes one option", q.Text)
	}
	b, err := json.Marshal(labels)
	return b, err
}

// fieldValue is the value of a form's field: a number or a truth where the form
// wants one and the text is one.
func fieldValue(f relay.FormField, text string) json.RawMessage {
	switch f.Type {
	case "number", "integer", "boolean":
		if json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
	}
	return quote(text)
}
