package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
	"github.com/cbcast/cbcast/relay"
	"github.com/cbcast/cbcast/test/capture"
)

const workflows = "/api/workflows/runs/"

// recorded publishes a recorded session as a run, and returns what its events are.
func (r *rig) recorded(run, name string) (*edge, []*event.Event) {
	r.t.Helper()
	c, err := capture.Load(name)
	if err != nil {
		r.t.Fatal(err)
	}
	e := r.edge(run)
	for _, ev := range capture.Events(c, tenant, run) {
		e.emit(*ev)
	}
	return e, e.events
}

// mapped is what the events of a run are as workflow events, without tokens.
func mapped(t testing.TB, id workflow.ID, events []*event.Event) (list []workflow.Envelope) {
	t.Helper()
	m := workflow.New(id)
	for _, e := range events {
		out, err := m.Apply(e)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, out...)
	}
	return list
}

// envelope reads one SSE event, whose fields must say what the envelope does, and
// takes the token away.
func envelopeOf(t testing.TB, e sseEvent) workflow.Envelope {
	t.Helper()
	var v workflow.Envelope
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Fatalf("event %.300s: %v", e.data, err)
	}
	if e.name != string(v.Event) || e.id != "" && e.id != itoa(v.Seq) {
		t.Errorf("SSE event %s %s carries %s %d", e.name, e.id, v.Event, v.Seq)
	}
	valid(t, e.data)
	return tokenless(t, v)
}

var envelopeSchema = sync.OnceValue(func() *jsonschema.Schema {
	const url = "https://cbcast.test/workflow.json"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(workflow.Schema()))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(url, doc); err != nil {
		panic(err)
	}
	return c.MustCompile(url)
})

// valid holds an envelope against the schema that the relay serves.
func valid(t testing.TB, envelope string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(envelope))
	if err == nil {
		err = envelopeSchema().Validate(v)
	}
	if err != nil {
		t.Errorf("%.600s: %v", envelope, err)
	}
}

func tokenless(t testing.TB, v workflow.Envelope) workflow.Envelope {
	t.Helper()
	if v.Event != workflow.RunAwaitingInput {
		return v
	}
	var d workflow.RunAwaitingInputData
	if err := json.Unmarshal(v.Data, &d); err != nil {
		t.Fatal(err)
	}
	if d.ResumeToken == "" {
		t.Errorf("%d waits without a resumeToken", v.Seq)
	}
	d.ResumeToken = ""
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	v.Data = b
	return v
}

func envelopes(t testing.TB, list []sseEvent) (all []workflow.Envelope) {
	t.Helper()
	for _, e := range list {
		all = append(all, envelopeOf(t, e))
	}
	return all
}

// shown is an envelope as a line, the data as equal JSON texts are.
func shown(t testing.TB, list []workflow.Envelope) (lines []string) {
	t.Helper()
	for _, v := range list {
		var d any
		if err := json.Unmarshal(v.Data, &d); err != nil {
			t.Fatalf("%d: data %.200s: %v", v.Seq, v.Data, err)
		}
		b, _ := json.Marshal(d)
		lines = append(lines, fmt.Sprint(v.Seq, " ", v.Event, " ", v.NodeID, " ", v.NodeRunID, " ", v.Timestamp.UTC(), " ", string(b)))
	}
	return lines
}

type workflowPage struct {
	Events []workflow.Envelope
	Next   uint64
	Status string
	Ended  bool
}

func (s *served) workflowPages(id string, limit int) (all []workflow.Envelope) {
	s.t.Helper()
	var p workflowPage
	for next := uint64(0); !p.Ended; next = p.Next {
		p = workflowPage{}
		s.get(fmt.Sprintf("%s%s/events?after=%d&limit=%d", workflows, id, next, limit), nil).into(s.t, &p)
		if len(p.Events) > limit || len(p.Events) == 0 && !p.Ended {
			s.t.Fatalf("a page of %d events", len(p.Events))
		}
		all = append(all, p.Events...)
	}
	return all
}

// sessions are recorded ones of each program: workflows, asks, interrupts, deltas.
var sessions = []string{
	"claude-2.1.220/81-workflow-ok-partial",
	"claude-2.1.220/04-partial-messages",
	"cbc-2.163.0/workflow-live",
	"codex-0.153.4/25-two-approvals",
}

// Recorded sessions come over the routes as the mapping has them, whole, from any
// cursor (also one inside the range of a frame), and page by page.
func TestWorkflowReplay(t *testing.T) {
	r := newRig(t, small())
	s := r.relay(relay.Config{Unmerged: true})
	for i, name := range sessions {
		t.Run(name, func(t *testing.T) {
			run := fmt.Sprint("run-", i)
			e, events := r.recorded(run, name)
			e.shipped()
			want := mapped(t, workflow.ID{Run: run}, events)
			c := s.stream(workflows+run+"/stream", nil)
			if got := c.res.Header.Get("X-Workflow-Run-Status"); got != lastStatus(want) {
				t.Errorf("status %q, want %q", got, lastStatus(want))
			}
			list := c.all()
			if d := cmp.Diff(shown(t, want), shown(t, envelopes(t, list))); d != "" {
				t.Fatalf("stream (-mapping +got):\n%s", d)
			}
			for k := 0; k < len(list)-1; k += 1 + len(list)/23 {
				rest := s.stream(workflows+run+"/stream?after=1", map[string]string{"Last-Event-ID": list[k].id}).all()
				if d := cmp.Diff(list[k+1:], rest, cmp.AllowUnexported(sseEvent{})); d != "" {
					t.Fatalf("behind %s: %s", list[k].id, d)
				}
			}
			last := list[len(list)-1]
			if got := s.get(workflows+run+"/stream?after="+last.id, nil); got.status != http.StatusNoContent {
				t.Errorf("after the end: %d", got.status)
			}
			pages := s.workflowPages(run, 17)
			for i := range pages {
				pages[i] = tokenless(t, pages[i])
			}
			if d := cmp.Diff(shown(t, want), shown(t, pages)); d != "" {
				t.Errorf("pages: %s", d)
			}
			for _, task := range tasksOf(events) {
				id := workflow.ID{Run: run, Task: task}
				got := envelopes(t, s.stream(workflows+id.String()+"/stream", nil).all())
				if d := cmp.Diff(shown(t, mapped(t, id, events)), shown(t, got)); d != "" {
					t.Errorf("task %s: %s", task, d)
				}
			}
		})
	}
}

