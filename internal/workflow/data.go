package workflow

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what stands in data, in bytes. A longer text ends in "…" and is marked
// as truncated.
const (
	MaxSummary = 1 << 10  // of an input, an output, a message, a request
	MaxOutput  = 4 << 10  // of the output of a run
	MaxTitle   = 200      // of a name, a label, a title, a tool
	MaxDelta   = 32 << 10 // of one delta; a longer text takes several, none of it is lost
)

// Summary is a text that may be cut.
type Summary struct {
	Text      string `json:"text"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Version says what runs. ID is the envelope's versionId.
type Version struct {
	ID     string `json:"id"`
	Child  string `json:"child,omitempty"`
	Cbcast string `json:"cbcast,omitempty"`
}

// RunCreatedData is the data of [RunCreated].
type RunCreatedData struct {
	Kind    string   `json:"kind"` // run, or of a task: workflow, agent, command, task
	Run     string   `json:"run"`
	Task    string   `json:"task,omitempty"`
	Name    string   `json:"name,omitempty"`
	Input   *Summary `json:"input,omitempty"` // arguments of the child, or the task's description
	Version Version  `json:"version"`
}

// RunQueuedData is the data of [RunQueued].
type RunQueuedData struct {
	Queue Queue `json:"queue"`
}

// Queue says what is waited for.
type Queue struct {
	Reason string `json:"reason"` // pending
}

// RunStartedData is the data of [RunStarted].
type RunStartedData struct {
	StartedAt time.Time `json:"startedAt"`
}

// NodeInfo says what a node is.
type NodeInfo struct {
	Kind         string `json:"kind"` // main, workflow, agent, command, task, phase, subagent, step
	Label        string `json:"label,omitempty"`
	Phase        string `json:"phase,omitempty"`
	ParentNodeID string `json:"parentNodeId,omitempty"`
	Task         string `json:"task,omitempty"` // of a node that is a task: its own stream is <run>:<task>
	Model        string `json:"model,omitempty"`
}

// NodeQueuedData is the data of [NodeQueued].
type NodeQueuedData struct {
	Node NodeInfo `json:"node"`
}

// NodeStartedData is the data of [NodeStarted].
type NodeStartedData struct {
	Attempt   int       `json:"attempt"`
	Node      NodeInfo  `json:"node"`
	Input     *Summary  `json:"input,omitempty"`
	StartedAt time.Time `json:"startedAt"` // by the child's clock, where it tells
}

// NodeProgressData is the data of [NodeProgress].
type NodeProgressData struct {
	Phase     string `json:"phase,omitempty"`
	Message   string `json:"message,omitempty"`
	Percent   *int   `json:"percent,omitempty"` // 0 to 100, where the child tells what is to be done
	Tokens    int64  `json:"tokens,omitempty"`
	ToolCalls int64  `json:"toolCalls,omitempty"`
	// Gap, with the phase gap or reset, says that what follows does not follow on the
	// cursor. Only relays say so, and no event stands for it: synthesised is true.
	Gap         *Gap `json:"gap,omitempty"`
	Synthesised bool `json:"synthesised,omitempty"`
}

// Gap is what is missing, in seqs of envelopes.
type Gap struct {
	Asked  uint64 `json:"asked"`  // the cursor
	First  uint64 `json:"first"`  // the next envelope is this or one behind it
	Last   uint64 `json:"last"`   // the last one at this time is this or one before it
	Reason string `json:"reason"` // not_kept, beyond_head
}

// NodeOutputDeltaData is the data of [NodeOutputDelta].
type NodeOutputDeltaData struct {
	Channel string `json:"channel"` // text, plan
	Delta   string `json:"delta"`
}

// The channels.
const (
	ChannelText = "text"
	ChannelPlan = "plan"
)

// NodeToolStartedData is the data of [NodeToolStarted].
type NodeToolStartedData struct {
	ToolCallID string   `json:"toolCallId"`
	Name       string   `json:"name"`
	Input      *Summary `json:"input,omitempty"`
}

// NodeToolFinishedData is the data of [NodeToolFinished].
type NodeToolFinishedData struct {
	ToolCallID string   `json:"toolCallId"`
	Status     string   `json:"status"` // completed, failed, denied, not_reported
	Output     *Summary `json:"output,omitempty"`
}

// Artifact is a file that a task left.
type Artifact struct {
	ArtifactID string `json:"artifactId"` // <task>/out, <task>/err
	Name       string `json:"name"`
	Path       string `json:"path,omitempty"` // as the child names it, on its machine
	Stream     string `json:"stream"`         // out, err
	Task       string `json:"task"`
}

// ArtifactCreatedData is the data of [ArtifactCreated].
type ArtifactCreatedData struct {
	Artifact Artifact `json:"artifact"`
}

// NodeCompletedData is the data of [NodeCompleted].
type NodeCompletedData struct {
	Status    string   `json:"status"`   // as the child says
	Reported  bool     `json:"reported"` // false: no frame told the end, it was closed with what is around it
	Output    *Summary `json:"output,omitempty"`
	Duration  int64    `json:"duration"` // milliseconds
	Cached    bool     `json:"cached,omitempty"`
	Tokens    int64    `json:"tokens,omitempty"`
	ToolCalls int64    `json:"toolCalls,omitempty"`
}

// NodeFailedData is the data of [NodeFailed].
type NodeFailedData struct {
	Error    Error  `json:"error"`
	Status   string `json:"status"`
	Reported bool   `json:"reported"`
	Duration int64  `json:"duration"`
}

// Error is what every error of the protocol looks like.
type Error struct {
	Code      string         `json:"code"` // one of [Codes]
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	NodeID    *string        `json:"nodeId"`
	Details   map[string]any `json:"details"`
}

// Action is something that can be answered.
type Action struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	// Form is required where the object that formSchema describes must come with the
	// action, optional where only its message counts, none otherwise.
	Form string `json:"form"`
}

// RunAwaitingInputData is the data of [RunAwaitingInput].
type RunAwaitingInputData struct {
	AskID   string   `json:"askId"`
	Class   string   `json:"class"` // approval, question
	Kind    string   `json:"kind"`
	Tool    string   `json:"tool,omitempty"`
	Task    string   `json:"task,omitempty"`
	Title   string   `json:"title,omitempty"`
	Message string   `json:"message,omitempty"`
	Request *Summary `json:"request,omitempty"` // what is to be allowed
	// FormSchema is a JSON Schema (2020-12) of an object.
	FormSchema  json.RawMessage `json:"formSchema"`
	Actions     []Action        `json:"actions"`
	ResumeToken string          `json:"resumeToken,omitempty"`
	Pending     int             `json:"pending"` // asks that are open, this one among them
}

// RunResumedData is the data of [RunResumed].
type RunResumedData struct {
	AskID   string `json:"askId"`
	Action  string `json:"action"` // allow, deny, answer, vendor, error; or why nobody answered: withdrawn, cleared, expired
	By      string `json:"by,omitempty"`
	Pending int    `json:"pending"` // asks that are still open
	// Synthesised is true where a relay says that a run that was lost goes on: the
	// action is edge_returned, askId empty.
	Synthesised bool `json:"synthesised,omitempty"`
}

// RunCancelRequestedData is the data of [RunCancelRequested].
type RunCancelRequestedData struct {
	// RequestedBy is command (from the bus), host, signal, or unknown: the agent
	// stopped its own task, a denial ended the turn, or a signal that is on record
	// only with the exit.
	RequestedBy string `json:"requestedBy"`
	What        string `json:"what"` // interrupt, stop_task, stop, or the signal
	RequestID   string `json:"requestId,omitempty"`
}

// RunCancelledData is the data of [RunCancelled].
type RunCancelledData struct {
	FinishedAt  time.Time `json:"finishedAt"`
	Status      string    `json:"status"` // the verdict of the run, the status of the task
	Reported    bool      `json:"reported"`
	Synthesised bool      `json:"synthesised,omitempty"`
}

// RunCompletedData is the data of [RunCompleted].
type RunCompletedData struct {
	FinishedAt  time.Time       `json:"finishedAt"`
	Status      string          `json:"status"`
	Reported    bool            `json:"reported"`
	Output      *Summary        `json:"output,omitempty"`
	Structured  json.RawMessage `json:"structured,omitempty"`
	Artifacts   []Artifact      `json:"artifacts"`
	Synthesised bool            `json:"synthesised,omitempty"`
}

// RunFailedData is the data of [RunFailed].
type RunFailedData struct {
	FinishedAt   time.Time `json:"finishedAt"`
	Status       string    `json:"status"`
	Reported     bool      `json:"reported"`
	Error        Error     `json:"error"`
	FailedNodeID *string   `json:"failedNodeId"`
	Synthesised  bool      `json:"synthesised,omitempty"`
}

// Codes of the errors in node.failed and run.failed.
const (
	CodeRunFailed       = "WORKFLOW_RUN_FAILED"        // an error result, an API failure, an exit that nothing explains
	CodeRunDenied       = "WORKFLOW_RUN_DENIED"        // permission was refused
	CodeRunIncomplete   = "WORKFLOW_RUN_INCOMPLETE"    // something was open when the child ended, or a task failed
	CodeRunLost         = "WORKFLOW_RUN_LOST"          // no word from the run's edge
	CodeNotMappable     = "WORKFLOW_NOT_MAPPABLE"      // an event has more to say than seqs can number
	CodeNodeFailed      = "WORKFLOW_NODE_FAILED"       // the child says that it failed
	CodeNodeStopped     = "WORKFLOW_NODE_STOPPED"      // it was stopped, killed or interrupted
	CodeNodeNotReported = "WORKFLOW_NODE_NOT_REPORTED" // it was open at the end, and nothing tells what came of it
)

// Codes lists all of them.
var Codes = []string{
	CodeRunFailed, CodeRunDenied, CodeRunIncomplete, CodeRunLost, CodeNotMappable, CodeNodeFailed, CodeNodeStopped, CodeNodeNotReported,
}

func newError(code, message, node string) Error {
	e := Error{Code: code, Message: clip(message, MaxSummary), Details: map[string]any{}}
	e.Retryable = code == CodeRunIncomplete || code == CodeRunLost
	if e.Message == "" {
		e.Message = messages[code]
	}
	if node != "" {
		e.NodeID = &node
	}
	return e
}

// messages stand where the child has no words of its own.
var messages = map[string]string{
	CodeRunFailed:       "the run failed",
	CodeRunDenied:       "permission was refused",
	CodeRunIncomplete:   "something was not done when the run ended",
	CodeRunLost:         "there is no word from the run's edge",
	CodeNotMappable:     "an event has more to say than the protocol can number",
	CodeNodeFailed:      "the node failed",
	CodeNodeStopped:     "the node was stopped",
	CodeNodeNotReported: "nothing tells what became of the node",
}

// summary is a text of at most n bytes, nil for none.
func summary(text string, n int) *Summary {
	if text == "" {
		return nil
	}
	return &Summary{Text: clip(text, n), Truncated: len(text) > n}
}

// clip cuts a text to n bytes and "…", and never inside a rune.
func clip(t string, n int) string {
	if len(t) > n {
		for n > 0 && !utf8.RuneStart(t[n]) {
			n--
		}
		t = t[:n] + "…"
	}
	return strings.ToValidUTF8(t, "\ufffd")
}

// pieces cuts a text for deltas, never inside a rune.
func pieces(t string) (list []string) {
	for len(t) > MaxDelta {
		n := MaxDelta
		for n > MaxDelta-utf8.UTFMax && !utf8.RuneStart(t[n]) {
			n--
		}
		list, t = append(list, t[:n]), t[n:]
	}
	return append(list, t)
}

// argv is the child's command line, as its edge has masked it.
func argv(args []string) *Summary { return summary(strings.Join(args, " "), MaxSummary) }
