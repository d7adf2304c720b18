package relay

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// again has a stream's client come back where a 503 would be the answer. A browser's
// EventSource gives up for good at any status but 200, and keeps its cursor over a
// stream that ends: a relay that has just begun, or whose bus is away, must not be the
// end of it. Who does not ask for events in so many words gets the 503.
func again(h handler) handler {
	return func(w http.ResponseWriter, q *http.Request) *apiErr {
		err := h(w, q)
		if err == nil || statusOf[err.code] != http.StatusServiceUnavailable || !wantsEvents(q) {
			return err
		}
		streamHeaders(w.Header())
		fmt.Fprintf(w, "retry: %d\n\n: %s\n\n", retryMin+rand.IntN(retrySpread), err.code)
		return nil
	}
}

// wantsEvents reports whether the client asks for a stream of events and nothing else,
// as an EventSource does.
func wantsEvents(q *http.Request) bool {
	return strings.TrimSpace(q.Header.Get("Accept")) == "text/event-stream"
}
