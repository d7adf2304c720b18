package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// A Command is an instruction to a run.
type Command struct {
	// ID makes a command that is sent twice have one effect; "" is a new one. A
	// caller that may have to send again chooses it.
	ID   string `json:"id,omitempty"`
	Name string `json:"name"` // interrupt, stop_task, message, steer, set_model …
	Args any    `json:"args,omitempty"`
	// DeliverWithin and EffectWithin are in seconds; 0 is the relay's default.
	DeliverWithin float64 `json:"deliver_within,omitempty"`
	EffectWithin  float64 `json:"effect_within,omitempty"`
}

// An Answer is what somebody says to an ask: Decision, and what goes with it.
type Answer struct {
	Decision     string         `json:"decision"` // allow, deny, answer, vendor
	Message      string         `json:"message,omitempty"`
	Answers      map[string]any `json:"answers,omitempty"` // by the question's id: a text, or a list of texts
	UpdatedInput any            `json:"updated_input,omitempty"`
	Interrupt    bool           `json:"interrupt,omitempty"`
	Session      bool           `json:"session,omitempty"`
	Vendor       any            `json:"vendor,omitempty"`
}

// Accepted says that the bus has a command. That is not its effect: see [Client.Wait].
type Accepted struct {
	Command   string `json:"command"` // its id
	Run       string `json:"run"`
	Name      string `json:"name"`
	Duplicate bool   `json:"duplicate"` // it was accepted before, from here or from elsewhere
}

// Send gives a command to a run. When it returns without an error, the command is on
// the bus and survives the relay; whether it reaches the agent its facts say. With an
// error that is no [*Error] it may have been accepted: sent again with the same ID
// it has one effect.
func (c *Client) Send(ctx context.Context, run string, cmd Command) (Accepted, error) {
	var a Accepted
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(run)+"/commands", cmd, &a)
	return a, err
}

// Answer answers an ask. The first answer counts: the same one again is no error,
// another one is an [*Error] with the code already_answered.
func (c *Client) Answer(ctx context.Context, run, ask string, answer Answer) (Accepted, error) {
	var a Accepted
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(run)+"/asks/"+url.PathEscape(ask), answer, &a)
	return a, err
}

// A Fact is one step of a command's life.
type Fact struct {
	Fact   string            `json:"fact"` // accepted, written, acked, settled, no_effect, refused, expired, unknown
	At     time.Time         `json:"at"`
	Seq    uint64            `json:"seq"` // of the run's event, 0 where no edge wrote it
	By     string            `json:"by"`  // bus, edge, relay
	Reason string            `json:"reason"`
	Detail map[string]string `json:"detail"`
}

// A Status is what is known of a command.
type Status struct {
	Command string          `json:"command"`
	Run     string          `json:"run"`
	Name    string          `json:"name"`
	Args    json.RawMessage `json:"args"`
	State   string          `json:"state"` // the latest fact, or sent_not_acked
	Final   bool            `json:"final"` // nothing more is expected
	Facts   []Fact          `json:"facts"` // in the order they were recorded
}

// Has reports whether a fact is on record.
func (s Status) Has(fact string) bool {
	return slices.ContainsFunc(s.Facts, func(f Fact) bool { return f.Fact == fact })
}

// Command returns what is known of a command now.
func (c *Client) Command(ctx context.Context, id string) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/commands/"+url.PathEscape(id), nil, &s)
	return s, err
}

// ErrNoFact is the error of [Client.Wait] for a command that ended otherwise.
var ErrNoFact = errors.New("the command ended without that fact")

// askFirst and askMax are the pauses between two questions of Wait.
const askFirst, askMax = 50 * time.Millisecond, time.Second

// Wait returns when the command has the fact, or any final one with "". It asks again
// and again, also while the relay is away. The status is the last one known, with
// [ErrNoFact] where the command has ended without the fact.
func (c *Client) Wait(ctx context.Context, id, fact string) (Status, error) {
	var last Status
	for pause := askFirst; ; pause = min(2*pause, askMax) {
		s, err := c.Command(ctx, id)
		if err == nil {
			last = s
		}
		switch e := asError(err); {
		case ctx.Err() != nil:
			return last, context.Cause(ctx)
		case e != nil && !e.Retryable:
			return last, err
		case err == nil && (fact != "" && s.Has(fact) || fact == "" && s.Final):
			return s, nil
		case err == nil && s.Final:
			return s, fmt.Errorf("%w: %s is %s, not %s", ErrNoFact, id, s.State, fact)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}
