package ingest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// taskDir is where Claude Code keeps the outputs of session s1 of a child in this
// directory, below a temporary directory.
func taskDir(tb testing.TB, temp string) string {
	tb.Helper()
	cwd, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	slug := regexp.MustCompile("[^a-zA-Z0-9]").ReplaceAllString(cwd, "-")
	dir := filepath.Join(temp, fmt.Sprintf("claude-%d", os.Geteuid()), slug, "s1", "tasks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

const initS1 = `{"type":"system","subtype":"init","session_id":"s1","claude_code_version":"2.1.220","permissionMode":"default","tools":[]}`

func ended(task, file string) string {
	return `{"type":"system","subtype":"task_notification","task_id":"` + task + `","status":"completed","output_file":"` + file + `","summary":"x","session_id":"s1"}`
}

// outputOptions are those of a claude child with a temporary directory of its own.
func outputOptions(t *testing.T) (ingest.Options, string) {
	temp := t.TempDir()
	o := options(t)
	o.CaptureOutputs, o.Dialect = true, dialect.Claude
	o.Env = []string{"CLAUDE_CODE_TMPDIR=" + temp, "MY_API_KEY=hunter2hunter2"}
	return o, taskDir(t, temp)
}

// what an output event says, in short.
type outputEvent struct {
	Task, File, Stream, Size, Offset, Omitted, Error string
	Data                                             string
}

func outputsOf(evs []*event.Event) (list []outputEvent) {
	for _, e := range evs {
		if e.Type != event.TypeOutput {
			continue
		}
		data := string(e.Data)
		if len(data) > 40 {
			data = fmt.Sprintf("%d bytes", len(data))
		}
		list = append(list, outputEvent{
			e.Task, filepath.Base(e.Ext["outputfile"]), e.Ext["outputstream"], e.Ext["outputsize"], e.Ext["outputoffset"],
			e.Ext["outputomitted"], e.Ext["outputerror"], data,
		})
	}
	return list
}

func TestOutputs(t *testing.T) {
	o, dir := outputOptions(t)
	put := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	r := wrap(t, o, streamArgs...)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "b4.output")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b5.output"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.say(initS1,
		ended("b1", put("b1.output", "one\nhunter2hunter2\n")),
		ended("b2", put("b2.output", "")),
		ended("b3", filepath.Join(dir, "b3.output")),
		ended("b4", filepath.Join(dir, "b4.output")),
		ended("b5", filepath.Join(dir, "b5.output")),
		ended("b6", secret),
		ended("b7", put("b8.output", "another task's")),
		ended("b9", ""),
		ended("b10", put("b10.output", strings.Repeat("line of ten\n", 200_000))),
		done)
	evs := r.w.history(t, r.exit(0).Run)
	want := []outputEvent{
		{"b1", "b1.output", "out", "19", "0", "", "", "one\n[redacted:env]\n"},
		{"b2", "b2.output", "out", "0", "0", "", "", ""},
		{"b3", "b3.output", "out", "", "", "", "gone", ""},
		{"b4", "b4.output", "out", "", "", "", "link", ""},
		{"b5", "b5.output", "out", "", "", "", "not_regular", ""},
		{"b6", "secret", "out", "", "", "", "outside", ""},
		{"b7", "b8.output", "out", "", "", "", "outside", ""},
		{"b10", "b10.output", "out", "2400000", "0", "1351440", "", "262144 bytes"},
		{"b10", "b10.output", "out", "2400000", "0", "1351440", "", "262136 bytes"},
		{"b10", "b10.output", "out", "2400000", "1875720", "1351440", "", "262144 bytes"},
		{"b10", "b10.output", "out", "2400000", "1875720", "1351440", "", "262136 bytes"},
	}
	if d := cmp.Diff(want, outputsOf(evs)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if last := evs[len(evs)-1]; last.Type != event.TypeExited {
		t.Errorf("the last event is %s", last.Type)
	}
	for _, e := range evs {
		if e.Type == event.TypeOutput && (e.Kind != event.Raw || e.Stream != event.Edge || e.Session != "s1") {
			t.Errorf("event %d: kind %s, stream %s, session %q", e.Seq, e.Kind, e.Stream, e.Session)
		}
	}
	x := one[event.Exited](t, evs, event.TypeExited)
	if !x.Complete {
		t.Errorf("the run is not complete: %+v", x)
	}
	if got := rejoin(t, evs, event.Out); strings.Contains(string(got), "line of ten") {
		t.Error("an output stands among the child's own words")
	}
}

// A task whose end no frame tells left something behind, too.
func TestOutputsOfUntoldTasks(t *testing.T) {
	o, dir := outputOptions(t)
	for _, name := range []string{"b1.output", "b2.output", "b3.output"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	started := func(task string) string {
		return `{"type":"system","subtype":"task_started","task_id":"` + task + `","task_type":"local_bash","description":"x","session_id":"s1"}`
	}
	r := wrap(t, o, streamArgs...)
	r.say(initS1, started("b1"), started("b2"), started("b4"), started("../b3"), ended("b2", filepath.Join(dir, "b2.output")), done)
	evs := r.w.history(t, r.exit(0).Run)
	want := []outputEvent{
		{"b2", "b2.output", "out", "9", "0", "", "", "b2.output"},
		{"b1", "b1.output", "out", "9", "0", "", "", "b1.output"},
	}
	if d := cmp.Diff(want, outputsOf(evs)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

const done = `{"type":"result","subtype":"success","is_error":false,"session_id":"s1","num_turns":1,"result":"d"}`

func TestOutputsCanBeLeftOut(t *testing.T) {
	o, dir := outputOptions(t)
	o.CaptureOutputs = false
	file := filepath.Join(dir, "b1.output")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := wrap(t, o, streamArgs...)
	r.say(initS1, ended("b1", file), done)
	if got := outputsOf(r.w.history(t, r.exit(0).Run)); got != nil {
		t.Errorf("%+v", got)
	}
}

// More outputs than a run may publish, and more at once than are remembered, are
// said to be left out, and hold nothing up.
func TestOutputsAreBounded(t *testing.T) {
	o, dir := outputOptions(t)
	r := wrap(t, o, streamArgs...)
	text := []byte(strings.Repeat("0123456789abcde\n", 1<<16)) // 1 MiB
	lines := []string{initS1}
	const files = 70
	for i := range files {
		task := fmt.Sprintf("t%d", i)
		name := filepath.Join(dir, task+".output")
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, ended(task, name))
	}
	// One by one, so that none waits for another.
	for i, l := range lines {
		r.say(l)
		if i > 0 {
			n := i
			r.w.await(t, r.run, "output", func(evs []*event.Event) bool { return distinct(evs) >= n })
		}
	}
	r.say(done)
	evs := r.w.history(t, r.exit(0).Run)
	bytes, left := 0, 0
	for _, e := range evs {
		if e.Type == event.TypeOutput {
			bytes += len(e.Data)
			if e.Ext["outputerror"] == "run_limit" {
				left++
			}
		}
	}
	if bytes != 64<<20 || left != files-64 {
		t.Errorf("%d bytes published, %d files left out", bytes, left)
	}
}

// distinct counts the tasks with an output event.
func distinct(evs []*event.Event) int {
	tasks := map[string]bool{}
	for _, e := range evs {
		if e.Type == event.TypeOutput {
			tasks[e.Task] = true
		}
	}
	return len(tasks)
}

// A file system that is slow delays the end by a bounded time, and what was not read
// by then is named. One that does not answer at all keeps nobody.
func TestOutputsOfASlowDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		slow func(t *testing.T)
		want []outputEvent
	}{
		{"slow", ingest.SlowOutputs, []outputEvent{
			{Task: "b1", File: "b1.output", Stream: "out", Size: "1", Offset: "0", Data: "x"},
			{Task: "b2", File: "b1.output", Stream: "out", Error: "no_time"},
		}},
		{"stuck", ingest.StuckOutputs, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, dir := outputOptions(t)
			file := filepath.Join(dir, "b1.output")
			if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			tc.slow(t)
			r := wrap(t, o, streamArgs...)
			r.say(initS1, ended("b1", file), ended("b2", file), done)
			evs := r.w.history(t, r.exit(0).Run)
			if last := evs[len(evs)-1]; last.Type != event.TypeExited {
				t.Errorf("the last event is %s", last.Type)
			}
			if d := cmp.Diff(tc.want, outputsOf(evs)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
