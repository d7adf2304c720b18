package relay

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// A manyOut writes the stream of many runs to its client.
type manyOut struct {
	*pen

	buf  []byte    // written by the next flush
	beat time.Time // of the next heartbeat
	err  error     // of a write; there is no other after it
}

// manyIdle is the buffer that a silent client may keep.
const manyIdle = 4 << 10

// newManyOut sends the headers at once.
func newManyOut(w http.ResponseWriter, r *Relay) (*manyOut, *apiErr) {
	a, aerr := answerOf(w, r.cfg.WriteTimeout)
	if aerr != nil {
		return nil, aerr
	}
	o := &manyOut{pen: &pen{r: r, out: a}}
	o.buf = fmt.Appendf(nil, "retry: %d\n\n", retryMin+rand.IntN(retrySpread))
	_ = o.flush() // the next write says so again
	return o, nil
}

// flush writes what is held.
func (o *manyOut) flush() error {
	if len(o.buf) > 0 && o.err == nil {
		o.err = o.write(o.buf)
		o.beat = time.Now().Add(o.r.cfg.Heartbeat)
	}
	o.buf = o.buf[:0]
	if cap(o.buf) > manyIdle {
		o.buf = nil
	}
	return o.err
}
