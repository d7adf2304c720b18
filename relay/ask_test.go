package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// request is a can_use_tool of the child with the vendor's id "q<n>".
func request(n int, tool, input string) event.Event {
	e := frameOf(fmt.Sprintf(`{"type":"control_request","request_id":"q%d","request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":"c%d"}}`,
		n, tool, input, n))
	e.Type, e.Kind, e.Ext = "dev.cbcast.claude.control_request.can_use_tool", event.Ask, map[string]string{"ask": fmt.Sprint("a", n)}
	return e
}

func bash(n int) event.Event { return request(n, "Bash", `{"command":"make"}`) }

func cancel(n int) event.Event {
	e := frameOf(fmt.Sprintf(`{"type":"control_cancel_request","request_id":"q%d"}`, n))
	e.Type, e.Kind = "dev.cbcast.claude.control_cancel_request", event.Ask
	return e
}

// local is the host's own answer.
func local(n int) event.Event {
	e := frameOf(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":"q%d","response":{"behavior":"allow","updatedInput":{}}}}`, n))
	e.Type, e.Kind, e.Stream = "dev.cbcast.claude.control_response.success", event.Ask, event.In
	return e
}

func started() event.Event {
	return fact(event.TypeStarted, event.Life, event.Started{Dialect: "claude", Argv: []string{"claude"}})
}

// asking is an edge whose child has asked.
func (r *rig) asking(run string, events ...event.Event) *edge {
	e := r.edge(run)
	e.emit(append([]event.Event{started(), note(1)}, events...)...)
	e.shipped()
	return e
}

// say records a fact of a command, as the edge does.
func (e *edge) say(id, name string, f event.Fact, reason string) {
	e.emit(fact(event.TypeCommand, event.Cmd, event.CommandFact{Command: id, Name: name, Fact: f, Reason: reason}))
	e.shipped()
}

// reply is what a relay said to an answer, in short: status, command or code, reason.
func (s *served) reply(run, ask, body string) string {
	s.t.Helper()
	a := s.post("/v1/runs/"+run+"/asks/"+ask, body, nil)
	if a.status < 300 {
		var c relay.CommandAccepted
		a.into(s.t, &c)
		if c.Duplicate != (a.status == http.StatusOK) || c.Run != run || c.Ask != ask || c.Name != "answer" {
			s.t.Errorf("%d %+v", a.status, c)
		}
		return fmt.Sprint(a.status, " ", c.Command)
	}
	var e relay.ErrorBody
	a.into(s.t, &e)
	return strings.TrimSpace(fmt.Sprintf("%d %s %v", a.status, e.Code, orNone(e.Details["reason"])))
}

func orNone(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// on lists the commands that a run has on the bus and those that were audited.
func (r *rig) on(run string) (sent, audited []string) {
	r.t.Helper()
	for e, err := range r.bus.Controls(r.t.Context(), tenant, run) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Type != event.TypeAudit {
			continue
		}
		var a event.Audit
		if err := json.Unmarshal(e.Data, &a); err != nil {
			r.t.Fatal(err)
		}
		if a.Refused != "" {
			continue // there is no command; see TestLateAnswerIsAudited
		}
		audited = append(audited, a.Command)
		if _, err := r.bus.FindCommand(r.t.Context(), a.Command); err == nil {
			sent = append(sent, a.Command)
		} else if !errors.Is(err, bus.ErrNotFound) {
			r.t.Fatal(err)
		}
	}
	return sent, audited
}

const (
	allow = `{"decision":"allow"}`
	deny  = `{"decision":"deny","message":"no"}`
)

// An answer that came too late, or second, is told so, and that somebody gave it
// is kept: once, however often it is given. No command follows from it.
func TestLateAnswerIsAudited(t *testing.T) {
	r := newRig(t, small())
	r.asking("run-1", bash(1), bash(2), cancel(2))
	s := r.relay(relay.Config{})
	big := `{"decision":"allow","updated_input":{"command":"` + strings.Repeat("x", 20<<10) + `"}}`
	for _, c := range []struct{ ask, body, want string }{
		{"a1", allow, "202 answer-run-1-a1-1"},
		{"a1", deny, "409 already_answered"},
		{"a1", deny, "409 already_answered"},
		{"a2", allow, "410 ask_closed withdrawn"},
		{"a2", big, "410 ask_closed withdrawn"},
	} {
		if got := s.reply("run-1", c.ask, c.body); got != c.want {
			t.Errorf("%s %.40s: %s, want %s", c.ask, c.body, got, c.want)
		}
	}
	var got []string
	for e, err := range r.bus.Controls(t.Context(), tenant, "run-1") {
		if err != nil {
			t.Fatal(err)
		}
		var a event.Audit
		if e.Type != event.TypeAudit || json.Unmarshal(e.Data, &a) != nil || a.Refused == "" {
			continue
		}
		if _, err := r.bus.FindCommand(t.Context(), a.Command); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s is on the bus: %v", a.Command, err)
		}
		got = append(got, fmt.Sprintf("%s %s by %s, %d bytes: %s", a.Args.Ask, a.Args.Decision, a.Actor, len(a.Args.UpdatedInput), a.Refused))
	}
	want := []string{
		"a1 deny by local, 0 bytes: somebody else has answered this first",
		"a2 allow by local, 0 bytes: the ask is open no more: withdrawn",
		"a2 allow by local, 0 bytes: the ask is open no more: withdrawn",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("late answers (-want +got):\n%s", d)
	}
}

