package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/test/capture"
)

// claude makes the events of a run of Claude Code that wrote these lines and ended.
func claude(lines ...string) []*event.Event {
	c := &capture.Capture{Argv: children[0]}
	for i, l := range lines {
		c.Timeline = append(c.Timeline, capture.Entry{At: time.Duration(i) * time.Second, Dir: capture.Out, Data: []byte(l)})
	}
	c.Timeline = append(c.Timeline, capture.Entry{At: time.Hour, Dir: capture.Exit})
	return capture.Events(c, "t", "r")
}

const (
	initLine    = `{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.220","model":"m"}`
	resultLine  = `{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s","uuid":"r1"}`
	startedLine = `{"type":"system","subtype":"task_started","task_id":"w","tool_use_id":"c","task_type":"local_workflow","workflow_name":"flow","prompt":"script","session_id":"s"}`
	updatedLine = `{"type":"system","subtype":"task_updated","task_id":"w","patch":{"status":"%s"},"session_id":"s"}`
	noticeLine  = `{"type":"system","subtype":"task_notification","task_id":"w","status":"completed","output_file":"/tmp/x/w.output","summary":"done","session_id":"s"}`
	textLine    = `{"type":"assistant","session_id":"s","message":{"id":"m%d","content":[{"type":"text","text":%q}]}}`
)

func snapshot(agents string) string {
	return `{"type":"system","subtype":"task_progress","task_id":"w","session_id":"s","workflow_progress":[{"type":"workflow_phase","index":1,"title":"One"},{"type":"workflow_phase","index":2,"title":"Two"}` + agents + `]}`
}

func agent(phase, index int, state, more string) string {
	return fmt.Sprintf(`,{"type":"workflow_agent","index":%d,"phaseIndex":%d,"label":"a%d","state":%q%s}`, index, phase, index, state, more)
}

// short is a stream as its events and node runs.
func short(all []workflow.Envelope) (list []string) {
	for _, v := range all {
		var d struct {
			Status   string
			Reported *bool
			Error    struct{ Code string }
		}
		_ = json.Unmarshal(v.Data, &d)
		s := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", v.Event, v.NodeRunID, d.Status, d.Error.Code))
		if d.Reported != nil && !*d.Reported {
			s += " (not reported)"
		}
		list = append(list, s)
	}
	return list
}

func mapped(t *testing.T, task string, evs []*event.Event) []string {
	t.Helper()
	all, err := mapAll(t, workflow.ID{Run: "r", Task: task}, evs)
	if err != nil {
		t.Fatal(err)
	}
	return short(all)
}

