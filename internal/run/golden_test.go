package run_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

var update = flag.Bool("update", false, "write the golden files")

// Every recording folds to what a person reads from it. The golden files were
// reviewed by eye against the recordings; a change of one needs the same.
func TestGolden(t *testing.T) {
	for _, name := range capture.List() {
		t.Run(name, func(t *testing.T) {
			c, err := capture.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			got := fold(c)
			path := filepath.Join("testdata", "golden", strings.ReplaceAll(name, "/", "__")+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(string(want), got); d != "" {
				t.Errorf("fold differs (-want +got):\n%s", d)
			}
		})
	}
}

// fold returns a recording's state as short text. Session ids are numbered, other
// ids of the child are kept: they are part of the recording.
func fold(c *capture.Capture) string {
	s := run.New("r")
	var phases []string
	for _, e := range capture.Events(c, "t", "r") {
		s.Apply(e)
		if p := s.Phase(); len(phases) == 0 || phases[len(phases)-1] != p {
			phases = append(phases, p)
		}
	}
	if len(phases) > 12 {
		phases = append(append(phases[:8:8], "…"), phases[len(phases)-3:]...)
	}
	return describe(c, s.View(), phases)
}

func describe(c *capture.Capture, v run.View, phases []string) string {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("about: %s", c.About)
	p("verdict: %s", judgement(v.Verdict))
	p("run: dialect=%s phases=%s seq=%d%s", v.Dialect, strings.Join(phases, ">"), v.LastSeq, exit(v.Exit))
	if v.Sandbox != "" {
		p("child: %s model=%s mode=%s sandbox=%s", v.Versions["child"], v.Model, v.Mode, v.Sandbox)
	}
	for _, s := range v.Sessions {
		p("session: %s %s from %d", s.ID, s.Role, s.FirstSeq)
	}
	for _, t := range v.Turns {
		p("turn %d: %s origin=%s inputs=%v seq=%d..%d results=%d wakeups=%d tasks=%v cost=%.4f in=%d out=%d", t.N,
			judgement(t.Verdict), t.Origin, t.Inputs, t.StartedSeq, t.EndedSeq, t.Results, t.Wakeups, t.Tasks, t.CostUSD, t.Tokens.Input, t.Tokens.Output)
		if i := t.Items; i != nil {
			p("  items: started=%d completed=%d failed=%d declined=%d unfinished=%d cached=%d", i.Started, i.Completed, i.Failed, i.Declined, i.Unfinished, t.Tokens.CacheRead)
		}
		for _, ph := range t.Phases {
			p("  step %d %q %s", ph.Index, ph.Title, ph.Status)
		}
		for _, a := range t.Agents {
			p("  agent %s %s label=%q id=%s model=%s turns=%d tokens=%d calls=%d last=%s ms=%d error=%q result=%q", a.Key, a.State, a.Label, a.AgentID, a.Model,
				a.Attempt, a.Tokens, a.ToolCalls, a.LastTool, a.DurationMS, a.Error, a.Result)
		}
	}
	for _, t := range v.Tasks {
		p("task %s: %s synth=%t by=%q type=%s name=%q label=%q turn=%d seq=%d..%d progress=%d late=%d call=%s desc=%q summary=%q error=%q", t.ID, t.Status,
			t.Synthesised, t.By, t.Type, t.Name, t.Label, t.Turn, t.StartedSeq, t.EndedSeq, t.Progress, t.Late, t.ToolUseID, t.Description, t.Summary, t.Error)
		for _, ph := range t.Phases {
			p("  phase %d %q", ph.Index, ph.Title)
		}
		for _, a := range t.Agents {
			p("  agent %s %s label=%q id=%s tokens=%d cached=%t error=%q result=%q", a.Key, a.State, a.Label, a.AgentID, a.Tokens, a.Cached, a.Error, a.Result)
		}
	}
	for _, a := range v.Asks {
		p("ask %s: %s", a.ID, askLine(a))
	}
	for _, g := range v.Subagents {
		p("subagent %s: parent=%s task=%q frames=%d", g.Call, g.Parent, g.Task, g.Frames)
	}
	for _, i := range v.Interrupts {
		p("%s %s: by=%s task=%q asked=%d acked=%d ended=%d effect=%q error=%q", i.What, i.ID, i.By, i.Task, i.AskedSeq, i.AckedSeq, i.EndedSeq, i.Effect, i.Error)
	}
	if r := v.Result; r != nil {
		p("result: seq=%d %s error=%t text=%q errors=%q structured=%s", r.Seq, r.Subtype, r.IsError, short(r.Text), r.Errors, r.Structure)
	}
	for _, w := range v.Warnings {
		p("warning: %d %s %q", w.Seq, w.What, w.Text)
	}
	p("usage: cost=%.6f in=%d out=%d earlier=%t", v.Usage.CostUSD, v.Usage.Tokens.Input, v.Usage.Tokens.Output, v.Usage.IncludesEarlier)
	n := v.Counts
	p("counts: frames=%v messages=%d tools=%d denied=%d retries=%d acks_unknown=%d acks_repeated=%d repeats=%d late=%d agents_failed=%d folded=%d cancelled=%d",
		pairs(n.Frames), n.Messages, n.ToolCalls, n.Denied, n.Retries, n.AcksUnknown, n.AcksRepeated, n.Repeats, n.Late, n.AgentsFailed, n.InputsFolded, n.InputsDropped)
	p("types: %s", pairs(n.Types))
	return b.String()
}

// askLine tells an ask's facts apart: opened, decided, written, closed, outcome.
func askLine(a run.AskView) string {
	s := fmt.Sprintf("%s %s %s tool=%s title=%q opened=%d", a.State, a.Class, a.Kind, a.Tool, short(a.Title), a.OpenedSeq)
	if a.Task != "" {
		s += " task=" + a.Task
	}
	if a.Ambiguous {
		s += " ambiguous"
	}
	if d := a.Decided; d != nil {
		s += fmt.Sprintf(" decided=%s/%s@%d", d.Decision, d.By, d.Seq)
	}
	if a.Written != nil {
		s += fmt.Sprintf(" written@%d", a.Written.Seq)
	}
	if a.Closed != nil {
		s += fmt.Sprintf(" closed=%s@%d", a.Closed.Reason, a.Closed.Seq)
	}
	if a.Outcome != "" {
		s += " outcome=" + a.Outcome
	}
	return s
}

func short(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

func pairs[K cmp.Ordered, V any](m map[K]V) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%v=%v", k, m[k]))
	}
	return strings.Join(list, " ")
}

func judgement(j *run.Judgement) string {
	if j == nil {
		return "none"
	}
	var list []string
	for _, e := range j.Evidence {
		t := fmt.Sprintf("%s@%d", e.What, e.Seq)
		if e.Text != "" {
			t += fmt.Sprintf(" %q", short(e.Text))
		}
		list = append(list, t)
	}
	return fmt.Sprintf("%s [%s]", j.Verdict, strings.Join(list, ", "))
}

func exit(x *run.ExitView) string {
	if x == nil {
		return ""
	}
	parts := []string{" exit="}
	if x.Code != nil {
		parts[0] += fmt.Sprint(*x.Code)
	}
	if x.Signal != "" {
		parts = append(parts, x.Signal)
	}
	for _, sig := range x.Signals {
		parts = append(parts, fmt.Sprintf("%s(%s)", sig.Signal, sig.From))
	}
	return strings.Join(append(parts, x.Ended), " ")
}
