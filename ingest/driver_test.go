package ingest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// shortGrace is a grace that a test can wait for.
const shortGrace = 150 * time.Millisecond

// drive starts an agent that cbcast itself drives.
func drive(t *testing.T, o ingest.Options, d dialect.Name, change func(*ingest.Drive), prompts ...string) *rig {
	t.Helper()
	ingest.SetGrace(t, shortGrace, 0, 0)
	o.Dialect, o.Drive = d, &ingest.Drive{Prompts: prompts}
	if change != nil {
		change(o.Drive)
	}
	return wrap(t, o)
}

// said is one line of stream-json that the driver wrote.
type said struct {
	Type    string
	UUID    string
	Request struct {
		Subtype      string
		Capabilities map[string]bool
		Reason       string
	}
	Message  struct{ Content string }
	Response struct {
		Subtype string
		ID      json.RawMessage `json:"request_id"`
		Error   string
	}
	ID string `json:"request_id"`
}

func (r *rig) said() said {
	r.Helper()
	line, err := r.read()
	if err != nil {
		r.Fatalf("want a line of the driver, got %v", err)
	}
	var s said
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		r.Fatalf("%q: %v", line, err)
	}
	return s
}

// hello answers initialize.
func (r *rig) hello() said {
	r.Helper()
	s := r.said()
	if s.Type != "control_request" || s.Request.Subtype != "initialize" || !strings.HasPrefix(s.ID, "cbcast-") {
		r.Fatalf("first line is %+v", s)
	}
	r.say(ack(s.ID))
	return s
}

// prompted waits for a prompt.
func (r *rig) prompted(text string) said {
	r.Helper()
	s := r.said()
	if s.Type != "user" || s.Message.Content != text || len(s.UUID) < 36 {
		r.Fatalf("want the message %.40q, got %.300v", text, s)
	}
	return s
}

// eof waits for the end of the agent's stdin.
func (r *rig) eof() {
	r.Helper()
	if line, err := r.read(); !errors.Is(err, io.EOF) {
		r.Fatalf("got %q, want EOF", line)
	}
}

// silent checks that nothing came to the agent's stdin up to now.
func (r *rig) silent() {
	r.Helper()
	select {
	case rep := <-r.reports:
		r.Fatalf("the agent got %+v", rep)
	default:
	}
}

// A prompt is driven to its end: initialize, the message with an id of its own,
// EOF when nothing is open. The prompt is nowhere on the bus, our request's
// answer not on stdout.
func TestDrive(t *testing.T) {
	const prompt = "fix the \u2028 flaky tests, and\nsay \"done\" \U0001f600"
	var views []run.View
	o := options(t)
	o.Progress = func(v run.View) { views = append(views, v) }
	r := drive(t, o, dialect.Claude, nil, prompt)
	r.hello()
	m := r.prompted(prompt)
	lines := []string{claude.init(), claude.text("hello"), claude.result()}
	r.say(lines...)
	r.eof()
	out := r.exit(0)
	equal(t, "driven", out.Driven, ingest.Driven{Answer: "done"})
	equal(t, "verdict", out.State.Verdict().Verdict, run.Success)
	equal(t, "stdout", r.stdout(), strings.Join(lines, "\n")+"\n")
	evs := r.w.history(t, r.run)
	for _, e := range evs {
		if bytes.Contains(e.Data, []byte("flaky")) {
			t.Errorf("event %d has the prompt: %s", e.Seq, e.Data)
		}
	}
	in := one[event.Input](t, evs, event.TypeInput)
	equal(t, "input", []string{in.Type, in.UUID}, []string{"user", m.UUID})
	st := one[event.Started](t, evs, event.TypeStarted)
	equal(t, "driven", st.Driven, true)
	equal(t, "argv", st.Argv[1:], []string{
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--permission-prompt-tool", "stdio",
	})
	equal(t, "ended", one[event.Exited](t, evs, event.TypeExited).Ended, "")
	if n := len(views); n == 0 || views[n-1].Verdict == nil {
		t.Errorf("%d looks, the last without a verdict", n)
	}
}