// An answer that was not delivered leaves the ask open for another one; one whose
// ask was closed, or of which nobody knows, does not.
func TestAnswerAgainAfter(t *testing.T) {
	for _, c := range []struct {
		fact    event.Fact
		reason  string
		written bool
		same    string
		other   string
	}{
		{event.Expired, "delivered too late", false, "202 answer-run-1-a1-2", "409 already_answered"},
		{event.Refused, "bad_answer: the request is not kept here", false, "202 answer-run-1-a1-2", "409 already_answered"},
		{event.Refused, "stdin_closed", false, "202 answer-run-1-a1-2", "409 already_answered"},
		{event.Refused, "withdrawn", false, "410 ask_closed withdrawn", "410 ask_closed withdrawn"},
		{event.Refused, "already_answered_locally: by the host", false, "410 ask_closed already_answered_locally", "410 ask_closed already_answered_locally"},
		{event.Refused, "unknown_ask", false, "410 ask_closed unknown_ask", "410 ask_closed unknown_ask"},
		{event.Refused, "already_answered: by the policy", false, "410 ask_closed already_answered", "410 ask_closed already_answered"},
		{event.NoEffect, "answered_local", true, "410 ask_closed answered_local", "410 ask_closed answered_local"},
		{event.UnknownF, "the edge went away", false, "200 answer-run-1-a1-1", "409 already_answered"},
		{event.Refused, "the child said no", true, "200 answer-run-1-a1-1", "409 already_answered"},
		{event.Settled, "", true, "200 answer-run-1-a1-1", "409 already_answered"},
	} {
		t.Run(string(c.fact)+" "+c.reason, func(t *testing.T) {
			r := newRig(t, small())
			e := r.asking("run-1", bash(1))
			s := r.relay(relay.Config{})
			if g := s.reply("run-1", "a1", allow); g != "202 answer-run-1-a1-1" {
				t.Fatal(g)
			}
			if c.written {
				e.say("answer-run-1-a1-1", "answer", event.Written, "")
			}
			e.say("answer-run-1-a1-1", "answer", c.fact, c.reason)
			if g := s.reply("run-1", "a1", allow); g != c.same {
				t.Errorf("the same: %s, want %s", g, c.same)
			}
			if g := s.reply("run-1", "a1", deny); g != c.other {
				t.Errorf("another: %s, want %s", g, c.other)
			}
		})
	}
}

// Asks are found without reading runs, and listed with what a person needs; one
// decided on the bus says so before the edge does (case 060).
func TestAskList(t *testing.T) {
	r := newRig(t, small())
	e := r.asking("run-1", bash(1), request(2, "AskUserQuestion", questions), bash(3), cancel(3))
	s := r.relay(relay.Config{})
	list := func(query string) []string {
		t.Helper()
		var l relay.AskList
		s.get("/v1/runs/run-1/asks"+query, nil).into(t, &l)
		var got []string
		for _, a := range l.Asks {
			line := fmt.Sprint(a.ID, " ", a.Class, " ", a.Kind, " ", a.State)
			if a.Decided != nil {
				line += " " + a.Decided.Decision + " by " + a.Decided.By + " " + a.Decided.Command
			}
			got = append(got, line)
		}
		return append(got, l.State+" "+l.WaitingFor)
	}
	want := []string{"a1 approval permission open", "a2 question question open", "waiting approval"}
	if diff := cmp.Diff(want, list("?state=open")); diff != "" {
		t.Error(diff)
	}
	// A relay that starts later, and for a client that saw none of the events.
	old := s
	s = r.relay(relay.Config{})
	if diff := cmp.Diff(want, list("?state=open")); diff != "" {
		t.Errorf("another relay: %s", diff)
	}
	s = old
	if got := list("?state=closed"); got[0] != "a3 approval permission closed" {
		t.Errorf("closed: %q", got)
	}
	if got := s.get("/v1/runs/run-1/asks?state=x", nil); got.status != http.StatusBadRequest {
		t.Errorf("a state that is none: %d", got.status)
	}
	if got := s.get("/v1/runs/none/asks", nil); got.status != http.StatusNotFound {
		t.Errorf("a run that is none: %d", got.status)
	}
	if g := s.reply("run-1", "a1", deny); g != "202 answer-run-1-a1-1" {
		t.Fatal(g)
	}
	s.until(func() bool { return list("")[0] == "a1 approval permission open deny by bus answer-run-1-a1-1" })
	e.say("answer-run-1-a1-1", "answer", event.Refused, "stdin_closed")
	s.until(func() bool { return list("")[0] == "a1 approval permission open" })
	e.info.State, e.info.WaitingFor, e.info.OpenAsks = "waiting", "approval", 2
	e.register()
	s.until(func() bool { return s.entry("run-1").OpenAsks == 2 })
	var l relay.RunList
	s.get("/v1/runs?waiting_for=approval", nil).into(t, &l)
	if len(l.Runs) != 1 || l.Runs[0].WaitingFor != "approval" {
		t.Errorf("waiting for approval: %+v", l)
	}
	if s.get("/v1/runs?waiting_for=input", nil).into(t, &l); len(l.Runs) != 0 {
		t.Errorf("waiting for input: %+v", l)
	}
}
