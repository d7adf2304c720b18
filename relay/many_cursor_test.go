package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// Where nothing that matches is said the cursor moves all the same, without an
// event: who comes back with it is not told what went by.
func TestManyCursorAlone(t *testing.T) {
	r := newRig(t, small())
	s := r.relay(relay.Config{Heartbeat: 10 * time.Millisecond})
	e := r.edge("r1")
	c := s.stream("/v1/stream?runs=none&kind=ask", nil)
	if ev, ok := c.next(); !ok || ev.name != "ready" {
		t.Fatalf("at first %+v", ev)
	}
	e.emit(note(1))
	at, before := "", ""
	for at == "" && c.sc.Scan() {
		line := c.sc.Text()
		if id, ok := strings.CutPrefix(before, "id: "); ok && line == "" {
			at = id
		}
		before = line
	}
	if at == "" {
		t.Fatalf("no cursor: %v", c.sc.Err())
	}
	c.close()
	ask := note(2)
	ask.Kind = event.Ask
	e.emit(ask)
	c = s.stream("/v1/stream?runs=none&kind=ask,msg", map[string]string{"Last-Event-ID": at})
	if list := c.take(2); list[0].name != "ready" || list[1].name != "ask" {
		t.Errorf("behind the cursor: %+v", list)
	}
}
