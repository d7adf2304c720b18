package ingest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// A plan adds what a driver needs, keeps what the user said, and refuses what
// says otherwise. It adds nothing that lets the agent do more.
func TestPlan(t *testing.T) {
	const both = "--input-format stream-json --output-format stream-json"
	const all = "claude -p " + both + " --verbose --permission-prompt-tool stdio"
	tests := []struct {
		argv   string
		resume string
		want   string // "" is a refusal
		lines  string // contained in what would be written
	}{
		{argv: "claude", want: all, lines: `"subtype":"initialize"}}`},
		{argv: "/x/claude.exe --print --verbose --model opus", want: "/x/claude.exe " + both + " --permission-prompt-tool stdio --print --verbose --model opus"},
		{argv: "claude --output-format=stream-json", want: "claude -p --input-format stream-json --verbose --permission-prompt-tool stdio --output-format=stream-json"},
		{argv: "claude --dangerously-skip-permissions", want: all + " --dangerously-skip-permissions"},
		{argv: "claude", resume: "s-1", want: all + " --resume s-1"},
		{argv: "claude --resume s-2", want: all + " --resume s-2"},
		{argv: "claude -r s-2", resume: "s-1"},
		{argv: "claude --continue", resume: "s-1"},
		{argv: "claude --output-format json"},
		{argv: "claude --input-format=text"},
		{argv: "claude --permission-prompt-tool mcp__x"},
		{argv: "claude -p hello"},
		{argv: "claude hello"},
		{argv: "claude mcp list"},
		{argv: "claude --model opus -- hello"},
		{argv: "claude --version"},
		{argv: "cbc", want: "cbc " + both, lines: `"capabilities":{"askUserQuestion":true}`},
		{argv: "cbc -y", resume: "s-1", want: "cbc " + both + " -y --resume s-1"},
		{argv: "cbc --bg"},
		{argv: "cbc --permission-prompt-tool stdio"},
		{argv: "codex", want: "codex app-server", lines: `"method":"thread/start","params":{}`},
		{argv: "codex app-server -c a=b --enable x", want: "codex -c a=b --enable x app-server"},
		{
			argv: "codex -m gpt-5.5 --sandbox=workspace-write -a never -C /w", want: "codex app-server",
			lines: `"params":{"cwd":"/w","model":"gpt-5.5","approvalPolicy":"never","sandbox":"workspace-write"}`,
		},
		{argv: "codex -s read-only", resume: "th-1", want: "codex app-server", lines: `"method":"thread/resume","params":{"threadId":"th-1","excludeTurns":true,"sandbox":"read-only"}`},
		{argv: "codex exec"},
		{argv: "codex --yolo"},
		{argv: "codex --listen ws://x"},
		{argv: "codex -m"},
		{argv: "vim"},
	}
	for _, tt := range tests {
		t.Run(tt.argv, func(t *testing.T) {
			d := ingest.Drive{Prompts: []string{"hi"}, Resume: event.Resume{Session: tt.resume}}
			argv, err := d.Plan(strings.Fields(tt.argv), "")
			if tt.want == "" {
				if !errors.Is(err, ingest.ErrDrive) {
					t.Fatalf("got %q %v", argv, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "argv", strings.Join(argv, " "), tt.want)
			lines, err := d.Lines("v")
			if err != nil {
				t.Fatal(err)
			}
			written := strings.Join(lines, "")
			if !strings.Contains(written, tt.lines) || !strings.Contains(written, `"hi"`) {
				t.Errorf("lines without %s:\n%s", tt.lines, written)
			}
			for _, bypass := range []string{"skip-permissions", "bypass", "danger-full-access", "never"} {
				if strings.Contains(strings.Join(argv, " ")+written, bypass) && !strings.Contains(tt.argv, bypass) {
					t.Errorf("%s was added", bypass)
				}
			}
		})
	}
}

// led is a child in the hands of a driver, without a process.
type led struct {
	mu sync.Mutex // guards the leaver
	*leaver
	wrote chan string
}

func (l *led) ReleaseStdin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaver.ReleaseStdin()
}

func (l *led) Signal(s syscall.Signal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaver.Signal(s)
}

func (l *led) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

func (l *led) interrupted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, "interrupt "+time.Since(l.start).String())
}

func (l *led) Inject(_ context.Context, line []byte) error {
	l.wrote <- string(line)
	return nil
}
func (*led) Hide(string)       {}
func (*led) Unhide(string)     {}
func (*led) Tree() *child.Tree { return nil }
func (l *led) SignalFrom(s syscall.Signal, _ string) error {
	return l.Signal(s)
}

