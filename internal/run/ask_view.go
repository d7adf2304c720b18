package run

import (
	"encoding/json"
	"time"
)

// AskView is something that the child waits or waited for. That it was decided,
// that the answer was written and that the child waits no more are three facts;
// what came of it is the outcome.
type AskView struct {
	ID    string `json:"id"`    // a1, a2 … in the order asked, the same for a repeated request
	Class string `json:"class"` // approval, question
	// Kind is permission, plan, question, elicitation, command, file_change,
	// permissions.
	Kind      string   `json:"kind"`
	Tool      string   `json:"tool,omitempty"`
	ToolUseID string   `json:"tool_use_id,omitempty"`
	Session   string   `json:"session,omitempty"`
	Task      string   `json:"task,omitempty"`
	Title     string   `json:"title,omitempty"` // one line: the command, the file, the question
	Form      *AskForm `json:"form,omitempty"`  // while it may be answered
	// State is open, answered (decided, its end not seen), closed, or unknown: the
	// edge died when an answer was on its way or written, and nothing tells what
	// became of it.
	State string `json:"state"`
	// Ambiguous says that keys stand twice in the request: it must not be offered.
	Ambiguous bool `json:"ambiguous,omitempty"`
	// Repeats is how often the same was asked before and ran into the policy's
	// timeout.
	Repeats   int        `json:"repeats,omitempty"`
	OpenedSeq uint64     `json:"opened_seq"`
	OpenedAt  *time.Time `json:"opened_at,omitempty"`

	Decided *AskDecided `json:"decided,omitempty"`
	Written *AskWritten `json:"written,omitempty"`
	Closed  *AskEnd     `json:"closed,omitempty"`
	// Outcome is ran, failed, denied, answered, none or unknown; "" while the ask
	// is open, and while what was allowed runs (codex).
	Outcome string `json:"outcome,omitempty"`
}

// AskDecided says who decided an ask, and how.
type AskDecided struct {
	Decision string     `json:"decision"`          // allow, deny, answer, vendor, error
	By       string     `json:"by"`                // bus, host, policy
	Command  string     `json:"command,omitempty"` // of the bus or the policy
	Rule     string     `json:"rule,omitempty"`    // of the policy
	Cause    string     `json:"cause,omitempty"`   // of the policy's decision: rule, timeout
	Seq      uint64     `json:"seq,omitempty"`
	At       *time.Time `json:"at,omitempty"`
}

// AskWritten says where the answer stands on the child's stdin.
type AskWritten struct {
	Seq uint64     `json:"seq"`
	At  *time.Time `json:"at,omitempty"`
}

// AskEnd says why the child waits no more.
type AskEnd struct {
	// Reason is answered (through the bus), answered_local (by the host), policy (a
	// rule of it), expired (its timeout), withdrawn (by the child), cleared (an
	// interrupt, a sibling's cancel or the turn's end), run_ended.
	Reason string     `json:"reason"`
	Seq    uint64     `json:"seq,omitempty"`
	At     *time.Time `json:"at,omitempty"`
}

// AskForm is what a person needs to answer. All of it is text of the child.
type AskForm struct {
	// Input of the tool, as asked. InputLeftOut says that it is too long to be
	// here; the event of the request has it.
	Input        json.RawMessage `json:"input,omitempty"`
	InputLeftOut bool            `json:"input_left_out,omitempty"`
	Message      string          `json:"message,omitempty"`
	Questions    []AskQuestion   `json:"questions,omitempty"`
	// Choices are the decisions that the child offers in its own form.
	Choices []json.RawMessage `json:"choices,omitempty"`
	// Session says that the like can be allowed for the rest of the session.
	Session bool `json:"session,omitempty"`
}

// AskQuestion is one question of an ask.
type AskQuestion struct {
	ID      string      `json:"id"` // the key of its answer
	Header  string      `json:"header,omitempty"`
	Text    string      `json:"text,omitempty"`
	Multi   bool        `json:"multi,omitempty"`  // several options may be chosen
	Secret  bool        `json:"secret,omitempty"` // the answer is not to be shown
	Other   bool        `json:"other,omitempty"`  // an answer of one's own is offered
	Options []AskOption `json:"options,omitempty"`
}

// AskOption is one answer that is offered.
type AskOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Classes of an ask: what the run waits for.
const (
	Approval = "approval"
	Question = "question"
)

// States of an ask.
const (
	AskOpen     = "open"
	AskAnswered = "answered"
	AskShut     = "closed"
	AskUnknown  = "unknown"
)

// Why an ask is closed.
const (
	ReasonAnswered  = "answered"
	ReasonLocal     = "answered_local"
	ReasonPolicy    = "policy"
	ReasonExpired   = "expired"
	ReasonWithdrawn = "withdrawn"
	ReasonCleared   = "cleared"
	ReasonRunEnded  = "run_ended"
)

// What came of an ask.
const (
	OutcomeRan      = "ran"
	OutcomeFailed   = "failed"
	OutcomeDenied   = "denied"
	OutcomeAnswered = "answered"
	OutcomeNone     = "none"
	OutcomeUnknown  = "unknown"
)

// Who decides an ask.
const (
	ByBus    = "bus"
	ByHost   = "host"
	ByPolicy = "policy"
)
