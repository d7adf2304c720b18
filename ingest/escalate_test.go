package ingest_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

const escalate = `{"escalate":true}`

// rungs sets the times of an escalation.
func rungs(interrupt, stop, term time.Duration) func(*ingest.Options) {
	return func(o *ingest.Options) { o.Escalate = []time.Duration{interrupt, stop, term} }
}

const (
	quick = time.Second // a child that answers does so before
	never = time.Hour   // a rung that must not be needed
)

// details are those of a command's facts so far, in order.
func details(evs []*event.Event, id string) (out []map[string]string) {
	for _, e := range evs {
		var f event.CommandFact
		if e.Type == event.TypeCommand && json.Unmarshal(e.Data, &f) == nil && f.Command == id {
			out = append(out, f.Detail)
		}
	}
	return out
}

// signals are those that the exit names, with who sent them.
func (r *rig) signals() (out []string) {
	r.Helper()
	for _, e := range r.await("exit", exited) {
		var x event.Exited
		if exited(e) && json.Unmarshal(e.Data, &x) == nil {
			for _, s := range x.Forwarded {
				out = append(out, s.Signal+" "+s.From)
			}
		}
	}
	return out
}

// told waits for what the agent reports on an order.
func (r *rig) told(o order) string {
	r.Helper()
	r.order(o)
	line, err := r.read()
	if err != nil {
		r.Fatal(err)
	}
	return line
}

