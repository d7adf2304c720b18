package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/run"
)

func newTestProgress(ci string) (*progress, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	p := &progress{
		a: &app{io: stdio{out: &stdout, err: &stderr}}, w: &stderr, ci: ci, output: outputText,
		now: func() time.Time { return time.Unix(1700000000, 0) }, said: map[string]string{},
	}
	p.begin("r1", "claude", false)
	return p, &stdout, &stderr
}

// A change is one line, and what did not change is none.
func TestProgress(t *testing.T) {
	p, _, stderr := newTestProgress("")
	v := run.View{
		Session: "s-1",
		Turns:   []run.TurnView{{N: 1, State: "open"}},
		Tasks: []run.TaskView{{
			ID: "w1", Label: "triage", Status: "running", Phases: []run.PhaseView{{Index: 1, Title: "Read"}},
			Agents: []run.AgentView{{Key: "1/1", Label: "reader", Phase: "Read", State: "start"}, {Key: "1/2", State: "start"}},
		}},
		Asks: []run.AskView{
			{ID: "a1", Kind: "permission", Tool: "Bash", Title: "rm -r build", State: run.AskOpen},
			{ID: "a2", Kind: "question", Class: run.Question, Title: "Which one?", State: run.AskOpen},
		},
	}
	p.show(v)
	p.show(v)
	v.Tasks[0].Agents[0].State, v.Tasks[0].Agents[0].Tokens, v.Tasks[0].Agents[0].DurationMS = "done", 1234, 61_000
	v.Tasks[0].Agents[1].State, v.Tasks[0].Agents[1].Error = "error", "API error 500"
	v.Asks[0].State, v.Asks[0].Decided = run.AskAnswered, &run.AskDecided{Decision: "allow", By: "bus"}
	p.show(v)
	v.Asks[0].State, v.Asks[0].Outcome, v.Asks[0].Closed = "closed", "ran", &run.AskEnd{Reason: "answered"}
	v.Tasks[0].Status = "completed"
	start, end := time.Unix(0, 0), time.Unix(75, 0)
	v.Turns[0] = run.TurnView{N: 1, State: "done", StartedAt: &start, EndedAt: &end, Verdict: &run.Judgement{Verdict: run.Success}}
	v.Warnings = []run.Warning{{What: "incompatible", Text: "hook_callback"}}
	p.show(v)
	want := `cbcast: run r1 (claude)
cbcast: session s-1
cbcast: turn 1
cbcast: task triage: running
cbcast: phase Read
cbcast: Read, agent reader: start
cbcast: agent 1/2: start
cbcast: waits for a person: permission rm -r build (cbcast allow r1 a1)
cbcast: waits for a person: question Which one? (cbcast answer r1 a2 ANSWER)
cbcast: Read, agent reader: done, 1m1s, 1234 tokens
cbcast: agent 1/2: error: API error 500
cbcast: ask a1: allow by bus
cbcast: turn 1: success, 1m15s
cbcast: task triage: completed
cbcast: ask a1: answered, ran
cbcast: warning: incompatible hook_callback
`
	if d := cmp.Diff(want, stderr.String()); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
}

// Nothing that an agent writes is a command of a CI, on stderr or stdout.
func TestProgressHostile(t *testing.T) {
	const bad = "x\r\n::error::a\n  ::set-output name=b::c ##[error]d ##vso[x]\x1b[0Ksection_start:1:e\r\x1b[0K\u2028::warning::f"
	for _, ci := range []string{ciGitHub, ciGitLab, "jenkins"} {
		p, stdout, stderr := newTestProgress(ci)
		p.show(run.View{
			Session: bad, Turns: []run.TurnView{{N: 1, State: "open"}},
			Tasks:    []run.TaskView{{ID: bad, Label: bad, Status: bad, Error: bad, Phases: []run.PhaseView{{Title: bad}}, Agents: []run.AgentView{{Key: bad, Label: bad, Phase: bad, State: bad, Error: bad}}}},
			Asks:     []run.AskView{{ID: bad, Kind: bad, Title: bad, State: run.AskOpen}},
			Warnings: []run.Warning{{What: bad, Text: bad}},
		})
		p.end(ingest.Outcome{State: run.New("r1"), Driven: ingest.Driven{Answer: bad}}, 0)
		for _, line := range strings.Split(stderr.String()+stdout.String(), "\n") {
			switch trimmed := strings.TrimSpace(line); {
			case trimmed == "::group::turn 1", trimmed == "::endgroup::":
			case strings.HasPrefix(line, "\x1b[0Ksection_") && strings.Count(line, "section_") == 1 && ci == ciGitLab && strings.Contains(line, "cbcast_r1_turn_1"):
			case strings.HasPrefix(trimmed, "::"), strings.Contains(line, "##"), strings.ContainsAny(line, "\r\x1b"):
				t.Errorf("%s: a command: %q", ci, line)
			}
		}
	}
}

