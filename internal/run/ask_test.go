package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// asker makes the events of a claude child's asks, as its edge does.
type asker struct {
	t   *testing.T
	s   *run.State
	seq uint64
}

func newAsker(t *testing.T) *asker {
	a := &asker{t: t, s: run.New("r")}
	a.fact(event.TypeStarted, event.Started{Dialect: "claude"})
	a.out(initLine, "")
	a.out(asst, "")
	return a
}

func (a *asker) apply(e event.Event) {
	a.seq++
	e.Tenant, e.Run, e.Seq, e.Time, e.ContentType = "t", "r", a.seq, time.Unix(int64(a.seq), 0), event.JSON
	a.s.Apply(&e)
}

func (a *asker) fact(typ string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		a.t.Fatal(err)
	}
	a.apply(event.Event{Type: typ, Stream: event.Edge, Data: b})
}

// ext is "name=value name=value".
func ext(s string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

func (a *asker) out(line, x string) {
	a.apply(event.Event{Type: "dev.cbcast.claude.x", Stream: event.Out, Data: []byte(line), Session: sid, Ext: ext(x)})
}

func (a *asker) in(line, x string) {
	a.apply(event.Event{Type: "dev.cbcast.claude.x", Stream: event.In, Data: []byte(line), Session: sid, Ext: ext(x)})
}

func (a *asker) ask(id, tool, input, x string) {
	a.out(`{"type":"control_request","request_id":`+id+`,"request":{"subtype":"can_use_tool","tool_name":"`+tool+`","input":`+input+`,"tool_use_id":"c`+strings.Trim(id, `"`)+`"}}`, x)
}

func (a *asker) answer(id, behavior, x string) {
	a.in(`{"type":"control_response","response":{"subtype":"success","request_id":`+id+`,"response":{"behavior":"`+behavior+`"}}}`, x)
}

func (a *asker) result(call string) {
	a.out(`{"type":"user","session_id":"`+sid+`","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"`+call+`","content":"x"}]}}`, "")
}

func (a *asker) ctl(typ string) {
	a.s.Apply(&event.Event{Tenant: "t", Run: "r", Ref: "x", Type: typ, Time: time.Unix(99, 0), ContentType: event.JSON, Data: []byte(`{}`)})
}

// short tells all asks: id, state, who decided what, where it was written, why it
// is closed, what came of it.
func (a *asker) short() (out []string) {
	for _, v := range a.s.View().Asks {
		s := v.ID + " " + v.State
		if d := v.Decided; d != nil {
			s += " " + d.Decision + "/" + d.By
			if d.Command != "" {
				s += "/" + d.Command
			}
		}
		if v.Written != nil {
			s += fmt.Sprintf(" written@%d", v.Written.Seq)
		}
		if v.Closed != nil {
			s += " " + v.Closed.Reason
		}
		out = append(out, strings.TrimSpace(s+" "+v.Outcome))
	}
	return out
}

func (a *asker) want(what string, asks ...string) {
	a.t.Helper()
	if d := cmp.Diff(asks, a.short()); d != "" {
		a.t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// The facts of an ask that is answered through the bus.
func TestAskFacts(t *testing.T) {
	a := newAsker(t)
	a.ask(`"q"`, "Bash", `{"command":"ls\nrm"}`, "ask=a1")
	v := a.s.View().Asks[0]
	if v.Title != "ls…" || v.Class != "approval" || v.Kind != "permission" || string(v.Form.Input) != `{"command":"ls\nrm"}` {
		t.Errorf("%+v", v)
	}
	a.answer(`"q"`, "allow", "ask=a1 origin=cbcast")
	a.want("written", "a1 answered allow/bus written@5")
	a.fact(event.TypeCommand, event.CommandFact{Command: "c1", Name: "answer", Fact: event.Written, Detail: map[string]string{"ask": "a1", "decision": "allow"}})
	a.want("fact", "a1 answered allow/bus/c1 written@5")
	if a.s.Phase() != "working" {
		t.Error("it still waits")
	}
	a.result("cq")
	a.want("closed", "a1 closed allow/bus/c1 written@5 answered ran")
	if a.s.AsksClosed() != 1 || a.s.View().Asks[0].Form != nil {
		t.Errorf("closed %d, form %+v", a.s.AsksClosed(), a.s.View().Asks[0].Form)
	}
	a.answer(`"q"`, "deny", "ask=a1")
	a.want("again", "a1 closed allow/bus/c1 written@5 answered ran")
}

// While its edge is lost an answered ask is unknown; what comes later settles it.
func TestAskLostEdge(t *testing.T) {
	a := newAsker(t)
	a.ask(`"q"`, "Bash", `{}`, "ask=a1")
	a.answer(`"q"`, "allow", "ask=a1 origin=cbcast")
	a.ctl(event.TypeLost)
	a.want("lost", "a1 unknown allow/bus written@5 unknown")
	a.ctl(event.TypeResumed)
	a.want("resumed", "a1 answered allow/bus written@5")
	a.result("cq")
	a.want("closed", "a1 closed allow/bus written@5 answered ran")
}

// A command whose fate nobody knows makes its ask unknown, until the agent shows it.
func TestAskUnknownCommand(t *testing.T) {
	lost := event.CommandFact{Command: "c1", Name: "answer", Fact: event.UnknownF, Detail: map[string]string{"ask": "a1", "decision": "deny"}}
	a := newAsker(t)
	a.ask(`"q"`, "Bash", `{}`, "ask=a1")
	a.fact(event.TypeCommand, lost)
	a.want("unknown", "a1 unknown deny/bus/c1 unknown")
	if a.s.View().Open.Asks != 0 {
		t.Error("it is offered for an answer")
	}
	a.result("cq")
	a.want("shown", "a1 closed deny/bus/c1 answered denied")

	a = newAsker(t)
	a.ask(`"q"`, "Bash", `{}`, "ask=a1")
	a.ask(`"r"`, "Bash", `{}`, "ask=a2")
	a.fact(event.TypeCommand, lost)
	a.fact(event.TypeExited, event.Exited{Reason: "edge_died"})
	a.want("died", "a1 unknown deny/bus/c1 unknown", "a2 closed run_ended none")
}

// The edge's own word closes an ask where the evidence is missing, and ids follow
// the edge's count where asks are.
func TestAskMissingEvents(t *testing.T) {
	a := newAsker(t)
	a.ask(`"q"`, "Bash", `{}`, "ask=a3")
	a.fact(event.TypeAsk, event.AskClosed{Ask: "a3", Reason: "answered_local", By: "host", Decision: "allow", Outcome: "failed"})
	a.fact(event.TypeAsk, event.AskClosed{Ask: "a2", Reason: "withdrawn"})
	a.ask(`"r"`, "Bash", `{}`, "")
	a.ask(`"s"`, "Bash", `{}`, "ask=nonsense")
	a.want("closed", "a3 closed allow/host answered_local failed", "a4 open", "a5 open")
}

// Claude Code tells what is open again in its answer to a second initialize.
func TestAskToldAgain(t *testing.T) {
	a := newAsker(t)
	a.ask(`"q"`, "Bash", `{}`, "ask=a1")
	pending := func(ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, `{"type":"control_request","request_id":`+id+`,"request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}`)
		}
		return `{"type":"control_response","response":{"subtype":"success","request_id":"i","response":{},"pending_permission_requests":[` + strings.Join(list, ",") + `]}}`
	}
	a.ask(`"q"`, "Bash", `{}`, "ask=a1")
	a.out(pending(`"q"`, `"new"`), "ask=a1,a2")
	a.want("again", "a1 open", "a2 open")
	a.answer(`"q"`, "allow", "ask=a1")
	a.out(pending(`"q"`), "ask=a1") // its answer is on the way
	a.want("answered", "a1 answered allow/host written@7", "a2 open")
}

// A rule's decision is never waited for; where it could not be written the ask is
// open for people. Questions and approvals are waited for by their class.
func TestAskByPolicy(t *testing.T) {
	a := newAsker(t)
	a.ask(`"q"`, "Read", `{}`, "ask=a1 auto=allow")
	if a.s.Phase() == "waiting" {
		t.Error("it waits for the rule")
	}
	a.fact(event.TypeDecision, event.AutoDecided{Ask: "a1", Decision: "allow", Rule: "reads", Cause: "rule"})
	a.want("decided", "a1 answered allow/policy")
	a.fact(event.TypeDecision, event.AutoDecided{Ask: "a1", Decision: "allow", Rule: "reads", Cause: "rule", Error: "stdin_closed"})
	a.want("not written", "a1 open")
	if v := a.s.View(); v.WaitingFor != "approval" || len(v.Warnings) != 1 {
		t.Errorf("waits for %q, warnings %+v", v.WaitingFor, v.Warnings)
	}
	a.answer(`"q"`, "allow", "ask=a1") // the host
	a.result("cq")
	a.want("by hand", "a1 closed allow/host written@7 answered_local ran")

	a.ask(`"r"`, "Bash", `{"command":"x"}`, "ask=a2")
	a.ask(`"s"`, "AskUserQuestion", `{"questions":[{"question":"Which?","multiSelect":true,"options":[{"label":"Red","description":"r"}]}]}`, "ask=a3")
	if v := a.s.View(); v.WaitingFor != "approval" || v.Open.Approvals != 1 || v.Open.Questions != 1 {
		t.Errorf("waits for %q, %+v", v.WaitingFor, v.Open)
	}
	want := []run.AskQuestion{{ID: "Which?", Text: "Which?", Multi: true, Other: true, Options: []run.AskOption{{Label: "Red", Description: "r"}}}}
	if v, ok := a.s.Ask("a3"); !ok || v.Title != "Which?" || cmp.Diff(want, v.Form.Questions) != "" {
		t.Errorf("%+v %+v", v, v.Form)
	}
	a.fact(event.TypeDecision, event.AutoDecided{Ask: "a2", Decision: "deny", Cause: "timeout"})
	a.answer(`"r"`, "deny", "ask=a2 origin=cbcast")
	a.result("cr")
	if v := a.s.View(); v.WaitingFor != "input" {
		t.Errorf("waits for %q", v.WaitingFor)
	}
	a.ask(`"t"`, "Bash", `{"command":"x"}`, "ask=a4")
	a.ask(`"u"`, "Bash", `{"command":"y"}`, "ask=a5")
	a.want("timeout", "a1 closed allow/host written@7 answered_local ran", "a2 closed deny/policy written@12 expired denied", "a3 open", "a4 open", "a5 open")
	if v := a.s.View().Asks; v[3].Repeats != 1 || v[4].Repeats != 0 {
		t.Errorf("repeats %d and %d", v[3].Repeats, v[4].Repeats)
	}
}
