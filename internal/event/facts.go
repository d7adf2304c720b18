package event

import (
	"encoding/json"
	"time"
)

// Started is the data of [TypeStarted]: what runs, and where.
type Started struct {
	Argv       []string          `json:"argv"`                  // values of secret flags and prompts masked
	ArgvMasked int               `json:"argv_masked,omitempty"` // how many values were
	Cwd        string            `json:"cwd,omitempty"`
	Host       string            `json:"host,omitempty"`
	Pid        int               `json:"pid,omitempty"` // of the child
	OS         string            `json:"os,omitempty"`
	Arch       string            `json:"arch,omitempty"`
	Version    string            `json:"version,omitempty"` // of cbcast
	Dialect    string            `json:"dialect"`           // as chosen; the init frame confirms it
	Output     string            `json:"output,omitempty"`  // of a one-shot run: text or json; "" is a stream
	Source     string            `json:"source,omitempty"`  // tap, import or demo; "" is a wrapped child
	HoldStdin  bool              `json:"hold_stdin,omitempty"`
	CI         map[string]string `json:"ci,omitempty"` // labels by allow-list
	// Driven says that there is no host: cbcast itself wrote the prompts.
	Driven bool `json:"driven,omitempty"`
	// Resume is the conversation that the run was told to go on with. The sessions
	// seen later stand beside it: a child may give it another id.
	Resume *Resume `json:"resume,omitempty"`
	// Sandbox and Approval are what a driven codex thread was started with: a
	// resumed thread has lost its sandbox.
	Sandbox  string `json:"sandbox,omitempty"`
	Approval string `json:"approval,omitempty"`
	// Capabilities are those that the arguments show; what is learnt later comes
	// with [TypeCapabilities].
	Capabilities *Capabilities `json:"capabilities,omitempty"`
}

// Resume names a conversation that is gone on with.
type Resume struct {
	Session string `json:"session,omitempty"` // as asked for; "" is the last one there was
	Run     string `json:"run,omitempty"`     // an earlier run of it, where that is known
	Fork    bool   `json:"fork,omitempty"`    // into a session of its own
}

// Session is the data of [TypeSession].
type Session struct {
	Session  string `json:"session"`
	Previous string `json:"previous,omitempty"`
}

// StreamCounts counts something per stream.
type StreamCounts struct {
	Out int64 `json:"out"`
	Err int64 `json:"err"`
	In  int64 `json:"in"`
}

// Gap is the data of [TypeGap]: bytes of the child that are on no event.
type Gap struct {
	Frames     int64  `json:"frames"` // at least; a cut-off line counts once
	Bytes      int64  `json:"bytes"`
	Reason     string `json:"reason"` // spool_full, disk, tap_full, damaged, oversize
	FromStream string `json:"from_stream,omitempty"`
	Detail     string `json:"detail,omitempty"`
}

// Exited is the data of [TypeExited], the last event of a run.
type Exited struct {
	Code   *int   `json:"code,omitempty"`   // nil where there was no exit to see
	Signal string `json:"signal,omitempty"` // "SIGTERM", … when the child died by one
	// Forwarded are the signals that were passed on to the child, in order.
	Forwarded []Signal `json:"forwarded,omitempty"`
	// Ended says what of ours ended the child: "" nothing, kill_after_result, timeout.
	Ended string `json:"ended,omitempty"`
	// Reason says why there is no exit status: eof (tap), import, edge_died,
	// spool_damaged (there was one, and the disk lost it).
	Reason string `json:"reason,omitempty"`

	Frames     StreamCounts `json:"frames"`
	Bytes      StreamCounts `json:"bytes"`
	DurationMS int64        `json:"duration_ms"`
	// Complete is false when bytes of the child are missing from the events.
	Complete bool `json:"complete"`
	// Gap sums the gaps where Complete is false for that reason.
	Gap *Gap `json:"gap,omitempty"`

	Leftovers     int               `json:"leftovers,omitempty"` // descendants killed after the child's exit
	PipeHeld      bool              `json:"pipe_held,omitempty"` // a descendant kept stdout or stderr open
	ReaderClosed  *int64            `json:"reader_closed,omitempty"`
	StdinEOF      bool              `json:"stdin_eof,omitempty"`
	Injected      int               `json:"injected,omitempty"` // lines of ours on the child's stdin
	Oversize      int64             `json:"oversize,omitempty"` // frames that were split over events
	Masked        map[string]uint64 `json:"masked,omitempty"`   // redactions by rule
	Unknown       []string          `json:"unknown_tasks,omitempty"`
	SpoolDamage   string            `json:"spool_damage,omitempty"`
	FlushedLater  bool              `json:"flushed_later,omitempty"`
	CommandsOpen  []string          `json:"commands_open,omitempty"`
	LastEventTime *time.Time        `json:"last_event_time,omitempty"`
}