// A summary holds what the run was, escaped, and is never larger than GitHub takes.
func TestSummary(t *testing.T) {
	const bad = "a|b <script>alert(1)</script> [x](javascript:y) `z` \n# h"
	v := run.View{
		Run: "r1", Dialect: "claude", Session: bad, Verdict: &run.Judgement{Verdict: run.Failed, Evidence: []run.Evidence{{Seq: 7, What: "api_error", Text: bad}}},
		Tasks: []run.TaskView{{Label: bad, Status: "failed", Error: bad, Agents: []run.AgentView{{Label: bad, State: "error"}}}},
	}
	text := summaryOf(v, ingest.Outcome{Driven: ingest.Driven{Answer: "</pre><script>" + bad}, Shipped: true}, 1)
	tables, answer, _ := strings.Cut(text, answerBegin)
	for part, list := range map[string][]string{tables: {"<script", "](", "`", "\n# h"}, answer: {"<script", "</pre><"}} {
		for _, no := range list {
			if strings.Contains(part, no) {
				t.Errorf("the summary has %q:\n%s", no, text)
			}
		}
	}
	for _, yes := range []string{"### cbcast: failed", "| exit code | 1 |", "api_error", "&lt;/pre&gt;"} {
		if !strings.Contains(strings.ReplaceAll(text, "&#95;", "_"), yes) {
			t.Errorf("the summary has no %q:\n%s", yes, text)
		}
	}
	name := filepath.Join(t.TempDir(), "summary.md")
	out := ingest.Outcome{State: run.New("r1"), Driven: ingest.Driven{Answer: strings.Repeat("\u00e9&", 300<<10)}}
	for range 3 {
		if err := writeSummary(name, v, out, 0); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > maxSummary || !strings.Contains(string(b), summaryCut) || strings.Count(string(b), "<pre>") != strings.Count(string(b), "</pre>") {
		t.Errorf("%d bytes, end %q", len(b), b[max(0, len(b)-200):])
	}
}

// A log is bounded.
func TestProgressBound(t *testing.T) {
	p, _, stderr := newTestProgress("")
	for i := range 2 * maxProgress {
		p.say(strings.Repeat("x", 1+i%3))
	}
	lines := strings.Count(stderr.String(), "\n")
	if lines != maxProgress+1 || !strings.Contains(stderr.String(), "left out") {
		t.Errorf("%d lines", lines)
	}
}

// Steps of Codex's plan are told as they begin and end; they have no ids.
func TestProgressPlan(t *testing.T) {
	p, _, stderr := newTestProgress("")
	turn := run.TurnView{N: 1, State: "open", Phases: []run.PhaseView{{Title: "Read", Status: "inProgress"}, {Index: 1, Title: "Write", Status: "pending"}}}
	p.show(run.View{Turns: []run.TurnView{turn}})
	turn.Phases = []run.PhaseView{{Title: "Read", Status: "completed"}, {Index: 1, Title: "Write", Status: "inProgress"}}
	v := run.View{Turns: []run.TurnView{turn}, Asks: []run.AskView{{ID: "a1", State: "closed", Closed: &run.AskEnd{Reason: "answered"}}}}
	p.show(v)
	p.show(v)
	want := `cbcast: run r1 (claude)
cbcast: turn 1
cbcast: phase Read: inProgress
cbcast: phase Read: completed
cbcast: phase Write: inProgress
cbcast: ask a1: answered
`
	if d := cmp.Diff(want, stderr.String()); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
}
