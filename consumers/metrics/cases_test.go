package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/test/capture"
)

// spoken are the events of a child that wrote these lines, one a second, and ended with 0.
func spoken(t *testing.T, program, lines string) *feeder {
	t.Helper()
	c := &capture.Capture{Argv: []string{program}}
	for line := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(lines, "SID", sid)), "\n") {
		c.Timeline = append(c.Timeline, capture.Entry{At: time.Duration(len(c.Timeline)+1) * time.Second, Dir: capture.Out, Data: []byte(line)})
	}
	c.Timeline = append(c.Timeline, capture.Entry{At: time.Duration(len(c.Timeline)+1) * time.Second, Dir: capture.Exit})
	f := feed(t, testOptions())
	f.play(capture.Events(c, "acme", "r1")...)
	return f
}

// What went wrong elsewhere, by the number of the case.
func TestCases(t *testing.T) {
	tests := map[string]struct {
		program, lines string
		look           []*def
		want           map[string]string
	}{
		"029 tasks in the background end after the result": {
			"cbc", `{"type":"system","subtype":"init","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"agent-1","tool_use_id":"toolu_1","task_type":"Agent","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"sh-2","tool_use_id":"toolu_2","task_type":"Bash","session_id":"SID"}
{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}
{"type":"system","subtype":"task_updated","task_id":"agent-1","patch":{"status":"completed"},"status":"completed","session_id":"SID"}
{"type":"system","subtype":"task_notification","task_id":"agent-1","status":"completed","summary":"ok","session_id":"SID"}
{"type":"system","subtype":"task_updated","task_id":"sh-2","patch":{"status":"failed"},"status":"failed","session_id":"SID"}`,
			[]*def{mTasks, mFinished},
			map[string]string{
				"tasks_finished_total{dialect=cbc,task_type=Agent,status=completed,terminal_source=task_updated}": "1",
				"tasks_finished_total{dialect=cbc,task_type=Bash,status=failed,terminal_source=task_updated}":     "1",
				"runs_finished_total{tenant=acme,dialect=cbc,ci=none,repo=none,workflow=none,verdict=incomplete}": "1",
			},
		},
		"031 ends that nobody told": {
			"claude", `{"type":"system","subtype":"init","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"t1","task_type":"Agent","uuid":"u1","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"t2","task_type":"Agent","uuid":"u2","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"t3","task_type":"Agent","uuid":"u3","session_id":"SID"}
{"type":"system","subtype":"task_notification","task_id":"t2","status":"completed","session_id":"SID"}
{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}`,
			[]*def{mTasks, mActive},
			map[string]string{
				"tasks_finished_total{dialect=claude,task_type=Agent,status=completed,terminal_source=task_notification}": "1",
				"tasks_finished_total{dialect=claude,task_type=Agent,status=unknown,terminal_source=exit}":                "2",
			},
		},
		"033 frames after the end": {
			"cbc", `{"type":"system","subtype":"init","session_id":"SID"}
{"type":"system","subtype":"task_started","task_id":"w1","task_type":"local_workflow","session_id":"SID"}
{"type":"system","subtype":"task_updated","task_id":"w1","patch":{"status":"killed"},"session_id":"SID"}
{"type":"system","subtype":"task_notification","task_id":"w1","status":"stopped","session_id":"SID"}
{"type":"system","subtype":"task_progress","task_id":"w1","workflow_progress":[{"type":"workflow_agent","index":1,"agentId":"v2:aa","state":"error","startedAt":1}],"session_id":"SID"}
{"type":"system","subtype":"task_progress","task_id":"w1","workflow_progress":[],"session_id":"SID"}`,
			[]*def{mTasks, mLate, mAgents},
			map[string]string{
				"tasks_finished_total{dialect=cbc,task_type=local_workflow,status=killed,terminal_source=task_updated}": "1",
				"late_frames_total{dialect=cbc}": "2", "agents_finished_total{dialect=cbc,state=error}": "1",
			},
		},
		"071 what sub-agents say": {
			"claude", `{"type":"system","subtype":"init","session_id":"SID"}
{"type":"assistant","uuid":"u1","session_id":"SID","parent_tool_use_id":null,"message":{"id":"m1","role":"assistant","content":[{"type":"tool_use","id":"toolu_A","name":"Task","input":{}},{"type":"tool_use","id":"toolu_B","name":"Task","input":{}}]}}
{"type":"assistant","message":{"id":"ma1","role":"assistant","content":[{"type":"text","text":"A1"}]},"parent_tool_use_id":"toolu_A","session_id":"SID","uuid":"a1"}
{"type":"assistant","uuid":"a2","session_id":"SID","parent_tool_use_id":"toolu_A","message":{"id":"ma2","role":"assistant","content":[{"type":"tool_use","id":"toolu_AA","name":"Task","input":{}}]}}
{"type":"assistant","message":{"id":"maa1","role":"assistant","content":[{"type":"text","text":"AA: Task failed"}]},"parent_tool_use_id":"toolu_AA","session_id":"SID","uuid":"aa1"}
{"type":"assistant","message":{"id":"mo1","role":"assistant","content":[{"type":"text","text":"orphan"}]},"parent_tool_use_id":"toolu_ZZ","session_id":"SID","uuid":"o1"}
{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}`,
			[]*def{mTools, mMessages, mTurns, mFinished, mCost},
			map[string]string{
				"tool_calls_total{dialect=claude}": "3", "messages_total{dialect=claude}": "5", "turns_started_total{dialect=claude}": "1",
				"cost_usd_total{model=unknown,tenant=acme,dialect=claude}":                                        "0.01",
				"runs_finished_total{tenant=acme,dialect=claude,ci=none,repo=none,workflow=none,verdict=success}": "1",
			},
		},
		"069 a frame that is told again": {
			"claude", `{"type":"system","subtype":"init","session_id":"SID"}
{"type":"assistant","message":{"id":"msg_7","role":"assistant","content":[{"type":"text","text":"API Error: 502"}]},"parent_tool_use_id":null,"session_id":"SID","uuid":"u-7"}
{"type":"system","subtype":"compact_boundary","session_id":"SID","uuid":"u-cb"}
{"type":"assistant","message":{"id":"msg_7","role":"assistant","content":[{"type":"text","text":"API Error: 502"}]},"parent_tool_use_id":null,"session_id":"SID","uuid":"u-7"}
{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}
{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"u-r","num_turns":1,"total_cost_usd":0.01,"result":"done"}`,
			[]*def{mMessages, mCost},
			map[string]string{
				"messages_total{dialect=claude}": "1", "cost_usd_total{model=unknown,tenant=acme,dialect=claude}": "0.01",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := spoken(t, tt.program, tt.lines)
			if d := cmp.Diff(tt.want, f.c.nonzero(tt.look...)); d != "" {
				t.Errorf("counts (-want +got):\n%s", d)
			}
		})
	}
}

