// Package relay serves the runs on the bus over HTTP: the list, the state of a
// run, its events page by page and as a stream of server-sent events, and
// commands to it. It also keeps the books where no edge can: it says once when an
// edge is lost, and what became of a command that nobody took.
//
// # Reading
//
// One ordered reader per partition feeds every watched run; there is no consumer
// per client. A feed holds the newest frames of one run, encoded once. A
// subscription first reads from the bus what lies behind its cursor, then from
// the feed, at its own pace, and from the bus again when it has fallen behind by
// more than the feed holds. A slow one delays nobody; one that takes nothing is cut
// and resumes by Last-Event-ID.
//
// # Cursor
//
// The cursor is the run's own seq. It is compared with the run in the path and
// nothing else. What cannot be served from it is said by a gap or reset event.
//
// # Stream
//
// An SSE event has as id the last seq it covers, as event the kind (life, msg,
// task, end, ask, cmd, raw) and as data one line: the CloudEvent in JSON, split
// frames joined. Without an id, so that the client's cursor stays, come:
//
//	gap      a [Gap]: events after the cursor are not kept; the next one follows
//	reset    a [Gap]: the cursor is beyond the run's end; everything kept follows
//	lost     the fact that the edge is gone. The stream ends; a client that comes
//	         back hears it again and is then held until the edge does
//	resumed  the fact that the edge or its spool spoke again
//	cmd      a command's fact that no edge could write
//
// The exit event (type dev.cbcast.edge.exited) is the last; the stream ends after
// it, and a client whose cursor it is gets 204. A filter never takes away the
// exit event, lost and resumed. A silent stream sends a comment.
package relay
