package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

func newDemo(a *app) *cobra.Command {
	var speed float64
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play a recorded workflow through the whole pipeline",
		Long: `demo starts a child that writes a recorded session of a real agent (CodeBuddy, one
workflow with two phases and three agents), wraps it as run would, and draws what
a subscriber sees: first live, then replayed from the bus. At the end it compares
the replayed bytes with those of the recording.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if speed <= 0 {
				return &exitError{exitUsage, fmt.Errorf("--speed=%g; it must be above 0", speed)}
			}
			return a.demo(c.Context(), speed)
		},
	}
	c.Flags().Float64Var(&speed, "speed", 1, "how much faster than it was recorded")
	return c
}

func (a *app) demo(ctx context.Context, speed float64) error {
	a.cfg.Hub = orHub(a.cfg.Hub)
	opt, st, leave, err := a.newEdge()
	if err != nil {
		return err
	}
	defer leave()
	if err := st.open(ctx); err != nil {
		return err
	}
	b, err := st.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own path: %w", err)
	}
	opt.Argv = []string{self, "demo-agent", "--speed", strconv.FormatFloat(speed, 'g', -1, 64), "--input-format", "stream-json"}
	opt.Dialect, opt.Source = dialect.CBC, "demo"
	opt.ExitFlush = max(opt.ExitFlush, 10*time.Second)

	started := make(chan string, 1)
	opt.OnStart = func(id string) { started <- id }
	type ended struct {
		out ingest.Outcome
		err error
	}
	end := make(chan ended, 1)
	go func() { // ends with the child
		out, err := ingest.Run(ctx, opt)
		end <- ended{out, err}
	}()
	select {
	case id := <-started:
		fmt.Fprintf(a.io.out, "run %s\n\n  follow it from another terminal:\n  curl -N %s\n\nlive\n", id, st.streamURL(ctx, id))
		if err := a.demoView(ctx, b, opt.Tenant, id, terminal(a.io.out)); err != nil {
			return err
		}
	case e := <-end:
		return e.err
	}
	e := <-end
	if e.err != nil {
		return e.err
	}
	return a.demoReplay(ctx, b, bus.Ref{Tenant: opt.Tenant, Run: e.out.Run})
}

// demoView draws the run as a subscriber sees it, until it ends.
func (a *app) demoView(ctx context.Context, b *bus.Bus, tenant, id string, redraw bool) error {
	v := &view{w: a.io.out, redraw: redraw, state: run.New(id)}
	ref := bus.Ref{Tenant: tenant, Run: id}
	err := follow(ctx, b, ref, 0, func(e *event.Event) bool {
		v.state.Apply(e)
		v.draw()
		return true
	})
	v.finish()
	return err
}

// demoReplay reads the run again from the bus and compares it with the recording.
func (a *app) demoReplay(ctx context.Context, b *bus.Bus, ref bus.Ref) error {
	want, err := recording.ReadFile("demo/stdout.ndjson")
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "\nreplayed from the bus\n")
	v := &view{w: a.io.out, state: run.New(ref.Run), quiet: true}
	var got replayed
	var join event.Joiner
	for e, err := range b.History(ctx, ref, 0) {
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		got.holes = got.holes || e.Seq != got.last+1
		got.last = e.Seq
		v.state.Apply(e)
		if whole, _, _ := join.Add(e); whole != nil && whole.Stream == event.Out {
			got.add(whole)
		}
	}
	v.finish()
	return a.compare(want, got)
}

// replayed is the agent's stdout, put together from the events of its run.
type replayed struct {
	data  []byte
	spans []event.Span // what was masked, in data
	last  uint64
	holes bool
}

func (r *replayed) add(e *event.Event) {
	for _, s := range e.Redacted {
		s.Off += len(r.data)
		r.spans = append(r.spans, s)
	}
	r.data = append(r.data, e.Data...)
	if !e.Cut {
		r.data = append(r.data, '\n')
	}
}

func (a *app) compare(want []byte, got replayed) error {
	same := redact.Matches(want, got.data, got.spans)
	fmt.Fprintf(a.io.out, "\n%d events, numbered 1 to %d without a hole: %s\n", got.last, got.last, yes(!got.holes))
	fmt.Fprintf(a.io.out, "the agent's stdout, %d bytes, the same byte for byte: %s\n", len(want), yes(same))
	for _, s := range got.spans {
		fmt.Fprintf(a.io.out, "  masked before it left the edge: %s, %d bytes\n", s.Rule, s.RawLen)
	}
	if got.holes || !same {
		return errors.New("the replay is not what the agent wrote")
	}
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

// view draws a run's tasks: again and again in place on a terminal, else one
// line for each change.
type view struct {
	w      io.Writer
	redraw bool
	quiet  bool // only finish prints
	state  *run.State
	lines  int
	last   string
	told   map[string]string
}

func (v *view) draw() {
	if v.quiet {
		return
	}
	if !v.redraw {
		v.changes()
		return
	}
	s := v.picture()
	if s == v.last {
		return
	}
	if v.lines > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", v.lines)
	}
	fmt.Fprint(v.w, s)
	v.last, v.lines = s, bytes.Count([]byte(s), []byte("\n"))
}

func (v *view) finish() {
	if v.redraw && !v.quiet {
		v.draw()
		return
	}
	fmt.Fprint(v.w, v.picture())
}

// picture is the run as text.
func (v *view) picture() string {
	w := v.state.View()
	var b bytes.Buffer
	fmt.Fprintf(&b, "  %s", w.State)
	if w.Verdict != nil {
		fmt.Fprintf(&b, ", verdict %s", w.Verdict.Verdict)
	}
	fmt.Fprintf(&b, "  (%d events)\n", w.LastSeq)
	for _, t := range w.Tasks {
		fmt.Fprintf(&b, "  workflow %s  %s\n", printable(first(t.Label, t.Name, t.ID)), t.Status)
		for _, p := range t.Phases {
			fmt.Fprintf(&b, "    %s\n", printable(p.Title))
			for _, g := range t.Agents {
				if g.Phase == p.Title {
					fmt.Fprintf(&b, "      %s %-12s %s%s\n", mark(g.State), printable(g.Label), g.State, tokens(g.Tokens))
				}
			}
		}
	}
	return b.String()
}

// changes prints a line for each agent and task that changed.
func (v *view) changes() {
	if v.told == nil {
		v.told = map[string]string{}
	}
	say := func(key, text string) {
		if v.told[key] != text {
			v.told[key] = text
			fmt.Fprintf(v.w, "  %s\n", text)
		}
	}
	for _, t := range v.state.View().Tasks {
		say(t.ID, fmt.Sprintf("workflow %s  %s", printable(first(t.Label, t.Name, t.ID)), t.Status))
		for _, g := range t.Agents {
			say(t.ID+" "+g.Key, fmt.Sprintf("  %s / %s  %s%s", printable(g.Phase), printable(g.Label), g.State, tokens(g.Tokens)))
		}
	}
}

func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

func mark(state string) string {
	switch state {
	case "done":
		return "●"
	case "error":
		return "✗"
	case "start", "progress":
		return "◐"
	}
	return "○"
}

func tokens(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  %d tokens", n)
}
