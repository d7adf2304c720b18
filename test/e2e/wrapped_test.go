package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	cb "github.com/cbcast/cbcast/internal/event"
)

// A wrapped interrupt is a POST to the relay. What the agent does is the same as
// bare; beside it the command's facts come, in the order that its program gives
// them.
func TestInterruptWrapped(t *testing.T) {
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.Add(sc.turns(m)...)
			h := up(t)
			p := sc.agent(t, m)
			s := start(t, p, append([]string{cbcast(), "run", "--dialect", string(p.dialect), "--", p.path}, p.args...), h.env()...)
			s.initialize()
			run := h.theRun()
			events := h.follow(run)
			var command string
			a := &agent{session: s, wrapped: true, interrupt: func() {
				command = h.interrupt(run)
			}, settled: func() {
				events.await("end of the command", func(all []event) bool { return ended(factsOf(all, command)) })
			}}
			sc.play(t, m, a)
			if p.dialect == dialect.CBC {
				s.terminate()
			} else {
				s.exit()
			}
			events.await("exit of the run", func(all []event) bool { return all[len(all)-1].Type == cb.TypeExited })

			events.mu.Lock()
			got := factsOf(events.events, command)
			events.mu.Unlock()
			if d := cmp.Diff(sc.facts, got); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
			checkCommand(t, h, command, got)
			checkState(t, h, run, sc.verdict)
			checkHidden(t, s)
		})
	}
}

// interrupt asks the relay to interrupt a run and returns the command's id.
func (h *hub) interrupt(run string) string {
	h.t.Helper()
	var res struct{ Command string }
	h.call(http.MethodPost, "/v1/runs/"+run+"/interrupt", map[string]string{"reason": "the test says so"}, &res)
	if res.Command == "" {
		h.t.Fatal("the relay names no command")
	}
	return res.Command
}

// factsOf are the facts of a command among the events of its run.
func factsOf(all []event, command string) []string {
	var facts []string
	for _, e := range all {
		var f cb.CommandFact
		if e.Type == cb.TypeCommand && json.Unmarshal(e.Data, &f) == nil && f.Command == command {
			facts = append(facts, string(f.Fact))
		}
	}
	return facts
}

// ended reports whether a command's facts are complete: a final one, and the
// agent's answer, which may come after it.
func ended(facts []string) bool {
	final := slices.ContainsFunc(facts, func(f string) bool { return cb.Fact(f).Final() })
	return final && slices.Contains(facts, string(cb.Acked))
}

// A state is what the relay says of a run.
type state struct {
	State, Dialect string
	Verdict        struct{ Verdict string }
	Open           struct{ Turns, Tasks, Asks int }
}

func (h *hub) show(run string) state {
	h.t.Helper()
	var doc struct{ State state }
	h.call(http.MethodGet, "/v1/runs/"+run, nil, &doc)
	return doc.State
}

// checkCommand compares what the relay says of one command.
func checkCommand(t *testing.T, h *hub, command string, facts []string) {
	t.Helper()
	var res struct{ Facts []struct{ Fact string } }
	h.call(http.MethodGet, "/v1/commands/"+command, nil, &res)
	var got []string
	for _, f := range res.Facts {
		got = append(got, f.Fact)
	}
	if d := cmp.Diff(append([]string{string(cb.Accepted)}, facts...), got); d != "" {
		t.Errorf("facts of /v1/commands (-want +got):\n%s", d)
	}
}

func checkState(t *testing.T, h *hub, run, verdict string) {
	t.Helper()
	if st := h.show(run); st.Verdict.Verdict != verdict {
		t.Errorf("the run is %s with the verdict %q, want %q", st.State, st.Verdict.Verdict, verdict)
	}
}

// checkHidden makes sure that the parent saw no answer to a request that was not
// its own.
func checkHidden(t *testing.T, s *session) {
	t.Helper()
	for line := range bytes.Lines(s.output()) {
		if bytes.Contains(line, []byte(`"control_response"`)) && strings.Contains(string(line), "cbcast-") {
			t.Errorf("the parent got the answer to an injected request: %s", line)
		}
	}
}
