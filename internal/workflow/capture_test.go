package workflow_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/test/capture"
)

var update = flag.Bool("update", false, "write the golden files")

// streams lists the ids that a recording has streams of: the run, and each task.
func streams(events []*event.Event) []workflow.ID {
	s := run.New("r")
	for _, e := range events {
		s.Apply(e)
	}
	ids := []workflow.ID{{Run: "r"}}
	for t := range s.TaskStates {
		ids = append(ids, workflow.ID{Run: "r", Task: t.ID})
	}
	return ids
}

func events(t testing.TB, name string) []*event.Event {
	t.Helper()
	c, err := capture.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return capture.Events(c, "t", "r")
}

// Every recording keeps every promise, as a run and as each of its tasks.
func TestCaptures(t *testing.T) {
	seen := map[workflow.Event]int{}
	tasks := 0
	for _, name := range capture.List() {
		evs := events(t, name)
		for _, id := range streams(evs) {
			all, err := mapAll(t, id, evs)
			if err != nil {
				t.Fatalf("%s %s: %v", name, id, err)
			}
			if len(all) == 0 || !all[len(all)-1].Event.Terminal() {
				t.Errorf("%s %s: %d envelopes, no end", name, id, len(all))
			}
			for _, v := range all {
				seen[v.Event]++
			}
			if id.Task != "" {
				tasks++
			}
		}
	}
	for _, e := range workflow.Events {
		if seen[e] == 0 {
			t.Errorf("no recording has %s", e)
		}
	}
	t.Logf("%d recordings, %d tasks, events %v", len(capture.List()), tasks, seen)
}

// A mapper that is fed from the beginning gives what another one gave, from
// wherever its reader goes on.
func TestDeterministic(t *testing.T) {
	for _, name := range goldens {
		evs := events(t, name)
		for _, id := range streams(evs) {
			once := lines(t, id, evs, 0)
			for _, cut := range []int{0, len(evs) / 3, len(evs) / 2, len(evs) - 1} {
				first, rest := lines(t, id, evs[:cut], 0), lines(t, id, evs, cut)
				if d := cmp.Diff(once, append(first, rest...)); d != "" {
					t.Errorf("%s %s cut at %d: (-once +halves)\n%s", name, id, cut, d)
				}
			}
		}
	}
}

// lines maps events and returns what those from place from on gave. Events are
// given twice, as a bus that sends again does, and facts of relays come between.
func lines(t *testing.T, id workflow.ID, evs []*event.Event, from int) (list []string) {
	t.Helper()
	m := workflow.New(id)
	for i, e := range evs {
		for n := range 2 {
			out, err := m.Apply(e)
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 && len(out) > 0 {
				t.Fatalf("event %d again gives %d envelopes", e.Seq, len(out))
			}
			for _, v := range out {
				if i >= from {
					list = append(list, string(v.AppendJSON(nil)))
				}
			}
		}
		fact := &event.Event{Tenant: "t", Run: "r", Ref: "liveness", Type: event.TypeLost, Stream: event.Edge, Data: []byte(`{"reason":"x"}`)}
		if i%2 == 1 {
			fact.Type = event.TypeResumed
		}
		if out, err := m.Apply(fact); err != nil || len(out) > 0 {
			t.Fatalf("a fact outside the sequence gives %v, %v", out, err)
		}
	}
	return list
}

// A frame that comes in chunks gives what it gives whole.
func TestChunks(t *testing.T) {
	for _, name := range []string{"claude-2.1.220/80-workflow-ok", "cbc-2.163.0/big-answer", "codex-0.153.4/10-cmd-approval-accept"} {
		evs := events(t, name)
		var chunked []*event.Event
		first := map[uint64]uint64{} // seq of the whole by that of its first chunk
		var seq uint64
		for _, e := range evs {
			parts := event.Split(e.Data, 300)
			first[seq+1] = e.Seq
			for i, p := range parts {
				seq++
				c := *e
				c.Seq, c.Data = seq, p
				if len(parts) > 1 {
					c.Chunk = event.Part{I: i + 1, N: len(parts)}
				}
				chunked = append(chunked, &c)
			}
		}
		whole, err := mapAll(t, workflow.ID{Run: "r"}, evs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := mapAll(t, workflow.ID{Run: "r"}, chunked)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].Seq = first[got[i].Seq/workflow.Step]*workflow.Step + got[i].Seq%workflow.Step
		}
		if d := cmp.Diff(text(whole), text(got)); d != "" {
			t.Errorf("%s: (-whole +chunks)\n%s", name, d)
		}
	}
}

