package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	cb "github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/mockmodel"
)

// give sends any command over HTTP and returns its id.
func (w *wrap) give(name string, args any) string {
	w.t.Helper()
	var res struct{ Command string }
	w.call(http.MethodPost, "/v1/runs/"+w.run+"/commands", map[string]any{"name": name, "args": args}, &res)
	if res.Command == "" {
		w.t.Fatalf("the relay names no command %s", name)
	}
	return res.Command
}

// settles waits for the end of a command, which must be settled, and returns what
// its last fact says.
func (w *wrap) settles(command string) map[string]string {
	w.t.Helper()
	var last cb.CommandFact
	w.events.await("end of "+command, func(all []event) bool {
		for _, e := range all {
			var f cb.CommandFact
			if e.Type == cb.TypeCommand && json.Unmarshal(e.Data, &f) == nil && f.Command == command && f.Fact.Final() {
				last = f // the answer to it may still come
				return true
			}
		}
		return false
	})
	if last.Fact != cb.Settled {
		w.t.Errorf("%s %s is %s: %s", last.Name, command, last.Fact, last.Reason)
	}
	return last.Detail
}

func write(file, text string) mockmodel.Step {
	return call("Write", map[string]any{"file_path": file, "content": text})
}

// What a Claude Code does with each command that it has.
func TestCommandsClaude(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	p := claude(t, m)
	p.env = append(p.env, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=1")
	file := filepath.Join(p.dir, "made.txt")
	m.Add(turn("main", gate("main"), write(file, "one\n")), turn("written", say("done")), turn("second", say("second answer")))
	a := launch(t, m, p, true)
	a.say("make it")
	m.await("at main", 1)
	mode := a.w.settles(a.w.give("set_permission_mode", map[string]any{"mode": "acceptEdits"}))
	if d := cmp.Diff(map[string]string{"mode": "acceptEdits", "previous_mode": "bypassPermissions"}, mode); d != "" {
		t.Errorf("mode (-want +got):\n%s", d)
	}
	a.w.settles(a.w.give("set_permission_mode", map[string]any{"mode": "bypassPermissions"}))
	a.w.settles(a.w.give("set_model", map[string]any{"model": "claude-sonnet-5"}))
	m.Open("main")
	a.await("result", is("result"))

	second := a.w.give("message", map[string]any{"content": []map[string]any{{"type": "text", "text": "and now é"}}})
	a.await("second result", is("result"))
	if d := cmp.Diff(map[string]string{"uuid": second, "turn": "2"}, a.w.settles(second)); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
	if f := a.w.facts(second); !cmp.Equal(f, []string{"written", "acked", "settled"}) {
		t.Errorf("facts of the message: %q", f)
	}
	v := a.w.show(a.w.run)
	if v.Model != "claude-sonnet-5" || len(v.Checkpoints) == 0 || v.Checkpoints[len(v.Checkpoints)-1].ID != second {
		t.Errorf("model %q, checkpoints %+v", v.Model, v.Checkpoints)
	}
	none := a.w.give("rewind_files", map[string]any{"checkpoint": "00000000-0000-4000-8000-00000000dead"})
	if f := a.w.facts(none); !cmp.Equal(f, []string{"written", "refused"}) {
		t.Errorf("a rewind to nowhere: %q", f)
	}
	dry := a.w.settles(a.w.give("rewind_files", map[string]any{"checkpoint": second, "dry_run": true}))
	if dry["canRewind"] != "true" || dry["filesChanged"] != "0" {
		t.Errorf("dry run: %v", dry)
	}
	end := a.w.give("end_session", map[string]any{})
	a.w.settles(end) // when it has left
	if code := a.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkHidden(t, a.session)
}

// What a cbc does: a message waits while a turn runs, a steer joins it, and a
// rewind takes back what the turn has written.
func TestCommandsCBC(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	p := cbc(t, m)
	file := filepath.Join(p.dir, "made.txt")
	m.Add(
		turn("main", write(file, "one\n")), turn("bash", call("Bash", map[string]any{"command": m.atGate("bash"), "description": "waits"})),
		turn("steered", say("steered")), turn("second", say("second answer")), turn("third", say("third answer")),
	)
	a := launch(t, m, p, true)
	a.say("make it")
	m.await("at bash", 1)
	second := a.w.give("message", map[string]any{"content": "and now"})
	a.w.settles(a.w.give("steer", map[string]any{"content": "also this"}))
	if f := factsNow(a.w, second); len(f) > 0 {
		t.Errorf("the message did not wait: %q", f)
	}
	m.Open("bash")
	a.await("result", is("result"))
	a.await("second result", is("result"))
	if d := a.w.settles(second); d["turn"] != "2" {
		t.Errorf("message: %v", d)
	}
	v := a.w.until(a.w.run, "checkpoints", func(v *run.View) bool { return len(v.Checkpoints) > 0 })
	first := v.Checkpoints[0].ID
	dry := a.w.settles(a.w.give("rewind", map[string]any{"checkpoint": first, "scope": "Code", "dry_run": true}))
	if dry["canRewind"] != "true" || dry["filesChanged"] != "1" || !strings.HasSuffix(dry["files"], "made.txt") {
		t.Errorf("dry run: %v", dry)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("after the dry run: %v", err)
	}
	back := a.w.settles(a.w.give("rewind", map[string]any{"checkpoint": first}))
	if back["historyRewound"] != "true" {
		t.Errorf("rewind: %v", back)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is still there")
	}
	a.w.until(a.w.run, "no checkpoint", func(v *run.View) bool { return len(v.Checkpoints) == 0 })
	again := a.w.give("rewind", map[string]any{"checkpoint": first})
	if f := a.w.facts(again); !cmp.Equal(f, []string{"written", "acked", "refused"}) {
		t.Errorf("a second rewind: %q", f)
	}
	mode := a.w.settles(a.w.give("set_permission_mode", map[string]any{"mode": "plan"}))
	if mode["mode"] != "plan" || mode["previous_mode"] == "" {
		t.Errorf("mode: %v", mode)
	}
	a.terminate()
	checkHidden(t, a.session)
}

// An older cbc does not know these, and says so.
func TestCommandsUnknown(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.Add(turn("main", say("hello")))
	a := launch(t, m, cbc117(t, m), true)
	a.say("hello")
	a.await("result", is("result"))
	for _, want := range [][]string{{"written", "refused"}, {"refused"}} {
		if f := a.w.facts(a.w.give("rewind", map[string]any{"checkpoint": "m"})); !cmp.Equal(f, want) {
			t.Errorf("facts: %q, want %q", f, want)
		}
	}
	a.terminate()
}

// factsNow are the facts of a command so far.
func factsNow(w *wrap, command string) []string {
	w.events.mu.Lock()
	defer w.events.mu.Unlock()
	return factsOf(w.events.events, command)
}

// An escalation ends what an interrupt leaves: a shell in the background, by
// stop_task where there is one, by SIGTERM where there is none; and an agent that
// does nothing any more, with what it has started.
func TestEscalate(t *testing.T) {
	for name, tt := range map[string]struct {
		agent func(*testing.T, *model, ...string) program
		stuck bool
		rung  string
	}{
		"claude/shell": {agent: claude, rung: "stop_task"},
		"claude/stuck": {agent: claude, stuck: true, rung: "sigkill"},
		"cbc/shell":    {agent: cbc, rung: "sigterm"},
		"cbc/stuck":    {agent: cbc, stuck: true, rung: "sigkill"},
		"codex/stuck":  {agent: codex, stuck: true, rung: "sigkill"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			p := tt.agent(t, m)
			pidFile := filepath.Join(p.dir, "pid")
			command := "echo $$ > " + pidFile + "; trap '' TERM; " + m.atGate("bash")
			step := p.shell(command)
			if !tt.stuck {
				step = call("Bash", map[string]any{"command": command, "description": "waits", "run_in_background": true})
			}
			m.Add(turn("main", step), turn("after", say("it runs")))
			a := launch(t, m, p, true)
			a.say("run it")
			m.await("at bash", 1)
			if tt.stuck {
				stop(t, a)
			} else {
				a.await("result", is("result"))
			}
			id := a.w.give("interrupt", map[string]any{"escalate": true})
			if d := a.w.settles(id); d["rung"] != tt.rung {
				t.Errorf("detail: %v", d)
			}
			m.await("left bash", 1) // the tool is dead
			b, err := os.ReadFile(pidFile)
			if err != nil {
				t.Fatal(err)
			}
			pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			if err := syscall.Kill(pid, 0); err == nil {
				stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
				if !strings.Contains(string(stat), ") Z ") {
					t.Errorf("the tool %d lives: %s", pid, stat)
				}
			}
			if tt.rung == "stop_task" {
				a.leave()
			}
			checkState(t, a.w.hub, a.w.run, "interrupted")
		})
	}
}

// stop stops the wrapped agent itself, as a debugger would.
func stop(t *testing.T, a *agent) {
	t.Helper()
	a.w.events.await("start", func(all []event) bool {
		for _, e := range all {
			var s cb.Started
			if e.Type == cb.TypeStarted && json.Unmarshal(e.Data, &s) == nil && s.Pid > 0 {
				if err := syscall.Kill(s.Pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				return true
			}
		}
		return false
	})
}