// dead waits until a process is none any more.
func dead(tb testing.TB, pid string) {
	tb.Helper()
	poll(tb, "end of "+pid, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// An interrupt that is obeyed is the last rung.
func TestEscalateInterrupt(t *testing.T) {
	for name, tt := range map[string]struct {
		before []string
		answer func(id string) []string
		want   []string
	}{
		"turn": {
			answer: func(id string) []string { return []string{ack(id), claude.text("partial"), claude.aborted()} },
			want:   []string{written, acked, settled},
		},
		"idle": {
			before: []string{claude.result()},
			answer: func(id string) []string { return []string{ack(id)} },
			want:   []string{written, acked, noEffect},
		},
		"ends by itself": {
			answer: func(id string) []string { return []string{claude.result(), ack(id)} },
			want:   []string{written, "no_effect: it ended by itself", acked},
		},
		"idle with a workflow": {
			before: []string{claude.background("w1"), claude.started("w1", "local_workflow"), claude.result()},
			answer: func(id string) []string {
				return []string{claude.background(), claude.updated("w1", "killed"), claude.notified("w1", "stopped"), ack(id)}
			},
			want: []string{written, settled, acked},
		},
		"error while idle": {
			before: []string{claude.result()},
			answer: func(id string) []string {
				return []string{`{"type":"control_response","response":{"subtype":"error","request_id":"` + id + `","error":"Session not found: current"}}`}
			},
			want: []string{written, "refused: the child said: Session not found: current"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := session(t, claude, rungs(never, never, never))
			last := claude.text("ready")
			r.say(append(tt.before, last)...)
			if slices.ContainsFunc(tt.before, func(s string) bool { return strings.Contains(s, `"result"`) }) {
				last = claude.result() // the text has begun a turn
				r.say(last)
			}
			r.seen(last)
			id := r.command("interrupt", escalate)
			r.say(tt.answer(r.request().ID)...)
			end := claude.frame(`"type":"system","subtype":"status"`)
			r.say(end)
			r.seen(end)
			equal(t, "facts", r.final(id), tt.want)
			r.exit(0)
			evs := r.await("exit", exited)
			equal(t, "facts at the end", facts(evs, id), tt.want)
			for _, d := range details(evs, id) {
				if d != nil {
					equal(t, "rung", d["rung"], "interrupt")
				}
			}
			if s := r.signals(); s != nil {
				t.Errorf("signals: %v", s)
			}
		})
	}
}

// A background shell outlives the interrupt of Claude Code: stop_task ends it.
func TestEscalateStopTask(t *testing.T) {
	r := session(t, claude, rungs(never, never, never))
	last := claude.started("b1", "local_bash")
	r.say(claude.background("b1"), last)
	r.seen(last)
	id := r.command("interrupt", escalate)
	req := r.request()
	r.say(ack(req.ID), claude.text("partial"), claude.aborted())
	stop := r.request()
	equal(t, "request", stop.Request.Subtype+" "+stop.Request.Task, "stop_task b1")
	r.say(claude.background(), claude.updated("b1", "killed"), claude.notified("b1", "stopped"), ack(stop.ID))
	want := []string{written, acked, "written: escalated to stop_task: tasks outlive the interrupt", settled, acked}
	r.await("the last answer", func(e *event.Event) bool {
		return len(details([]*event.Event{e}, id)) > 0 && strings.Contains(string(e.Data), stop.ID) && strings.Contains(string(e.Data), `"acked"`)
	})
	equal(t, "facts", r.final(id), want)
	got := details(r.await("exit of the ladder", func(*event.Event) bool { return true }), id)
	equal(t, "details", got[:4], []map[string]string{
		{"rung": "interrupt", "turn": "open", "task b1": "open"},
		nil,
		{"rung": "stop_task", "task b1": "open"},
		{"rung": "stop_task", "turn": "aborted", "task b1": "killed"},
	})
	out := r.exit(0)
	equal(t, "verdict", out.State.Verdict().Verdict, run.Interrupted)
}

// A child that does not obey is signalled, and with SIGKILL its tools go, too,
// which have sessions of their own and ignore SIGTERM.
func TestEscalateSignals(t *testing.T) {
	tests := []struct {
		name     string
		s        speaker
		args     []string // of the agent; nil is a conversation
		stubborn bool
		say      func(r *rig)
		control  func(r *rig)
		want     []string
		signals  []string
	}{
		{
			name: "no answer, SIGTERM", s: claude, control: func(r *rig) { r.request() },
			want:    []string{written, "written: escalated to SIGTERM: no answer to the interrupt in 1s", settled},
			signals: []string{"SIGTERM command"},
		},
		{
			name: "the turn goes on, SIGKILL", s: claude, stubborn: true,
			control: func(r *rig) { r.say(ack(r.request().ID)) },
			want: []string{
				written, acked, "written: escalated to SIGTERM: the turn goes on 1s after the interrupt",
				"written: escalated to SIGKILL: it did not leave in 1s", settled,
			},
			signals: []string{"SIGTERM command", "SIGKILL command"},
		},
		{
			name: "a shell that stop_task does not end", s: claude,
			say: func(r *rig) {
				last := claude.result()
				r.say(claude.background("b1"), claude.started("b1", "local_bash"), last)
				r.seen(last)
			},
			control: func(r *rig) { r.say(ack(r.request().ID)); r.say(ack(r.request().ID)) },
			want: []string{
				written, acked, "written: escalated to stop_task: tasks outlive the interrupt", acked,
				"written: escalated to SIGTERM: 1 tasks go on 1s after stop_task", settled,
			},
			signals: []string{"SIGTERM command"},
		},
		{
			name: "cbc has no stop_task", s: cbc,
			say: func(r *rig) {
				last := cbc.result()
				r.say(cbc.started("b1", "Bash"), last)
				r.seen(last)
			},
			control: func(r *rig) { r.say(ack(r.request().ID)) },
			want:    []string{written, acked, "written: escalated to SIGTERM: tasks outlive the interrupt", settled},
			signals: []string{"SIGTERM command"},
		},
		{
			name: "an error", s: claude,
			control: func(r *rig) {
				r.say(`{"type":"control_response","response":{"subtype":"error","request_id":"` + r.request().ID + `","error":"no active turn"}}`)
			},
			want:    []string{written, "written: escalated to SIGTERM: to the interrupt the child said: no active turn", settled},
			signals: []string{"SIGTERM command"},
		},
		{
			name: "no control channel", s: claude, args: []string{"-p", "--output-format", "text", "do it"}, control: func(*rig) {},
			want:    []string{"written: escalated to SIGTERM: there is no control channel", settled},
			signals: []string{"SIGTERM command"},
		},
		{
			name: "the host has closed stdin", s: claude,
			say: func(r *rig) {
				r.stdin.Close()
				if _, err := r.read(); err == nil {
					r.Error("no EOF")
				}
			},
			control: func(*rig) {},
			want:    []string{"written: escalated to SIGTERM: its stdin is closed", settled},
			signals: []string{"SIGTERM command"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := rungs(quick, quick, never)
			if tt.stubborn {
				o = rungs(quick, quick, quick)
			}
			var r *rig
			if tt.args != nil {
				opt := options(t)
				o(&opt)
				r = wrap(t, opt, tt.args...)
			} else {
				r = session(t, tt.s, o)
			}
			tool := r.told(order{Op: "spawn"})
			if tt.stubborn {
				r.told(order{Op: "ignore", Code: int(syscall.SIGTERM)})
			}
			if tt.say != nil {
				tt.say(r)
			}
			id := r.command("interrupt", escalate)
			tt.control(r)
			out := r.end()
			evs := r.await("exit", exited)
			equal(t, "facts", facts(evs, id), tt.want)
			equal(t, "signals", r.signals(), tt.signals)
			equal(t, "verdict", out.State.Verdict().Verdict, run.Interrupted)
			dead(t, tool)
			all := details(evs, id)
			last := all[len(all)-1]
			want := map[string]string{"rung": "sigterm", "child": "ended"}
			if tt.stubborn {
				want["rung"], want["killed"] = "sigkill", "1"
				equal(t, "SIGKILL", all[len(all)-2], map[string]string{"rung": "sigkill", "descendants": "1"})
				equal(t, "signal", out.Result.Signal, syscall.SIGKILL)
			}
			delete(last, map[bool]string{false: "killed"}[tt.stubborn]) // the end itself may have been first
			equal(t, "final detail", last, want)
			equal(t, "leftovers", out.Result.Leftovers, 1)
		})
	}
}

// The first fact says what was open, also where it is a signal.
func TestEscalateSaysWhatIsOpen(t *testing.T) {
	r := session(t, claude, rungs(quick, quick, never))
	last := claude.started("b1", "local_bash")
	r.say(claude.background("b1"), last)
	r.seen(last)
	r.stdin.Close()
	r.read()
	id := r.command("interrupt", escalate)
	r.end()
	equal(t, "detail", details(r.await("exit", exited), id)[0], map[string]string{"rung": "sigterm", "turn": "open", "task b1": "open"})
}

// CodeBuddy goes on with a turn whose workflow was killed: the second interrupt
// is still the first rung.
func TestEscalateSecondInterrupt(t *testing.T) {
	ingest.SetSecondAfter(t, 10*time.Millisecond)
	r := session(t, cbc, rungs(never, never, never))
	last := cbc.started("w1", "local_workflow")
	r.say(last)
	r.seen(last)
	id := r.command("interrupt", escalate)
	first := r.request()
	r.say(ack(first.ID), cbc.updated("w1", "killed"), cbc.notified("w1", "stopped"), cbc.text("going on"))
	second := r.request()
	r.say(ack(second.ID), cbc.text("Interrupted by user"), cbc.aborted())
	equal(t, "facts", r.final(id), []string{
		written, acked, "written: the tasks were stopped and the turn went on: second interrupt", acked, settled,
	})
	r.exit(0)
}

// What makes no sense is refused, what comes too late expires, and neither
// touches the child.
func TestEscalateRefused(t *testing.T) {
	r := session(t, cbc, rungs(quick, quick, quick))
	equal(t, "turn kept", r.final(r.command("interrupt", `{"escalate":true,"turn":"keep"}`)),
		[]string{"refused: bad_arguments: an escalation ends the turn"})
	out := r.exit(3)
	equal(t, "code", out.Result.Code, 3)

	hold := make(chan struct{})
	r = session(t, claude, func(o *ingest.Options) { o.Dial = after(hold, o.Dial) })
	id := r.command("interrupt", escalate, func(c *bus.Command) { c.DeliverBy = time.Now().Add(20 * time.Millisecond) })
	time.AfterFunc(40*time.Millisecond, func() { close(hold) })
	equal(t, "late", r.final(id), []string{"expired: delivered too late"})
	equal(t, "code", r.exit(3).Result.Code, 3)
}

// A child that leaves by itself while an escalation waits ends it.
func TestEscalateChildLeaves(t *testing.T) {
	r := session(t, claude, rungs(never, never, never))
	id := r.command("interrupt", escalate)
	r.request()
	r.exit(1)
	equal(t, "facts", facts(r.await("exit", exited), id), []string{written, "unknown: the run ended first"})
	if s := r.signals(); s != nil {
		t.Errorf("signals: %v", s)
	}
}

func TestEscalateConfig(t *testing.T) {
	ok := ingest.Config{Tenant: "t", CaptureStdin: "all", SpoolRunMax: 1 << 30, PresenceTTL: time.Minute}
	for name, tt := range map[string]struct {
		d  []time.Duration
		ok bool
	}{
		"empty": {nil, true}, "three": {[]time.Duration{time.Second, time.Second, time.Second}, true},
		"two": {[]time.Duration{time.Second, time.Second}, false}, "too short": {[]time.Duration{time.Second, 0, time.Second}, false},
	} {
		c := ok
		c.Escalate = tt.d
		if err := c.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
