package dialect_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/capture"
)

func TestOutputPlace(t *testing.T) {
	for _, tc := range []struct {
		d    dialect.Name
		env  map[string]string
		want dialect.OutputPlace
		ok   bool
	}{
		{dialect.Claude, nil, dialect.OutputPlace{Temp: "/tmp", Own: "claude-7"}, true},
		{dialect.Claude, map[string]string{"CLAUDE_CODE_TMPDIR": "/x", "TMPDIR": "/y"}, dialect.OutputPlace{Temp: "/x", Own: "claude-7"}, true},
		{dialect.Claude, map[string]string{"CLAUDE_CODE_TMPDIR": "rel"}, dialect.OutputPlace{Temp: "rel", Own: "claude-7"}, false},
		{dialect.CBC, map[string]string{"CLAUDE_CODE_TMPDIR": "/x", "TMP": "/z"}, dialect.OutputPlace{Temp: "/z", Own: "codebuddy-7"}, true},
		{dialect.CBC, map[string]string{"TMPDIR": "/y", "TMP": "/z"}, dialect.OutputPlace{Temp: "/y", Own: "codebuddy-7"}, true},
		{dialect.Codex, nil, dialect.OutputPlace{}, false},
		{dialect.Unknown, nil, dialect.OutputPlace{}, false},
	} {
		got, ok := dialect.OutputPlaceOf(tc.d, func(k string) string { return tc.env[k] }, 7)
		if d := cmp.Diff(tc.want, got); d != "" || ok != tc.ok {
			t.Errorf("%s %v: %v (-want +got)\n%s", tc.d, tc.env, ok, d)
		}
	}
}

func TestOwnOutput(t *testing.T) {
	owner := dialect.OutputOwner{Cwds: []string{"/srv/ci/my_proj"}, Sessions: []string{"S1", "S2"}, Task: "b1"}
	long := "/srv/" + strings.Repeat("deep/", 60) + "end"
	for _, tc := range []struct {
		d    dialect.Name
		path string
		cwd  string
		want bool
	}{
		{dialect.Claude, "-srv-ci-my-proj/S1/tasks/b1.output", "", true},
		{dialect.Claude, "-srv-ci-my-proj/S2/tasks/b1.output", "", true},
		{dialect.Claude, "-srv-ci-my-proj/S3/tasks/b1.output", "", false},
		{dialect.Claude, "-srv-ci-my-proj/S1/tasks/b2.output", "", false},
		{dialect.Claude, "-srv-ci-my-proj/S1/tasks/b1.stdout.log", "", false},
		{dialect.Claude, "-srv-ci-my-proj/S1/other/b1.output", "", false},
		{dialect.Claude, "-srv-ci-my-proj/S1/tasks/x/b1.output", "", false},
		{dialect.Claude, "-srv-ci-my-proj/tasks/b1.output", "", false},
		{dialect.Claude, "-srv-ci-other/S1/tasks/b1.output", "", false},
		{dialect.Claude, "../S1/tasks/b1.output", "", false},
		{dialect.Claude, "/S1/tasks/b1.output", "", false},
		{dialect.Claude, "b1.output", "", false},
		{dialect.CBC, "srv-ci-my_proj/agent-tasks/b1.output", "", true},
		{dialect.CBC, "srv-ci-my_proj/agent-tasks/b2.output", "", false},
		{dialect.CBC, "srv-ci-my_proj/S1/agent-tasks/b1.output", "", false},
		{dialect.CBC, "srv-ci-my_proj/S1/bg-tasks/b1.stdout.log", "", true},
		{dialect.CBC, "srv-ci-my_proj/S1/bg-tasks/b1.stderr.log", "", true},
		{dialect.CBC, "srv-ci-my_proj/S3/bg-tasks/b1.stderr.log", "", false},
		{dialect.CBC, "srv-ci-my_proj/bg-tasks/b1.stdout.log", "", false},
		{dialect.Claude, strings.ReplaceAll(long, "/", "-")[:200] + "-1abc/S1/tasks/b1.output", long, true},
		{dialect.Claude, strings.ReplaceAll(long, "/", "-")[:100] + "/S1/tasks/b1.output", long, false},
		{dialect.Codex, "-srv-ci-my-proj/S1/tasks/b1.output", "", false},
	} {
		o := owner
		if tc.cwd != "" {
			o.Cwds = []string{tc.cwd}
		}
		if got := dialect.OwnOutput(tc.d, strings.Split(tc.path, "/"), o); got != tc.want {
			t.Errorf("%s %s: %v", tc.d, tc.path, got)
		}
	}
	if dialect.OwnOutput(dialect.Claude, []string{"-srv-ci-my-proj", "S1", "tasks", ".output"}, dialect.OutputOwner{Cwds: owner.Cwds, Sessions: owner.Sessions}) {
		t.Error("a task without an id has an output")
	}
}

// Where a task's outputs are looked for is where they are taken from.
func TestTaskOutputs(t *testing.T) {
	o := dialect.OutputOwner{Cwds: []string{"/w"}, Sessions: []string{"S"}, Task: "b1"}
	for d, want := range map[dialect.Name][]dialect.OutputFile{
		dialect.Claude: {{Stream: event.Out, Path: "-w/S/tasks/b1.output"}},
		dialect.CBC: {
			{Stream: event.Out, Path: "-w/agent-tasks/b1.output"},
			{Stream: event.Out, Path: "-w/S/bg-tasks/b1.stdout.log"},
			{Stream: event.Err, Path: "-w/S/bg-tasks/b1.stderr.log"},
		},
		dialect.Codex: nil,
	} {
		if diff := cmp.Diff(want, dialect.TaskOutputs(d, []string{"-x", "-w"}, o)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", d, diff)
		}
	}
	o.Task = "../../secret"
	if got := dialect.TaskOutputs(dialect.Claude, []string{"-w"}, o); got != nil {
		t.Errorf("%v", got)
	}
}

// Every output that a recorded program named is one of its own task's, in the place
// where its dialect keeps them.
func TestOutputFilesOfRecordings(t *testing.T) {
	seen := map[dialect.Name]int{}
	for _, name := range capture.List() {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		tr := dialect.NewTracker(dialect.FromArgv0(c.Argv[0]))
		var cwds, sessions []string
		for _, e := range c.Timeline {
			if e.Dir != capture.Out {
				continue
			}
			cls := tr.Classify(event.Out, e.Data, e.Cut)
			f := *tr.Frame()
			if cwd := f.Get("cwd").Text(); f.Subtype == "init" {
				cwds, sessions = append(cwds, cwd), append(sessions, cls.Session)
			}
			for _, file := range dialect.OutputFiles(&f) {
				seen[tr.Dialect()]++
				own := "/claude-0/"
				if tr.Dialect() == dialect.CBC {
					own = "/codebuddy-0/"
				}
				_, rest, ok := strings.Cut(file.Path, own)
				if !ok || !dialect.OwnOutput(tr.Dialect(), strings.Split(rest, "/"), dialect.OutputOwner{Cwds: cwds, Sessions: sessions, Task: cls.Task}) {
					t.Errorf("%s: %s of task %s in %v", name, file.Path, cls.Task, cwds)
				}
			}
		}
	}
	if seen[dialect.Claude] < 10 || seen[dialect.CBC] < 10 {
		t.Errorf("only %v were seen", seen)
	}
}
