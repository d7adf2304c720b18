package e2e

import (
	"testing"

	"github.com/cbcast/cbcast/test/mockmodel"
)

// The scripted model and this harness work with the bare programs. When this
// fails, cbcast is not the reason.
func TestBare(t *testing.T) {
	for name, agent := range map[string]func(*testing.T, *model, ...string) program{"claude": claude, "cbc": cbc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, mockmodel.Turn{Name: "hello", Steps: []mockmodel.Step{{Say: "hello from the model"}}})
			p := agent(t, m)
			s := start(t, p, append([]string{p.path}, p.args...))
			s.say("hello")
			init := s.await("init", is("system", "init"))
			s.await("answer", is("assistant"))
			r := s.await("result", is("result"))
			if r.IsError || r.SessionID != init.SessionID {
				t.Errorf("result %s", r.raw)
			}
			if code := s.exit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}