// Signal is one signal passed on to the child.
type Signal struct {
	Signal string    `json:"signal"`
	Time   time.Time `json:"time"`
	From   string    `json:"from"` // parent, command, cbcast
}

// Input is the data of [TypeInput]: a user message whose text is not captured.
type Input struct {
	Bytes   int    `json:"bytes"`
	Hash    string `json:"hash"` // keyed; equal lines have equal hashes on one host
	Type    string `json:"type"` // user, or other
	UUID    string `json:"uuid,omitempty"`
	Session string `json:"session,omitempty"`
	Request string `json:"request,omitempty"` // codex: exact text of the request's id
	Ask     string `json:"ask,omitempty"`     // that the line answers with a secret
}

// A Fact is one step of a command's life.
type Fact string

// The facts, in the order they can come.
const (
	Accepted Fact = "accepted" // the bus has it
	Written  Fact = "written"  // the line is on the child's stdin
	Acked    Fact = "acked"    // the child answered
	Settled  Fact = "settled"  // the effect was seen
	NoEffect Fact = "no_effect"
	Refused  Fact = "refused"
	Expired  Fact = "expired"
	UnknownF Fact = "unknown"
)

// Final reports whether nothing follows f.
func (f Fact) Final() bool { return f != Accepted && f != Written && f != Acked }

// CommandFact is the data of [TypeCommand] and [TypeCommandFact].
type CommandFact struct {
	Command   string `json:"command"` // the command's id
	Name      string `json:"name"`    // interrupt, stop_task
	Fact      Fact   `json:"fact"`
	Reason    string `json:"reason,omitempty"`
	RequestID string `json:"request_id,omitempty"` // of the control_request written
	Task      string `json:"task,omitempty"`
	// Detail says what was open when the line was written and how it ended.
	Detail map[string]string `json:"detail,omitempty"`
}

// Stalled is the data of [TypeStalled], a watchdog's observation.
type Stalled struct {
	// What is no_exit_after_end, silent_turn, open_ask (nobody has answered),
	// stream_closed (the agent was denied because its stdin is closed), or, of a
	// driven run, timeout or max_idle: what it is ended for.
	What    string `json:"what"`
	Seconds int    `json:"seconds"`
	Ask     string `json:"ask,omitempty"`
}

// CommandArgs is the data of a command, [TypeCmd]; which fields count depends on
// its name. The relay checks their form, the edge what the child can do with them.
type CommandArgs struct {
	Reason string `json:"reason,omitempty"` // interrupt, stop_task
	Task   string `json:"task,omitempty"`   // stop_task
	// Turn of an interrupt is "end" (default: the turn is to end, too) or "keep"
	// (only the tasks are).
	Turn string `json:"turn,omitempty"`
	// Escalate lets an interrupt climb: stop_task for what survives, SIGTERM,
	// SIGKILL of the whole tree.
	Escalate bool `json:"escalate,omitempty"`

	*Answer // answer

	// Content of a message or a steer is a string or a list of content blocks.
	Content json.RawMessage `json:"content,omitempty"`
	UUID    string          `json:"uuid,omitempty"` // of a message; the command's id where absent

	Mode  string `json:"mode,omitempty"`  // set_permission_mode
	Model string `json:"model,omitempty"` // set_model

	Checkpoint string `json:"checkpoint,omitempty"` // rewind, rewind_files: a user message's id
	Scope      string `json:"scope,omitempty"`      // rewind: what is rewound
	DryRun     bool   `json:"dry_run,omitempty"`    // rewind, rewind_files: only say what would be
}

// Decisions of an [Answer].
const (
	Allow   = "allow"
	Deny    = "deny"
	Answers = "answer" // the questions are answered
	Vendor  = "vendor" // the child's own form, as it is
)

