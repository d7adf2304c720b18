package workflow

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// ErrTooMany is returned where one event needs more than [MaxIndex] envelopes.
var ErrTooMany = errors.New("an event needs more envelopes than its range of seqs has")

// Bounds of what a [Mapper] remembers.
const (
	maxNodes     = 2048 // open at once; further ones are not mapped
	maxTools     = 1024 // open at once; further ones are not mapped
	maxOver      = 4096 // tasks and sub-agents that have ended, the oldest is forgotten
	maxStreamed  = 256  // messages whose text came in deltas
	maxArtifacts = 64   // listed in run.completed
	maxSessions  = 64   // conversations whose request is known
)

// A Mapper maps the events of one run to the envelopes of one stream. It is not
// safe for concurrent use.
type Mapper struct {
	// Token gives the resumeToken of an ask; nil leaves it out, as views do. It must
	// give the same one for the same ask. Set it before the first Apply.
	Token func(ask string) string

	id    ID
	name  string // id as text
	state *run.State
	join  event.Joiner
	last  uint64 // seq of the last event
	part  int    // its last part

	workflow, version string // of the envelopes
	created, started  bool
	status            string // once it is over
	over              bool
	err               error

	rounds     map[string]*node // of the main loop, by session
	tasks      map[string]*task
	taskOrder  []string                // of tasks, as first seen
	subs       map[string]*node        // sub-agents that are no tasks, by call
	subsOver   set                     // calls of those that have ended
	steps      map[int64]*node         // of the latest plan of Codex
	scripts    map[string]string       // hashes of workflow scripts, by call
	tools      map[string]*tool        // open ones, by key
	open       []*node                 // as they were opened
	attempts   map[string]int          // of the nodes of the main loop
	asked      []*asked                // asks that were told and are open
	streamed   set                     // messages whose text came in deltas
	message    map[string]string       // the one that streams, by session and call
	request    map[string]string       // of CodeBuddy: the request that a session works on
	artifacts  []Artifact              // of the whole stream
	failed     string                  // the node that failed last
	told       uint64                  // seq of the last result that ended a node
	cancel     *cancel                 // an interrupt that is not settled
	cancelTold bool                    // run.cancel_requested was told
	stopped    *RunCancelRequestedData // of a run: a task was told to stop
	out        []Envelope              // of the event in hand
	seq, index uint64                  // its seq, and the place of the last envelope in its range
	at         time.Time               // its time
	full       bool                    // out has no more room
}

// New returns a mapper that has seen nothing.
func New(id ID) *Mapper {
	return &Mapper{
		id: id, name: id.String(), state: run.New(id.Run), version: unknown, workflow: string(dialect.Unknown),
		rounds: map[string]*node{}, tasks: map[string]*task{}, subs: map[string]*node{}, subsOver: set{max: maxOver},
		scripts: map[string]string{}, tools: map[string]*tool{}, steps: map[int64]*node{}, attempts: map[string]int{},
		streamed: set{max: maxStreamed}, message: map[string]string{}, request: map[string]string{},
	}
}

// unknown is the version of a child that has not named one.
const unknown = "unknown"

// Apply maps one event. Events come whole or in chunks, in the order of their seq,
// from the first that is kept on. Facts outside the sequence (seq 0), events that
// were applied before and all that follows the end of the stream map to nothing.
// After [ErrTooMany] nothing is mapped any more, and each Apply returns it.
func (m *Mapper) Apply(e *event.Event) ([]Envelope, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case e.Seq == 0, m.over, e.Seq < m.last, e.Seq == m.last && e.Part.I <= m.part:
		return nil, nil
	case e.Seq > math.MaxUint64/Step:
		m.err = fmt.Errorf("event %d: %w", e.Seq, ErrTooMany)
		return nil, m.err
	}
	m.last, m.part = e.Seq, e.Part.I
	m.out = nil
	whole, _, broken := m.join.Add(e)
	for _, e := range []*event.Event{broken, whole} {
		if e != nil && !m.over {
			m.apply(e)
		}
		if m.full {
			m.err = fmt.Errorf("event %d: %w", e.Seq, ErrTooMany)
			return nil, m.err
		}
	}
	out := m.out
	m.out = nil
	return out, nil
}

