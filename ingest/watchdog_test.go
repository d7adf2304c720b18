package ingest_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A one-shot agent that stays after its result is ended when that is asked for,
// and the run is a success (case 025).
func TestKillAfterResult(t *testing.T) {
	ingest.SetKillStep(t, 1500*time.Millisecond) // SIGTERM has to do it
	o := options(t)
	o.Dialect, o.KillAfterResult = dialect.Claude, 50*time.Millisecond
	r := wrap(t, o, "-p", "--output-format", "stream-json", "do it")
	r.say(claude.init(), claude.text("hello"), claude.result())
	out := r.end()
	equal(t, "signal", out.Result.Signal, syscall.SIGTERM)
	evs := r.w.history(t, r.run)
	equal(t, "stalled", one[event.Stalled](t, evs, event.TypeStalled).What, "no_exit_after_end")
	x := one[event.Exited](t, evs, event.TypeExited)
	equal(t, "ended", x.Ended, "kill_after_result")
	equal(t, "verdict", out.State.Verdict().Verdict, run.Success)
}

// leaver is a child in the hands of a watchdog.
type leaver struct {
	exited   chan struct{}
	did      []string
	leaves   string // what it leaves upon
	start    time.Time
	finished bool
}

func (l *leaver) Exited() <-chan struct{} { return l.exited }
func (l *leaver) ReleaseStdin()           { l.do("eof") }

func (l *leaver) Signal(s syscall.Signal) error {
	l.do(s.String())
	return nil
}

func (l *leaver) do(what string) {
	l.did = append(l.did, what+" "+time.Since(l.start).String())
	if what == l.leaves {
		l.finished = true
		close(l.exited)
	}
}

// streamClosed is what Claude Code says of a call that it cannot ask for any more.
const streamClosed = `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","is_error":true,` +
	`"content":"Tool permission request failed: Error: Stream closed"}]},"session_id":"s-main","uuid":"u9"}`

// A watchdog states each silence once, at its time, and none while an ask is
// open. Only after a one-shot run's result, and only if it was told to, does it
// end the child.
func TestWatchdog(t *testing.T) {
	type said struct {
		at   time.Duration
		line string
	}
	stream := streamArgs
	oneShot := []string{"-p", "--output-format", "stream-json"}
	tests := []struct {
		name  string
		args  []string
		kill  time.Duration
		leave string
		lines []said
		want  []string // facts with the time, and what was done to the child
	}{
		{
			name: "silent turn", args: stream, lines: []said{{0, claude.init()}, {0, claude.text("x")}},
			want: []string{"silent_turn 10m0s"},
		},
		{
			name: "each silence once", args: stream,
			lines: []said{{0, claude.text("x")}, {15 * time.Minute, claude.text("y")}, {20 * time.Minute, claude.text("z")}},
			want:  []string{"silent_turn 10m0s", "silent_turn 30m0s"},
		},
		{name: "idle", args: stream, lines: []said{{0, claude.text("x")}, {0, claude.result()}}},
		{
			name: "an ask is open", args: stream, lines: []said{{0, claude.text("x")}, {time.Minute, permission}, {5 * time.Minute, claude.text("y")}},
			want: []string{"open_ask a1 11m0s"},
		},
		{
			name: "denied because stdin is closed", args: stream,
			lines: []said{{0, claude.text("x")}, {time.Minute, streamClosed}, {2 * time.Minute, streamClosed}, {3 * time.Minute, claude.result()}},
			want:  []string{"stream_closed 1m0s"}, // at the first, not at each
		},
		{
			name: "only a task is open", args: stream,
			lines: []said{{0, claude.text("x")}, {0, claude.started("w", "local_workflow")}, {0, claude.result()}},
		},
		{
			name: "after the end, said only", args: oneShot, lines: []said{{0, claude.text("x")}, {time.Minute, claude.result()}},
			want: []string{"no_exit_after_end 11m0s"},
		},
		{name: "text is silent", args: []string{"-p", "--output-format", "text"}},
		{
			name: "long-lived is left alone", args: stream, kill: 10 * time.Second,
			lines: []said{{0, claude.text("x")}, {0, claude.result()}},
		},
		{
			name: "leaves with stdin", args: oneShot, kill: 10 * time.Second, leave: "eof",
			lines: []said{{0, claude.text("x")}, {0, claude.result()}},
			want:  []string{"no_exit_after_end 10s", "eof 10s", "kill_after_result"},
		},
		{
			name: "leaves on no word", args: oneShot, kill: 10 * time.Second, leave: "killed",
			lines: []said{{0, claude.text("x")}, {0, claude.result()}, {12 * time.Second, "noise"}},
			want:  []string{"no_exit_after_end 10s", "eof 10s", "terminated 15s", "killed 20s", "kill_after_result"},
		},
		{
			name: "begins again", args: oneShot, kill: 10 * time.Second,
			lines: []said{{0, claude.text("x")}, {0, claude.result()}, {12 * time.Second, claude.text("woken")}, {13 * time.Second, permission}},
			want:  []string{"no_exit_after_end 10s", "open_ask a1 10m13s", "eof 10s"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				l := &leaver{exited: make(chan struct{}), leaves: tt.leave, start: time.Now()}
				var got []string
				w := ingest.NewWatched(t, ingest.Options{
					Config: ingest.Config{
						Tenant: "acme", CaptureStdin: "control", PresenceTTL: time.Minute, SpoolRunMax: 1 << 30, SpoolMax: -1,
						KillAfterResult: tt.kill, StallAfter: 10 * time.Minute,
					},
					Argv: append([]string{"claude"}, tt.args...), SpoolRoot: root, Partitions: 1, Log: testLog(t),
				}, l)
				for _, s := range tt.lines {
					time.Sleep(s.at - time.Since(l.start)) // the bubble's time
					w.Say(s.line)
				}
				time.Sleep(5 * time.Hour)
				ended := w.Stop()
				for _, e := range kept(t, root, w.Run()) {
					var d event.Stalled
					if e.Type == event.TypeStalled && json.Unmarshal(e.Data, &d) == nil {
						if d.Ask != "" {
							d.What += " " + d.Ask
						}
						got = append(got, d.What+" "+e.Time.Sub(l.start).String())
					}
				}
				got = append(got, l.did...)
				if ended != "" {
					got = append(got, ended)
				}
				equal(t, "said and done", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			})
		})
	}
}
