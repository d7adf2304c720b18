package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	cb "github.com/cbcast/cbcast/internal/event"
	view "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// TestKilled kills the edge while an ask is open, and while an answer is on its
// way. The relay says that the run is lost, until the spool is found.
func TestKilled(t *testing.T) {
	for name, program := range agents {
		for _, answered := range []bool{false, true} {
			if answered && name == "codex-0.153.4" {
				continue // it closes an ask as soon as it has read the answer
			}
			t.Run(name+map[bool]string{false: "/ask open", true: "/answer written"}[answered], func(t *testing.T) {
				t.Parallel()
				m := newModel(t)
				p := program(t, m).asking()
				p.env = append(p.env, "CBCAST_PRESENCE_TTL=2s")
				m.Add(turn("main", p.shell(m.atGate("bash"))), mockmodel.Turn{Name: "after", Times: -1, Steps: []mockmodel.Step{say("done")}})
				h := up(t)
				h.elsewhere()
				a := launchOn(t, m, p, h)
				a.say("run it")
				q := a.asks()
				a.waits(view.Approval, 1, 0)
				want := end{Reason: view.ReasonRunEnded, Outcome: view.OutcomeNone}
				state := view.AskShut
				if answered {
					a.answers(q, allow, http.StatusAccepted)
					m.await("at bash", 1)
					a.until(q, "written", func(k view.AskView) bool { return k.Written != nil })
					want, state = end{Decision: "allow", By: view.ByBus, Outcome: view.OutcomeUnknown}, view.AskUnknown
				}
				if err := a.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				<-a.done
				v := a.w.until(a.w.run, "loss", func(v *view.View) bool { return v.State == "lost" })
				first := view.AskOpen
				if answered {
					first = view.AskUnknown
				}
				if !v.Provisional || v.Verdict.Verdict != "lost" || v.Asks[0].State != first {
					t.Errorf("the run is lost, %v (provisional: %t), its ask %s, want %s", *v.Verdict, v.Provisional, v.Asks[0].State, first)
				}
				if !answered { // nobody is there to write it
					a.answers(q, allow, http.StatusAccepted)
				}
				if out, code := a.w.cbcast("flush"); code != 0 {
					t.Errorf("cbcast flush: exit code %d\n%s", code, out)
				}
				v = a.w.until(a.w.run, "end", func(v *view.View) bool { return v.State == "done" })
				m.Open("bash") // a command of claude outlives it
				k := v.Asks[0]
				have := end{Outcome: k.Outcome}
				if k.Decided != nil {
					have.Decision, have.By = k.Decided.Decision, k.Decided.By
				}
				if k.Closed != nil {
					have.Reason = k.Closed.Reason
				}
				if d := cmp.Diff(want, have); d != "" || k.State != state {
					t.Errorf("the ask is %s, want %s (-want +got):\n%s", k.State, state, d)
				}
				if v.Verdict.Verdict != "incomplete" {
					t.Errorf("the verdict is %v", *v.Verdict)
				}
				if !answered {
					facts := a.w.final("answer-" + a.w.run + "-" + q.id + "-1")
					if d := cmp.Diff([]string{string(cb.Accepted), string(cb.Expired)}, facts); d != "" {
						t.Errorf("facts of the answer that came too late (-want +got):\n%s", d)
					}
					a.answers(q, allow, http.StatusGone)
				}
			})
		}
	}
}

// until waits until fits holds of an ask.
func (a *agent) until(q ask, what string, fits func(view.AskView) bool) {
	a.t.Helper()
	a.w.until(a.w.run, q.id+" "+what, func(v *view.View) bool {
		for _, k := range v.Asks {
			if k.ID == q.id {
				return fits(k)
			}
		}
		return false
	})
}

// final waits for the last fact of a command that no edge could answer for, and
// returns all.
func (h *hub) final(command string) (facts []string) {
	h.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		var res struct {
			Final bool
			Facts []struct{ Fact string }
		}
		h.call(http.MethodGet, "/v1/commands/"+command, nil, &res)
		if res.Final {
			for _, f := range res.Facts {
				facts = append(facts, f.Fact)
			}
			return facts
		}
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatalf("%s does not end", command)
		}
	}
}
