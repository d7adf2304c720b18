package e2e

import (
	"net/http"
	"testing"

	"github.com/cbcast/cbcast/internal/dialect"
	view "github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// driven is p as cbcast drives it: it brings the flags of its own.
func driven(agent func(*testing.T, *model, ...string) program) func(*testing.T, *model) program {
	return func(t *testing.T, m *model) program {
		p := agent(t, m, []string{}...)
		if p.dialect == dialect.Codex {
			p.args = []string{"--sandbox", "danger-full-access", "--ask-for-approval", "untrusted"}
			return p
		}
		return p.asking()
	}
}

// A drive is a run without a host.
type drive struct {
	turns   func(p program) []mockmodel.Turn
	act     func(t *testing.T, m *model, w *wrap) // what happens from outside, nil for nothing
	code    int
	verdict string
}

var drives = map[string]drive{
	"success": {
		turns: func(p program) []mockmodel.Turn { return []mockmodel.Turn{turn("main", say("all done"))} },
		code:  0, verdict: "success",
	},
	"api error": {
		turns: func(program) []mockmodel.Turn { return []mockmodel.Turn{{Name: "main", Status: 400, Times: -1}} },
		code:  1, verdict: "failed",
	},
	"denied tool": {
		turns: func(p program) []mockmodel.Turn {
			return []mockmodel.Turn{turn("main", p.shell("touch denied")), turn("told", say("then not"))}
		},
		act: func(t *testing.T, _ *model, w *wrap) {
			w.until(w.run, "ask", func(v *view.View) bool { return v.Open.Asks == 1 })
			if out, code := w.cbcast("deny", "last", "a1"); code != 0 {
				t.Errorf("cbcast deny: exit code %d\n%s", code, out)
			}
		},
		code: 3, verdict: "denied",
	},
	"killed sub-agent": {
		turns: func(p program) []mockmodel.Turn {
			child := mockmodel.Turn{Name: "child", Last: `CHILD \d`, Times: -1, Steps: []mockmodel.Step{say("work"), gate("child")}}
			return []mockmodel.Turn{child, turn("main", p.subagent()), turn("started", say("it works")), turn("woken", say("it was stopped"))}
		},
		act: func(t *testing.T, m *model, w *wrap) {
			v := w.until(w.run, "a task and no turn", func(v *view.View) bool { return v.Open.Tasks == 1 && v.Open.Turns == 0 })
			m.await("at child", 1)
			if v.Dialect == string(dialect.CBC) { // it knows no stop_task
				w.interrupt(w.run)
				return
			}
			for _, task := range v.Tasks {
				if status := w.try(http.MethodPost, "/v1/runs/"+w.run+"/stop_task", map[string]any{"task": task.ID}, nil); status != http.StatusAccepted {
					t.Errorf("stop_task: %d", status)
				}
			}
		},
		code: 5, verdict: "interrupted",
	},
}

// subagent is the call that starts a sub-agent in the background; it is asked for
// with CHILD 1.
func (p program) subagent() mockmodel.Step {
	switch p.dialect {
	case dialect.Codex:
		return call("collaboration/spawn_agent", map[string]any{"task_name": "child", "message": "CHILD 1", "fork_turns": "none"})
	case dialect.CBC: // the end of a background Agent is never told; that of a workflow is
		return call("DeferExecuteTool", map[string]any{"toolName": "Workflow", "params": map[string]any{"script": single}})
	}
	return call("Agent", map[string]any{"description": "child", "prompt": "CHILD 1", "subagent_type": "general-purpose", "run_in_background": true})
}

const single = `export const meta = { name: 'one-flow', description: 'one agent' }
const r = await agent('CHILD 1', { label: 'child-1' })
return { r }
`

// TestDriver has cbcast drive each program with a prompt, to each kind of end.
func TestDriver(t *testing.T) {
	for name, program := range map[string]func(*testing.T, *model, ...string) program{
		"claude-2.1.220": claude, "cbc-2.163.0": cbc, "codex-0.153.4": codex,
	} {
		for what, d := range drives {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				m := newModel(t)
				p := driven(program)(t, m)
				if what == "killed sub-agent" && p.dialect == dialect.CBC {
					p = cbc(t, m, []string{}...) // it asks before it starts one
				}
				m.Add(d.turns(p)...)
				w := &wrap{hub: up(t)}
				argv := append([]string{cbcast(), "run", "--prompt", "go", "--output", "stream", "--dialect", string(p.dialect), "--", p.path}, p.args...)
				s := start(t, p, argv, w.env()...)
				w.run = w.theRun()
				w.events = w.follow(w.run)
				if d.act != nil {
					d.act(t, m, w)
				}
				if code := s.wait(); code != d.code {
					t.Errorf("exit code %d, want %d", code, d.code)
				}
				checkState(t, w.hub, w.run, d.verdict)
			})
		}
	}
}