func tasksOf(events []*event.Event) (tasks []string) {
	seen := map[string]bool{"": true}
	for _, e := range events {
		if !seen[e.Task] && e.Kind == event.Task {
			tasks = append(tasks, e.Task)
		}
		seen[e.Task] = true
	}
	return tasks
}

func lastStatus(list []workflow.Envelope) string {
	switch list[len(list)-1].Event {
	case workflow.RunCompleted:
		return workflow.StatusCompleted
	case workflow.RunCancelled:
		return workflow.StatusCancelled
	case workflow.RunFailed:
		return workflow.StatusFailed
	}
	return "none"
}

// A relay ends in the middle of a session and another one goes on: the tail is exact,
// for a cursor inside the range of a frame, too. What is behind what the line holds is
// mapped anew.
func TestWorkflowOverRestart(t *testing.T) {
	for name, cfg := range map[string]relay.Config{
		"held": {Unmerged: true}, "not held": {Unmerged: true, QueueBytes: 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small())
			c, err := capture.Load(sessions[0])
			if err != nil {
				t.Fatal(err)
			}
			events := capture.Events(c, tenant, "run-1")
			e := r.edge("run-1")
			half := len(events) / 2
			for _, ev := range events[:half] {
				e.emit(*ev)
			}
			e.shipped()
			want := mapped(t, workflow.ID{Run: "run-1"}, events)
			n := len(mapped(t, workflow.ID{Run: "run-1"}, events[:half]))
			s := r.relay(cfg)
			first := s.stream(workflows+"run-1/stream", nil)
			got := first.take(n)
			s.stop()
			if rest := first.all(); len(rest) > 0 {
				t.Errorf("%d more at the relay's end", len(rest))
			}
			for _, ev := range events[half:] {
				e.emit(*ev)
			}
			s = r.relay(cfg)
			for _, k := range []int{n, n - 1, n / 2, n / 3, 1} {
				tail := s.stream(workflows+"run-1/stream", map[string]string{"Last-Event-ID": got[k-1].id}).all()
				all := envelopes(t, append(got[:k:k], tail...))
				if d := cmp.Diff(shown(t, want), shown(t, all)); d != "" {
					t.Errorf("behind %d of %d: %s", k, len(want), d)
				}
			}
			if d := cmp.Diff(shown(t, want), shown(t, tokenlessAll(t, s.workflowPages("run-1", 50)))); d != "" {
				t.Errorf("pages: %s", d)
			}
		})
	}
}

func tokenlessAll(t testing.TB, list []workflow.Envelope) []workflow.Envelope {
	t.Helper()
	for i := range list {
		list[i] = tokenless(t, list[i])
	}
	return list
}

// hostile is text that would end a line, a field or an event where somebody wrote it
// as it is.
var hostile = []string{
	"x\nid: 999999\nevent: run.completed", "\n\ndata: {\"event\":\"run.failed\"}\n\n", "a\rb\r\nc", "\u2028\u2029", "</script><b>&amp;",
	"\x00\x1b[2J", "event: run.completed",
}

// No text of an agent ends a line, makes a field or an event, or moves a cursor.
func TestWorkflowHostileText(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(started())
	for i, text := range hostile {
		b, _ := json.Marshal(text)
		for _, line := range []string{
			`{"type":"system","subtype":"task_started","session_id":"s1","task_id":` + string(b) + `,"task_type":"local_workflow","description":` + string(b) + `}`,
			fmt.Sprintf(`{"type":"assistant","session_id":%s,"uuid":"u%d","message":{"id":"m%d","role":"assistant","content":[{"type":"text","text":%s},{"type":"tool_use","id":%s,"name":%s,"input":{"x":%s}}]}}`,
				b, i, i, b, b, b, b),
		} {
			ev := frameOf(line)
			if strings.Contains(line, "task_started") {
				ev.Type, ev.Kind, ev.Task = "dev.cbcast.claude.system.task_started", event.Task, text
			}
			e.emit(ev)
		}
	}
	e.emit(request(1, "Bash\nid: 5", `{"command":"x\n\ndata: y"}`))
	e.emit(exited())
	e.shipped()
	s := r.relay(relay.Config{})
	want := map[string]bool{}
	for _, n := range workflow.Events {
		want[string(n)] = true
	}
	last := uint64(0)
	list := s.stream(workflows+"run-1/stream", nil).all()
	for _, ev := range list {
		v := envelopeOf(t, ev)
		if !want[ev.name] || ev.seq(t) <= last || v.Seq > 64*4096 {
			t.Errorf("event %s %s", ev.id, ev.name)
		}
		last = v.Seq
	}
	merged := strings.Join(shown(t, envelopes(t, list)), "\n")
	for _, text := range hostile {
		b, _ := json.Marshal(strings.ToValidUTF8(text, "\ufffd"))
		if !strings.Contains(merged, strings.Trim(string(b), `"`)) {
			t.Errorf("%q did not come through", text)
		}
	}
}
