package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	written  = "written"
	acked    = "acked"
	settled  = "settled"
	noEffect = "no_effect: nothing was open"
)

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// session wraps an agent of the dialect and begins a turn.
func session(t testing.TB, s speaker, change ...func(*ingest.Options)) *rig {
	t.Helper()
	o := options(t)
	o.Dialect = dialect.Claude
	if s == cbc {
		o.Dialect = dialect.CBC
	}
	for _, f := range change {
		f(&o)
	}
	r := wrap(t, o, streamArgs...)
	r.write(user)
	if _, err := r.read(); err != nil {
		t.Fatal(err)
	}
	hello := s.text("hello")
	r.say(s.init(), hello)
	r.kept(hello)
	return r
}

// What an interrupt does depends on what is open, and on the child. The frames
// and their order are those of the real ones.
func TestInterrupt(t *testing.T) {
	tests := []struct {
		name   string
		s      speaker
		before []string // said first, within the turn
		idle   bool     // and then the turn's result
		data   string
		answer func(s speaker, id string) []string // nil: only the ACK
		want   []string
	}{
		{
			name: "claude mid-stream", s: claude,
			answer: func(s speaker, id string) []string {
				return []string{ack(id), s.text("partial"), s.aborted()}
			},
			want: []string{written, acked, settled},
		},
		{
			name: "claude racing the end", s: claude,
			answer: func(s speaker, id string) []string { return []string{s.result(), ack(id)} },
			want:   []string{written, "no_effect: it ended by itself", acked},
		},
		{
			name: "claude idle with a workflow", s: claude, idle: true,
			before: []string{claude.background("w1"), claude.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string {
				return []string{s.background(), s.updated("w1", "killed"), s.notified("w1", "stopped"), ack(id)}
			},
			want: []string{written, settled, acked},
		},
		{
			name: "claude with a workflow, streaming", s: claude,
			before: []string{claude.background("w1"), claude.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string {
				return []string{s.background(), s.updated("w1", "killed"), s.notified("w1", "stopped"), ack(id), s.text("partial"), s.aborted()}
			},
			want: []string{written, acked, settled},
		},
		{
			name: "claude with a background shell survives", s: claude, idle: true,
			before: []string{claude.background("b1"), claude.started("b1", "local_bash")},
			want:   []string{written, acked, noEffect},
		},
		{
			name: "task leaves the list and tells no more", s: claude, idle: true,
			before: []string{claude.background("w1"), claude.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string { return []string{s.background(), ack(id)} },
			want:   []string{written, acked, settled},
		},
		{
			name: "task ends by itself after the answer", s: claude, idle: true,
			before: []string{claude.background("w1"), claude.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string {
				return []string{ack(id), s.background(), s.updated("w1", "completed")}
			},
			want: []string{written, acked, "no_effect: it ended by itself"},
		},
		{
			name: "cbc mid-turn", s: cbc,
			answer: func(s speaker, id string) []string {
				return []string{s.frame(`"type":"system","subtype":"status","status":null`), ack(id), s.text("Interrupted by user"), s.init(), s.aborted()}
			},
			want: []string{written, acked, settled},
		},
		{
			name: "cbc mid-turn with a workflow, turn kept", s: cbc, data: `{"turn":"keep","reason":"stop the flow"}`,
			before: []string{cbc.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string {
				return []string{ack(id), s.updated("w1", "killed"), s.notified("w1", "stopped")}
			},
			want: []string{written, acked, settled},
		},
		{
			name: "cbc mid-turn with an agent that never tells its end", s: cbc,
			before: []string{cbc.started("agent-1", "local_agent")},
			answer: func(s speaker, id string) []string {
				return []string{ack(id), s.text("Interrupted by user"), s.aborted()}
			},
			want: []string{written, acked, settled},
		},
		{
			name: "cbc mid-turn, all ends by itself", s: cbc,
			before: []string{cbc.started("w1", "local_workflow")},
			answer: func(s speaker, id string) []string {
				return []string{ack(id), s.updated("w1", "completed"), s.text("going on"), s.result()}
			},
			want: []string{written, acked, "no_effect: it ended by itself"},
		},
		{
			name: "an error", s: claude,
			answer: func(s speaker, id string) []string {
				return []string{`{"type":"control_response","response":{"subtype":"error","request_id":"` + id + `","error":"no active turn"}}`}
			},
			want: []string{written, "refused: the child said: no active turn"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := session(t, tt.s)
			last := tt.s.text("ready")
			r.say(append(tt.before, last)...)
			if tt.idle {
				last = tt.s.result()
				r.say(last)
			}
			r.seen(last)
			id := r.command("interrupt", tt.data)
			req := r.request()
			equal(t, "subtype", req.Request.Subtype, "interrupt")
			equal(t, "session", req.Request.Session, "s-main")
			if req.Request.Reason == "" {
				t.Error("no reason was sent")
			}
			answer := []string{ack(req.ID)}
			if tt.answer != nil {
				answer = tt.answer(tt.s, req.ID)
			}
			end := tt.s.text("behind")
			r.say(answer...)
			r.say(end)
			r.seen(end)
			equal(t, "facts", r.final(id), tt.want)
			r.exit(0)
			// What the child said reaches the parent, but for the answer to us.
			if got := r.stdout(); strings.Contains(got, req.ID) || !strings.Contains(got, end) {
				t.Errorf("the parent got %q", got)
			}
			var ours []string
			for _, e := range r.await("exit", exited) {
				if e.Stream == event.In && e.Ext["origin"] == "cbcast" {
					ours = append(ours, string(e.Data)+"\n")
				}
			}
			equal(t, "recorded requests", ours, []string{req.line})
		})
	}
}

func exited(e *event.Event) bool { return e.Type == event.TypeExited }

// An idle cbc with a live workflow answers at once and shows the effect 28 to 30
// s later, in a turn it begins by itself: the command stays acked until then.
func TestInterruptIdleCBC(t *testing.T) {
	r := session(t, cbc)
	last := cbc.result()
	r.say(cbc.started("w1", "local_workflow"), cbc.updated("w1", "running"), last)
	r.seen(last)
	id := r.command("interrupt", "")
	req := r.request()
	r.say(ack(req.ID))
	r.fact(id, event.Acked)
	mark := cbc.frame(`"type":"system","subtype":"keepalive"`)
	r.say(mark)
	equal(t, "facts", facts(r.await("mark", func(e *event.Event) bool { return string(e.Data) == mark }), id), []string{written, acked})
	r.say(cbc.init(), cbc.updated("w1", "killed"), cbc.notified("w1", "stopped"), cbc.text("stopped"), cbc.result())
	equal(t, "facts", r.final(id), []string{written, acked, settled})
	r.exit(0)
}

// A cbc that is interrupted within a turn kills its workflow and goes on with the
// turn: by default a second interrupt ends that.
func TestSecondInterrupt(t *testing.T) {
	ingest.SetSecondAfter(t, 10*time.Millisecond)
	r := session(t, cbc)
	last := cbc.started("w1", "local_workflow")
	r.say(last)
	r.seen(last)
	id := r.command("interrupt", "")
	first := r.request()
	r.say(ack(first.ID), cbc.updated("w1", "killed"), cbc.notified("w1", "stopped"), cbc.text("going on"))
	second := r.request()
	if second.ID == first.ID {
		t.Error("the second request has the first one's id")
	}
	r.say(ack(second.ID), cbc.text("Interrupted by user"), cbc.aborted())
	equal(t, "facts", r.final(id), []string{
		written, acked, "written: the tasks were stopped and the turn went on: second interrupt", acked, settled,
	})
	r.exit(0)
}

func TestStopTask(t *testing.T) {
	r := session(t, claude)
	last := claude.started("b1", "local_bash")
	r.say(claude.background("b1"), last)
	r.seen(last)
	equal(t, "unknown task", r.final(r.command("stop_task", `{"task":"b2"}`)), []string{"refused: unknown_task"})
	equal(t, "no task", r.final(r.command("stop_task", ``)), []string{"refused: bad_arguments: stop_task needs a task"})
	id := r.command("stop_task", `{"task":"b1"}`)
	req := r.request()
	equal(t, "request", req.Request.Subtype+" "+req.Request.Task, "stop_task b1")
	r.say(claude.background(), claude.updated("b1", "killed"), claude.notified("b1", "stopped"), ack(req.ID))
	r.fact(id, event.Acked)
	equal(t, "facts", r.final(id), []string{written, settled, acked})
	equal(t, "again", r.final(r.command("stop_task", `{"task":"b1"}`)), []string{"refused: already_ended"})
	r.exit(0)
}

// What cannot be done is refused with a reason, and nothing is written.
func TestRefusals(t *testing.T) {
	r := session(t, cbc)
	for name, want := range map[string]string{
		"reboot":    "refused: unknown_command: reboot",
		"stop_task": "refused: unknown_task",
	} {
		equal(t, name, r.final(r.command(name, `{"task":"w"}`)), []string{want})
	}
	equal(t, "turn", r.final(r.command("interrupt", `{"turn":"half"}`)), []string{"refused: bad_arguments: turn is end or keep"})
	equal(t, "keep without tasks", r.final(r.command("interrupt", `{"turn":"keep"}`)),
		[]string{"no_effect: no task is open, and the turn is to go on"})
	if got := r.final(r.command("interrupt", `[]`)); len(got) != 1 || !strings.HasPrefix(got[0], "refused: bad_arguments") {
		t.Errorf("bad data: %v", got)
	}
	r.stdin.Close()
	if _, err := r.read(); err == nil {
		t.Error("a refused command reached the agent")
	}
	equal(t, "after EOF", r.final(r.command("interrupt", "")), []string{"refused: stdin_closed"})
	r.exit(0)
}

func TestNoControlChannel(t *testing.T) {
	r := wrap(t, options(t), "-p", "--output-format", "stream-json")
	equal(t, "facts", r.final(r.command("interrupt", "")), []string{"refused: no_control_channel"})
	// A host that speaks the control protocol shows that there is one.
	r.write(initialize)
	r.read()
	r.say(ready)
	r.seen(ready)
	id := r.command("interrupt", "")
	r.say(ack(r.request().ID))
	equal(t, "facts", r.final(id), []string{written, acked, noEffect})
	r.exit(0)
}

// The same command twice has one effect, also after the bus's own memory of ids.
func TestCommandOnce(t *testing.T) {
	r := session(t, claude)
	same := func(c *bus.Command) { c.ID = "same-" + r.run }
	id := r.command("interrupt", "", same)
	r.command("interrupt", "", same)
	r.say(ack(r.request().ID), claude.aborted())
	r.final(id)
	r.command("interrupt", "", same)
	r.stdin.Close()
	if line, err := r.read(); err == nil {
		t.Errorf("a second request was written: %s", line)
	}
	r.exit(0)
	equal(t, "facts", facts(r.await("exit", exited), id), []string{written, acked, settled})
}

// A command that reaches the edge after its time is never written.
func TestExpired(t *testing.T) {
	hold := make(chan struct{})
	r := session(t, claude, func(o *ingest.Options) { o.Dial = after(hold, o.Dial) })
	id := r.command("interrupt", "", func(c *bus.Command) { c.DeliverBy = time.Now().Add(20 * time.Millisecond) })
	time.AfterFunc(40*time.Millisecond, func() { close(hold) })
	equal(t, "facts", r.final(id), []string{"expired: delivered too late"})
	r.stdin.Close()
	if line, err := r.read(); err == nil {
		t.Errorf("it was written: %s", line)
	}
	r.exit(0)
}

// A child that never answers leaves the command unknown at its time (case 046).
// Nothing is sent again.
func TestNeverAnswered(t *testing.T) {
	r := session(t, cbc)
	id := r.command("interrupt", "", func(c *bus.Command) { c.EffectBy = c.Time.Add(50 * time.Millisecond) })
	equal(t, "session", r.request().Request.Session, "s-main")
	equal(t, "facts", r.final(id), []string{written, "unknown: no effect seen in time"})
	r.stdin.Close()
	if line, err := r.read(); err == nil {
		t.Errorf("something was sent again: %s", line)
	}
	r.exit(0)
}

// Two people interrupt at once (case 048): answers twice, late, for an id that
// nobody sent, and an error. Both commands end.
func TestTwoAtOnce(t *testing.T) {
	r := session(t, claude)
	last := claude.started("w0", "local_workflow")
	r.say(last)
	r.seen(last)
	a := r.command("interrupt", "")
	b := r.command("interrupt", "")
	first, second := r.request(), r.request()
	r.say(ack(first.ID), ack(first.ID), ack("nobody-1"), claude.notified("w0", "stopped"),
		`{"type":"control_response","response":{"subtype":"error","request_id":"`+second.ID+`","error":"no active turn"}}`, claude.aborted())
	equal(t, "first", r.final(a), []string{written, acked, settled})
	equal(t, "second", r.final(b), []string{written, "refused: the child said: no active turn"})
	equal(t, "third", r.final(r.command("interrupt", "")), []string{allOver})
	r.quietly()
	r.exit(0)
	equal(t, "first at the end", facts(r.await("exit", exited), a), []string{written, acked, settled})
	if !strings.Contains(r.stdout(), "nobody-1") {
		t.Error("an answer that is not ours was hidden")
	}
}

const allOver = "refused: already_ended: nothing is open"

// Where all that was begun has ended there is nothing to interrupt, and nothing is
// written; what begins again can be.
func TestInterruptWhenAllIsOver(t *testing.T) {
	for _, s := range []speaker{claude, cbc} {
		r := session(t, s)
		last := s.result()
		r.say(s.text("x"), last)
		r.seen(last)
		equal(t, "over", r.final(r.command("interrupt", "")), []string{allOver})
		next := s.text("woken")
		r.say(next)
		r.seen(next)
		id := r.command("interrupt", "")
		r.say(ack(r.request().ID), s.aborted())
		equal(t, "woken", r.final(id), []string{written, acked, settled})
		r.exit(0)
	}
}

// A command that comes with the child's exit, or after it, ends, too (case 045).
func TestCommandAtExit(t *testing.T) {
	r := session(t, claude)
	id := r.command("interrupt", "")
	r.request()
	r.exit(1)
	equal(t, "open at exit", facts(r.await("exit", exited), id), []string{written, "unknown: the run ended first"})

	// One that the edge finds only when the run has ended is answered beside it.
	hold := make(chan struct{})
	r = session(t, claude, func(o *ingest.Options) { o.Dial = after(hold, o.Dial) })
	id = r.command("interrupt", "")
	r.order(order{Op: "exit"})
	r.ended()
	close(hold)
	r.end()
	evs := r.w.await(r, r.run, "fact", func(evs []*event.Event) bool { return len(facts(evs, id)) > 0 })
	equal(t, "after exit", facts(evs, id), []string{"refused: already_ended"})
}

// Commands that nobody answers are bounded; each ends.
func TestTooMany(t *testing.T) {
	r := session(t, claude)
	var ids []string
	for range 66 {
		ids = append(ids, r.command("interrupt", ""))
	}
	for range 64 {
		r.request()
	}
	for _, id := range ids[64:] {
		equal(t, "past the bound", r.final(id), []string{"refused: too_many_commands"})
	}
	r.say(claude.aborted())
	for _, id := range ids[:64] {
		equal(t, "facts", r.final(id), []string{written, settled})
	}
	// Those that only an answer is missing of are in nobody's way.
	for range 70 {
		r.say(claude.text("next turn"))
		mark := claude.text("mark")
		r.say(mark)
		r.seen(mark)
		id := r.command("interrupt", "")
		r.request()
		r.say(claude.aborted())
		equal(t, "facts", r.final(id), []string{written, settled})
	}
	r.exit(0)
}

// after is a way to the bus that opens when hold is closed.
func after(hold <-chan struct{}, dial ingest.Dialer) ingest.Dialer {
	return func(ctx context.Context) (*bus.Bus, error) {
		select {
		case <-hold:
			return dial(ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// The lines that are injected are printable ASCII with one LF at their end, and
// stand between lines of the parent.
func TestInjectedLine(t *testing.T) {
	r := session(t, cbc)
	r.half(`{"type":"user","message":`)
	id := r.command("interrupt", `{"reason":"stop:  \u2028 \r\n é 😀 \"x\""}`)
	late := r.command("interrupt", "")
	r.write(`{"role":"user","content":"x"}}` + "\n")
	line, err := r.read()
	if err != nil || line != `{"type":"user","message":{"role":"user","content":"x"}}`+"\n" {
		t.Fatalf("the parent's line came as %q %v", line, err)
	}
	req := r.request()
	equal(t, "reason", req.Request.Reason, "stop:  \u2028 \r\n é 😀 \"x\"")
	for i, b := range []byte(req.line) {
		if b == '\n' && i == len(req.line)-1 {
			continue
		}
		if b < ' ' || b > '~' {
			t.Errorf("byte %d is %#x", i, b)
		}
	}
	r.say(ack(req.ID), ack(r.request().ID), cbc.aborted())
	r.final(id)
	r.final(late)
	r.exit(0)
}

// Until the host's initialize is answered nothing of ours is written.
func TestGate(t *testing.T) {
	o := options(t)
	o.Dialect = dialect.Claude
	r := wrap(t, o, streamArgs...)
	id := r.command("interrupt", "")
	r.write(initialize)
	line, _ := r.read()
	equal(t, "first line", line, initialize)
	r.say(claude.frame(`"type":"system","subtype":"hook_started"`))
	r.write(user)
	line, _ = r.read()
	equal(t, "second line", line, user)
	r.say(ready)
	r.say(ack(r.request().ID))
	equal(t, "facts", r.final(id), []string{written, acked, noEffect})
	if !strings.Contains(r.stdout(), ready) {
		t.Error("the host did not get its answer")
	}
	r.exit(0)
}

// Every final fact closes its entry in the journal, and the facts name the
// request that they are about.
func TestFactsNameTheirRequest(t *testing.T) {
	r := session(t, claude)
	id := r.command("interrupt", "")
	req := r.request()
	r.say(ack(req.ID), claude.aborted())
	r.final(id)
	for _, e := range r.await("settled", func(e *event.Event) bool { return e.Type == event.TypeCommand }) {
		var f event.CommandFact
		if e.Type != event.TypeCommand || json.Unmarshal(e.Data, &f) != nil {
			continue
		}
		equal(t, fmt.Sprintf("request of %s", f.Fact), f.RequestID, req.ID)
		equal(t, "kind", e.Kind, event.Cmd)
		equal(t, "session", e.Session, "s-main")
	}
	r.exit(0)
}
