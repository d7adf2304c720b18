package relay_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/relay"
)

// A relay that is told to end is not ready first, serves on, and lets its clients
// go then.
func TestNotReadyBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.edge("r1")
		e.emit(note(1))
		e.shipped()
		s := r.relayInBubble(patient(relay.Config{DrainDelay: 2 * time.Second}))
		c := s.stream("/v1/runs/r1/stream", nil)
		c.take(1)
		ended := make(chan struct{})
		go func() { s.stop(); close(ended) }()
		s.until(func() bool { return s.get("/readyz", nil).status == http.StatusServiceUnavailable })
		e.emit(note(2))
		if got := ids(c.take(1)); got != "2" {
			t.Errorf("told %q after the end began, want 2", got)
		}
		if got := ids(s.stream("/v1/runs/r1/stream?after=1", nil).take(1)); got != "2" {
			t.Errorf("a new client is told %q, want 2", got)
		}
		if more := c.all(); len(more) > 0 {
			t.Errorf("%d events more", len(more))
		}
		<-ended
	})
}
