// Package event is what travels on the bus: one immutable fact of a run, a
// valid CloudEvent in binary mode. It converts between [Event], the attribute
// list of the CloudEvents NATS binding, the compact form the spool keeps, and
// CloudEvents JSON. It knows no transport.
package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind is the routing class of an event, the last token of its subject. The
// set is closed; the exact type is Event.Type.
type Kind string

// The kinds. See subjects.md for what belongs to each.
const (
	Life Kind = "life" // started, session named, exited, gap
	Msg  Kind = "msg"  // assistant, user, stream_event and other conversation frames
	Task Kind = "task" // task_started, task_progress, task_updated that is not terminal
	End  Kind = "end"  // a task's terminal, a result
	Ask  Kind = "ask"  // asked, withdrawn, closed
	Cmd  Kind = "cmd"  // facts about a command
	Raw  Kind = "raw"  // stderr, text that is no frame, a cut tail
)

// Kinds lists every kind, in the order of the constants.
var Kinds = []Kind{Life, Msg, Task, End, Ask, Cmd, Raw}

// Stream says where an event's bytes came from.
type Stream string

// The streams. Edge marks facts that cbcast states itself.
const (
	Out  Stream = "out"
	Err  Stream = "err"
	In   Stream = "in"
	Edge Stream = "edge"
)

// TypePrefix begins every ce-type.
const TypePrefix = "dev.cbcast."

// The types of the facts that an edge, a flusher or a relay states. Their data
// is JSON, described in subjects.md.
const (
	TypeStarted      = TypePrefix + "edge.started" // life: the child runs; [Started]
	TypeSession      = TypePrefix + "edge.session" // life: the run's main session is known
	TypeExited       = TypePrefix + "edge.exited"  // life: the child is gone, the last event of a run
	TypeGap          = TypePrefix + "edge.gap"     // life: bytes that could not be kept
	TypeInput        = TypePrefix + "edge.input"   // msg: a line went to the child's stdin whose text is not captured
	TypeStalled      = TypePrefix + "edge.stalled" // life: a watchdog's fact
	TypeConflict     = TypePrefix + "edge.session_conflict"
	TypeIncompatible = TypePrefix + "edge.incompatible"
	TypeCapabilities = TypePrefix + "edge.capabilities" // life: more is known of what the child can do; [Capabilities]
	TypeOutput       = TypePrefix + "edge.output"       // raw: what a task left in a file, or why it is not there
	TypeCommand      = TypePrefix + "edge.command"      // cmd: one fact of a command's life
	TypeAsk          = TypePrefix + "edge.ask"          // ask: an ask was closed; [AskClosed]
	TypeDecision     = TypePrefix + "edge.decision"     // ask: the edge's policy decided; [AutoDecided]
	TypeLost         = TypePrefix + "relay.lost"        // CTL: the edge's presence is gone; provisional terminal
	TypeResumed      = TypePrefix + "relay.resumed"     // CTL: the edge or its spool spoke again
	TypeCommandFact  = TypePrefix + "relay.command"     // CTL: a command's fact without a living edge
	TypeAudit        = TypePrefix + "relay.audit"       // CTL: who gave a command, from where
	TypeCmd          = TypePrefix + "command"           // CMD: the command itself
)

// Part is a position "i of n", 1-based. The zero Part means whole.
type Part struct{ I, N int }

// IsZero reports whether p means whole.
func (p Part) IsZero() bool { return p.N == 0 }

func (p Part) String() string { return strconv.Itoa(p.I) + "/" + strconv.Itoa(p.N) }

func parsePart(s string) (Part, error) {
	i, n, ok := strings.Cut(s, "/")
	pi, err1 := strconv.Atoi(i)
	pn, err2 := strconv.Atoi(n)
	if !ok || err1 != nil || err2 != nil || pi < 1 || pn < pi {
		return Part{}, fmt.Errorf("part %q is not i/n", s)
	}
	return Part{pi, pn}, nil
}

// A Span names bytes that were masked: Len bytes at Off of the published data
// stand for RawLen bytes of the child's. Off counts from the start of the
// whole frame, also where it is split over several events.
type Span struct {
	Rule             string // [a-z0-9_]
	Off, Len, RawLen int
}

// MaskBegins begins what stands for masked bytes; the rule and "]" follow.
const MaskBegins = "[redacted:"

// Event is one fact of a run. Data is never re-encoded: for a frame it is the
// child's bytes without the LF that ended it.
type Event struct {
	Tenant string
	Run    string
	Seq    uint64 // 1, 2, 3 … within the run; 0 for facts outside it (CMD, CTL)
	Ref    string // names a fact outside the sequence within its run; "" where Seq is set
	Time   time.Time
	Type   string // ce-type
	Kind   Kind
	Stream Stream

	Session string // "" is unknown
	Task    string // "" is none
	Parent  string // tool_use id of the call that a sub-agent's frame belongs to

	ContentType string // of Data; "" is application/octet-stream
	Chunk       Part   // of a frame split over events, each with its own Seq
	Part        Part   // of an event split over messages, all with one Seq
	Cut         bool   // no LF followed: a tail at EOF, or a piece of a line too long to be a frame

	TraceParent string
	Redacted    []Span // of the whole frame; on its first chunk only
	RawLen      int    // bytes before masking; 0 where nothing was masked
	RawHash     string // keyed hash of the bytes before masking

	// Ext holds further CloudEvents extensions (CI labels, notes). Names are
	// 1 to 20 of [a-z0-9] and none of those this package writes itself.
	Ext map[string]string

	Data []byte
}

// ID is the event's CloudEvents id: run, "/", seq. It is
// unique over all streams and the same however often it is sent.
func (e *Event) ID() string {
	if e.Seq == 0 {
		return e.Run + "/" + e.Ref
	}
	id := e.Run + "/" + strconv.FormatUint(e.Seq, 10)
	if e.Part.N > 1 {
		id += "." + strconv.Itoa(e.Part.I)
	}
	return id
}

// Source is the event's CloudEvents source.
func (e *Event) Source() string { return "/cbcast/" + e.Tenant + "/" + e.Run }

// Complete reports whether the frame that e belongs to ends with e.
func (e *Event) Complete() bool {
	return (e.Chunk.N == 0 || e.Chunk.I == e.Chunk.N) && (e.Part.N == 0 || e.Part.I == e.Part.N)
}
