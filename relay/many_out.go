package relay

import (
	"fmt"
	"math/rand/v2"
	"net/http"
)

// A manyOut writes the stream of many runs to its client.
type manyOut struct {
	*pen
	err error // of a write; there is no other after it
}

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
	if o.err == nil {
		o.err = o.pen.flush()
	}
	o.buf = o.buf[:0]
	return o.err
}
