package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// A manyOut writes the stream of many runs to its client, a part at a time and
// each under a deadline.
type manyOut struct {
	*answer
	r     *Relay
	every time.Duration
	cut   atomic.Bool // no write may follow

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
	o := &manyOut{answer: a, r: r, every: r.cfg.Heartbeat}
	o.buf = fmt.Appendf(nil, "retry: %d\n\n", retryMin+rand.IntN(retrySpread))
	_ = o.flush() // the next write says so again
	return o, nil
}

// flush writes what is held.
func (o *manyOut) flush() error {
	for b := o.buf; len(b) > 0 && o.err == nil; {
		part := b[:min(len(b), batchBytes)]
		b = b[len(part):]
		o.deadline(time.Now().Add(o.r.cfg.WriteTimeout))
		if o.cut.Load() {
			o.err = errSlow
			break
		}
		if err := o.write(part); err != nil {
			o.err = errors.Join(errNoBytes, err)
		}
		o.r.met.sent(len(part))
		o.beat = time.Now().Add(o.every)
	}
	o.buf = o.buf[:0]
	if cap(o.buf) > manyIdle {
		o.buf = nil
	}
	return o.err
}

// kick ends a write that is under way, and lets none follow. It does not block.
func (o *manyOut) kick() {
	o.cut.Store(true)
	o.answer.kick()
}
