package relay

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/workflow"
)

// A WorkflowView is the body of GET /api/workflows/runs/{id}: where the run, or the
// task, stands. Who may see it may not go on with it: no resumeToken is in it.
type WorkflowView struct {
	SchemaVersion string     `json:"schemaVersion"`
	RunID         string     `json:"runId"`
	WorkflowID    string     `json:"workflowId"`
	VersionID     string     `json:"versionId"`
	Status        string     `json:"status"`
	Alive         bool       `json:"alive"`       // the run's edge is there
	Provisional   bool       `json:"provisional"` // the status is that of a lost run
	Seq           uint64     `json:"seq"`         // of the last event; a stream goes on from it
	CreatedAt     *time.Time `json:"createdAt"`
	StartedAt     *time.Time `json:"startedAt"`
	UpdatedAt     *time.Time `json:"updatedAt"`
	FinishedAt    *time.Time `json:"finishedAt"`
	// Awaiting are the data of the run.awaiting_input events that nobody has
	// answered, without resumeToken.
	Awaiting  []json.RawMessage `json:"awaiting"`
	Nodes     []WorkflowNode    `json:"nodes"` // in the order they came, at most 2048: the oldest go first
	Artifacts []json.RawMessage `json:"artifacts"`
	// Result is the data of the terminal event, null before it.
	Result json.RawMessage `json:"result"`
}

// A WorkflowNode is one run of a node.
type WorkflowNode struct {
	NodeID     string          `json:"nodeId"`
	NodeRunID  string          `json:"nodeRunId"`
	Status     string          `json:"status"` // queued, running, completed, failed
	StartedAt  *time.Time      `json:"startedAt"`
	FinishedAt *time.Time      `json:"finishedAt"`
	Data       json.RawMessage `json:"data"` // of its last event that is no tool's and no delta
}

const maxNodes, maxArtifacts, maxAwaiting = 2048, 256, 64

// A viewer keeps what a view shows, as the envelopes say it.
type viewer struct {
	status string
	known  bool // the run has what the id names

	doc      WorkflowView
	nodes    map[string]*WorkflowNode // by nodeRunId
	order    []*WorkflowNode
	awaiting []waits
}

type waits struct {
	ask  string
	data json.RawMessage
}

func (v *viewer) take(e *workflow.Envelope) {
	at := e.Timestamp
	d := &v.doc
	d.WorkflowID, d.VersionID, d.Seq, d.UpdatedAt = e.WorkflowID, e.VersionID, e.Seq, &at
	if d.CreatedAt == nil {
		d.CreatedAt = &at
	}
	switch e.Event {
	case workflow.RunStarted:
		d.StartedAt = cmp.Or(d.StartedAt, &at)
	case workflow.RunAwaitingInput:
		v.waits(e)
	case workflow.RunResumed:
		v.resumed(e)
	case workflow.RunCompleted, workflow.RunFailed, workflow.RunCancelled:
		d.FinishedAt, d.Result, v.awaiting = &at, e.Data, nil
	case workflow.ArtifactCreated:
		if len(d.Artifacts) == maxArtifacts {
			d.Artifacts = d.Artifacts[1:]
		}
		d.Artifacts = append(d.Artifacts, e.Data)
	case workflow.NodeQueued, workflow.NodeStarted, workflow.NodeProgress, workflow.NodeCompleted, workflow.NodeFailed:
		v.node(e, at)
	default: // the rest changes nothing that is shown
	}
}

func (v *viewer) node(e *workflow.Envelope, at time.Time) {
	id := cmp.Or(e.NodeRunID, e.NodeID)
	if id == "" {
		return
	}
	n := v.nodes[id]
	if n == nil {
		if v.nodes == nil {
			v.nodes = map[string]*WorkflowNode{}
		}
		if len(v.order) == maxNodes {
			delete(v.nodes, cmp.Or(v.order[0].NodeRunID, v.order[0].NodeID))
			v.order = v.order[1:]
		}
		n = &WorkflowNode{NodeID: e.NodeID, NodeRunID: e.NodeRunID, Status: "queued"}
		v.nodes[id] = n
		v.order = append(v.order, n)
	}
	n.Data = e.Data
	switch e.Event {
	case workflow.NodeStarted, workflow.NodeProgress:
		n.Status, n.StartedAt = "running", cmp.Or(n.StartedAt, &at)
	case workflow.NodeCompleted:
		n.Status, n.FinishedAt = "completed", &at
	case workflow.NodeFailed:
		n.Status, n.FinishedAt = "failed", &at
	default:
	}
}

// waits notes what is waited for, without the right to answer it.
func (v *viewer) waits(e *workflow.Envelope) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Data, &fields) != nil || len(v.awaiting) == maxAwaiting {
		return
	}
	delete(fields, "resumeToken")
	v.awaiting = append(v.awaiting, waits{askIn(e), mustJSON(fields)})
}

// resumed takes away what was answered: the ask that the event names, else all.
func (v *viewer) resumed(e *workflow.Envelope) {
	ask := askIn(e)
	var left []waits
	for _, w := range v.awaiting {
		if ask != "" && w.ask != ask {
			left = append(left, w)
		}
	}
	v.awaiting = left
}

func askIn(e *workflow.Envelope) string {
	var d struct {
		Ask string `json:"askId"`
	}
	_ = json.Unmarshal(e.Data, &d) // then it names none
	return d.Ask
}

func (r *Relay) showWorkflow(w http.ResponseWriter, q *http.Request) *apiErr {
	l, _, aerr := r.lineOf(q, allOfIt)
	if aerr != nil {
		return aerr
	}
	defer r.lines.leave(l)
	st := l.standing()
	if st.failed {
		return errUnmappable()
	}
	d := l.workflowView()
	d.Status, d.Alive = st.status, r.reg.alive(l.ref.Run)
	if st.lost != nil {
		d.Provisional, d.FinishedAt = true, &st.lost.Time
		d.Result = st.told.lost(0, st.lost).Data
	}
	w.Header().Set(StatusHeader, st.status)
	writeJSON(w, http.StatusOK, d)
	return nil
}

func (l *line) workflowView() WorkflowView {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.view.doc
	d.SchemaVersion, d.RunID = workflow.SchemaVersion, l.id.String()
	d.Awaiting, d.Nodes = []json.RawMessage{}, []WorkflowNode{}
	for _, w := range l.view.awaiting {
		d.Awaiting = append(d.Awaiting, w.data)
	}
	for _, n := range l.view.order {
		d.Nodes = append(d.Nodes, *n)
	}
	d.Artifacts = append([]json.RawMessage{}, d.Artifacts...)
	return d
}
