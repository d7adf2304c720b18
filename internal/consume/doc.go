// Package consume runs one consumer program over the logs of the bus: notify, metrics
// and archive are handlers of it.
//
// A log is read in its order, through a durable consumer of the server of which one
// instance reads at a time (see [bus.Durable]). What was handled is committed, and
// acked after that: whatever dies in between comes again, in order. A [Handler] must
// therefore know what it has: by the run's own numbers, and for facts outside of a
// run's sequence by log and place.
//
// An entry that cannot be handled holds its own run up and nothing else. It is tried
// again, later and later, and goes to the dead letters in the end, with the reason. What
// waits is bounded; past the bound nothing more is read.
package consume
