package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cbcast/cbcast/internal/dialect"
	view "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// background is the call of a shell command that outlives its turn.
func (p program) background(command string) mockmodel.Step {
	if p.dialect == dialect.Codex {
		return call("exec_command", map[string]any{"cmd": command, "login": false, "yield_time_ms": 250})
	}
	return call("Bash", map[string]any{"command": command, "description": "a command", "run_in_background": true})
}

// finish waits until the agent says that the background command is done.
func (a *agent) finish() {
	a.t.Helper()
	if a.p.dialect == dialect.Codex {
		a.await("end of the command", func(f *frame) bool {
			return f.Method == "item/completed" && f.Params.Item.Type == "commandExecution" && f.Params.Item.Status == completed
		})
		return
	}
	n := a.await("notification", is("system", "task_notification"))
	if n.Status != completed {
		a.t.Errorf("the task ended as %s", n.name())
	}
}

// TestBackground has a command go on past the first result. cbc 2.117.0 refuses
// such commands.
func TestBackground(t *testing.T) {
	for name, program := range agents {
		if name == "cbc-2.117.0" {
			continue
		}
		for _, mode := range []string{"bare", "wrapped"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				m := newModel(t)
				p := program(t, m)
				m.Add(turn("main", p.background(m.atGate("bg"))), turn("started", say("it runs")), turn("woken", say("it is done")))
				a := launch(t, m, p, mode == "wrapped")
				a.say("run it in the background")
				m.await("at bg", 1)
				a.ends(completed)
				a.task(1, "running")
				m.Open("bg")
				a.finish()
				if p.dialect != dialect.Codex {
					a.ends(completed) // of the turn that the end of the command woke
				}
				a.task(0, completed)
				a.leave()
				a.verdict("success")
			})
		}
	}
}

// TestWorkflow has a workflow of two agents run to its end. Of the others cbc
// 2.117.0 writes nothing about one, and codex has none; see TestSubagents.
func TestWorkflow(t *testing.T) {
	for name, c := range map[string]struct {
		program func(*testing.T, *model, ...string) program
		call    mockmodel.Step
	}{
		"claude-2.1.220": {claude, claudeWorkflow()}, "cbc-2.163.0": {cbc, cbcWorkflow()},
	} {
		for _, mode := range []string{"bare", "wrapped"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				m := newModel(t)
				p := c.program(t, m)
				m.Add(children(), turn("start", c.call), turn("main", say("it runs"), gate("main")))
				m.Add(turn("woken", say("it is done")), turn("woken again", say("it is done")))
				a := launch(t, m, p, mode == "wrapped")
				a.say("use a workflow")
				m.await("at main", 1)
				m.await("at child", 2)
				a.task(1, "running")
				m.Open("child")
				a.finish() // cbc tells it within the turn
				m.Open("main")
				a.ends(completed)
				v := a.task(0, completed)
				if a.w != nil {
					got := ""
					for _, g := range v.Agents {
						got += fmt.Sprintf(" %s:%s", g.Label, g.State)
					}
					if want := " child-1:done child-2:done"; got != want {
						t.Errorf("agents%s, want%s", got, want)
					}
				}
				a.leave()
				a.verdict("success")
			})
		}
	}
}

// TestSubagents has two agents of codex go on past their parent's turn.
func TestSubagents(t *testing.T) {
	for _, mode := range []string{"bare", "wrapped"} {
		t.Run("codex-0.153.4/"+mode, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			spawn := func(n string) mockmodel.Step {
				return call("collaboration/spawn_agent", map[string]any{"task_name": "child_" + n, "message": "CHILD " + n, "fork_turns": "none"})
			}
			m.Add(children(), turn("main", spawn("1"), spawn("2")), turn("started", say("they work")))
			a := launch(t, m, codex(t, m), mode == "wrapped")
			a.say("let others do it")
			m.await("at child", 2)
			a.ends(completed)
			a.tasks(2, "running")
			m.Open("child")
			for range 2 {
				a.await("end of a child", func(f *frame) bool { return f.Method == "turn/completed" && f.Params.Turn.Status == completed })
			}
			a.tasks(2, completed)
			a.leave()
			a.verdict("success")
		})
	}
}

// tasks waits until the relay says that there are n tasks, all of a status.
func (a *agent) tasks(n int, status string) {
	a.t.Helper()
	if a.w == nil {
		return
	}
	a.w.until(a.w.run, "tasks "+status, func(v *view.View) bool {
		return len(v.Tasks) == n && !slices.ContainsFunc(v.Tasks, func(k view.TaskView) bool { return k.Status != status })
	})
}

// task waits until the relay says that so many tasks are open and its one task
// has the given status. It returns that one.
func (a *agent) task(open int, status string) (task view.TaskView) {
	a.t.Helper()
	if a.w == nil {
		return task
	}
	a.w.until(a.w.run, "task "+status, func(v *view.View) bool {
		if len(v.Tasks) != 1 || v.Open.Tasks != open || v.Tasks[0].Status != status {
			return false
		}
		task = v.Tasks[0]
		return true
	})
	return task
}

// verdict checks the verdict of a wrapped agent that has left.
func (a *agent) verdict(want string) {
	a.t.Helper()
	if a.w != nil {
		checkState(a.t, a.w.hub, a.w.run, want)
	}
}
