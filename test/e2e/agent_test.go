package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/dialect"
	cb "github.com/cbcast/cbcast/internal/event"
	view "github.com/cbcast/cbcast/internal/run"
)

// An agent is a running program and what its host says to it. It runs bare, and
// the test writes its answers and interrupts on its stdin; or wrapped, and they go
// to the relay.
type agent struct {
	*session
	m *model
	p program
	w *wrap // nil where it runs bare

	requests     int    // of ours
	asked        int    // asks so far
	thread, turn string // of codex

	settled func() // waits until the interrupt is done; nothing when bare
}

// A wrap is what stands around a wrapped agent.
type wrap struct {
	*hub
	run    string
	events *stream
}

// An ask is what the agent waits for.
type ask struct {
	id  string // of cbcast
	req dialect.AskRequest
}

// launch starts p and says what every host says first.
func launch(t *testing.T, m *model, p program, wrapped bool) *agent {
	t.Helper()
	var h *hub
	if wrapped {
		h = up(t)
	}
	return launchOn(t, m, p, h)
}

// launchOn is launch with a hub, nil for a bare agent.
func launchOn(t *testing.T, m *model, p program, h *hub) *agent {
	t.Helper()
	a := &agent{m: m, p: p, settled: func() {}}
	var env []string
	if h != nil {
		a.w = &wrap{hub: h}
		env = h.env()
	}
	a.session = start(t, p, p.argv(h != nil), env...)
	a.open()
	if h != nil {
		a.w.run = a.w.theRun()
		a.w.events = a.w.follow(a.w.run)
	}
	return a
}

// step runs a part of a test as a test of its own.
func (a *agent) step(name string, f func(t *testing.T)) {
	whole := a.t
	ok := whole.Run(name, func(t *testing.T) {
		use := func(t *testing.T) {
			a.t, a.m.t = t, t
			if a.w != nil {
				a.w.t, a.w.events.t = t, t
			}
		}
		use(t)
		defer use(whole)
		f(t)
	})
	if !ok {
		whole.FailNow() // what follows builds on it
	}
}

func (a *agent) open() {
	a.t.Helper()
	if a.p.dialect != dialect.Codex {
		a.initialize()
		return
	}
	approval := "never"
	if a.p.asks {
		approval = "untrusted"
	}
	a.rpc("initialize", map[string]any{
		"clientInfo":   map[string]any{"name": "e2e", "title": "e2e", "version": "1"},
		"capabilities": map[string]any{"experimentalApi": true},
	})
	a.send(map[string]any{"method": "initialized"})
	var res struct{ Thread struct{ ID string } }
	f := a.rpc("thread/start", map[string]any{
		"cwd": a.p.dir, "model": "gpt-5.5", "approvalPolicy": approval, "sandbox": "danger-full-access",
	})
	if err := json.Unmarshal(f.Result, &res); err != nil || res.Thread.ID == "" {
		a.t.Fatalf("thread/start: %s", f.raw)
	}
	a.thread = res.Thread.ID
}

// rpc makes a request of codex and returns its answer.
func (a *agent) rpc(method string, params any) *frame {
	a.t.Helper()
	a.requests++
	a.send(map[string]any{"id": a.requests, "method": method, "params": params})
	id := fmt.Sprint(a.requests)
	f := a.await("answer to "+method, func(f *frame) bool { return string(f.ID) == id && f.Method == "" })
	if f.Error != nil {
		a.t.Fatalf("%s: %s", method, f.raw)
	}
	return f
}

// say sends a user message.
func (a *agent) say(text string) {
	a.t.Helper()
	if a.p.dialect != dialect.Codex {
		a.session.say(text)
		return
	}
	var res struct{ Turn struct{ ID string } }
	f := a.rpc("turn/start", map[string]any{"threadId": a.thread, "input": []map[string]any{{"type": "text", "text": text}}})
	if err := json.Unmarshal(f.Result, &res); err != nil || res.Turn.ID == "" {
		a.t.Fatalf("turn/start: %s", f.raw)
	}
	a.turn = res.Turn.ID
}

