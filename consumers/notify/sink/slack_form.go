package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slack-go/slack"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

func (s *Slack) questions(g grantKey, view *run.AskView, st modalState) (v slack.ModalViewRequest, why string) {
	key, err := s.also(g, actAnswer)
	if err != nil {
		return v, "The button's key cannot be kept: nothing can be answered here now."
	}
	st.Key = key
	v = slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: viewAnswer, Title: plainText("Answer"), Submit: plainText("Send"), Close: plainText("Close"),
	}
	size := 0
	for n := range view.Form.Questions {
		blocks, units := questionBlocks(n, &view.Form.Questions[n])
		size += units
		v.Blocks.BlockSet = append(v.Blocks.BlockSet, blocks...)
	}
	if len(v.Blocks.BlockSet) > slackModal || size > 40_000 {
		return v, "It has too many questions to be shown here: open the run to answer it."
	}
	return s.with(v, st)
}

// maxReasonText bounds the reason of a no, in characters: the relay takes 4 kB.
const maxReasonText = 1000

// reasons is the form for why somebody says no.
func (s *Slack) reasons(g grantKey, view *run.AskView, st modalState) (v slack.ModalViewRequest, why string) {
	key, err := s.also(g, actDenyWhy)
	if err != nil {
		return v, "The button's key cannot be kept: nothing can be answered here now."
	}
	st.Key = key
	v = slack.ModalViewRequest{
		Type: slack.VTModal, CallbackID: viewWhy, Title: plainText("Deny"), Submit: plainText("Deny"), Close: plainText("Close"),
	}
	about, _ := cutText(askTitle(view), budget{units: slackSection}, mrkdwnRune)
	text := slack.NewPlainTextInputBlockElement(nil, "text")
	text.Multiline, text.MaxLength = true, maxReasonText
	v.Blocks.BlockSet = []slack.Block{
		slack.NewSectionBlock(plainText(about), nil, nil),
		slack.NewInputBlock("why", plainText("Why? The agent is told, and it is recorded."), nil, text),
	}
	return s.with(v, st)
}

// reasonIn is what was written there.
func reasonIn(answers map[string][]string) string {
	if text := strings.TrimSpace(strings.Join(answers["why"], "")); text != "" {
		return text
	}
	return "denied in Slack"
}

func questionBlocks(n int, q *run.AskQuestion) (blocks []slack.Block, size int) {
	var text strings.Builder
	if q.Header != "" {
		text.WriteString(oneLine(q.Header) + ": ")
	}
	text.WriteString(strings.TrimSpace(visible(q.Text)))
	long := len(q.Options) > maxOptions
	for i, o := range q.Options {
		if long || units(mrkdwn(oneLine(o.Label))) > optionUnits-5 || units(mrkdwn(oneLine(o.Description))) > optionUnits {
			fmt.Fprintf(&text, "\n%d. %s", i+1, oneLine(o.Label))
			if o.Description != "" {
				text.WriteString(": " + oneLine(o.Description))
			}
		}
	}
	for _, part := range sections(text.String()) {
		blocks = append(blocks, slack.NewSectionBlock(plainText(part), nil, nil))
		size += len(part)
	}
	free := q.Other || len(q.Options) == 0
	if len(q.Options) > 0 {
		in := slack.NewInputBlock("q"+strconv.Itoa(n), plainText("Choose"), nil, choices(q))
		if q.Multi {
			in.Label = plainText("Choose one or several")
		}
		in.Optional = free
		blocks = append(blocks, in)
	}
	if free {
		label := "Answer"
		if len(q.Options) > 0 {
			label = "Or in your own words"
		}
		text := slack.NewPlainTextInputBlockElement(nil, "text")
		text.Multiline, text.MaxLength = true, 3000
		in := slack.NewInputBlock("t"+strconv.Itoa(n), plainText(label), nil, text)
		in.Optional = len(q.Options) > 0
		blocks = append(blocks, in)
	}
	return blocks, size
}

func choices(q *run.AskQuestion) slack.BlockElement {
	options := make([]*slack.OptionBlockObject, len(q.Options))
	for i, o := range q.Options {
		label, _ := cutText(fmt.Sprintf("%d. %s", i+1, oneLine(o.Label)), budget{units: optionUnits}, mrkdwnRune)
		var about *slack.TextBlockObject
		if d, _ := cutText(oneLine(o.Description), budget{units: optionUnits}, mrkdwnRune); d != "" {
			about = plainText(d)
		}
		options[i] = slack.NewOptionBlockObject(strconv.Itoa(i), plainText(label), about)
	}
	many := len(options) > maxOptions
	switch {
	case many && q.Multi:
		return slack.NewOptionsMultiSelectBlockElement(slack.MultiOptTypeStatic, plainText("Choose"), "choice", options...)
	case many:
		return slack.NewOptionsSelectBlockElement(slack.OptTypeStatic, plainText("Choose"), "choice", options...)
	case q.Multi:
		return slack.NewCheckboxGroupsBlockElement("choice", options...)
	}
	return slack.NewRadioButtonsBlockElement("choice", options...)
}

func (v *callbackView) values() map[string][]string {
	out := map[string][]string{}
	for block, actions := range v.State.Values {
		for _, a := range actions {
			if a.Value != nil && strings.TrimSpace(*a.Value) != "" {
				out[block] = []string{*a.Value}
			}
			if a.Selected != nil {
				out[block] = []string{a.Selected.Value}
			}
			for _, o := range a.Many {
				out[block] = append(out[block], o.Value)
			}
		}
	}
	return out
}

func (v *callbackView) unanswered() map[string]string {
	given := v.values()
	out := map[string]string{}
	for block := range v.State.Values {
		if n, ok := strings.CutPrefix(block, "t"); ok && len(given["t"+n])+len(given["q"+n]) == 0 {
			out[block] = "Choose one of the options, or write an answer."
		}
	}
	return out
}

func answersOf(view *run.AskView, given map[string][]string) (a event.Answer, why string) {
	a = event.Answer{Decision: event.Answers, Answers: map[string]json.RawMessage{}}
	for n := range view.Form.Questions {
		q := &view.Form.Questions[n]
		picked, err := labels(q, given["q"+strconv.Itoa(n)])
		if err != nil {
			return a, "What was chosen is none of the options. Nothing was done."
		}
		if text := given["t"+strconv.Itoa(n)]; len(text) == 1 && q.Multi {
			picked = append(picked, text[0])
		} else if len(text) == 1 {
			picked = text
		}
		id := q.ID
		if strings.HasSuffix(id, ellipsis) {
			id = dialect.QuestionAt(n) // its text is not here whole
		}
		var v any = picked
		switch {
		case len(picked) == 0:
			return a, "Not every question is answered. Nothing was done."
		case !q.Multi:
			v = picked[0]
		}
		b, err := json.Marshal(v)
		if err != nil {
			return a, "The answer cannot be sent. Nothing was done."
		}
		a.Answers[id] = b
	}
	return a, ""
}

var errNoOption = errors.New("no such option")

func labels(q *run.AskQuestion, places []string) ([]string, error) {
	var out []string
	for _, p := range places {
		i, err := strconv.Atoi(p)
		if err != nil || i < 0 || i >= len(q.Options) {
			return nil, errNoOption
		}
		out = append(out, q.Options[i].Label)
	}
	return out, nil
}
