package workflow

import (
	"errors"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// ErrTooMany is returned where one event needs more than [MaxIndex] envelopes.
var ErrTooMany = errors.New("an event needs more envelopes than its range of seqs has")

// A Mapper maps the events of one run to the envelopes of one stream. It is not
// safe for concurrent use.
type Mapper struct {
	// Token gives the resumeToken of an ask; nil leaves it out, as views do. It must
	// give the same one for the same ask. Set it before the first Apply.
	Token func(ask string) string

	id    ID
	state *run.State
	over  bool
}

// New returns a mapper that has seen nothing.
func New(id ID) *Mapper { return &Mapper{id: id, state: run.New(id.Run)} }

// Apply maps one event. Events come whole or in chunks, in the order of their seq,
// from the first that is kept on. Facts outside the sequence (seq 0), events that
// were applied before and all that follows the end of the stream map to nothing.
func (m *Mapper) Apply(e *event.Event) ([]Envelope, error) {
	if e.Seq == 0 || m.over {
		return nil, nil
	}
	m.state.Apply(e)
	return nil, nil
}

// Status is the stream's status so far, one of [Statuses].
func (m *Mapper) Status() string { return StatusCreated }

// Over reports whether the stream has ended: with the run's exit, or the task's end.
func (m *Mapper) Over() bool { return m.over }

// Known reports whether what the ID names was seen: the run's first event, or the
// task.
func (m *Mapper) Known() bool { return m.state.LastSeq() > 0 }
