package trace

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
)

var update = flag.Bool("update", false, "write the golden files")

const aRun = "019ad5a0-0000-7000-8000-000000000001"

// goldens are recordings whose whole traces were read and found right, some of each
// dialect.
var goldens = []string{
	"cbc-2.117.0/workflow",
	"cbc-2.163.0/agent-bg-idle",
	"cbc-2.163.0/agent-fg",
	"cbc-2.163.0/agent-perm",
	"cbc-2.163.0/ask-user",
	"cbc-2.163.0/bg-bash",
	"cbc-2.163.0/perm-deny-cbc",
	"cbc-2.163.0/sigterm-midturn",
	"cbc-2.163.0/workflow-live",
	"cbc-2.163.0/workflow-live-interrupt",
	"claude-2.1.220/09-two-tools-parallel",
	"claude-2.1.220/30-perm-allow",
	"claude-2.1.220/32-perm-deny-interrupt",
	"claude-2.1.220/40-ask-user-question",
	"claude-2.1.220/51-interrupt-midstream-partial",
	"claude-2.1.220/60-bg-bash",
	"claude-2.1.220/70-agent-bg",
	"claude-2.1.220/71-agent-fg",
	"claude-2.1.220/81-workflow-ok-partial",
	"claude-2.1.220/84-workflow-stop-task",
	"claude-2.1.220/a0-api-529-retry",
	"claude-2.1.220/a2-api-401",
	"claude-2.1.220/d8-sigkill-tool",
	"claude-2.1.220/i0-compact",
	"codex-0.153.4/15-file-change-accept",
	"codex-0.153.4/25-two-approvals",
	"codex-0.153.4/54-model-disconnect-fatal",
	"codex-0.153.4/71-plan-updates",
	"codex-0.153.4/80-collab-v1",
	"codex-0.153.4/81-collab-v2",
	"codex-0.153.4/86-background-terminal",
	"codex-0.153.4/90-mcp-elicitation",
	"codex-0.153.4/94-sigterm-running-command",
}

func load(tb testing.TB, name string) []*event.Event {
	tb.Helper()
	c, err := capture.Load(name)
	if err != nil {
		tb.Fatal(err)
	}
	return capture.Events(c, "acme", aRun)
}

// build returns all spans of a run, in the order they came out.
func build(o BuilderOptions, events []*event.Event) (all []Span) {
	b := NewBuilder(aRun, o)
	for _, e := range events {
		all = append(all, b.Apply(e)...)
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			got := tree(build(BuilderOptions{}, load(t, name)))
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
				t.Errorf("the trace differs (-want +got):\n%s", d)
			}
		})
	}
}

// tree shows a trace as text: each span below its parent, in order of time.
func tree(spans []Span) string {
	byParent := map[SpanID][]Span{}
	ids := map[SpanID]bool{}
	for _, s := range spans {
		ids[s.ID] = true
	}
	for _, s := range spans {
		p := s.Parent
		if !ids[p] {
			p = SpanID{}
		}
		byParent[p] = append(byParent[p], s)
	}
	var b bytes.Buffer
	var show func(SpanID, int)
	show = func(p SpanID, depth int) {
		list := byParent[p]
		slices.SortStableFunc(list, func(a, b Span) int {
			return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End), strings.Compare(a.Path, b.Path))
		})
		for _, s := range list {
			indent := strings.Repeat("  ", depth)
			fmt.Fprintf(&b, "%s%s [%s] %s +%s %s%s\n", indent, s.Name, s.Path, clock(s.Start), s.End.Sub(s.Start).Round(time.Millisecond), status(s), remote(s, depth))
			for _, a := range s.Attrs {
				if a.Key != "cbcast.run.id" && a.Key != "cbcast.tenant" && a.Key != "gen_ai.provider.name" {
					fmt.Fprintf(&b, "%s    %s=%v\n", indent, a.Key, a.Value)
				}
			}
			for _, e := range s.Events {
				fmt.Fprintf(&b, "%s    @%s %s %v\n", indent, clock(e.At), e.Name, e.Attrs)
			}
			for _, l := range s.Links {
				fmt.Fprintf(&b, "%s    link %s/%s\n", indent, l.Trace, l.Parent)
			}
			show(s.ID, depth+1)
		}
	}
	show(SpanID{}, 0)
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func status(s Span) string {
	switch s.Status {
	case OK:
		return "ok"
	case Error:
		return "ERROR " + s.Message
	default:
		return "-"
	}
}

func remote(s Span, depth int) string {
	switch {
	case s.Remote:
		return " <" + s.Parent.String() + ">"
	case depth == 0 && !s.Parent.IsZero():
		return " ORPHAN"
	}
	return ""
}

