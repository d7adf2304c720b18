package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay"
)

func newAsks(a *app) *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "asks [flags] [RUN]",
		Short: "Show what agents ask",
		Long: `asks shows what the agent of RUN waits for: tools that it may use or not, and
questions with their options. Without RUN it shows that of every run that waits.
RUN is an id of cbcast ls, an unambiguous part of one, or "last".

  cbcast allow RUN ASK             let it
  cbcast deny RUN ASK -m TEXT      do not, and say why
  cbcast answer RUN ASK ANSWER …   answer its questions, in their order

The first answer counts, wherever it comes from.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, words []string) error {
			return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
				runs, err := asking(ctx, b, words)
				if err != nil {
					return err
				}
				return a.asks(ctx, b, runs, asJSON, all)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line and ask")
	c.Flags().BoolVar(&all, "all", false, "show those that are not open any more, too")
	return c
}

// asking lists the run that is meant, or all that wait.
func asking(ctx context.Context, b *bus.Bus, words []string) ([]bus.RunInfo, error) {
	if len(words) > 0 {
		r, err := resolve(ctx, b, words[0])
		return []bus.RunInfo{r}, err
	}
	runs, err := b.Runs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	runs = slices.DeleteFunc(runs, func(r bus.RunInfo) bool { return r.State != "waiting" })
	slices.SortFunc(runs, func(x, y bus.RunInfo) int { return cmp.Compare(x.Run, y.Run) })
	return runs, nil
}

// An askLine is one ask in JSON.
type askLine struct {
	Run string `json:"run"`
	run.AskView
}

func (a *app) asks(ctx context.Context, b *bus.Bus, runs []bus.RunInfo, asJSON, all bool) error {
	shown := 0
	for _, r := range runs {
		reading, err := relay.Read(ctx, b, r)
		if err != nil {
			return fmt.Errorf("read run %s: %w", r.Run, err)
		}
		list := reading.View().Asks
		if !all {
			list = slices.DeleteFunc(list, func(v run.AskView) bool { return v.State != run.AskOpen })
		}
		list = append(list, unresumed(reading.View(), list)...)
		shown += len(list)
		for n, v := range list {
			if asJSON {
				err = printJSON(a.io.out, []askLine{{r.Run, v}})
			} else {
				err = printAsk(a.io.out, r, v, n == 0)
			}
			if err != nil {
				return err
			}
		}
	}
	if shown > 0 || asJSON {
		return nil
	}
	_, err := fmt.Fprintln(a.io.out, "nobody is asked anything")
	return err
}

// printAsk shows an ask with what a person needs to decide it. All of it is the
// agent's own text.
func printAsk(w io.Writer, r bus.RunInfo, v run.AskView, first bool) error {
	var b bytes.Buffer
	if first {
		fmt.Fprintf(&b, "run %s  %s  %s\n", printable(r.Run), dash(r.Dialect), where(r))
	}
	fmt.Fprintf(&b, "  %-4s %s%s%s%s\n", printable(v.ID), printable(v.Kind), also(v.Tool), since(v), standing(v))
	f := v.Form
	if f == nil {
		f = &run.AskForm{}
	}
	if f.Message != "" {
		fmt.Fprintf(&b, "       %s\n", printable(f.Message))
	}
	switch {
	case f.InputLeftOut:
		fmt.Fprintf(&b, "       %s\n       (too long to be shown whole: cbcast tail --json --after %d %s)\n", printable(v.Title), v.OpenedSeq-1, printable(r.Run))
	case len(f.Questions) > 0:
	case len(f.Input) == 0 && v.Title != f.Message:
		fmt.Fprintf(&b, "       %s\n", printable(v.Title))
	default:
		printInput(&b, v.Kind, f.Input)
	}
	for n, q := range f.Questions {
		printQuestion(&b, n+1, q)
	}
	for _, c := range f.Choices {
		fmt.Fprintf(&b, "       offers %s\n", short(string(c)))
	}
	if v.Ambiguous {
		fmt.Fprintln(&b, "       (it says one thing twice: only its own host can answer it)")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func printQuestion(b *bytes.Buffer, n int, q run.AskQuestion) {
	text := q.Text
	if text == "" {
		text = q.ID
	}
	var notes []string
	if q.Multi {
		notes = append(notes, "several may be chosen")
	}
	if q.Secret {
		notes = append(notes, "a secret: only its own host can answer it")
	}
	fmt.Fprintf(b, "       %d. %s", n, short(text))
	if len(notes) > 0 {
		fmt.Fprintf(b, "  (%s)", strings.Join(notes, "; "))
	}
	fmt.Fprintln(b)
	for i, o := range q.Options {
		fmt.Fprintf(b, "          %d  %s", i+1, short(o.Label))
		if o.Description != "" {
			fmt.Fprintf(b, "  %s", short(o.Description))
		}
		fmt.Fprintln(b)
	}
}

func also(s string) string {
	if s == "" {
		return ""
	}
	return "  " + short(s)
}

func since(v run.AskView) string {
	if v.OpenedAt == nil || v.State != run.AskOpen {
		return ""
	}
	return "  for " + max(time.Since(*v.OpenedAt), 0).Round(time.Second).String()
}

// standing says what became of an ask so far.
func standing(v run.AskView) string {
	var s string
	if v.State != run.AskOpen {
		s = "  " + printable(v.State)
	}
	if d := v.Decided; d != nil {
		s += "  " + printable(d.Decision) + " by " + printable(d.By)
		if v.State == run.AskOpen {
			s += ", on its way"
		}
	}
	if v.Closed != nil {
		s += "  " + printable(v.Closed.Reason)
	}
	if v.Outcome != "" {
		s += "  " + printable(v.Outcome)
	}
	return s
}

// printInput shows what a tool is to be called with, every byte of it: what is not
// shown cannot be decided. Of a form it shows the fields.
func printInput(b *bytes.Buffer, kind string, input json.RawMessage) {
	if form, ok := relay.FormFields(&run.AskForm{Input: input}); kind == "elicitation" && ok {
		for _, f := range form {
			fmt.Fprintf(b, "       %s=…  %s", printable(f.Name), printable(string(f.Schema)))
			if f.Required {
				fmt.Fprint(b, "  (required)")
			}
			fmt.Fprintln(b)
		}
		return
	}
	fields := members(input)
	if fields == nil && len(input) > 0 {
		fmt.Fprintf(b, "       %s\n", printable(string(input)))
	}
	for _, m := range fields {
		text := string(m.value)
		if s := ""; json.Unmarshal(m.value, &s) == nil {
			text = s
		}
		fmt.Fprintf(b, "       %s: %s\n", printable(m.name), printable(text))
	}
}

type member struct {
	name  string
	value json.RawMessage
}

// members lists the members of a JSON object in their order, nil for anything else.
func members(object json.RawMessage) []member {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var list []member
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		m := member{name: name}
		if err != nil || !ok || d.Decode(&m.value) != nil {
			return nil
		}
		list = append(list, m)
	}
	return list
}