// When a driver closes stdin, and what it does to a child that stays, step by
// step and by the clock.
func TestDriveEnd(t *testing.T) {
	type said struct {
		at   time.Duration
		line string
	}
	turn := []said{{0, claude.text("x")}, {time.Second, claude.result()}}
	tests := []struct {
		name    string
		d       dialect.Name
		timeout time.Duration
		idle    time.Duration
		leave   string
		lines   []said
		want    []string
		ended   string
	}{
		{name: "leaves with stdin", leave: "eof", lines: turn, want: []string{"eof 6s"}},
		{name: "leaves on TERM", leave: "terminated", lines: turn, want: []string{"eof 6s", "terminated 16s"}, ended: "no_exit_after_eof"},
		{name: "leaves on no word", leave: "killed", lines: turn, want: []string{"eof 6s", "terminated 16s", "killed 21s"}, ended: "no_exit_after_eof"},
		{
			name: "a wake-up turn", leave: "eof",
			lines: append(turn, said{3 * time.Second, claude.text("y")}, said{9 * time.Second, claude.result()}),
			want:  []string{"eof 14s"},
		},
		{
			name: "a task past the result", leave: "eof",
			lines: []said{{0, claude.text("x")}, {0, claude.started("w", "local_workflow")}, {1, claude.result()}, {time.Hour, claude.notified("w", "completed")}},
			want:  []string{"eof 1h0m5s"},
		},
		{
			name: "an ask is open", leave: "eof", idle: time.Minute,
			lines: []said{
				{0, claude.text("x")},
				{0, permission},
				{time.Hour, claude.frame(`"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"tu-ask","content":"x"}]}`)},
				{time.Hour, claude.result()},
			},
			want: []string{"eof 1h0m5s"},
		},
		{
			name: "it begins again after the EOF", leave: "killed",
			lines: append(turn, said{8 * time.Second, claude.text("held back")}, said{time.Minute, claude.result()}),
			want:  []string{"eof 6s", "terminated 1m10s", "killed 1m15s"}, ended: "no_exit_after_eof",
		},
		{
			name: "agents in the background", d: dialect.CBC, leave: "killed",
			lines: []said{{0, cbc.text("x")}, {0, cbc.started("a", "Agent")}, {0, cbc.result()}, {time.Minute, cbc.frame(`"type":"system","subtype":"task_progress","task_id":"a"`)}},
			want:  []string{"eof 5s", "terminated 11m0s", "killed 11m5s"}, ended: "no_exit_after_eof",
		},
		{
			name: "timeout", timeout: time.Minute, leave: "killed", lines: []said{{0, claude.text("x")}},
			want: []string{"interrupt 1m0s", "eof 1m5s", "terminated 1m10s", "killed 1m15s"}, ended: "timeout",
		},
		{
			name: "timeout, and it obeys", timeout: time.Minute, leave: "eof",
			lines: []said{{0, claude.text("x")}, {time.Minute + time.Second, claude.aborted()}},
			want:  []string{"interrupt 1m0s", "eof 1m1s"}, ended: "timeout",
		},
		{
			name: "timeout with an ask open", timeout: time.Minute, leave: "terminated", lines: []said{{0, claude.text("x")}, {0, permission}},
			want: []string{"interrupt 1m0s", "eof 1m5s", "terminated 1m10s"}, ended: "timeout",
		},
		{name: "timeout when all is done", timeout: 2 * time.Second, leave: "eof", lines: turn, want: []string{"eof 2s"}},
		{
			name: "silence", idle: time.Minute, leave: "terminated",
			lines: []said{{0, claude.text("x")}, {50 * time.Second, claude.text("y")}},
			want:  []string{"interrupt 1m50s", "eof 1m55s", "terminated 2m0s"}, ended: "max_idle",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				o := ingest.Options{
					Config:    ingest.Config{Tenant: "acme", SpoolRunMax: 1 << 20, SpoolMax: -1, CaptureStdin: "control", PresenceTTL: time.Minute},
					SpoolRoot: root, Key: []byte("k"), Partitions: 1, Log: testLog(t), Dialect: dialect.Claude,
					Drive: &ingest.Drive{Prompts: []string{"go"}, Timeout: tt.timeout, MaxIdle: tt.idle},
				}
				if tt.d != "" {
					o.Dialect = tt.d
				}
				var err error
				if o.Argv, err = o.Drive.Plan([]string{"agent"}, o.Dialect); err != nil {
					t.Fatal(err)
				}
				p := &led{leaver: &leaver{exited: make(chan struct{}), leaves: tt.leave, start: time.Now()}, wrote: make(chan string, 16)}
				w, end := ingest.NewLed(t, o, p)
				wrote := func() string {
					synctest.Wait()
					select {
					case line := <-p.wrote:
						w.Wrote(line)
						return line
					default:
						return ""
					}
				}
				hello := wrote()
				_, id, _ := strings.Cut(hello, `"request_id":"`)
				id, _, _ = strings.Cut(id, `"`)
				w.Say(ack(id))
				if line := wrote(); !strings.Contains(line, `"type":"user"`) {
					t.Fatalf("no message: %q", line)
				}
				note := func() {
					if line := wrote(); strings.Contains(line, `"interrupt"`) {
						p.interrupted()
					}
				}
				for _, l := range tt.lines {
					for time.Since(p.start) < l.at && !p.over() {
						step(p.start, l.at)
						note()
					}
					w.Say(l.line)
					note()
				}
				for range 4000 {
					if synctest.Wait(); p.over() {
						break
					}
					<-time.After(time.Second)
					note()
				}
				got := end()
				w.Kept()
				equal(t, "steps", p.did, tt.want)
				equal(t, "ended", got.Ended, tt.ended)
				equal(t, "problem", got.Problem, "")
			})
		})
	}
}

// step lets a second of the bubble's clock pass, or what is left until at.
func step(start time.Time, at time.Duration) {
	<-time.After(min(time.Second, at-time.Since(start)))
}
