package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/test/mockmodel"
)

// A scenario interrupts an agent at one well-defined moment and checks what it
// does then. It runs bare, with the interrupt on the agent's stdin, which checks
// the scenario; and wrapped, with the interrupt over HTTP, which checks cbcast.
type scenario struct {
	agent   func(*testing.T, *model, ...string) program
	turns   func(m *model) []mockmodel.Turn
	play    func(t *testing.T, m *model, a *agent)
	facts   []string // of the wrapped command, as its run's events tell them
	verdict string   // of the wrapped run
}

func say(text string) mockmodel.Step  { return mockmodel.Step{Say: text} }
func gate(name string) mockmodel.Step { return mockmodel.Step{Gate: name} }

func call(tool string, input any) mockmodel.Step {
	return mockmodel.Step{Call: tool, Input: input}
}

func turn(name string, steps ...mockmodel.Step) mockmodel.Turn {
	return mockmodel.Turn{Name: name, Steps: steps}
}

// script is a workflow of two agents side by side; both wait at the gate "child".
const script = `export const meta = { name: 'two-flow', description: 'two agents', phases: [{ title: 'Gather' }] }
phase('Gather')
const r = await parallel([1, 2].map(i => () => agent('CHILD ' + i, { label: 'child-' + i })))
return { r }
`

func children() mockmodel.Turn {
	return mockmodel.Turn{Name: "child", Last: `CHILD \d`, Times: -1, Steps: []mockmodel.Step{say("work"), gate("child")}}
}

func claudeWorkflow() mockmodel.Step {
	return call("Workflow", map[string]any{"script": script})
}

func cbcWorkflow() mockmodel.Step {
	return call("DeferExecuteTool", map[string]any{"toolName": "Workflow", "params": map[string]any{"script": script}})
}

var scenarios = map[string]scenario{
	"claude/streaming": {
		agent: claude,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{turn("main", say("a long answer"), gate("main"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("talk")
			m.await("at main", 1)
			a.interrupt()
			a.await("aborted answer", func(f *frame) bool { return f.Type == "assistant" && f.Aborted })
			r := a.await("result", is("result"))
			if r.Subtype != "error_during_execution" || r.TerminalReason != "aborted_streaming" {
				t.Errorf("result %s", r.name())
			}
			m.await("left main", 1)
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"claude/bash": {
		agent: claude,
		turns: func(m *model) []mockmodel.Turn {
			return []mockmodel.Turn{turn("main", call("Bash", map[string]any{"command": m.atGate("bash"), "timeout": 600000}))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("run it")
			m.await("at bash", 1)
			a.interrupt()
			r := a.await("result", is("result"))
			if r.TerminalReason != "aborted_tools" {
				t.Errorf("result %s", r.name())
			}
			m.await("left bash", 1) // the command is dead, too
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"claude/workflow-idle": {
		agent: claude,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{children(), turn("start", claudeWorkflow()), turn("running", say("it runs"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("use a workflow")
			r := a.await("result", is("result"))
			m.await("at child", 2)
			a.interrupt()
			end := a.awaitTaskEnd()
			m.await("left child", 2)
			a.settled()
			if code := a.exit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if names := a.between(r, end); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "result") }) {
				t.Errorf("an idle interrupt made a result: %q", names)
			}
		},
		facts:   []string{"written", "settled", "acked"}, // its answer comes last
		verdict: "interrupted",
	},
	"claude/workflow-streaming": {
		agent: claude,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{children(), turn("start", claudeWorkflow()), turn("main", say("it runs"), gate("main"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("use a workflow")
			m.await("at main", 1)
			m.await("at child", 2)
			a.interrupt()
			a.awaitTaskEnd()
			r := a.await("result", is("result"))
			if r.TerminalReason != "aborted_streaming" {
				t.Errorf("result %s", r.name())
			}
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"cbc/streaming": {
		agent: cbc,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{turn("main", say("a long answer"), gate("main"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("talk")
			m.await("at main", 1)
			a.interrupt()
			r := a.await("result", is("result"))
			if r.Subtype != "success" || r.TerminalReason != "aborted_streaming" {
				t.Errorf("result %s: cbc calls an aborted turn a success", r.name())
			}
			m.await("left main", 1)
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	// The model streams are cut at once, but cbc reports it up to 30 s later, in a
	// turn that it starts itself.
	"cbc/workflow-idle": {
		agent: cbc,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{children(), turn("start", cbcWorkflow()), turn("running", say("it runs")), turn("wake", say("stopped"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("use a workflow")
			a.await("result", is("result"))
			m.await("at child", 2)
			a.interrupt()
			m.await("left child", 2)
			a.awaitTaskEnd()
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	// The first interrupt kills the tasks while the turn goes on: cbc feeds the
	// notification into it and calls the model again. The second ends the turn.
	"cbc/workflow-streaming": {
		agent: cbc,
		turns: func(*model) []mockmodel.Turn {
			return []mockmodel.Turn{
				children(), turn("start", cbcWorkflow()), turn("main", say("it runs"), gate("main")),
				turn("again", say("it was stopped"), gate("again")),
			}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("use a workflow")
			m.await("at main", 1)
			m.await("at child", 2)
			a.interrupt()
			a.awaitTaskEnd()
			if a.w == nil {
				m.await("at again", 1)
				a.interrupt() // wrapped, the edge does this by itself
			}
			r := a.await("result", is("result"))
			if !strings.HasPrefix(r.TerminalReason, "aborted") {
				t.Errorf("result %s", r.name())
			}
			a.settled()
		},
		facts:   []string{"written", "acked", "written", "acked", "settled"}, // a second interrupt follows
		verdict: "interrupted",
	},
}

// awaitTaskEnd waits for both ends of a killed task: updated and notified.
func (a *agent) awaitTaskEnd() *frame {
	a.t.Helper()
	u := a.await("task killed", func(f *frame) bool { return is("system", "task_updated")(f) && f.Patch.Status == "killed" })
	n := a.await("task stopped", is("system", "task_notification"))
	if n.Status != "stopped" || n.TaskID != u.TaskID {
		a.t.Errorf("task %s was killed, then %s: %s", u.TaskID, n.TaskID, n.Status)
	}
	return n
}

// initialize does what every host does first.
func (s *session) initialize() {
	s.t.Helper()
	s.send(map[string]any{
		"type": "control_request", "request_id": "init",
		"request": map[string]any{"subtype": "initialize", "hooks": map[string]any{}, "capabilities": map[string]any{"askUserQuestion": true}},
	})
	s.await("answer to initialize", is("control_response"))
}

func TestInterruptBare(t *testing.T) {
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.Add(sc.turns(m)...)
			a := launch(t, m, sc.agent(t, m), false)
			sc.play(t, m, a)
			a.leave()
		})
	}
}
