package relay

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/cbcast/cbcast/internal/event"
)

// Names of SSE events that are no kind. Event names come from the kinds and
// these, never from a frame.
const (
	evGap     = "gap"     // events between the cursor and the next one are not kept
	evReset   = "reset"   // the cursor is beyond the run's end: everything follows again
	evLost    = "lost"    // the edge is gone; provisional
	evResumed = "resumed" // the edge or its spool spoke again
)

// A frame is one event as streams send it: joined from its chunks, encoded once
// for all clients.
type frame struct {
	first, last   uint64 // seqs it covers; 0 for what has no place in the sequence
	name          string // SSE event
	typ           string // ce-type
	session, task string
	sse           []byte // the whole SSE event
	data          []byte // the JSON in it
	chunk         []byte // sse as a chunk of HTTP/1.1
}

// eventName is the SSE event name of a kind.
func eventName(k event.Kind) string {
	if slices.Contains(event.Kinds, k) {
		return string(k)
	}
	return string(event.Raw) // of a newer edge
}

// newFrame encodes e, which covers the seqs first to last.
func newFrame(e *event.Event, last uint64) *frame {
	name := eventName(e.Kind)
	switch e.Type {
	case event.TypeLost:
		name = evLost
	case event.TypeResumed:
		name = evResumed
	case event.TypeCommandFact:
		name = string(event.Cmd)
	}
	f := &frame{first: e.Seq, last: last, name: name, typ: e.Type, session: e.Session, task: e.Task}
	b := make([]byte, chunkHead, len(e.Data)+512)
	b = appendHead(b, name, last)
	start := len(b)
	b = e.AppendJSON(b)
	b = append(b, "\n\n"...)
	f.chunk = closeChunk(b)
	end := len(f.chunk) - len("\r\n")
	f.sse = f.chunk[end-len(b)+chunkHead : end : end]
	f.data = f.sse[start-chunkHead : len(f.sse)-2 : len(f.sse)-2]
	return f
}

// chunkHead is the room that closeChunk wants before the data: eight hex digits
// and CRLF.
const chunkHead = 10

// closeChunk makes a chunk of HTTP/1.1 (RFC 9112, 7.1) of b, whose data begins
// at chunkHead.
func closeChunk(b []byte) []byte {
	n := len(b) - chunkHead
	b = append(b, '\r', '\n')
	b[chunkHead-2], b[chunkHead-1] = '\r', '\n'
	i := chunkHead - 2
	for {
		i--
		b[i] = "0123456789abcdef"[n&15]
		if n >>= 4; n == 0 || i == 0 {
			return b[i:]
		}
	}
}

// appendHead appends the lines before the data, and "data: " itself. name is
// from the fixed list. Without a seq there is no id: the client's cursor stays.
func appendHead(b []byte, name string, seq uint64) []byte {
	if seq > 0 {
		b = append(b, "id: "...)
		b = strconv.AppendUint(b, seq, 10)
		b = append(b, '\n')
	}
	b = append(b, "event: "...)
	b = append(b, name...)
	return append(b, "\ndata: "...)
}

// A Gap is the data of the SSE events gap and reset, and says the same in a page.
type Gap struct {
	Asked  uint64 `json:"asked"`  // the cursor
	First  uint64 `json:"first"`  // the next event there is; 0 without one
	Last   uint64 `json:"last"`   // the run's last event at this time
	Reason string `json:"reason"` // not_kept, beyond_head
}

const (
	reasonNotKept = "not_kept"    // retention took them, or they never reached the bus
	reasonBeyond  = "beyond_head" // the cursor is not from this run, or its end was lost
)

func (g Gap) append(b []byte, name string) []byte {
	b = appendHead(b, name, 0)
	j, _ := json.Marshal(g) // always marshals
	return append(append(b, j...), "\n\n"...)
}

// always reports whether f passes every filter: what a client must know about
// the run itself.
func (f *frame) always() bool {
	return f.typ == event.TypeExited || f.name == evLost || f.name == evResumed
}

// A filter chooses frames; "" chooses all.
type filter struct{ session, task string }

func (l filter) takes(f *frame) bool {
	return f.always() || (l.session == "" || f.session == l.session) && (l.task == "" || f.task == l.task)
}

// An assembler makes frames of a run's events, fed in order.
type assembler struct {
	join event.Joiner
	prev uint64 // seq of the event before
}

// add returns the frames that e completes: a broken one, e's own, or none.
func (a *assembler) add(e *event.Event) []*frame {
	whole, last, broken := a.join.Add(e)
	var out []*frame
	if broken != nil {
		out = append(out, newFrame(broken, a.prev))
	}
	a.prev = e.Seq
	if whole != nil {
		out = append(out, newFrame(whole, last))
	}
	return out
}
