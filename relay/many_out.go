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
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	every   time.Duration
	cut     atomic.Bool // no write may follow

	buf  []byte    // written by the next flush
	beat time.Time // of the next heartbeat
	err  error     // of a write; there is no other after it
}

// manyIdle is the buffer that a silent client may keep.
const manyIdle = 4 << 10

// newManyOut sends the headers at once.
func newManyOut(w http.ResponseWriter, timeout, every time.Duration) (*manyOut, *apiErr) {
	o := &manyOut{w: w, rc: http.NewResponseController(w), timeout: timeout, every: every}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	_ = o.rc.SetReadDeadline(time.Time{}) // it lives as long as the client
	_ = o.rc.SetWriteDeadline(time.Now().Add(timeout))
	if err := o.rc.Flush(); errors.Is(err, http.ErrNotSupported) {
		clear(h)
		return nil, fail(CodeNoStreaming, "something between the relay and the connection cannot flush")
	}
	o.buf = fmt.Appendf(nil, "retry: %d\n\n", retryMin+rand.IntN(retrySpread))
	_ = o.flush() // the next write says so again
	return o, nil
}

// flush writes what is held.
func (o *manyOut) flush() error {
	for b := o.buf; len(b) > 0 && o.err == nil; {
		part := b[:min(len(b), batchBytes)]
		b = b[len(part):]
		_ = o.rc.SetWriteDeadline(time.Now().Add(o.timeout)) // where there are none, the server's own hold
		if o.cut.Load() {
			o.err = errNoBytes
			break
		}
		_, err := o.w.Write(part)
		if err == nil {
			err = o.rc.Flush()
		}
		if err != nil {
			o.err = errors.Join(errNoBytes, err)
		}
		o.beat = time.Now().Add(o.every)
	}
	o.buf = o.buf[:0]
	if cap(o.buf) > manyIdle {
		o.buf = nil
	}
	return o.err
}

// kick ends a write that is under way. It does not block.
func (o *manyOut) kick() {
	o.cut.Store(true)
	_ = o.rc.SetWriteDeadline(time.Unix(1, 0))
}
