package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	cb "github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
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
			a := launch(t, m, sc.agent(t, m), true)
			h, id, events := a.w.hub, a.w.run, a.w.events
			var command string
			a.settled = func() {
				events.await("interrupt", func(all []event) bool { command = firstCommand(all); return command != "" })
				events.await("end of the command", func(all []event) bool { return ended(factsOf(all, command)) })
			}
			sc.play(t, m, a)
			a.leave()
			events.await("exit of the run", func(all []event) bool { return all[len(all)-1].Type == cb.TypeExited })

			events.mu.Lock()
			got := factsOf(events.events, command)
			events.mu.Unlock()
			if d := cmp.Diff(sc.facts, got); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
			checkCommand(t, h, command, got)
			checkState(t, h, id, sc.verdict)
			checkHidden(t, a.session)
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

// firstCommand is the id of the first command among a run's events.
func firstCommand(all []event) string {
	for _, e := range all {
		var f cb.CommandFact
		if e.Type == cb.TypeCommand && json.Unmarshal(e.Data, &f) == nil {
			return f.Command
		}
	}
	return ""
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
	return final && (slices.Contains(facts, string(cb.Acked)) || !slices.Contains(facts, string(cb.Written)))
}

// show is what the relay says of a run.
func (h *hub) show(id string) run.View {
	h.t.Helper()
	var doc struct{ State run.View }
	h.call(http.MethodGet, "/v1/runs/"+id, nil, &doc)
	return doc.State
}

// until waits until fits holds of what the relay says of a run, which it then
// returns.
func (h *hub) until(id, what string, fits func(*run.View) bool) run.View {
	h.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		v := h.show(id)
		if fits(&v) {
			return v
		}
		select {
		case <-tick.C:
		case <-deadline:
			b, _ := json.MarshalIndent(v, "", " ")
			h.t.Fatalf("no %s in %s:\n%s", what, patience, b)
		}
	}
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

func checkState(t *testing.T, h *hub, id, verdict string) {
	t.Helper()
	v := h.until(id, "verdict", func(v *run.View) bool { return v.Verdict != nil })
	if string(v.Verdict.Verdict) != verdict {
		t.Errorf("the run is %s with the verdict %v, want %q", v.State, *v.Verdict, verdict)
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
