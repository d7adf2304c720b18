package bus

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
)

// Encode and Decode are the message codec.
func Encode(p int, e *event.Event) *nats.Msg { return encode(e, eventSubject(p, e)) }

func Decode(subj string, h nats.Header, data []byte) (*event.Event, error) {
	var d decoder
	return d.decode(subj, h, data)
}

// Conn is the connection underneath, for tests that look at the wire.
func (b *Bus) Conn() *nats.Conn {
	l, err := b.now()
	if err != nil {
		return nil
	}
	return l.nc
}

// MsgID is the message id of an event.
func MsgID(e *event.Event) string { return msgID(e.ID(), e) }

// EncodeRow encodes events one after the other with one encoder, as a publisher
// does, each with a message id and every third with a fence. What it returns are
// copies.
func EncodeRow(p int, evs []*event.Event) (all []nats.Header) {
	var c encoder
	for i, e := range evs {
		c.encode(e, eventSubject(p, e))
		c.set(hdrMsgID, e.ID())
		m := c.done()
		if i%3 == 0 {
			c.set(hdrExpect, "1")
			c.set(hdrExpectOn, "x")
		}
		h := nats.Header{}
		size := headerFrame
		for k, v := range m.Header {
			h[k] = []string{v[0]}
			size += len(k) + len(": ") + len(v[0]) + len("\r\n")
		}
		if size != c.head {
			h.Set("bad-size", "")
		}
		all = append(all, h)
	}
	return all
}

// Hold is how long the server waits for a word of the reader.
func (d *Durable) Hold(ttl time.Duration) { d.ttl = ttl }