// An agent that is tried again has a node run for each attempt; a phase that goes on
// after another one began has two; what waits is queued and not started.
func TestAttempts(t *testing.T) {
	evs := claude(initLine, startedLine,
		snapshot(agent(1, 1, "start", `,"startedAt":1,"attempt":1`)+agent(1, 2, "start", ``)),
		snapshot(agent(1, 1, "progress", `,"startedAt":1,"attempt":2,"lastToolName":"Bash"`)+agent(1, 2, "start", ``)),
		snapshot(agent(1, 1, "done", `,"startedAt":1,"attempt":2`)+agent(1, 2, "done", `,"cached":true`)+agent(2, 3, "start", `,"startedAt":9`)),
		snapshot(agent(1, 1, "done", `,"startedAt":1,"attempt":2`)+agent(1, 2, "done", `,"cached":true`)+agent(2, 3, "start", `,"startedAt":9`)+agent(1, 4, "start", `,"startedAt":10`)),
		fmt.Sprintf(updatedLine, "completed"), noticeLine, resultLine)
	want := []string{
		"run.created", "run.started",
		"node.started phase/1@1", "node.queued phase/2@1", "node.started agent/1/1@1", "node.queued agent/1/2@1",
		"node.failed agent/1/1@1 retried WORKFLOW_NODE_FAILED", "node.started agent/1/1@2", "node.progress agent/1/1@2",
		"node.started phase/2@1", "node.completed agent/1/1@2 done", "node.started agent/1/2@1", "node.completed agent/1/2@1 done",
		"node.started agent/2/3@1", "node.completed phase/1@1 completed",
		"node.started phase/1@2", "node.started agent/1/4@1",
		"artifact.created",
		"node.completed agent/1/4@1 completed (not reported)", "node.completed phase/1@2 completed (not reported)",
		"node.completed agent/2/3@1 completed (not reported)", "node.completed phase/2@1 completed (not reported)",
		"run.completed  completed",
	}
	if d := cmp.Diff(want, mapped(t, "w", evs)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// The two paths of a task's end are one end: the status of the first holds, the
// file of the second is told, and nothing comes after it.
func TestTaskEnds(t *testing.T) {
	late := snapshot(agent(1, 1, "error", `,"startedAt":1`))
	running := snapshot(agent(1, 1, "start", `,"startedAt":1`))
	head := []string{"run.created", "run.started", "node.started phase/1@1", "node.queued phase/2@1", "node.started agent/1/1@1"}
	for name, c := range map[string]struct {
		lines []string
		want  []string
	}{
		"both": {
			[]string{fmt.Sprintf(updatedLine, "killed"), noticeLine, late},
			[]string{
				"artifact.created", "node.failed agent/1/1@1 killed WORKFLOW_NODE_STOPPED (not reported)",
				"node.failed phase/2@1 killed WORKFLOW_NODE_STOPPED (not reported)", "node.failed phase/1@1 killed WORKFLOW_NODE_STOPPED (not reported)",
				"run.cancel_requested", "run.cancelled  killed",
			},
		},
		"snapshot between": {
			[]string{fmt.Sprintf(updatedLine, "failed"), late, noticeLine},
			[]string{
				"node.failed agent/1/1@1 error WORKFLOW_NODE_FAILED", "artifact.created",
				"node.failed phase/2@1 failed WORKFLOW_NODE_NOT_REPORTED (not reported)", "node.failed phase/1@1 failed WORKFLOW_NODE_NOT_REPORTED (not reported)",
				"run.failed  failed WORKFLOW_RUN_FAILED",
			},
		},
		"updated alone": { // ends with the next frame that is not about tasks
			[]string{fmt.Sprintf(updatedLine, "completed"), fmt.Sprintf(textLine, 1, "x"), late, noticeLine},
			[]string{
				"node.completed agent/1/1@1 completed (not reported)", "node.completed phase/2@1 completed (not reported)",
				"node.completed phase/1@1 completed (not reported)", "run.completed  completed",
			},
		},
		"notification alone": {
			[]string{noticeLine, fmt.Sprintf(updatedLine, "killed"), late},
			[]string{
				"artifact.created", "node.completed agent/1/1@1 completed (not reported)", "node.completed phase/2@1 completed (not reported)",
				"node.completed phase/1@1 completed (not reported)", "run.completed  completed",
			},
		},
		"exit": {
			nil,
			[]string{
				"node.failed agent/1/1@1 unknown WORKFLOW_NODE_NOT_REPORTED (not reported)", "node.failed phase/2@1 unknown WORKFLOW_NODE_NOT_REPORTED (not reported)",
				"node.failed phase/1@1 unknown WORKFLOW_NODE_NOT_REPORTED (not reported)", "run.failed  unknown WORKFLOW_RUN_INCOMPLETE (not reported)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := mapped(t, "w", claude(append([]string{initLine, startedLine, running}, c.lines...)...))
			if d := cmp.Diff(append(head[:len(head):len(head)], c.want...), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			for _, s := range mapped(t, "", claude(append([]string{initLine, startedLine, running}, c.lines...)...)) {
				if strings.Contains(s, "agent/1/1@2") {
					t.Errorf("the run's stream goes on: %s", s)
				}
			}
		})
	}
}

// An event that needs more envelopes than its range has is an error, and nothing is
// mapped after it.
func TestTooMany(t *testing.T) {
	var calls []string
	for i := range workflow.MaxIndex + 10 {
		calls = append(calls, fmt.Sprintf(`{"type":"tool_use","id":"%d","name":"T"}`, i))
	}
	message := fmt.Sprintf(`{"type":"assistant","session_id":"s","message":{"content":[%s]}}`, strings.Join(calls, ","))
	// Open calls are bounded: more than that are not told, and no error.
	if got := mapped(t, "", claude(initLine, message, resultLine)); len(got) != 2+1+2*1024+1+1 {
		t.Errorf("%d envelopes of a run with %d calls", len(got), len(calls))
	}
	texts := strings.Repeat(`{"type":"text","text":"x"},`, workflow.MaxIndex+10)
	evs := claude(initLine, fmt.Sprintf(`{"type":"assistant","session_id":"s","message":{"content":[%s]}}`, strings.TrimSuffix(texts, ",")), resultLine)
	m := workflow.New(workflow.ID{Run: "r"})
	var failed int
	for _, e := range evs {
		out, err := m.Apply(e)
		if err == nil {
			continue
		}
		failed++
		if !errors.Is(err, workflow.ErrTooMany) || len(out) > 0 {
			t.Errorf("event %d: %d envelopes, %v", e.Seq, len(out), err)
		}
	}
	if failed != 3 { // the texts, the result, the exit
		t.Errorf("%d events failed, want 3", failed)
	}
	huge := &event.Event{Seq: 1 << 60, Type: event.TypeStarted, Stream: event.Edge, ContentType: event.JSON, Data: []byte(`{}`)}
	if _, err := workflow.New(workflow.ID{Run: "r"}).Apply(huge); !errors.Is(err, workflow.ErrTooMany) {
		t.Errorf("a seq whose product does not fit: %v", err)
	}
}

// A text of any length comes whole, in pieces that fit.
func TestLongText(t *testing.T) {
	want := strings.Repeat("héé€ 🙂", 30_000)
	m := workflow.New(workflow.ID{Run: "r"})
	var got strings.Builder
	pieces := 0
	for _, e := range claude(initLine, fmt.Sprintf(`{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":%q}]}}`, want), resultLine) {
		out, err := m.Apply(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out {
			if v.Event != workflow.NodeOutputDelta {
				continue
			}
			var d workflow.NodeOutputDeltaData
			if err := json.Unmarshal(v.Data, &d); err != nil {
				t.Fatal(err)
			}
			if len(d.Delta) > workflow.MaxDelta {
				t.Errorf("a delta of %d bytes", len(d.Delta))
			}
			got.WriteString(d.Delta)
			pieces++
		}
	}
	if got.String() != want || pieces < 2 {
		t.Errorf("%d bytes of %d in %d pieces", got.Len(), len(want), pieces)
	}
}

// Pieces and the whole message are one text; a message without pieces is told whole.
func TestDeltas(t *testing.T) {
	piece := func(s string) string {
		return fmt.Sprintf(`{"type":"stream_event","session_id":"s","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":%q}}}`, s)
	}
	start := `{"type":"stream_event","session_id":"s","event":{"type":"message_start","message":{"id":"m1"}}}`
	thought := `{"type":"stream_event","session_id":"s","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"secret"}}}`
	other := strings.Replace(thought, `"thinking":`, `"text":`, 1) // what is no text_delta is not said, whatever is in it
	evs := claude(initLine, start, thought, other, piece("a "), piece("b"), fmt.Sprintf(textLine, 1, "a b"), fmt.Sprintf(textLine, 2, " c"), resultLine)
	all, err := mapAll(t, workflow.ID{Run: "r"}, evs)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, v := range all {
		var d workflow.NodeOutputDeltaData
		if v.Event == workflow.NodeOutputDelta && json.Unmarshal(v.Data, &d) == nil {
			got += d.Delta
		}
	}
	if got != "a b c" {
		t.Errorf("text %q", got)
	}
}

func TestStatus(t *testing.T) {
	ask := `{"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"tool_use_id":"c1"},"session_id":"s"}`
	answer := `{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"behavior":"allow","updatedInput":{"command":"ls"}}}}`
	interrupt := `{"type":"control_request","request_id":"2","request":{"subtype":"interrupt"}}`
	aborted := `{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","session_id":"s"}`
	c := &capture.Capture{Argv: children[0]}
	add := func(dir capture.Dir, line string) {
		c.Timeline = append(c.Timeline, capture.Entry{At: time.Duration(len(c.Timeline)) * time.Second, Dir: dir, Data: []byte(line)})
	}
	add(capture.Out, initLine)
	add(capture.Out, ask)
	add(capture.In, answer)
	add(capture.In, interrupt)
	add(capture.Out, aborted)
	add(capture.Exit, "")
	m := workflow.New(workflow.ID{Run: "r"})
	if m.Known() || m.Status() != workflow.StatusCreated {
		t.Errorf("before anything: known %t, %s", m.Known(), m.Status())
	}
	fact := &event.Event{Tenant: "t", Run: "r", Ref: "liveness", Type: event.TypeLost, Stream: event.Edge, Data: []byte(`{}`)}
	if out, err := m.Apply(fact); err != nil || len(out) > 0 || m.Known() {
		t.Errorf("a fact outside the sequence comes first: %v, %v", out, err)
	}
	var got []string
	for _, e := range capture.Events(c, "t", "r") {
		if _, err := m.Apply(e); err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Status())
	}
	want := []string{"created", "running", "running", "awaiting_input", "running", "cancelling", "running", "cancelled"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if !m.Over() || !m.Known() {
		t.Error("it is not over")
	}
}

// The stream of a task that never was ends with the run, and is not known.
func TestNoSuchTask(t *testing.T) {
	m := workflow.New(workflow.ID{Run: "r", Task: "nope"})
	for _, e := range claude(initLine, resultLine) {
		if out, err := m.Apply(e); err != nil || len(out) > 0 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	if !m.Over() || m.Known() {
		t.Errorf("over %t, known %t", m.Over(), m.Known())
	}
}

// Without the run's first events, and of a run that is kept from the middle on, a
// stream begins as always.
func TestKeptFromTheMiddle(t *testing.T) {
	evs := events(t, "claude-2.1.220/80-workflow-ok")
	for from := range evs {
		for _, id := range streams(evs[from:]) {
			if all, err := mapAll(t, id, evs[from:]); err != nil || len(all) == 0 {
				t.Errorf("%s from %d: %d envelopes, %v", id, from, len(all), err)
			}
		}
	}
}