// Answer is a decision on an ask.
type Answer struct {
	Ask      string `json:"ask"`
	Decision string `json:"decision"` // Allow, Deny, Answers, Vendor
	// Message of a denial is told to the agent.
	Message string `json:"message,omitempty"`
	// Answers are by question: its text (claude, cbc) or its id (codex). A value is
	// a string, or a list of strings where several options may be chosen.
	Answers map[string]json.RawMessage `json:"answers,omitempty"`
	// UpdatedInput replaces the tool's input; absent, the asked one is allowed
	// byte for byte.
	UpdatedInput json.RawMessage `json:"updated_input,omitempty"`
	// Interrupt ends the turn with a denial.
	Interrupt bool `json:"interrupt,omitempty"`
	// Session allows the like for the rest of the session, where the child knows that.
	Session bool `json:"session,omitempty"`
	// Vendor is the decision in the child's own form (codex: a string or an object).
	Vendor json.RawMessage `json:"vendor,omitempty"`
}

// AskClosed is the data of [TypeAsk]: an ask is open no more.
type AskClosed struct {
	Ask    string `json:"ask"`
	Reason string `json:"reason"` // see AskView.Reason
	// By is who answered: bus (a command), host, policy; "" where nobody did.
	By       string `json:"by,omitempty"`
	Decision string `json:"decision,omitempty"`
	Command  string `json:"command,omitempty"` // that decided
	// Outcome says what followed: ran, failed, denied, answered, none, unknown.
	Outcome string `json:"outcome,omitempty"`
}

// AutoDecided is the data of [TypeDecision]: a rule or a timeout of this edge's
// policy decided an ask. It is the audit fact of that decision.
type AutoDecided struct {
	Ask      string `json:"ask"`
	Tool     string `json:"tool,omitempty"`
	Decision string `json:"decision"`       // allow, deny
	Rule     string `json:"rule,omitempty"` // its name or number in the policy
	Cause    string `json:"cause"`          // rule, timeout
	Message  string `json:"message,omitempty"`
	Error    string `json:"error,omitempty"` // it could not be written; the ask stays open
}

// Capabilities is the data of [TypeCapabilities]: what a child can do, as far as
// it was seen or asked; false is "not seen". Level is A (everything), B (no
// questions, or nobody is asked for approval), C (events one way), D (text only).
type Capabilities struct {
	StructuredEvents     bool     `json:"structuredEvents"`
	BidirectionalControl bool     `json:"bidirectionalControl"`
	InteractiveQuestions bool     `json:"interactiveQuestions"`
	HumanApproval        bool     `json:"humanApproval"`
	SessionResume        bool     `json:"sessionResume"`
	Interrupt            bool     `json:"interrupt"`
	Sandbox              bool     `json:"sandbox"`
	Level                string   `json:"level"`
	Commands             []string `json:"commands,omitempty"` // that it obeys
}

// Conflict is the data of [TypeConflict]: another live run uses the session.
type Conflict struct {
	Session string `json:"session"`
	Run     string `json:"run"` // the other one
}

// Audit is the data of [TypeAudit]: who gave a command, from where, and what it
// says. There is one for each command. That of an answer is the decision on its
// ask: whoever stored it first has decided.
type Audit struct {
	Command string `json:"command"`
	Name    string `json:"name"`
	Task    string `json:"task,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Actor   string `json:"actor"` // token name; "local" is whoever holds this machine's token
	From    string `json:"from"`  // address
	// For is on whose behalf, as the token's holder says: a person of a chat
	// ("slack:T012/U345"). Only tokens with the scope delegate may say it.
	For       string    `json:"for,omitempty"`
	DeliverBy time.Time `json:"deliver_by,omitzero"`
	EffectBy  time.Time `json:"effect_by,omitzero"`
	// EdgeAlive says whether the run's edge was there when the command was given.
	EdgeAlive bool `json:"edge_alive"`
	// Args are the command's, an answer whole; the text of a message or a steer is
	// replaced by a [Digest]. Facts from before there were any have none.
	Args *CommandArgs `json:"args,omitempty"`
	// Refused says why an answer did not count: another was first, or the ask was
	// open no more. There is no such command on the bus then.
	Refused string `json:"refused,omitempty"`
}

// Digest stands for a text that is not to be kept.
type Digest struct {
	Bytes int `json:"bytes"`
	// SHA256 is of the command's id, a zero byte and the text, in hex: it tells
	// whether a command was repeated word for word, and not which commands of
	// other ids say the same.
	SHA256 string `json:"sha256"`
}

// Incompatible is the data of [TypeIncompatible]: without a host nobody could
// answer a request of the child, and it was told so.
type Incompatible struct {
	Request  string `json:"request"`       // method or subtype, as the child wrote it
	ID       string `json:"id,omitempty"`  // exact text of its id
	Answered bool   `json:"answered"`      // an error went to the child
	Why      string `json:"why,omitempty"` // nothing did
}
