package e2e

import (
	"maps"
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

var scenarios = map[string]scenario{}

func init() {
	for _, list := range []map[string]scenario{claudeInterrupts, cbcInterrupts, codexInterrupts} {
		maps.Copy(scenarios, list)
	}
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
