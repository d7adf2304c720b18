package sink

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A Kind says what a notice tells.
type Kind string

// The kinds of notices.
const (
	Finished    Kind = "finished"    // the run ended, with any verdict but failed
	Failed      Kind = "failed"      // the run ended with the verdict failed
	Lost        Kind = "lost"        // no word from its edge; provisional
	Resumed     Kind = "resumed"     // a lost one spoke again: what was told before is taken back
	Waiting     Kind = "waiting"     // it waits for a person
	Reminder    Kind = "reminder"    // it still does
	Escalated   Kind = "escalated"   // it still does, and others are told
	Answered    Kind = "answered"    // it waits no more
	Stalled     Kind = "stalled"     // a watchdog's fact
	Interrupted Kind = "interrupted" // the run ended by an interrupt
	Digest      Kind = "digest"      // several at once, in Notice.Digest
	Disabled    Kind = "disabled"    // to the owner: a destination is gone
	Test        Kind = "test"        // of cbcast notify --test
)

// A Notice is one thing to tell at one destination. It is read only: sinks share
// what is in it.
type Notice struct {
	// ID is the same however often the notice is sent, and no other notice's: the
	// id of the event that caused it, with a mark where one event causes several
	// ("<run>/<seq>", "<run>/<seq>:reminder-2"). Printable ASCII without space and
	// without "."; at most 200 bytes. It is the webhook-id.
	ID     string
	Kind   Kind
	Tenant string
	Run    string    // "" for a digest
	At     time.Time // of what it tells
	// Since is, of a reminder and an escalation, from when on the ask waits.
	Since time.Time `json:"Since,omitzero"`

	Event   *event.Event // the cause; nil where a timer or a person was it
	Summary run.Summary
	View    *run.View         // nil for a digest
	Asks    []run.AskView     // that are open, in the order asked
	CI      map[string]string // labels
	Links   Links

	// To is where within the destination: a Slack channel, addresses of mail
	// separated by commas; "" is the destination's own.
	To string
	// Mention is whom to call, from the rules and never from an event: "<@U012>",
	// "<!subteam^S012>" or "<!here>" for Slack; plain text for other sinks.
	Mention string
	// Note is one line of ours: "second reminder", "28 runs finished in 2 m".
	Note string
	// Digest are the lines of a digest. Sinks show as many as fit, and how many
	// more there are.
	Digest []Line

	// Updates is what was told of the run at this destination before, as the last
	// Outcome had it. Nil is a new message.
	Updates *Ref
	// Reopened says that what was told last was final and holds no longer.
	Reopened bool
	// Attempt counts from 1. Unsure says that nobody knows what became of an
	// earlier attempt: the sink looks before it tells again, where it can.
	Attempt int
	Unsure  bool
}

// Links lead to more. They are made of CBCAST_PUBLIC_URL and of the CI's labels.
// An empty one is not shown; one that is no http(s) URL neither.
type Links struct {
	Run string // the run's page
	CI  string // the job that the run belongs to
}

// A Line is one line of a digest.
type Line struct {
	Kind    Kind
	Tenant  string
	Run     string
	Verdict string
	Text    string // of the child: a name, a workflow
	Link    string // the run's page
	Count   int    // how many are meant; 0 is 1
	At      time.Time
}

// A Ref is where a destination keeps what was told of a run. The one who calls
// keeps the latest one, as JSON, and gives it back with the run's next notice; no
// two notices of one run and destination are sent at once.
type Ref struct {
	Channel string `json:"channel,omitempty"` // Slack: as the API names it
	TS      string `json:"ts,omitempty"`      // Slack: of the run's message
	// Thread are the notices that have their reply in the message's thread, the
	// latest last. Bounded.
	Thread []string `json:"thread,omitempty"`
	// Message is the Message-ID that mails of the run refer to.
	Message string `json:"message,omitempty"`
}

// A Verdict says what became of an attempt.
type Verdict string

