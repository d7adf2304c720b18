package ingest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A run takes commands for as long as it lives, however many there were, and
// writes none of them twice.
func TestManyCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, `{}`)
		deny := func(i, ask int) {
			p.Give(bus.Command{ID: fmt.Sprint("c", i), Name: "answer", Data: []byte(fmt.Sprintf(`{"ask":"a%d","decision":"deny"}`, ask)), DeliverBy: time.Now().Add(time.Hour)})
			synctest.Wait()
		}
		const n = 4200
		for _, i := range []int{1, n} {
			id := fmt.Sprintf(`"q%d"`, i)
			p.Say(ask(id, "Bash", `{}`))
			if i == n {
				for j := range n { // these are refused
					p.Give(bus.Command{ID: fmt.Sprint("s", j), Name: "stop_task", Data: []byte(`{"task":"none"}`)})
				}
				deny(1, 1) // delivered again
				equal(t, "lines", len(p.Lines()), 1)
			}
			deny(i, min(i, 2))
			p.Say(claude.toolResult(id, true))
		}
		equal(t, "lines", len(p.Lines()), 2)
		evs := p.End()
		equal(t, "the first", facts(evs, "c1"), []string{written, settled})
		equal(t, "the last", facts(evs, fmt.Sprint("c", n)), []string{written, settled})
	})
}

// Commands that hang keep nobody from answering what is asked, or from the end.
func TestHangingCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, `{"rules":[{"tool":"Read","then":"deny"}]}`)
		p.Say(ask(`"q1"`, "Bash", `{}`))
		give := func(id, name, data string) {
			p.Give(bus.Command{ID: id, Name: name, Data: []byte(data), DeliverBy: time.Now().Add(time.Hour), EffectBy: time.Now().Add(24 * time.Hour)})
			synctest.Wait()
		}
		for i := range 70 {
			give(fmt.Sprint("m", i), "set_model", `{"model":"x"}`)
		}
		lines := len(p.Lines())
		equal(t, "written", lines, 64)
		give("c1", "answer", `{"ask":"a1","decision":"deny"}`)
		p.Say(ask(`"q2"`, "Read", `{}`))
		synctest.Wait()
		equal(t, "answers", len(p.Lines())-lines, 2)
		equal(t, "past the bound", facts(p.End(), "m69"), []string{"refused: too_many_commands"})
	})
	r := session(t, claude, rungs(quick, quick, quick))
	for range 64 {
		r.command("set_model", `{"model":"x"}`)
	}
	for range 64 {
		r.request()
	}
	got := r.final(r.command("interrupt", escalate))
	if last := got[len(got)-1]; !strings.HasPrefix(last, "settled") {
		t.Errorf("the escalation: %q", got)
	}
	r.end()
}

// Where nothing can be journalled an answer is refused, and the child can still be
// ended.
func TestEscalateWithoutJournal(t *testing.T) {
	r := session(t, claude, rungs(quick, quick, quick))
	if err := os.Mkdir(filepath.Join(r.root, r.run, "commands"), 0o700); err != nil { // in the journal's place
		t.Fatal(err)
	}
	r.asked(ask(`"q1"`, "Bash", `{}`))
	got := r.final(r.answer("a1", allow))
	if len(got) != 1 || !strings.HasPrefix(got[0], "refused: journal: ") {
		t.Errorf("the answer: %q", got)
	}
	got = r.final(r.command("interrupt", escalate))
	if last := got[len(got)-1]; !strings.HasPrefix(last, "settled") {
		t.Errorf("the escalation: %q", got)
	}
	r.end()
}
