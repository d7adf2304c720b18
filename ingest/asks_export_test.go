package ingest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Played is an edge whose child is the test: there is no process, so that time can
// be the test's own.
type Played struct {
	tb  testing.TB
	e   *edge
	cmd *commander

	mu    sync.Mutex // guards what follows
	lines []string   // on the child's stdin, ours
	fail  error      // of every write
}

// Lines are those of ours on the child's stdin.
func (p *Played) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// Fail lets every write fail.
func (p *Played) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// NewPlayed makes one.
func NewPlayed(tb testing.TB, o Options) *Played {
	tb.Helper()
	e, err := newEdge(o)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Played{tb: tb, e: e}
	e.started(1)
	p.cmd = e.commander(tb.Context(), p)
	p.cmd.channel = func() bool { return true }
	return p
}

// Inject takes a line of ours. It is recorded before anything that is said to it.
func (p *Played) Inject(ctx context.Context, line []byte) error {
	p.mu.Lock()
	err := p.fail
	if err == nil {
		p.lines = append(p.lines, string(line))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.record(child.In, line, true)
	return ctx.Err()
}

// The rest of a child's stdin.
func (p *Played) Hide(string)                             {}
func (p *Played) Unhide(string)                           {}
func (p *Played) OpenGate()                               {}
func (p *Played) Exited() <-chan struct{}                 { return nil }
func (p *Played) Tree() *child.Tree                       { return nil }
func (p *Played) SignalFrom(syscall.Signal, string) error { return nil }

func (p *Played) record(s child.Stream, line []byte, injected bool) {
	at := time.Now()
	p.e.rec.chunk(func() {
		_, _ = p.e.rec.splitters(&at, &injected)[s].Write(bytes.Clone(line))
	})
}

// Say lets the child write a line, Hear its host.
func (p *Played) Say(line string)  { p.record(child.Out, []byte(line+"\n"), false) }
func (p *Played) Hear(line string) { p.record(child.In, []byte(line+"\n"), false) }

// Give gives a command.
func (p *Played) Give(c bus.Command) { p.cmd.handle(p.tb.Context(), c) }

// View is the state now.
func (p *Played) View() run.View {
	p.e.rec.mu.Lock()
	defer p.e.rec.mu.Unlock()
	return p.e.rec.state.View()
}

// Kept counts the asks that can be answered.
func (p *Played) Kept() (n, size int) {
	p.e.rec.mu.Lock()
	defer p.e.rec.mu.Unlock()
	for _, k := range p.cmd.asks.kept {
		if k.line != nil {
			n++
		}
	}
	return n, p.cmd.asks.size
}

// End ends the run and returns all of its events.
func (p *Played) End() (evs []*event.Event) {
	p.tb.Helper()
	p.cmd.end()
	p.e.close(event.Exited{}, true)
	src := source{s: p.e.spool}
	for seq := uint64(1); seq <= p.e.spool.Last(); seq++ {
		e, ok, err := src.Event(seq)
		if err != nil || !ok {
			p.tb.Fatalf("event %d: %v %v", seq, ok, err)
		}
		c := *e
		c.Data = bytes.Clone(e.Data)
		evs = append(evs, &c)
	}
	if err := p.e.spool.Close(); err != nil {
		p.tb.Fatal(err)
	}
	return evs
}