// 069 over two runs of one session, as the case tells it: cost and tokens of each process
// count once. What Claude Code says it has cost is what the process has; a frame that an
// earlier run had said has no usage of its own.
func TestCase069TwoRuns(t *testing.T) {
	line := func(s string) string { return strings.ReplaceAll(s, "SID", sid) }
	old := line(`{"type":"assistant","message":{"id":"msg_7","role":"assistant","content":[{"type":"text","text":"API Error: 502"}],"usage":{"input_tokens":9,"output_tokens":9}},"parent_tool_use_id":null,"session_id":"SID","uuid":"u-7","error":"unknown"}`)
	init := line(`{"type":"system","subtype":"init","session_id":"SID"}`)
	result := func(uuid string) string {
		return line(`{"type":"result","subtype":"success","is_error":false,"session_id":"SID","uuid":"` + uuid + `","num_turns":1,"total_cost_usd":0.01,"usage":{"input_tokens":10,"output_tokens":5},"result":"done"}`)
	}
	f := feed(t, testOptions())
	for i, lines := range [][]string{
		{init, old, result("u-r")},
		{init, line(`{"type":"system","subtype":"compact_boundary","session_id":"SID","uuid":"u-cb"}`), old, result("u-r2")},
	} {
		c := &capture.Capture{Argv: []string{"claude", "--resume", sid}[:1+2*i]}
		for _, l := range lines {
			c.Timeline = append(c.Timeline, capture.Entry{At: time.Duration(len(c.Timeline)+1) * time.Second, Dir: capture.Out, Data: []byte(l)})
		}
		c.Timeline = append(c.Timeline, capture.Entry{At: time.Minute, Dir: capture.Exit})
		f.play(capture.Events(c, "acme", []string{"r1", "r2"}[i])...)
	}
	want := map[string]string{
		"cost_usd_total{model=unknown,tenant=acme,dialect=claude}":           "0.02",
		"tokens_total{type=input,model=unknown,tenant=acme,dialect=claude}":  "20",
		"tokens_total{type=output,model=unknown,tenant=acme,dialect=claude}": "10",
	}
	if d := cmp.Diff(want, f.c.nonzero(mCost, mTokens)); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
}
