package bus

import (
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
)

// A Raw is a message as a stream has it.
type Raw struct {
	Subject string
	// Header are names and values, in the order of the wire where that is known, else
	// sorted by name. A name may stand more than once.
	Header [][2]string
	Data   []byte
}

// A Wire are the headers of a message as the client library holds them.
type Wire struct{ h nats.Header }

// Pairs lists the headers as [Raw.Header] does.
func (w Wire) Pairs() [][2]string { return rawHeader(w.h) }

// rawHeader lists what the client library has read into a map.
func rawHeader(h nats.Header) [][2]string {
	if len(h) == 0 {
		return nil
	}
	var few [32]string // as many as an event has, without an allocation
	names := few[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([][2]string, 0, len(h))
	for _, name := range names {
		for _, v := range h[name] {
			all = append(all, [2]string{name, v})
		}
	}
	return all
}

// header is the other way round.
func (r Raw) header() nats.Header {
	h := make(nats.Header, len(r.Header))
	for _, f := range r.Header {
		h[f[0]] = append(h[f[0]], f[1])
	}
	return h
}

// Decode returns the event that a message is, as the readers of this package do: an
// error is [ErrForeign].
func (r Raw) Decode() (*event.Event, error) {
	var d decoder
	h := r.header()
	return d.stored(&stored{subject: r.Subject, header: h, data: r.Data, copied: isCopy(h)})
}
