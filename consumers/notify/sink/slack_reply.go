package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/slack-go/slack"

	"github.com/cbcast/cbcast/internal/run"
)

func current(view *run.AskView, g grantKey) (code, reply string) {
	switch {
	case view.Closed != nil:
		return "ask_closed", "This is open no more (" + closedWords(view.Closed.Reason) + "). Nothing was done."
	case view.State != run.AskOpen:
		return "ask_closed", "This is answered already. Nothing was done."
	case askHash(view) != g.Hash:
		return codeChanged, "What is asked is not what the message shows. Nothing was done; the run's page has it."
	}
	return "", ""
}

var closings = map[string]string{
	run.ReasonAnswered: "it was answered", run.ReasonLocal: "the agent's own host answered", run.ReasonPolicy: "a policy answered",
	run.ReasonExpired: "its time was over", run.ReasonWithdrawn: "the agent withdrew it", run.ReasonCleared: "an interrupt or the turn's end cleared it",
	run.ReasonRunEnded: "the run has ended",
}

func closedWords(reason string) string { return cmp.Or(closings[reason], oneLine(reason)) }

func refusedBy(err error) (code, reply string) {
	var e *ActError
	if !errors.As(err, &e) {
		return codeFailed, "The relay did not answer. Whether it was done is not known; if the button is still there, try again."
	}
	var d struct {
		Reason, Decision, Actor, For string
	}
	_ = json.Unmarshal(e.Details, &d) // then it says nothing
	switch e.Code {
	case "already_answered":
		return e.Code, "Somebody else was first: " + oneLine(cmp.Or(d.Decision, "answered")) + by(cmp.Or(d.For, d.Actor)) + ". Yours does not count."
	case "ask_closed":
		return e.Code, "This is open no more (" + closedWords(d.Reason) + "). Nothing was done."
	case "already_ended":
		return e.Code, "The run has ended. Nothing was done."
	case "not_answerable":
		return e.Code, "This cannot be answered here: " + short(e.Message, maxQuoted)
	case "not_found":
		return e.Code, "The relay does not know this run or ask. Nothing was done."
	case "unauthorized", "forbidden":
		return e.Code, "The token that notify has at the relay may not do this. Nothing was done; tell whoever runs it."
	case "too_many_requests", "unavailable":
		return e.Code, "The relay is too busy or away. Nothing was done; try again."
	}
	return cmp.Or(e.Code, codeFailed), "The relay refused it: " + short(e.Message, maxQuoted)
}

func by(who string) string {
	if who = oneLine(who); who == "" {
		return ""
	}
	return " by " + who
}

func withUser(reply, user string) string {
	return strings.ReplaceAll(mrkdwn(reply), mrkdwn("<"+user+">"), "<@"+user+">")
}

func (s *Slack) whisper(ctx context.Context, c *click, reply string) {
	if c.channel == "" || c.user == "" {
		return
	}
	options := []slack.MsgOption{slack.MsgOptionText(withUser(reply, cmp.Or(c.did, c.user)), false), slack.MsgOptionParse(false), slack.MsgOptionDisableLinkUnfurl()}
	if c.thread != "" {
		options = append(options, slack.MsgOptionTS(c.thread))
	}
	_, o := s.call(ctx, true, func(ctx context.Context) error {
		_, err := s.api.PostEphemeralContext(ctx, c.channel, c.user, options...)
		return err
	})
	if o.Verdict != Delivered {
		s.log.Warn("what came of a click was not told", "user", short(c.who(), 60), "error", o.Err)
	}
}