// apply maps one whole event.
func (m *Mapper) apply(e *event.Event) {
	repeats := m.state.Repeats()
	var f *dialect.Frame
	if e.ContentType == event.JSON && (e.Stream == event.Out || e.Stream == event.In) {
		if p, ok := dialect.Parse(e.Data); ok {
			f = &p
		}
	}
	if f != nil {
		m.state.ApplyParsed(e, f)
	} else {
		m.state.Apply(e)
	}
	m.begin(e)
	m.startRounds()
	if isDelta(e) {
		m.deltas(e)
	} else {
		m.startTasks(e, f)
		if e.Stream == event.Out && f != nil {
			m.content(e, f, m.state.Repeats() > repeats)
		}
		if e.Stream == event.In {
			m.cancelAsked(e)
		}
		m.asks()
		m.endRounds(e)
	}
	m.endTasks(e, f)
	m.settleCancel()
	m.end(e)
}

// begin notes where the event stands, and that the run has begun.
func (m *Mapper) begin(e *event.Event) {
	if m.seq != e.Seq {
		m.seq, m.index = e.Seq, 0
	}
	if !e.Time.IsZero() {
		m.at = e.Time.UTC()
		if y := m.at.Year(); y < 1 || y > 9999 {
			m.at = time.Time{}
		}
	}
	if m.id.Task != "" {
		return
	}
	m.workflow = string(m.state.Dialect())
	if v := m.state.ChildVersion(); v != "" {
		m.version = clip(v, MaxTitle)
	}
	if !m.created {
		m.created = true
		d := m.state.Started()
		m.emit(RunCreated, nil, RunCreatedData{
			Kind: "run", Run: m.id.Run, Input: argv(d.Argv), Version: m.versions(),
		})
	}
	if !m.started && m.state.Phase() != "starting" {
		m.start()
	}
}

// start tells that the run, or the task, works.
func (m *Mapper) start() {
	m.started = true
	m.emit(RunStarted, nil, RunStartedData{StartedAt: m.at})
}

func (m *Mapper) versions() Version {
	return Version{ID: m.version, Child: clip(m.state.ChildVersion(), MaxTitle), Cbcast: clip(m.state.Started().Version, MaxTitle)}
}

// emit adds an envelope. n is nil for what is of the run.
func (m *Mapper) emit(ev Event, n *node, data any) {
	if m.index == MaxIndex {
		m.full = true
		return
	}
	m.index++
	v := m.envelope(ev, data)
	v.Seq = m.seq*Step + m.index
	if n != nil {
		v.NodeID, v.NodeRunID = n.id, n.runID
	}
	m.out = append(m.out, v)
}

func (m *Mapper) envelope(ev Event, data any) Envelope {
	return Envelope{
		SchemaVersion: SchemaVersion, RunID: m.name, WorkflowID: m.workflow, VersionID: m.version,
		Event: ev, Timestamp: m.at, Data: encode(data),
	}
}

// mine reports whether the stream is about what belongs to a task, "" being the
// run itself.
func (m *Mapper) mine(task string) bool { return m.id.Task == "" || m.id.Task == task }

// Status is the stream's status so far, one of [Statuses].
func (m *Mapper) Status() string {
	switch {
	case m.over && m.status != "":
		return m.status
	case len(m.asked) > 0:
		return StatusAwaitingInput
	case m.cancel != nil:
		return StatusCancelling
	case m.started:
		return StatusRunning
	case m.id.Task != "" && m.created:
		return StatusQueued
	}
	return StatusCreated
}

// Over reports whether the stream has ended: with the run's exit, or the task's end.
func (m *Mapper) Over() bool { return m.over }

// Known reports whether what the ID names was seen: any event of the run, or the
// task.
func (m *Mapper) Known() bool { return m.created }