// The verdicts.
const (
	// Delivered: the destination has it.
	Delivered Verdict = "delivered"
	// Retry: it has it not, and another attempt may work. Not before Outcome.After.
	Retry Verdict = "retry"
	// Unknown: it may have it (no answer in time, connection lost after the request).
	// A sink with Capabilities.Idempotent is simply tried again; for others Notice.Unsure
	// makes it look first, and Unknown again means that looking does not help.
	Unknown Verdict = "unknown"
	// Refused: it said no and most likely will again (4xx, a redirect). A few
	// attempts, then a dead letter. With Outcome.Permanent not even those.
	Refused Verdict = "refused"
	// Gone: it says that it is no more (410). The destination is to be disabled.
	Gone Verdict = "gone"
)

// An Outcome is what became of one attempt.
type Outcome struct {
	Verdict Verdict
	// Ref replaces the run's one where it is not nil, whatever the verdict: part of a
	// notice may be told.
	Ref *Ref
	// After is how long the destination, or for Slack the channel, asked to be left
	// alone; 0 where it did not say. At most an hour.
	After time.Duration
	// Throttled says that the destination is too busy rather than broken (429, 502,
	// 503, 504).
	Throttled bool
	// Permanent: with Refused, no attempt will do better.
	Permanent bool
	// Err says why, nil with Delivered. It is for logs and people: without secrets,
	// addresses or more than a line of what the destination said.
	Err error
	// Note is something to log of a notice that was delivered: it had to be cut to a
	// minimal form, for example.
	Note string
}

// Capabilities say what a sink can do.
type Capabilities struct {
	// Updates: a later notice of the run replaces the earlier message, so that what
	// is over is told, too.
	Updates bool
	// Threads: later notices stand with the first one (Slack, mail).
	Threads bool
	// Buttons: asks can be answered there.
	Buttons bool
	// Idempotent: the same ID sent twice is seen once by who keeps to the rules of
	// the protocol, so that Unknown may be tried again.
	Idempotent bool
}

// A Sink is one destination.
type Sink interface {
	// Name of the destination in the rules. It stands for it in logs and errors.
	Name() string
	Capabilities() Capabilities
	// Lane names what Outcome.After and a rate limit are for: the destination ("") or
	// a channel of it. Notices of one lane are told in order, one at a time.
	Lane(n *Notice) string
	// Send makes one attempt. It returns within the sink's timeout, or when ctx
	// ends; then the outcome is Unknown unless nothing had been sent.
	Send(ctx context.Context, n *Notice) Outcome
	// Close waits for what the sink does beside Send and frees what it holds. The
	// sink is not used after it.
	Close() error
}

// An Actor carries out what somebody clicked. It is the relay's API, called with a
// token that has the scopes answer, command and delegate.
type Actor interface {
	// Ask returns an ask as it is now. The error is an [*ActError] where the relay
	// refused, also of a run or an ask that is not there.
	Ask(ctx context.Context, run, ask string) (*run.AskView, error)
	// Answer decides an ask. The first answer counts, whoever gives it.
	Answer(ctx context.Context, run, ask string, a event.Answer, behalf string) (Acted, error)
	// Interrupt interrupts a run. The same id is the same command.
	Interrupt(ctx context.Context, run, id, reason, behalf string) (Acted, error)
}

// An InputReader is an [Actor] that also reads what an ask's view leaves out because it is
// long: the input of the tool, as the agent asked. An error is that it cannot be had.
type InputReader interface {
	Input(ctx context.Context, run string, ask *run.AskView) (json.RawMessage, error)
}

// Acted says that the bus has a decision or a command. That is not its effect.
type Acted struct {
	Command   string // its id
	Duplicate bool   // it was given before, the same
}

// An ActError is a refusal of the relay, with a code of its API: already_answered,
// ask_closed, not_answerable, already_ended, not_found, forbidden, unauthorized,
// bad_request, too_many_requests, unavailable …
type ActError struct {
	Code      string
	Message   string
	Retryable bool
	Details   json.RawMessage
}

func (e *ActError) Error() string { return e.Code + ": " + e.Message }

// An Exec runs a command with a notice on its stdin: in a process group of its own,
// killed when ctx ends, with nothing in its environment but env. stderr is bounded.
// code is -1 where it did not run or was killed; err says why. It is
// ingest/child's, passed in by cmd.
type Exec func(ctx context.Context, argv, env []string, stdin []byte) (code int, stderr []byte, err error)
