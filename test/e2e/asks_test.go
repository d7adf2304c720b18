package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	cb "github.com/cbcast/cbcast/internal/event"
	view "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// shell is the call of a shell command by p's model.
func (p program) shell(command string) mockmodel.Step {
	if p.dialect == dialect.Codex {
		return call("exec_command", map[string]any{"cmd": command, "login": false, "yield_time_ms": 20000})
	}
	return call("Bash", map[string]any{"command": command, "description": "a command"})
}

const which = "Which colour?"

// question asks for a colour. The key of its answer is which.
func (p program) question() mockmodel.Step {
	q := map[string]any{
		"question": which, "header": "Colour",
		"options": []map[string]any{{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}},
	}
	if p.dialect == dialect.Codex {
		q["id"] = which
		return call("request_user_input", map[string]any{"questions": []any{q}})
	}
	q["multiSelect"] = false
	return call("AskUserQuestion", map[string]any{"questions": []any{q}})
}

// twoAsks are the turns that lead to two open asks: Claude Code asks at once for
// tools that only read, cbc for those of two sub-agents, codex for any.
func (p program) twoAsks() []mockmodel.Turn {
	switch p.dialect {
	case dialect.Claude:
		read := func(f string) mockmodel.Step { return call("Read", map[string]any{"file_path": f}) }
		return []mockmodel.Turn{turn("two", read("/etc/passwd"), read("/etc/group"))}
	case dialect.Codex:
		return []mockmodel.Turn{turn("two", p.shell("touch one"), p.shell("touch two"))}
	}
	sub := func(n string) mockmodel.Step {
		return call("Agent", map[string]any{"description": "sub " + n, "prompt": "CHILD " + n, "subagent_type": "general-purpose"})
	}
	return []mockmodel.Turn{turn("two", sub("1"), sub("2"))}
}

var (
	allow = cb.Answer{Decision: cb.Allow}
	deny  = cb.Answer{Decision: cb.Deny, Message: "not that one"}
	blue  = cb.Answer{Decision: cb.Answers, Answers: map[string]json.RawMessage{which: json.RawMessage(`"Blue"`)}}
)

// cuts says how a turn ends that was interrupted at an ask: cbc 2.163.0 lets the
// model go on; 2.117.0 says yes to the interrupt and waits for the answer as before,
// which it then takes for a no, whatever it is.
var cuts = map[string]string{
	"claude-2.1.220": interrupted, "cbc-2.163.0": completed, "cbc-2.117.0": "", "codex-0.153.4": interrupted,
}

// TestAsks has each program ask, in one session, and answers in each way.
func TestAsks(t *testing.T) {
	for name, program := range agents {
		for _, mode := range []string{"bare", "wrapped"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				testAsks(t, program, cuts[name], mode == "wrapped")
			})
		}
	}
}

func testAsks(t *testing.T, program func(*testing.T, *model, ...string) program, cut string, wrapped bool) {
	m := newModel(t)
	p := program(t, m).asking()
	m.Add(
		mockmodel.Turn{Name: "child", Last: `CHILD \d`, Times: -1, Steps: []mockmodel.Step{p.shell("touch child && echo from-the-child")}},
		mockmodel.Turn{Name: "child's end", Last: `from-the-child`, Times: -1, Steps: []mockmodel.Step{say("the child is done")}},
		turn("question", p.question()),
		mockmodel.Turn{Name: "answered", Last: "Blue", Steps: []mockmodel.Step{say("blue it is")}},
		turn("allowed", p.shell("touch allowed && echo it-ran")),
		mockmodel.Turn{Name: "ran", Last: "it-ran|exited with code 0", Steps: []mockmodel.Step{say("done")}},
		turn("denied", p.shell("touch denied")), turn("told", say("then not")),
		turn("local", p.shell("touch local")), turn("local end", say("done")),
	)
	m.Add(p.twoAsks()...)
	m.Add(turn("two end", say("both")), turn("cut", p.shell("touch cut")), turn("after the cut", say("then not")))
	a := launch(t, m, p, wrapped)

	a.step("question answered", func(t *testing.T) {
		a.say("ask me")
		q := a.asks()
		a.waits("input", 0, 1)
		a.byHand(q, blue, "answer", "--wait", a.runID(), q.id, "2")
		a.ends(completed)
		m.await("answered", 1)
		a.was(q, end{cb.Answers, view.ByBus, view.ReasonAnswered, view.OutcomeAnswered})
	})
	a.step("approval allowed and answered twice", func(t *testing.T) {
		a.say("run it")
		q := a.asks()
		a.waits(view.Approval, 1, 0)
		a.answers(q, allow, http.StatusAccepted)
		a.answers(q, allow, http.StatusOK)
		a.answers(q, deny, http.StatusConflict)
		a.ends(completed)
		a.made("allowed", true)
		m.await("ran", 1)
		a.was(q, end{cb.Allow, view.ByBus, view.ReasonAnswered, view.OutcomeRan})
	})
	a.step("approval denied", func(t *testing.T) {
		a.say("run that")
		q := a.asks()
		a.byHand(q, deny, "deny", "--wait", "-m", deny.Message, a.runID(), q.id)
		a.ends(completed)
		a.made("denied", false)
		a.was(q, end{cb.Deny, view.ByBus, view.ReasonAnswered, view.OutcomeDenied})
	})
	a.step("answered by the host, and after the end", func(t *testing.T) {
		a.say("run this")
		q := a.asks()
		w := a.w
		a.w = nil // the host's own line
		a.answer(q, allow)
		a.w = w
		a.ends(completed)
		a.made("local", true)
		a.was(q, end{cb.Allow, view.ByHost, view.ReasonLocal, view.OutcomeRan})
		a.answers(q, deny, http.StatusGone)
		a.answers(q, allow, http.StatusGone)
	})
	a.step("two open at once", func(t *testing.T) {
		a.say("do both")
		one, two := a.asks(), a.asks()
		a.waits(view.Approval, 2, 0)
		a.byHand(two, allow, "allow", a.runID(), two.id)
		a.answers(one, allow, http.StatusAccepted)
		a.ends(completed)
		a.was(one, end{cb.Allow, view.ByBus, view.ReasonAnswered, view.OutcomeRan})
		a.was(two, end{cb.Allow, view.ByBus, view.ReasonAnswered, view.OutcomeRan})
	})
	a.step("withdrawn by an interrupt", func(t *testing.T) {
		a.say("run the last")
		q := a.asks()
		a.interrupt()
		if cut == "" {
			if a.w == nil {
				a.await("answer to the interrupt", is("control_response"))
			} else {
				a.w.awaitFact("interrupt", cb.Acked)
			}
			a.answers(q, deny, http.StatusAccepted)
			a.ends(completed)
			a.was(q, end{cb.Deny, view.ByBus, view.ReasonAnswered, view.OutcomeDenied})
			return
		}
		a.ends(cut)
		a.was(q, end{Reason: view.ReasonCleared, Outcome: view.OutcomeNone})
		a.answers(q, allow, http.StatusGone)
		a.made("cut", false)
	})
	a.leave()
}