// Work that goes on past the result, the turn that its end wakes, an ask that
// waits for a person and a message from the bus: stdin stays open for all of it.
func TestDriveStaysOpen(t *testing.T) {
	r := drive(t, options(t), dialect.Claude, nil, "go")
	r.hello()
	r.prompted("go")
	last := claude.result()
	r.say(claude.init(), claude.text("hello"), claude.background("w1"), claude.started("w1", "local_workflow"), last)
	r.seen(last)
	ingest.AwaitQuiet(t) // longer than the grace
	r.silent()
	last = claude.text("woken")
	r.say(claude.background(), claude.updated("w1", "completed"), claude.notified("w1", "completed"), claude.init(), last, permission)
	r.seen("ask-1")
	ingest.AwaitQuiet(t)
	r.silent()
	id := r.command("answer", `{"ask":"a1","decision":"allow"}`)
	if line, err := r.read(); err != nil || !strings.Contains(line, `"behavior":"allow"`) {
		t.Fatalf("got %q %v, want the answer", line, err)
	}
	r.say(claude.frame(`"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"tu-ask","content":"x"}]}`))
	r.final(id)
	mid := r.command("message", `{"content":"and this"}`)
	got := r.prompted("and this")
	r.say(claude.result(), claude.frame(`"type":"command_lifecycle","command_uuid":%q,"state":"completed"`, got.UUID))
	r.final(mid)
	r.eof()
	out := r.exit(0)
	v := out.State.View()
	equal(t, "verdict", v.Verdict.Verdict, run.Success)
	equal(t, "results", v.Turns[0].Results, 2)
}

// CodeBuddy gets a message when the turn before has ended, and is told that
// questions can be asked.
func TestDriveCBC(t *testing.T) {
	r := drive(t, options(t), dialect.CBC, nil, "one", "two")
	h := r.hello()
	equal(t, "capabilities", h.Request.Capabilities, map[string]bool{"askUserQuestion": true})
	r.prompted("one")
	last := cbc.text("working")
	r.say(cbc.init(), last)
	r.seen(last)
	r.silent()
	r.say(cbc.result())
	r.prompted("two")
	r.say(cbc.init(), cbc.text("x"), cbc.result())
	r.eof()
	out := r.exit(0)
	equal(t, "turns", len(out.State.View().Turns), 2)
	equal(t, "verdict", out.State.Verdict().Verdict, run.Success)
}

// Claude Code is given all prompts at once; it may answer several with one result.
func TestDriveFolded(t *testing.T) {
	r := drive(t, options(t), dialect.Claude, nil, "one", "two")
	r.hello()
	a, b := r.prompted("one"), r.prompted("two")
	if a.UUID == b.UUID {
		t.Error("two messages have one id")
	}
	r.say(claude.init(), claude.text("both"), claude.frame(`"type":"command_lifecycle","command_uuid":%q,"state":"completed"`, b.UUID), claude.result())
	r.eof()
	equal(t, "verdict", r.exit(0).State.Verdict().Verdict, run.Success)
}

// CodeBuddy's agents in the background never tell their end: stdin is closed, and
// the child has its time.
func TestDriveBackgroundAgent(t *testing.T) {
	ingest.SetKillStep(t, 50*time.Millisecond)
	ingest.SetGrace(t, 0, 50*time.Millisecond, 0)
	r := drive(t, options(t), dialect.CBC, nil, "go")
	r.hello()
	r.prompted("go")
	r.say(cbc.init(), cbc.text("x"), cbc.started("a1", "Agent"), cbc.result())
	r.eof()
	ingest.AwaitQuiet(t) // much longer than the steps of the end
	out := r.exit(0)
	equal(t, "ended", out.Ended, "")
	v := out.State.View()
	equal(t, "verdict", v.Verdict.Verdict, run.Success)
	equal(t, "task", v.Tasks[0].Status, "not_reported")
}

// A child that stays after the EOF is ended; that decides no verdict.
func TestDriveEndsWhatStays(t *testing.T) {
	ingest.SetGrace(t, 0, 50*time.Millisecond, 0)
	r := drive(t, options(t), dialect.CBC, nil, "go")
	r.hello()
	r.prompted("go")
	r.say(cbc.init(), cbc.text("x"), cbc.started("w1", "local_workflow"), cbc.updated("w1", "completed"), cbc.result())
	r.eof()
	out := r.end()
	equal(t, "signal", out.Result.Signal, syscall.SIGTERM)
	equal(t, "ended", out.Ended, "no_exit_after_eof")
	equal(t, "verdict", out.State.Verdict().Verdict, run.Success)
	equal(t, "exited", one[event.Exited](t, r.w.history(t, r.run), event.TypeExited).Ended, "no_exit_after_eof")
}

// A run that takes too long is interrupted, and ended where that does not help.
func TestDriveTimeout(t *testing.T) {
	// The exact times are in TestDriveEnd; here a real child has to keep up.
	const limit = 2 * time.Second
	ingest.SetKillStep(t, 1500*time.Millisecond)
	for name, change := range map[string]func(*ingest.Drive){
		ingest.EndedTimeout: func(d *ingest.Drive) { d.Timeout = limit },
		ingest.EndedIdle:    func(d *ingest.Drive) { d.MaxIdle = limit },
	} {
		t.Run(name, func(t *testing.T) {
			r := drive(t, options(t), dialect.Claude, change, "go")
			r.hello()
			r.prompted("go")
			r.say(claude.init(), claude.text("working"))
			req := r.said()
			equal(t, "subtype", req.Request.Subtype, "interrupt")
			r.eof() // it does not obey
			out := r.end()
			equal(t, "ended", out.Ended, name)
			equal(t, "signal", out.Result.Signal, syscall.SIGTERM)
			st := load[event.Stalled](t, r.w.history(t, r.run), event.TypeStalled)
			equal(t, "facts", len(st) == 1 && st[0].What == name, true)
		})
	}
}

