package bus

import (
	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
)

// Encode and Decode are the message codec.
func Encode(p int, e *event.Event) *nats.Msg { return encode(e, eventSubject(p, e)) }

func Decode(subj string, h nats.Header, data []byte) (*event.Event, error) {
	return decode(subj, h, data)
}

// Conn is the connection underneath, for tests that look at the wire.
func (b *Bus) Conn() *nats.Conn {
	l, err := b.now()
	if err != nil {
		return nil
	}
	return l.nc
}
