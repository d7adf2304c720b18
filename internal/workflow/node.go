package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is one run of a node: from its start, or from when it is known to wait for
// its turn, to its end.
type node struct {
	id, runID string
	attempt   int
	info      NodeInfo
	task      string // that it belongs to, "" is the main loop
	round     *node  // that it ends with, nil for none
	isStarted bool
	at        time.Time // of its start, by the event
	tools     []string  // keys of its open ones, as they began

	call  string // that a sub-agent works for
	first uint64 // of a round: seq of its first frame
	turn  int    // of a round: the user turn it belongs to
	done  bool   // of a step
	last  NodeProgressData
}

// tool is a call that has begun.
type tool struct {
	node *node
	id   string // as the child names it
}

// newNode makes a run of a node, attempt being 1 for the first.
func newNode(id string, attempt int, info NodeInfo, task string) *node {
	info.Label, info.Phase, info.Model = clip(info.Label, MaxTitle), clip(info.Phase, MaxTitle), clip(info.Model, MaxTitle)
	return &node{id: id, runID: id + "@" + strconv.Itoa(attempt), attempt: attempt, info: info, task: task}
}

// admit adds a node to the open ones, if there is room.
func (m *Mapper) admit(n *node) bool {
	if len(m.open) >= maxNodes {
		return false
	}
	m.open = append(m.open, n)
	return true
}

// queue tells that a node waits for its turn.
func (m *Mapper) queue(n *node) bool {
	if !m.admit(n) {
		return false
	}
	m.emit(NodeQueued, n, NodeQueuedData{Node: n.info})
	return true
}

// startNode tells that a node works. childMS is when it began by the child's clock,
// 0 where it does not tell.
func (m *Mapper) startNode(n *node, input *Summary, childMS int64) bool {
	if !slices.Contains(m.open, n) && !m.admit(n) {
		return false
	}
	n.isStarted, n.at = true, m.at
	m.emit(NodeStarted, n, NodeStartedData{Attempt: n.attempt, Node: n.info, Input: input, StartedAt: millis(childMS, m.at)})
	return true
}

// millis is a child's time, or the event's where that is none that can be written.
func millis(ms int64, at time.Time) time.Time {
	if ms <= 0 {
		return at
	}
	if t := time.UnixMilli(ms).UTC(); t.Year() >= 1970 && t.Year() <= 9999 {
		return t
	}
	return at
}

// ending is how a node ends.
type ending struct {
	status   string // as the child says, or as what is around it ended
	reported bool
	code     string // "" is completed
	message  string // of an error
	output   string
	duration int64 // milliseconds, 0 where it follows from the events
	cached   bool
	tokens   int64
	calls    int64
}

// closeNode ends a node that is open, and the tools that it left open.
func (m *Mapper) closeNode(n *node, how ending) {
	i := slices.Index(m.open, n)
	if i < 0 {
		return
	}
	for _, key := range n.tools {
		m.emit(NodeToolFinished, n, NodeToolFinishedData{ToolCallID: m.tools[key].id, Status: toolNotReported})
		delete(m.tools, key)
	}
	n.tools = nil
	if n.call != "" {
		delete(m.subs, n.call)
		m.subsOver.add(n.call)
	}
	m.open = slices.Delete(m.open, i, i+1)
	if how.duration <= 0 && n.isStarted {
		how.duration = max(0, m.at.Sub(n.at).Milliseconds())
	}
	if how.code == "" {
		if m.failed == n.id || strings.HasPrefix(m.failed, n.id+"/") {
			m.failed = "" // what failed inside has not kept it from its end
		}
		m.emit(NodeCompleted, n, NodeCompletedData{
			Status: how.status, Reported: how.reported, Output: summary(how.output, MaxSummary), Duration: how.duration,
			Cached: how.cached, Tokens: max(0, how.tokens), ToolCalls: max(0, how.calls),
		})
		return
	}
	if how.reported || m.failed == "" {
		m.failed = n.id
	}
	m.emit(NodeFailed, n, NodeFailedData{
		Error: newError(how.code, how.message, n.id), Status: how.status, Reported: how.reported, Duration: how.duration,
	})
}

// closeAll ends every open node that is among which, the youngest first: what is
// inside another ends before it.
func (m *Mapper) closeAll(which func(*node) bool, how ending) {
	for _, n := range slices.Backward(slices.Clone(m.open)) {
		if which(n) {
			m.closeNode(n, how)
		}
	}
}

// progress tells what changed about a node that works.
func (m *Mapper) progress(n *node, d NodeProgressData) {
	d.Message, d.Phase = clip(d.Message, MaxTitle), clip(d.Phase, MaxTitle)
	d.Tokens, d.ToolCalls = max(0, d.Tokens), max(0, d.ToolCalls)
	if same(n.last, d) || !n.isStarted {
		return
	}
	n.last = d
	m.emit(NodeProgress, n, d)
}

func same(a, b NodeProgressData) bool {
	if (a.Percent == nil) != (b.Percent == nil) || a.Percent != nil && *a.Percent != *b.Percent {
		return false
	}
	a.Percent, b.Percent = nil, nil
	return a == b
}

// status says what a status of a task means for a node: "" for completed, else the
// code of its error.
func statusCode(status string) string {
	switch status {
	case "completed", "done", "cached", "ended", "not_reported", "success":
		return ""
	case "killed", "stopped", "cancelled", "canceled", "interrupted":
		return CodeNodeStopped
	case "failed", "error", "denied":
		return CodeNodeFailed
	}
	return CodeNodeNotReported
}

// encode writes data as JSON on one line.
func encode(data any) json.RawMessage {
	if d, ok := data.(NodeOutputDeltaData); ok { // by far the most, and of two texts
		b := appendString([]byte(`{"channel":`), d.Channel)
		return append(appendString(append(b, `,"delta":`...), d.Delta), '}')
	}
	b, err := json.Marshal(data)
	if err != nil { // times are in range and raw members valid, so that it always marshals
		panic(err)
	}
	return b
}
