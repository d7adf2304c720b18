package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay/client"
)

// actPatience bounds one call of the relay: Slack wants an answer within 3 s.
const actPatience = 2500 * time.Millisecond

// A relayActor carries out what people click, through the relay's API: with a token
// that has the scopes answer, command and delegate, or with the local one.
type relayActor struct{ a *app }

func (r *relayActor) client(ctx context.Context, behalf string) (*client.Client, error) {
	at := r.a.cfg.Notify.RelayURL
	if at == "" {
		at, _ = r.a.relayAt(ctx)
	}
	if at == "" {
		return nil, &sink.ActError{Code: "unavailable", Message: "no relay is known: set CBCAST_NOTIFY_RELAY_URL", Retryable: true}
	}
	token, err := r.a.relayToken()
	if err != nil {
		return nil, &sink.ActError{Code: "unauthorized", Message: err.Error()}
	}
	return &client.Client{URL: at, Token: token, OnBehalfOf: behalf}, nil
}

// acted turns the relay's refusal into the sinks' form.
func acted(err error) error {
	var e *client.Error
	if errors.As(err, &e) {
		return &sink.ActError{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Details: e.Details}
	}
	return err
}

func (r *relayActor) Ask(ctx context.Context, runID, ask string) (*run.AskView, error) {
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	c, err := r.client(ctx, "")
	if err != nil {
		return nil, err
	}
	raw, err := c.Asks(ctx, runID)
	if err != nil {
		return nil, acted(err)
	}
	var doc struct {
		Asks []run.AskView `json:"asks"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("read the relay's answer: %w", err)
	}
	for i := range doc.Asks {
		if doc.Asks[i].ID == ask {
			return &doc.Asks[i], nil
		}
	}
	return nil, &sink.ActError{Code: "not_found", Message: "the run has no such ask"}
}

// errHasInput ends the reading: the event that is looked for is there.
var errHasInput = errors.New("the ask's event is here")

// Input reads the event of an ask, which has all of what it asks for.
func (r *relayActor) Input(ctx context.Context, runID string, a *run.AskView) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	c, err := r.client(ctx, "")
	if err != nil {
		return nil, err
	}
	var data json.RawMessage
	err = c.Follow(ctx, runID, a.OpenedSeq-1, func(e client.Event) error {
		if e.Seq == a.OpenedSeq {
			data = e.Data
		}
		if e.Seq >= a.OpenedSeq {
			return errHasInput
		}
		return nil
	})
	if data == nil {
		if err == nil || errors.Is(err, errHasInput) { // a later one came first
			err = errors.New("the relay has it no more")
		}
		return nil, fmt.Errorf("read the ask's event: %w", err)
	}
	return inputOf(data, a)
}

// inputOf is the input of the tool that an event asks leave for.
func inputOf(data json.RawMessage, a *run.AskView) (json.RawMessage, error) {
	ev, err := event.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	if !ev.Part.IsZero() || !json.Valid(ev.Data) {
		return nil, errors.New("the ask's event is one of several parts")
	}
	req := dialect.Value(ev.Data).Get("request")
	if req.Get("subtype").Text() != "can_use_tool" || req.Get("tool_use_id").Text() != a.ToolUseID {
		return nil, errors.New("the ask's event has another form")
	}
	_, input := dialect.EffectiveTool(req.Get("tool_name").Text(), req.Get("input"))
	if input.Null() {
		return nil, errors.New("the ask's event has no input")
	}
	return bytes.ToValidUTF8(json.RawMessage(input), []byte("\ufffd")), nil
}

func (r *relayActor) Answer(ctx context.Context, runID, ask string, a event.Answer, behalf string) (sink.Acted, error) {
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	c, err := r.client(ctx, behalf)
	if err != nil {
		return sink.Acted{}, err
	}
	out := client.Answer{Decision: a.Decision, Message: a.Message, Interrupt: a.Interrupt, Session: a.Session}
	if len(a.Answers) > 0 {
		out.Answers = map[string]any{}
		for k, v := range a.Answers {
			out.Answers[k] = v
		}
	}
	if len(a.UpdatedInput) > 0 {
		out.UpdatedInput = a.UpdatedInput
	}
	if len(a.Vendor) > 0 {
		out.Vendor = a.Vendor
	}
	got, err := c.Answer(ctx, runID, ask, out)
	return sink.Acted{Command: got.Command, Duplicate: got.Duplicate}, acted(err)
}

func (r *relayActor) Interrupt(ctx context.Context, runID, id, reason, behalf string) (sink.Acted, error) {
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	c, err := r.client(ctx, behalf)
	if err != nil {
		return sink.Acted{}, err
	}
	got, err := c.Send(ctx, runID, client.Command{ID: id, Name: "interrupt", Args: map[string]string{"reason": reason}})
	return sink.Acted{Command: got.Command, Duplicate: got.Duplicate}, acted(err)
}

var (
	_ sink.Actor       = (*relayActor)(nil)
	_ sink.InputReader = (*relayActor)(nil)
)
