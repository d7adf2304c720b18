package workflow_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/test/capture"
)

// spoken makes the events of a run of Claude Code from lines of its stdout, and of its
// stdin after "<".
func spoken(lines ...string) []*event.Event {
	c := &capture.Capture{Argv: children[0]}
	for i, l := range lines {
		e := capture.Entry{At: time.Duration(i) * time.Second, Dir: capture.Out, Data: []byte(l)}
		if in, ok := strings.CutPrefix(l, "<"); ok {
			e.Dir, e.Data = capture.In, []byte(in)
		}
		c.Timeline = append(c.Timeline, e)
	}
	c.Timeline = append(c.Timeline, capture.Entry{At: time.Hour, Dir: capture.Exit})
	return capture.Events(c, "t", "r")
}

func find(t *testing.T, evs []*event.Event, typ string) *event.Event {
	t.Helper()
	i := slices.IndexFunc(evs, func(e *event.Event) bool { return strings.HasSuffix(e.Type, typ) })
	if i < 0 {
		t.Fatalf("no event %s", typ)
	}
	return evs[i]
}

// datas are the data of the events of one name.
func datas(t *testing.T, evs []*event.Event, name workflow.Event) (list []string) {
	t.Helper()
	all, err := mapAll(t, workflow.ID{Run: "r"}, evs)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Event == name {
			list = append(list, string(v.Data))
		}
	}
	return list
}

const (
	askLine       = `{"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"c1"},"session_id":"s"}`
	withdrawLine  = `{"type":"control_cancel_request","request_id":"1"}`
	interruptLine = `<{"type":"control_request","request_id":"cbcast-7","request":{"subtype":"interrupt"}}`
)

// Who asked for an interrupt: the host, or a command of ours.
func TestCancelRequested(t *testing.T) {
	evs := spoken(initLine, interruptLine, interruptLine, resultLine)
	want := []string{`{"requestedBy":"host","what":"interrupt","requestId":"cbcast-7"}`} // the second adds nothing
	if d := cmp.Diff(want, datas(t, evs, workflow.RunCancelRequested)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	find(t, evs, ".control_request.interrupt").Ext = map[string]string{"origin": "cbcast"}
	want = []string{`{"requestedBy":"command","what":"interrupt","requestId":"cbcast-7"}`}
	if d := cmp.Diff(want, datas(t, evs, workflow.RunCancelRequested)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// What the edge's policy decides at once waits for nobody. Where its decision cannot
// be written people are asked after all.
func TestPolicy(t *testing.T) {
	evs := spoken(initLine, askLine, withdrawLine, resultLine)
	find(t, evs, ".can_use_tool").Ext = map[string]string{"ask": "a1", "auto": "allow"}
	if got := datas(t, evs, workflow.RunAwaitingInput); len(got) > 0 {
		t.Errorf("it waits: %s", got)
	}
	failed, err := json.Marshal(event.AutoDecided{Ask: "a1", Decision: event.Allow, Error: "stdin is closed"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(evs, func(e *event.Event) bool { return strings.HasSuffix(e.Type, ".can_use_tool") })
	fact := *evs[i]
	fact.Type, fact.Kind, fact.Stream, fact.Data, fact.Ext = event.TypeDecision, event.Ask, event.Edge, failed, nil
	evs = slices.Insert(evs, i+1, &fact)
	for i, e := range evs {
		e.Seq = uint64(i + 1)
	}
	if got := datas(t, evs, workflow.RunAwaitingInput); len(got) != 1 {
		t.Errorf("it waits %d times", len(got))
	}
	want := []string{`{"askId":"a1","action":"withdrawn","pending":0}`}
	if d := cmp.Diff(want, datas(t, evs, workflow.RunResumed)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Without somebody who makes tokens there are none, and none for what cannot be
// answered.
func TestResumeToken(t *testing.T) {
	m := workflow.New(workflow.ID{Run: "r"})
	for _, e := range spoken(initLine, askLine) {
		out, err := m.Apply(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out {
			if strings.Contains(string(v.Data), "resumeToken") {
				t.Errorf("%s", v.Data)
			}
		}
	}
	got := datas(t, spoken(initLine, askLine, resultLine), workflow.RunAwaitingInput)
	if len(got) != 1 || !strings.Contains(got[0], `"resumeToken":"token-of-a1"`) {
		t.Errorf("%s", got)
	}
	twice := strings.Replace(askLine, `"input":{`, `"input":{"command":"rm","command":"rm -rf",`, 1)
	got = datas(t, spoken(initLine, twice, resultLine), workflow.RunAwaitingInput)
	if len(got) != 1 || strings.Contains(got[0], "resumeToken") || !strings.Contains(got[0], `"actions":[]`) {
		t.Errorf("%s", got)
	}
}

// An ask that is open when the child ends is not resumed by that.
func TestOpenAtExit(t *testing.T) {
	evs := spoken(initLine, askLine)
	if got := datas(t, evs, workflow.RunResumed); len(got) > 0 {
		t.Errorf("%s", got)
	}
	if got := datas(t, evs, workflow.RunFailed); len(got) != 1 || !strings.Contains(got[0], workflow.CodeRunIncomplete) {
		t.Errorf("%s", got)
	}
}

// Asks of an agent of a workflow are in its task's stream, those of others are not.
func TestAskOfTask(t *testing.T) {
	of := func(id, agent string) string {
		s := strings.Replace(askLine, `"request_id":"1"`, `"request_id":"`+id+`"`, 1)
		return strings.Replace(s, `"tool_use_id":"c1"`, `"tool_use_id":"c`+id+`","agent_id":"`+agent+`"`, 1)
	}
	evs := spoken(initLine, startedLine, snapshot(agent(1, 1, "start", `,"startedAt":1,"agentId":"x1"`)), of("1", "x1"), of("2", "other"), noticeLine, resultLine)
	count := func(task string) (n int) {
		all, err := mapAll(t, workflow.ID{Run: "r", Task: task}, evs)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			if v.Event == workflow.RunAwaitingInput {
				n++
			}
		}
		return n
	}
	if run, task := count(""), count("w"); run != 2 || task != 1 {
		t.Errorf("%d asks of the run, %d of the task, want 2 and 1", run, task)
	}
}

// Pieces of Codex that an edge has put into one event are one delta.
func TestCodexPieces(t *testing.T) {
	evs := events(t, "codex-0.153.4/10-cmd-approval-accept")
	i := slices.IndexFunc(evs, func(e *event.Event) bool { return strings.HasSuffix(e.Type, ".agentMessage.delta") })
	both := *evs[i]
	both.ContentType, both.Data = event.NDJSON, slices.Concat(evs[i].Data, []byte("\n"), evs[i+1].Data)
	evs = slices.Replace(evs, i, i+2, &both)
	for i, e := range evs {
		e.Seq = uint64(i + 1)
	}
	want := []string{`{"channel":"text","delta":"All done."}`}
	if d := cmp.Diff(want, datas(t, evs, workflow.NodeOutputDelta)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