// made checks whether a file is there that only an allowed command makes.
func (a *agent) made(name string, want bool) {
	a.t.Helper()
	_, err := os.Stat(filepath.Join(a.p.dir, name))
	if got := err == nil; got != want {
		a.t.Errorf("the file %s is there: %t, want %t", name, got, want)
	}
}

// waits checks what a wrapped agent waits for.
func (a *agent) waits(what string, approvals, questions int) {
	a.t.Helper()
	if a.w == nil {
		return
	}
	v := a.w.until(a.w.run, "open ask", func(v *view.View) bool { return v.Open.Asks == approvals+questions })
	if v.State != "waiting" || v.WaitingFor != what || v.Open.Approvals != approvals || v.Open.Questions != questions {
		a.t.Errorf("the run is %s for %q with %+v, want waiting for %s: %d approvals and %d questions", v.State, v.WaitingFor, v.Open, what, approvals, questions)
	}
}

// An end is how an ask ended.
type end struct{ Decision, By, Reason, Outcome string }

// was checks how an ask of a wrapped agent ended.
func (a *agent) was(q ask, want end) {
	a.t.Helper()
	if a.w == nil {
		return
	}
	var got *view.AskView
	a.w.until(a.w.run, "end of "+q.id, func(v *view.View) bool {
		for i := range v.Asks {
			if v.Asks[i].ID == q.id && v.Asks[i].State == view.AskShut {
				got = &v.Asks[i]
			}
		}
		return got != nil
	})
	have := end{Reason: got.Closed.Reason, Outcome: got.Outcome}
	if got.Decided != nil {
		have.Decision, have.By = got.Decided.Decision, got.Decided.By
	}
	if d := cmp.Diff(want, have); d != "" {
		a.t.Errorf("%s (-want +got):\n%s", q.id, d)
	}
	if have.By == view.ByBus {
		if d := cmp.Diff([]string{string(cb.Written), string(cb.Settled)}, a.w.facts(got.Decided.Command)); d != "" {
			a.t.Errorf("facts of %s (-want +got):\n%s", got.Decided.Command, d)
		}
	}
	if got.Decided != nil && (got.Written == nil || got.Written.Seq <= got.OpenedSeq || got.Closed.Seq < got.Written.Seq) {
		a.t.Errorf("%s: opened at %d, written at %+v, closed at %+v", q.id, got.OpenedSeq, got.Written, got.Closed)
	}
}

// facts waits for the last fact of a command and returns all.
func (w *wrap) facts(command string) (facts []string) {
	w.t.Helper()
	w.events.await("end of "+command, func(all []event) bool {
		facts = factsOf(all, command)
		return len(facts) > 0 && cb.Fact(facts[len(facts)-1]).Final()
	})
	return facts
}

// awaitFact waits for a fact of a command of that name, the latest there is.
func (w *wrap) awaitFact(name string, fact cb.Fact) {
	w.t.Helper()
	w.events.await(name+" "+string(fact), func(all []event) bool {
		for _, e := range all {
			var f cb.CommandFact
			if e.Type == cb.TypeCommand && json.Unmarshal(e.Data, &f) == nil && f.Name == name && f.Fact == fact {
				return true
			}
		}
		return false
	})
}