// What only a host could do is answered with an error, in the request's own id,
// and told; nothing of that goes to the parent's side of the contract.
func TestDriveIncompatible(t *testing.T) {
	r := drive(t, options(t), dialect.Claude, nil, "go")
	r.hello()
	r.prompted("go")
	r.say(claude.init(),
		`{"type":"control_request","request_id":7,"request":{"subtype":"hook_callback","callback_id":"h"}}`,
		`{"type":"control_request","request_id":"é\u2028","request":{"subtype":"mcp_message"}}`,
		`{"type":"control_request","request":{"subtype":"oauth_token_refresh"}}`,
	)
	for _, want := range []string{"7", `"\u00e9\u2028"`} {
		s := r.said()
		equal(t, "answer", []string{s.Type, s.Response.Subtype, string(s.Response.ID)}, []string{"control_response", "error", want})
	}
	r.say(claude.text("x"), claude.result())
	r.eof()
	r.exit(0)
	var got []event.Incompatible
	for _, f := range load[event.Incompatible](t, r.w.history(t, r.run), event.TypeIncompatible) {
		f.Why = ""
		got = append(got, f)
	}
	slices.SortFunc(got, func(a, b event.Incompatible) int { return strings.Compare(a.Request, b.Request) })
	equal(t, "facts", got, []event.Incompatible{
		{Request: "hook_callback", ID: "7", Answered: true},
		{Request: "mcp_message", ID: `"é\u2028"`, Answered: true},
		{Request: "oauth_token_refresh"},
	})
}

// A large prompt and a child that writes much before it reads do not lock each
// other (case 035).
func TestDriveLarge(t *testing.T) {
	prompt := strings.Repeat("0123456789abcdef", 8<<10)
	r := drive(t, options(t), dialect.Claude, nil, prompt)
	before, behind, _ := strings.Cut(claude.text("#"), "#")
	r.raw(before)
	r.order(order{Op: "repeat", Data: []byte("0123456789abcdef"), Code: 16 << 10})
	r.say(behind)
	r.hello()
	r.prompted(prompt)
	r.say(claude.init(), claude.text("x"), claude.result())
	r.eof()
	equal(t, "verdict", r.exit(0).State.Verdict().Verdict, run.Success)
	if n := len(r.stdout()); n < 256<<10 {
		t.Errorf("stdout has %d bytes", n)
	}
}

// What keeps a driver from its work is said.
func TestDriveProblems(t *testing.T) {
	t.Run("no such conversation", func(t *testing.T) {
		r := drive(t, options(t), dialect.CBC, func(d *ingest.Drive) { d.Resume.Session = "s-old" }, "go")
		r.hello()
		r.prompted("go")
		r.say(`{"type":"error","error":"No conversation found with session ID: s-old"}`)
		r.eof()
		out := r.exit(0)
		equal(t, "problem", out.Problem, "the agent said: No conversation found with session ID: s-old")
	})
	t.Run("it leaves at once", func(t *testing.T) {
		r := drive(t, options(t), dialect.Claude, nil, "go")
		out := r.exit(1)
		equal(t, "problem", out.Problem, "the agent ended before every prompt was written")
		equal(t, "verdict", out.State.Verdict().Verdict, run.Failed)
	})
	t.Run("no answer to initialize", func(t *testing.T) {
		ingest.SetHelloWait(t, 50*time.Millisecond)
		r := drive(t, options(t), dialect.Claude, nil, "go")
		r.said()
		r.prompted("go")
		r.say(claude.init(), claude.text("x"), claude.result())
		r.eof()
		out := r.exit(0)
		equal(t, "problem", out.Problem, "")
	})
}

// Commands wait until the child is ready.
func TestDriveCommandWaits(t *testing.T) {
	r := drive(t, options(t), dialect.Claude, nil, "go")
	h := r.said()
	id := r.command("interrupt", "")
	ingest.AwaitQuiet(t)
	r.silent()
	r.say(ack(h.ID))
	// Which of the two is first is nobody's promise.
	var req said
	for range 2 {
		if s := r.said(); s.Type == "control_request" {
			req = s
		}
	}
	r.say(ack(req.ID), claude.init(), claude.text("x"), claude.result())
	r.final(id)
	r.eof()
	r.exit(0)
}