// What holds of every trace, over all recordings.
func TestEveryRecording(t *testing.T) {
	totals := map[string]int{}
	for i, name := range capture.List() {
		events := load(t, name)
		spans := build(BuilderOptions{}, events)
		st := run.New(aRun)
		for _, e := range events {
			st.Apply(e)
		}
		v := st.View()
		for _, err := range wrong(spans, &v) {
			t.Errorf("%s: %s", name, err)
		}
		for _, s := range spans {
			totals[strings.Fields(s.Name)[0]]++
		}
		if i%8 > 0 {
			continue
		}
		if d := gocmp.Diff(spans, build(BuilderOptions{}, events)); d != "" {
			t.Errorf("%s: the second time it is another:\n%s", name, d)
		}
	}
	t.Log(totals)
	for _, kind := range []string{"run", "invoke_agent", "invoke_workflow", "phase", "execute_tool", "chat", "ask", "background"} {
		if totals[kind] == 0 {
			t.Errorf("no span %q in any recording: the test shows nothing of it", kind)
		}
	}
}

// wrong lists what is not as it must be in a whole trace.
func wrong(spans []Span, v *run.View) (errs []string) {
	p := func(format string, args ...any) { errs = append(errs, fmt.Sprintf(format, args...)) }
	ids := map[SpanID]string{}
	for _, s := range spans {
		if other, ok := ids[s.ID]; ok {
			p("two spans %s: %s and %s", s.ID, s.Path, other)
		}
		ids[s.ID] = s.Path
	}
	roots, tools, asks := 0, 0, 0
	var used run.Tokens
	turns := map[int64]bool{}
	for _, s := range spans {
		if s.Parent.IsZero() || s.Remote {
			roots++
		} else if ids[s.Parent] == "" {
			p("%s has no parent", s.Path)
		}
		if s.Context.Trace != ContextOf(aRun, "").Trace {
			p("%s is in another trace", s.Path)
		}
		if s.End.Before(s.Start) || s.Start.IsZero() || s.Start.Before(capture.Start) {
			p("%s is from %s to %s", s.Path, s.Start, s.End)
		}
		for _, err := range wrongAttrs(s.Attrs) {
			p("%s: %s", s.Path, err)
		}
		for _, e := range s.Events {
			for _, err := range wrongAttrs(e.Attrs) {
				p("%s: %s: %s", s.Path, e.Name, err)
			}
			if e.At.Before(capture.Start) {
				p("%s: %s at %s", s.Path, e.Name, e.At)
			}
		}
		used.Input += get[int64](s, "gen_ai.usage.input_tokens")
		used.Output += get[int64](s, "gen_ai.usage.output_tokens")
		if n := get[int64](s, "cbcast.turn.number"); n > 0 {
			turns[n] = true
		}
		switch strings.Fields(s.Name)[0] {
		case "execute_tool":
			tools++
		case "ask":
			asks++
		case "run":
			if got := get[string](s, "cbcast.verdict"); v.Verdict == nil || got != string(v.Verdict.Verdict) {
				p("verdict %s, want %v", got, v.Verdict)
			}
		}
	}
	all := v.Usage.Tokens
	if want := (run.Tokens{Input: all.Input + all.CacheRead + all.CacheCreate, Output: all.Output}); used != want {
		p("spans have %+v tokens, the run %+v", used, want)
	}
	if roots != 1 || tools != v.Counts.ToolCalls || asks != len(v.Asks) || len(turns) != len(v.Turns) {
		p("%d roots, %d of %d tools, %d of %d asks, %d of %d turns", roots, tools, v.Counts.ToolCalls, asks, len(v.Asks), len(turns), len(v.Turns))
	}
	for _, t := range v.Tasks {
		if t.Synthesised && !slices.ContainsFunc(spans, func(s Span) bool {
			return get[string](s, "cbcast.task.id") == t.ID && get[string](s, "cbcast.outcome") == t.Status && s.Status != OK
		}) && t.Type != "command" {
			p("task %s ended %s, and no span says so", t.ID, t.Status)
		}
	}
	return errs
}

func wrongAttrs(list []Attr) (errs []string) {
	keys := map[string]bool{}
	for _, a := range list {
		if keys[a.Key] {
			errs = append(errs, a.Key+" stands twice")
		}
		keys[a.Key] = true
		texts := []string{}
		switch x := a.Value.(type) {
		case string:
			texts = append(texts, x)
		case []string:
			texts = x
		}
		for _, x := range texts {
			if !utf8.ValidString(x) || len(x) > maxValue+len("…") {
				errs = append(errs, fmt.Sprintf("%s has %d bytes, valid: %t", a.Key, len(x), utf8.ValidString(x)))
			}
		}
	}
	return errs
}

// get is the value of an attribute, zero where it is not there.
func get[T any](s Span, key string) (v T) {
	for _, a := range s.Attrs {
		if a.Key == key {
			v, _ = a.Value.(T)
		}
	}
	return v
}

// What a builder costs beside the fold that it holds.
func BenchmarkApply(b *testing.B) {
	var events []*event.Event
	for i, name := range capture.List() {
		if i%10 == 0 {
			events = append(events, load(b, name)...)
		}
	}
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			st := run.New(aRun)
			for _, e := range events {
				if e.Seq == 1 {
					st = run.New(aRun)
				}
				st.Apply(e)
			}
		}
		b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("builder", func(b *testing.B) {
		for b.Loop() {
			m := NewBuilder(aRun, BuilderOptions{})
			for _, e := range events {
				if e.Seq == 1 {
					m = NewBuilder(aRun, BuilderOptions{})
				}
				m.Apply(e)
			}
		}
		b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "events/s")
	})
}
