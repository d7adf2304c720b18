package workflow

import (
	"encoding/json"
	"strconv"
	"time"
)

// SchemaVersion is the version of the protocol, on every envelope.
const SchemaVersion = "1.0"

// How seqs are made: that of the event × Step + an index from 1 to MaxIndex.
const (
	Step     = 4096
	MaxIndex = Step - 1
)

// Event is the name of a workflow event. The set is closed.
type Event string

// The events.
const (
	RunCreated         Event = "run.created"
	RunQueued          Event = "run.queued"
	RunStarted         Event = "run.started"
	NodeQueued         Event = "node.queued"
	NodeStarted        Event = "node.started"
	NodeProgress       Event = "node.progress"
	NodeOutputDelta    Event = "node.output.delta"
	NodeToolStarted    Event = "node.tool.started"
	NodeToolFinished   Event = "node.tool.finished"
	ArtifactCreated    Event = "artifact.created"
	NodeCompleted      Event = "node.completed"
	NodeFailed         Event = "node.failed"
	RunAwaitingInput   Event = "run.awaiting_input"
	RunResumed         Event = "run.resumed"
	RunCancelRequested Event = "run.cancel_requested"
	RunCancelled       Event = "run.cancelled"
	RunCompleted       Event = "run.completed"
	RunFailed          Event = "run.failed"
)

// Events lists all events in the order of the protocol's table.
var Events = []Event{
	RunCreated, RunQueued, RunStarted, NodeQueued, NodeStarted, NodeProgress, NodeOutputDelta, NodeToolStarted,
	NodeToolFinished, ArtifactCreated, NodeCompleted, NodeFailed, RunAwaitingInput, RunResumed, RunCancelRequested,
	RunCancelled, RunCompleted, RunFailed,
}

// Terminal reports whether nothing follows e in its stream.
func (e Event) Terminal() bool { return e == RunCompleted || e == RunFailed || e == RunCancelled }

// Statuses of a run or a task, as the header X-Workflow-Run-Status has them.
const (
	StatusCreated       = "created"
	StatusQueued        = "queued"
	StatusRunning       = "running"
	StatusAwaitingInput = "awaiting_input"
	StatusCancelling    = "cancelling"
	StatusCompleted     = "completed"
	StatusFailed        = "failed"
	StatusCancelled     = "cancelled"
)

// Statuses lists all statuses.
var Statuses = []string{
	StatusCreated, StatusQueued, StatusRunning, StatusAwaitingInput, StatusCancelling, StatusCompleted, StatusFailed, StatusCancelled,
}

// Envelope is one workflow event. Data is a JSON object on one line, whose form
// depends on Event: see the type of that name with "Data" behind it.
type Envelope struct {
	SchemaVersion string
	RunID         string // the stream's [ID]
	WorkflowID    string
	VersionID     string
	Seq           uint64 // of an envelope that is stored nowhere one behind the cursor
	Event         Event
	NodeID        string // "" is none: null
	NodeRunID     string // "" is none: null
	Timestamp     time.Time
	Data          json.RawMessage
}

// AppendJSON appends the envelope as JSON on one line, its members in the order of
// the protocol. No text of a child can end the line.
func (v *Envelope) AppendJSON(dst []byte) []byte {
	dst = appendMember(append(dst, '{'), "schemaVersion", v.SchemaVersion)
	dst = appendMember(append(dst, ','), "runId", v.RunID)
	dst = appendMember(append(dst, ','), "workflowId", v.WorkflowID)
	dst = appendMember(append(dst, ','), "versionId", v.VersionID)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), v.Seq, 10)
	dst = appendMember(append(dst, ','), "event", string(v.Event))
	dst = appendOptional(append(dst, ','), "nodeId", v.NodeID)
	dst = appendOptional(append(dst, ','), "nodeRunId", v.NodeRunID)
	dst = append(dst, `,"timestamp":"`...)
	dst = v.Timestamp.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","data":`...)
	if len(v.Data) == 0 {
		return append(dst, "{}}"...)
	}
	return append(append(dst, v.Data...), '}')
}

// MarshalJSON is [Envelope.AppendJSON].
func (v Envelope) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// UnmarshalJSON reads what [Envelope.AppendJSON] writes.
func (v *Envelope) UnmarshalJSON(b []byte) error {
	var w struct {
		SchemaVersion string          `json:"schemaVersion"`
		RunID         string          `json:"runId"`
		WorkflowID    string          `json:"workflowId"`
		VersionID     string          `json:"versionId"`
		Seq           uint64          `json:"seq"`
		Event         Event           `json:"event"`
		NodeID        string          `json:"nodeId"`
		NodeRunID     string          `json:"nodeRunId"`
		Timestamp     time.Time       `json:"timestamp"`
		Data          json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*v = Envelope(w)
	return nil
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, '"'), name...), `":`...)
	return appendString(dst, value)
}

func appendOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return append(append(append(dst, '"'), name...), `":null`...)
	}
	return appendMember(dst, name, value)
}

// appendString appends a JSON string. Plain ASCII is copied, all else is left to
// encoding/json.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			b, err := json.Marshal(s)
			if err != nil { // a string always marshals
				panic(err)
			}
			return append(dst, b...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
