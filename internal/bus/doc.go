// Package bus is cbcast's side of NATS JetStream and the only importer of
// nats.go. A [Bus] is a connection that never gives up; [Publisher] ships the
// events of one run in order, without loss and without doubles; [Bus.History]
// and [Bus.Tail] read them; commands, control facts, the registry of runs,
// presence and leases have a file each. Subjects come from package subject, events from
// package event. What the streams look like is in topology.go.
//
// Nothing here keeps a position for its caller: the sequence of an event within
// its run ([event.Event.Seq]) is the only cursor that outlives a stream.
package bus
