// Package workflow maps the events of a run to the workflow event protocol v1.0,
// a frozen vocabulary of 18 events for people who watch workflows. It is pure: the
// same events of a run, fed from its first kept one on, give the same envelopes,
// whoever maps them and when. docs/workflow-protocol.md has the mapping as a table.
//
// # Order
//
// An envelope's seq is the seq of the event it was made of times [Step], plus its
// place among the envelopes of that event, from 1. It grows strictly, and a cursor
// inside the range of one event is as good as one at its end. An event that would
// need more than [MaxIndex] envelopes is an error, [ErrTooMany], and ends the mapping.
//
// # Streams
//
// An [ID] names what is watched: a whole run, or one task of it. Nodes of a run's
// stream are the rounds of its main loop, its tasks, their phases and agents; those
// of a task's stream are the phases and agents of the task, or what it does itself.
package workflow
