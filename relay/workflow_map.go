package relay

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/workflow"
)

// span is how many seqs of envelopes each event of the run has; index 0 is none.
const span = workflow.Step

// A mapping turns the events of a run, fed one by one in order from the first one
// kept, into the envelopes of the workflow protocol. It remembers what the mapper
// does, whose size the fold's bounds hold.
type mapping struct {
	mapper *workflow.Mapper
	head   uint64 // seq of the last event fed
	part   event.Part
	last   uint64 // position of the last item
}

// An item is an envelope, or a hole before the next one.
type item struct {
	pos  uint64 // the envelope's seq; of a hole that of the event behind it, index 0
	env  workflow.Envelope
	hole bool
}

func (r *Relay) newMapping(tenant string, id workflow.ID) *mapping {
	m := &mapping{mapper: workflow.New(id)}
	m.mapper.Token = func(ask string) string { return r.resumeToken(tenant, id.Run, ask) }
	return m
}

// behind is the seq behind which the bus has what was not fed.
func (m *mapping) behind() uint64 {
	if !m.part.IsZero() && m.part.I < m.part.N {
		return m.head - 1 // its other parts
	}
	return m.head
}

// add feeds an event, unless it was fed before. An error is for good: the event has
// more to say than the protocol can number.
func (m *mapping) add(e *event.Event) ([]item, error) {
	if e.Seq < m.head || e.Seq == m.head && e.Part.I <= m.part.I {
		return nil, nil
	}
	var hole uint64
	if e.Seq > m.head+1 {
		hole = e.Seq * span
	}
	m.head, m.part = e.Seq, e.Part
	list, err := m.mapper.Apply(e)
	if err != nil {
		list = nil
	}
	items := make([]item, 0, len(list)+1)
	for _, env := range list {
		if hole > 0 && env.Seq > hole { // a frame that the hole broke off stands before it
			items = append(items, item{pos: hole, hole: true})
			hole = 0
		}
		items = append(items, item{pos: env.Seq, env: env})
	}
	if hole > 0 {
		items = append(items, item{pos: hole, hole: true})
	}
	if len(items) > 0 {
		m.last = items[len(items)-1].pos
	}
	return items, err
}

// appendEnvelope appends one SSE event. The name is from the protocol's closed set,
// the data one line of JSON. Without an id the client's cursor stays.
func appendEnvelope(b []byte, e *workflow.Envelope, id bool) (sse []byte, data int) {
	if id {
		b = append(b, "id: "...)
		b = strconv.AppendUint(b, e.Seq, 10)
		b = append(b, '\n')
	}
	b = append(b, "event: "...)
	b = append(b, e.Event...)
	b = append(b, "\ndata: "...)
	data = len(b)
	b = e.AppendJSON(b)
	return append(b, "\n\n"...), data
}

// A heading is what the envelopes of a stream share.
type heading struct{ run, workflow, version string }

func headingOf(e *workflow.Envelope) heading { return heading{e.RunID, e.WorkflowID, e.VersionID} }

// synthetic is an envelope that no event of the run stands for. It has no SSE id; its
// seq is behind that of the last envelope and is no other's.
func (h heading) synthetic(name workflow.Event, seq uint64, at time.Time, data any) workflow.Envelope {
	return workflow.Envelope{
		SchemaVersion: workflow.SchemaVersion, RunID: h.run, WorkflowID: h.workflow, VersionID: h.version,
		Seq: seq, Event: name, Timestamp: at, Data: json.RawMessage(mustJSON(data)),
	}
}

// gap says in the closed set of events that what follows does not follow on the
// cursor: a node.progress of no node.
func (h heading) gap(g workflow.Gap, seq uint64, at time.Time) workflow.Envelope {
	d := workflow.NodeProgressData{Phase: evGap, Message: "what came between is not kept", Gap: &g, Synthesised: true}
	if g.Reason == reasonBeyond {
		d.Phase, d.Message = evReset, "the cursor is none of this run; everything kept follows"
	}
	return h.synthetic(workflow.NodeProgress, seq, at, d)
}

// lost stands in for a terminal that nobody wrote. It is provisional: the stream goes
// on should the run's edge come back.
func (h heading) lost(seq uint64, e *event.Event) workflow.Envelope {
	var l Lost
	_ = json.Unmarshal(e.Data, &l) // the reason is then empty
	return h.failed(seq, e.Time, workflow.Error{
		Code: workflow.CodeRunLost, Message: "the run's edge is gone; nobody knows how the run ended", Retryable: true,
		Details: map[string]any{"provisional": true, "reason": l.Reason},
	})
}

// unmappable ends a stream that cannot go on, though the run may.
func (h heading) unmappable(seq uint64, at time.Time) workflow.Envelope {
	return h.failed(seq, at, workflow.Error{
		Code: workflow.CodeNotMappable, Message: errUnmappable().message, Details: map[string]any{"provisional": false},
	})
}

func (h heading) failed(seq uint64, at time.Time, e workflow.Error) workflow.Envelope {
	return h.synthetic(workflow.RunFailed, seq, at, workflow.RunFailedData{
		FinishedAt: at.UTC(), Status: string(run.Lost), Error: e, Synthesised: true,
	})
}

func errUnmappable() *apiErr {
	return fail(CodeUnmappable, "an event of this run has more to say than the workflow protocol can number; /v1/runs has it")
}

// returned tells who heard that a run is lost that it is not.
func (h heading) returned(seq uint64, at time.Time) workflow.Envelope {
	return h.synthetic(workflow.RunResumed, seq, at, workflow.RunResumedData{Action: "edge_returned", Synthesised: true})
}
