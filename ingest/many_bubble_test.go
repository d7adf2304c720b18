package ingest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/cbcast/cbcast/internal/bus"
)

// What a rule decides is without a bound that a long run would meet, and the tools
// that run meanwhile do not keep commands away.
func TestPolicyMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, `{"rules":[{"tool":"Read","then":"allow"}]}`)
		const n = 4200 // more than the ids of commands that are remembered
		for i := range n {
			id := fmt.Sprint(i)
			p.Say(ask(id, "Read", `{}`))
			synctest.Wait()
			p.Say(claude.toolResult(id, false))
		}
		equal(t, "lines", len(p.Lines()), n)
		for i := range 100 {
			p.Say(ask(fmt.Sprint(n+i), "Read", `{}`)) // its tool goes on
			synctest.Wait()
		}
		equal(t, "lines", len(p.Lines()), n+100)
		p.Give(bus.Command{ID: "stop", Name: "interrupt"})
		synctest.Wait()
		equal(t, "lines", len(p.Lines()), n+101)
		evs := p.End()
		equal(t, "interrupt", facts(evs, "stop")[0], written)
		equal(t, "decisions", len(decisions(t, evs)), n+100)
	})
}
