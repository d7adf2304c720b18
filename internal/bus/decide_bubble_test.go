package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// Many writers decide at once, others minutes later: one fact stands, and all are
// told the same.
func TestDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serve(t, natsd.Options{DontListen: true})
		b, other := open(t, server), connect(t, bus.Config{InProcess: server})
		decide := func(b *bus.Bus, ref string) (string, bool) {
			f := fact("r1", ref, event.TypeAudit)
			f.Data = fmt.Appendf(nil, `{"by":%q}`, ref)
			for { // another's write may be under way
				stands, mine, err := b.Decide(context.Background(), f, "audit-c1")
				if err == nil {
					return string(stands.Data), mine
				}
			}
		}
		var wg sync.WaitGroup
		said := make([]string, 16)
		won := make([]bool, len(said))
		for w := range said {
			wg.Go(func() { said[w], won[w] = decide([]*bus.Bus{b, other}[w%2], fmt.Sprint("w", w)) })
		}
		wg.Wait()
		winners := 0
		for w := range said {
			if said[w] != said[0] {
				t.Errorf("writer %d was told %s, writer 0 %s", w, said[w], said[0])
			}
			if won[w] {
				winners++
				if want := fmt.Sprintf(`{"by":"w%d"}`, w); said[w] != want {
					t.Errorf("the winner was told %s", said[w])
				}
			}
		}
		if winners != 1 {
			t.Errorf("%d writers were told that theirs stands", winners)
		}
		time.Sleep(11 * time.Minute)
		if late, mine := decide(other, "late"); mine || late != said[0] {
			t.Errorf("11 minutes later %s stands, mine %v", late, mine)
		}
	})
}
