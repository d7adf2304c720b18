package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// talk gives an agent the time to read the first half of an answer. What it has not
// read when it is interrupted it does not repeat.
var talk = mockmodel.Step{Say: "a long answer", Pause: 400 * time.Millisecond}

// slow are the turns of a long answer.
func slow(*model) []mockmodel.Turn {
	return []mockmodel.Turn{turn("main", talk, gate("main"))}
}

var claudeInterrupts = map[string]scenario{
	"claude/streaming": {
		agent: claude,
		turns: slow,
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
	// A command in the background survives.
	"claude/background": {
		agent: claude,
		turns: func(m *model) []mockmodel.Turn {
			return []mockmodel.Turn{turn("main", program{}.background(m.atGate("bg"))), turn("started", say("it runs")), turn("woken", say("it is done"))}
		},
		play: func(t *testing.T, m *model, a *agent) {
			a.say("run it in the background")
			m.await("at bg", 1)
			a.ends(completed)
			a.interrupt()
			a.settled()
			m.Open("bg")
			a.finish()
			a.ends(completed)
		},
		facts:   []string{"written", "acked", "no_effect"},
		verdict: "success",
	},
}

var cbcInterrupts = map[string]scenario{
	"cbc/streaming": {
		agent: cbc,
		turns: slow,
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
	"cbc/bash": {
		agent: cbc,
		turns: inShell(program{}),
		play: func(t *testing.T, m *model, a *agent) {
			a.say("run it")
			m.await("at bash", 1)
			a.interrupt()
			a.ends(interrupted)
			m.await("left bash", 1)
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"cbc-2.117.0/streaming": {
		agent:   cbc117,
		turns:   slow,
		play:    cut117("main"),
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"cbc-2.117.0/bash": {
		agent:   cbc117,
		turns:   inShell(program{}),
		play:    cut117("bash"),
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
}

// inShell is a turn with a command that waits at the gate "bash".
func inShell(p program) func(m *model) []mockmodel.Turn {
	return func(m *model) []mockmodel.Turn { return []mockmodel.Turn{turn("main", p.shell(m.atGate("bash")))} }
}

// cut117 interrupts cbc 2.117.0 at a gate. Its result says nothing of it; a message
// before does.
func cut117(at string) func(*testing.T, *model, *agent) {
	return func(_ *testing.T, m *model, a *agent) {
		a.say("go")
		m.await("at "+at, 1)
		a.interrupt()
		a.await("word of it", func(f *frame) bool {
			return f.Type == "assistant" && strings.Contains(string(f.raw), "Interrupted by user")
		})
		a.ends(completed)
		m.await("left "+at, 1)
		a.settled()
	}
}

var codexInterrupts = map[string]scenario{
	"codex/streaming": {
		agent: codex,
		turns: slow,
		play: func(_ *testing.T, m *model, a *agent) {
			a.say("talk")
			m.await("at main", 1)
			a.interrupt()
			a.ends(interrupted)
			a.settled() // it keeps the model's stream
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	"codex/command": {
		agent: codex,
		turns: inShell(program{dialect: dialect.Codex}),
		play: func(_ *testing.T, m *model, a *agent) {
			a.say("run it")
			m.await("at bash", 1)
			a.interrupt()
			a.ends(interrupted)
			m.await("left bash", 1)
			a.settled()
		},
		facts:   []string{"written", "acked", "settled"},
		verdict: "interrupted",
	},
	// No turn runs, and what codex leaves in the background has none to interrupt.
	"codex/background": {
		agent: codex,
		turns: func(m *model) []mockmodel.Turn {
			p := program{dialect: dialect.Codex}
			return []mockmodel.Turn{turn("main", p.background(m.atGate("bg"))), turn("started", say("it runs"))}
		},
		play: func(_ *testing.T, m *model, a *agent) {
			a.say("run it in the background")
			m.await("at bg", 1)
			a.ends(completed)
			a.interrupt()
			a.settled()
			m.Open("bg")
			a.finish()
		},
		facts:   []string{"no_effect"},
		verdict: "success",
	},
}
