package e2e

import (
	"testing"

	"github.com/cbcast/cbcast/test/mockmodel"
)

// agents are the programs under test, by name.
var agents = map[string]func(*testing.T, *model, ...string) program{
	"claude-2.1.220": claude, "cbc-2.163.0": cbc, "cbc-2.117.0": cbc117, "codex-0.153.4": codex,
}

// The scripted model and this harness work with the bare programs. When this
// fails, cbcast is not the reason.
func TestBare(t *testing.T) {
	for name, agent := range agents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, mockmodel.Turn{Name: "hello", Steps: []mockmodel.Step{{Say: "hello from the model"}}})
			a := launch(t, m, agent(t, m), false)
			a.say("hello")
			a.ends(completed)
			if code := a.exit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}