// goldens are the recordings whose streams were read by eye. A change of one needs
// the same.
var goldens = []string{
	"claude-2.1.220/04-partial-messages", "claude-2.1.220/08-tool-bash-fail", "claude-2.1.220/30-perm-allow",
	"claude-2.1.220/32-perm-deny-interrupt", "claude-2.1.220/40-ask-user-question", "claude-2.1.220/50-interrupt-midstream",
	"claude-2.1.220/70-agent-bg", "claude-2.1.220/71-agent-fg", "claude-2.1.220/80-workflow-ok", "claude-2.1.220/82-workflow-interrupt-idle",
	"claude-2.1.220/84-workflow-stop-task", "claude-2.1.220/85-workflow-throws", "claude-2.1.220/8h-workflow-eof-hung", "claude-2.1.220/a2-api-401",
	"claude-2.1.220/d0-sigterm-stream", "claude-2.1.220/db-sigterm-bg", "claude-2.1.220/j1-thinking", "cbc-2.163.0/agent-bg-idle", "cbc-2.163.0/agent-fg",
	"cbc-2.163.0/ask-user", "cbc-2.163.0/workflow", "cbc-2.163.0/workflow-live", "cbc-2.163.0/workflow-live-interrupt",
	"cbc-2.163.0/workflow-live-partial", "cbc-2.163.0/workflow-perm", "codex-0.153.4/11-cmd-approval-decline",
	"codex-0.153.4/20-question-answered", "codex-0.153.4/57-interrupt-running-command", "codex-0.153.4/71-plan-updates",
	"codex-0.153.4/81-collab-v2", "codex-0.153.4/86-background-terminal",
}

func TestGolden(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			evs := events(t, name)
			var b strings.Builder
			for _, id := range streams(evs) {
				all, err := mapAll(t, id, evs)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "stream %s\n%s\n", id, text(all))
			}
			file := filepath.Join("testdata", "golden", strings.ReplaceAll(name, "/", "__")+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// text is a stream in short: the workflow and its version where they change, times
// left out.
func text(all []workflow.Envelope) string {
	var b bytes.Buffer
	var of string
	for _, v := range all {
		if id := v.WorkflowID + " " + v.VersionID; id != of {
			of = id
			fmt.Fprintf(&b, "of %s\n", id)
		}
		data := string(v.Data)
		for _, key := range []string{"startedAt", "finishedAt"} {
			if before, rest, ok := strings.Cut(data, `"`+key+`":"`); ok {
				_, rest, _ = strings.Cut(rest, `"`)
				data = before + `"` + key + `":""` + rest
			}
		}
		if len(data) > 700 {
			data = data[:700] + "…"
		}
		fmt.Fprintf(&b, "%d.%d %s %s %s\n", v.Seq/workflow.Step, v.Seq%workflow.Step, v.Event, v.NodeRunID, data)
	}
	return b.String()
}

// What a model thinks, and what its host said of accounts, is in no envelope.
func TestNothingHidden(t *testing.T) {
	for name, words := range map[string][]string{
		"claude-2.1.220/j1-thinking":           {"hidden thoughts", "bW9jaw==", "thinking"},
		"claude-2.1.220/04-partial-messages":   {"Let me think", "step by step", "bW9jaw=="},
		"cbc-2.163.0/hello":                    {"anonymous_dummy"},
		"codex-0.153.4/20c-question-plan-mode": {"reasoning"},
	} {
		all, err := mapAll(t, workflow.ID{Run: "r"}, events(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			line := string(v.AppendJSON(nil))
			if i := slices.IndexFunc(words, func(w string) bool { return strings.Contains(line, w) }); i >= 0 {
				t.Errorf("%s: %q is in %s", name, words[i], line)
			}
		}
	}
}
