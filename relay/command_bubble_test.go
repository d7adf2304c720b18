package relay_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/relay"
)

// One key is one effect and one reply, over reconnects, relays, a restart, and when
// the command has left the bus; another key is another command (case 064).
func TestCommandKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.asking("run-1")
		e.renew(ttl)
		const path = "/v1/runs/run-1/commands"
		body := func(text string) string { return fmt.Sprintf(`{"name":"message","args":{"content":%q}}`, text) }
		key := func(k string) map[string]string { return map[string]string{"Idempotency-Key": k} }
		give := func(s *served, k, text string) (relay.CommandAccepted, int) {
			t.Helper()
			for {
				a := s.post(path, body(text), key(k))
				var c relay.CommandAccepted
				if a.into(t, &c); a.status != http.StatusServiceUnavailable { // another's write is under way
					return c, a.status
				}
			}
		}
		relays := []*served{r.relayInBubble(relay.Config{}), r.relayInBubble(relay.Config{})}
		var wg sync.WaitGroup
		first := make([]bool, 12)
		for n := range first {
			wg.Go(func() {
				c, status := give(relays[n%2], "k1", "go")
				if first[n] = !c.Duplicate; status != http.StatusAccepted || c.Command != "k1" || c.State != "accepted" {
					t.Errorf("%d %+v", status, c)
				}
			})
		}
		wg.Wait()
		count := 0
		for _, f := range first {
			if f {
				count++
			}
		}
		if sent, audited := r.on("run-1"); count != 1 || len(sent) != 1 || len(audited) != 1 {
			t.Errorf("%d were first, %q on the bus, %q audited", count, sent, audited)
		}
		cmd, err := r.bus.FindCommand(t.Context(), "k1")
		if err != nil || cmd.DeliverBy.Sub(cmd.Time) != time.Hour || cmd.EffectBy.Sub(cmd.Time) != 24*time.Hour {
			t.Errorf("on the bus: %+v, %v", cmd, err)
		}
		for _, s := range relays {
			s.stop()
		}
		s := r.relayInBubble(relay.Config{})
		check := func(when string) {
			t.Helper()
			if c, status := give(s, "k1", "go"); status != http.StatusAccepted || !c.Duplicate || c.Command != "k1" {
				t.Errorf("%s, the same: %d %+v", when, status, c)
			}
			if _, status := give(s, "k1", "stop"); status != http.StatusConflict {
				t.Errorf("%s, another text: %d", when, status)
			}
			if a := s.post("/v1/runs/run-1/interrupt", `{"id":"k1"}`, nil); a.status != http.StatusConflict {
				t.Errorf("%s, another command: %d", when, a.status)
			}
		}
		check("after a restart")
		if c, status := give(s, "k2", "go"); status != http.StatusAccepted || c.Duplicate || c.Command != "k2" {
			t.Errorf("another key: %d %+v", status, c)
		}
		time.Sleep(71 * time.Minute)
		if _, err := r.bus.FindCommand(t.Context(), "k1"); !errors.Is(err, bus.ErrNotFound) {
			t.Fatalf("it is still on the bus: %v", err)
		}
		check("when it has left the bus")
		if _, audited := r.on("run-1"); len(audited) != 2 {
			t.Errorf("audited: %q", audited)
		}
	})
}