// ends of a turn.
const (
	completed   = "completed"
	interrupted = "interrupted"
	failed      = "failed"
)

// turnEnd waits for the end of the turn and says which it was.
func (a *agent) turnEnd() string {
	a.t.Helper()
	if a.p.dialect == dialect.Codex {
		f := a.await("end of the turn", func(f *frame) bool { return f.Method == "turn/completed" && f.Params.ThreadID == a.thread })
		return f.Params.Turn.Status
	}
	r := a.await("result", is("result"))
	switch {
	case strings.HasPrefix(r.TerminalReason, "aborted"):
		return interrupted
	case r.IsError:
		return failed
	}
	return completed
}

// ends waits for the end of the turn and wants it to be the given one.
func (a *agent) ends(want string) {
	a.t.Helper()
	if got := a.turnEnd(); got != want {
		a.t.Errorf("the turn ended as %s, want %s", got, want)
	}
}

// asks waits until the agent asks.
func (a *agent) asks() ask {
	a.t.Helper()
	var q ask
	a.await("ask", func(f *frame) bool {
		list := dialect.AskRequests(f.raw)
		if len(list) != 1 {
			return false
		}
		q.req = list[0]
		return true
	})
	a.asked++
	q.id = fmt.Sprintf("a%d", a.asked)
	return q
}

// answer answers q and returns the relay's status, 202 when bare.
func (a *agent) answer(q ask, ans cb.Answer) int {
	a.t.Helper()
	if a.w != nil {
		a.known(q)
		return a.w.try(http.MethodPost, "/v1/runs/"+a.w.run+"/asks/"+q.id, answerBody(ans), nil)
	}
	line, err := dialect.AnswerLine(a.p.dialect, q.req, ans)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(line)
	return http.StatusAccepted
}

// answerBody is an answer as the relay wants it: the ask stands in the path.
func answerBody(ans cb.Answer) map[string]any {
	b, err := json.Marshal(ans)
	if err != nil {
		panic(err)
	}
	var body map[string]any
	if err := json.Unmarshal(b, &body); err != nil {
		panic(err)
	}
	delete(body, "ask")
	return body
}

// answers is answer with the status that is wanted where a relay decides.
func (a *agent) answers(q ask, ans cb.Answer, want int) {
	a.t.Helper()
	if got := a.answer(q, ans); a.w != nil && got != want {
		a.t.Errorf("%s of %s: %d, want %d", ans.Decision, q.id, got, want)
	}
}

// known waits until the relay knows the ask; the host sees it first.
func (a *agent) known(q ask) {
	a.t.Helper()
	a.w.until(a.w.run, "ask "+q.id, func(v *view.View) bool {
		return slices.ContainsFunc(v.Asks, func(k view.AskView) bool { return k.ID == q.id })
	})
}

// byHand is answer as a person does it: with cbcast and its arguments.
func (a *agent) byHand(q ask, ans cb.Answer, args ...string) {
	a.t.Helper()
	if a.w == nil {
		a.answer(q, ans)
		return
	}
	a.known(q)
	if out, code := a.w.cbcast(args...); code != 0 {
		a.t.Errorf("cbcast %q: exit code %d\n%s", args, code, out)
	}
}

// runID is the run's id, "" when bare.
func (a *agent) runID() string {
	if a.w == nil {
		return ""
	}
	return a.w.run
}

// interrupt interrupts the agent and returns the command's id, "" when bare.
func (a *agent) interrupt() string {
	a.t.Helper()
	if a.w != nil {
		return a.w.interrupt(a.w.run)
	}
	a.requests++
	id := fmt.Sprintf("bare-%d", a.requests)
	if a.p.dialect == dialect.Codex {
		a.write(dialect.CodexInterrupt(id, a.thread, a.turn))
	} else {
		a.write(dialect.Interrupt(a.p.dialect, id, "", "the test says so"))
	}
	return ""
}

// leave ends the agent as its host would and returns its exit code.
func (a *agent) leave() int {
	a.t.Helper()
	if a.p.dialect == dialect.CBC {
		return a.terminate() // it does not leave by itself once a workflow was live
	}
	return a.exit()
}
