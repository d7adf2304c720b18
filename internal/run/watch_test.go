package run_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

// What is asked for piece by piece is what the whole view has, after every event.
func TestWatch(t *testing.T) {
	for _, name := range []string{
		"claude-2.1.220/80-workflow-ok", "claude-2.1.220/70-agent-bg", "claude-2.1.220/40-ask-user-question", "claude-2.1.220/54-interrupt-idle",
		"cbc-2.163.0/workflow-live-interrupt", "cbc-2.163.0/two-sessions", "codex-0.153.4/81-collab-v2", "codex-0.153.4/25-two-approvals",
	} {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		s := run.New("r")
		for _, e := range capture.Events(c, "t", "r") {
			s.Apply(e)
			v := s.View()
			var tasks []run.TaskView
			for st := range s.TaskStates {
				k, _ := s.Task(st.ID)
				tasks = append(tasks, k)
				one, ok := s.TaskState(st.ID)
				if !ok || one != st || st.Status != k.Status || st.Ended != (k.EndedSeq > 0) || st.Settled && !st.Ended {
					t.Errorf("%s, event %d: task %+v, %+v", name, e.Seq, st, k)
				}
			}
			var turns []run.TurnView
			for _, k := range v.Turns {
				turn, _ := s.Turn(k.N)
				turns = append(turns, turn)
			}
			var open []string
			for _, a := range v.Asks {
				if a.State == run.AskOpen {
					open = append(open, a.ID)
				}
			}
			if d := cmp.Diff(v.Tasks, append([]run.TaskView{}, tasks...)); d != "" {
				t.Errorf("%s, event %d: tasks %s", name, e.Seq, d)
			}
			if d := cmp.Diff(v.Turns, append([]run.TurnView{}, turns...)); d != "" {
				t.Errorf("%s, event %d: turns %s", name, e.Seq, d)
			}
			if !slices.Equal(open, s.OpenAsks()) || (len(s.Rounds()) > 0) != s.TurnOpen() || s.Repeats() != v.Counts.Repeats {
				t.Errorf("%s, event %d: asks %v, rounds %v, repeats %d", name, e.Seq, s.OpenAsks(), s.Rounds(), s.Repeats())
			}
			in, ok := s.LastInterrupt()
			if n := len(v.Interrupts); ok != (n > 0) || ok && in != v.Interrupts[n-1] {
				t.Errorf("%s, event %d: interrupt %+v", name, e.Seq, in)
			}
			r, ok := s.LastResult()
			if ok != (v.Result != nil) || ok && cmp.Diff(r, *v.Result) != "" {
				t.Errorf("%s, event %d: result %+v", name, e.Seq, r)
			}
			n, ok := s.LastTurn()
			if k := len(v.Turns); ok != (k > 0) || ok && n != v.Turns[k-1].N {
				t.Errorf("%s, event %d: last turn %d", name, e.Seq, n)
			}
			if x, ok := s.Exit(); ok != (v.Exit != nil) || ok && cmp.Diff(x, *v.Exit) != "" {
				t.Errorf("%s, event %d: exit %+v", name, e.Seq, x)
			}
		}
	}
}

func TestRoundVerdict(t *testing.T) {
	for name, want := range map[string][]run.Verdict{
		"claude-2.1.220/01-simple-text":              {run.Success},
		"claude-2.1.220/50-interrupt-midstream":      {run.Interrupted, run.Success},
		"claude-2.1.220/a3-api-400":                  {run.Failed},
		"claude-2.1.220/d3-sigkill-stream":           {run.Incomplete},
		"claude-2.1.220/80-workflow-ok":              {run.Success, run.Success},
		"cbc-2.163.0/workflow-live-interrupt":        {run.Interrupted, run.Success},
		"codex-0.153.4/57-interrupt-running-command": {run.Interrupted},
		"codex-0.153.4/50-model-500":                 {run.Failed, run.Success},
	} {
		c, err := capture.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		s := run.New("r")
		var got []run.Verdict
		var before []run.Round
		for _, e := range capture.Events(c, "t", "r") {
			s.Apply(e)
			now := s.Rounds()
			for _, r := range before {
				if !slices.Contains(now, r) {
					got = append(got, s.RoundVerdict(r.Turn, e.Seq))
				}
			}
			before = now
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A timeline needs when phases and agents worked; the two dialects say it differently.
func TestTimes(t *testing.T) {
	snapshot := func(agents string) run.TaskView {
		s := run.New("r")
		line := `{"type":"system","subtype":"task_progress","task_id":"w","session_id":"s","workflow_progress":[{"type":"workflow_phase","index":1,"title":"One"},{"type":"workflow_phase","index":2,"title":"Two"}` + agents + `]}`
		s.Apply(&event.Event{Tenant: "t", Run: "r", Seq: 1, Type: "dev.cbcast.claude.system.task_progress", Kind: event.Task, Stream: event.Out, Session: "s", Task: "w", ContentType: event.JSON, Data: []byte(line)})
		v, ok := s.Task("w")
		if !ok {
			t.Fatal("no task")
		}
		return v
	}
	claude := snapshot(`,{"type":"workflow_agent","index":1,"phaseIndex":1,"state":"done","queuedAt":90,"startedAt":100,"durationMs":50},{"type":"workflow_agent","index":2,"phaseIndex":1,"state":"error","startedAt":120,"durationMs":10},{"type":"workflow_agent","index":3,"phaseIndex":2,"state":"start","queuedAt":160}`)
	if a := claude.Agents[0]; a.QueuedMS != 90 || a.EndedMS != 150 || *a.PhaseIndex != 1 || !a.Over() {
		t.Errorf("%+v", a)
	}
	want := []run.PhaseView{{Index: 1, Title: "One", Agents: 2, Ended: 2, StartedMS: 100, EndedMS: 150}, {Index: 2, Title: "Two", Agents: 1}}
	if d := cmp.Diff(want, claude.Phases); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	cbc := snapshot(`,{"type":"workflow_agent","index":1,"phaseIndex":1,"state":"done","startedAt":100,"endedAt":140},{"type":"workflow_agent","index":2,"phaseIndex":1,"state":"start","startedAt":120},{"type":"workflow_agent","index":9,"state":"error","startedAt":0,"endedAt":9}`)
	if a := cbc.Agents[0]; a.DurationMS != 40 || cbc.Agents[2].PhaseIndex != nil || cbc.Agents[2].DurationMS != 0 {
		t.Errorf("%+v %+v", a, cbc.Agents[2])
	}
	want = []run.PhaseView{{Index: 1, Title: "One", Agents: 2, Ended: 1, StartedMS: 100}, {Index: 2, Title: "Two"}}
	if d := cmp.Diff(want, cbc.Phases); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
