package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// Tap records what one program writes into another: it copies stdin to stdout
// as Run copies a child's output, and publishes it as a run. There is no
// process to command and no exit to see: the run ends at EOF.
func Tap(ctx context.Context, o Options) (Outcome, error) {
	e, err := newEdge(o)
	if err != nil {
		o.Log.Error("nothing is recorded", "error", err)
		_, err = io.Copy(o.Stdout, o.Stdin)
		return Outcome{}, err
	}
	if o.OnStart != nil {
		o.OnStart(e.id)
	}
	e.started(0)
	e.pipe = true
	e.ship.commands = e.refuseAll
	aside := e.asides()
	e.ship.run(ctx)
	p := child.StartPipe(o.Stdin, o.Stdout)
	t := e.taker(p.Tap(), nil)
	background(func() { t.run(context.Background()) })
	t.close()
	res := p.Wait()
	x := event.Exited{Reason: "eof", DurationMS: time.Since(e.start).Milliseconds()}
	if res.ReaderClosed {
		x.ReaderClosed = &res.ReaderClosedLine
	}
	aside.end(nil)
	e.close(x, true)
	return e.finish(ctx, nil), nil
}

// refuseAll answers commands to a run that has no child.
func (e *edge) refuseAll(_ context.Context, c bus.Command) {
	e.rec.fact(event.TypeCommand, event.Cmd, event.CommandFact{
		Command: c.ID, Name: c.Name, Fact: event.Refused, Reason: "no_control_channel",
	})
}

// importRead is how much of a file is read at once.
const importRead = 256 << 10

// Import publishes a recorded stream as a run: every line of r as if a child
// wrote it now.
func Import(ctx context.Context, o Options, r io.Reader) (Outcome, error) {
	e, err := newEdge(o)
	if err != nil {
		return Outcome{}, err
	}
	if o.OnStart != nil {
		o.OnStart(e.id)
	}
	e.started(0)
	e.alone, e.pipe = true, true
	e.ship.commands = e.refuseAll
	aside := e.asides()
	e.ship.run(ctx)
	readErr := e.importLines(ctx, r)
	aside.end(nil)
	e.close(event.Exited{Reason: "import", DurationMS: time.Since(e.start).Milliseconds()}, readErr == nil)
	out := e.finish(ctx, nil)
	if readErr != nil {
		return out, fmt.Errorf("read the recording: %w", readErr)
	}
	return out, nil
}

func (e *edge) importLines(ctx context.Context, r io.Reader) error {
	at, injected := time.Now(), false
	split := e.rec.splitters(&at, &injected)[child.Out]
	defer e.rec.chunk(func() {
		split.Close()
		e.rec.flush(at, event.Out)
	})
	pace := pacer{e: e}
	buf := make([]byte, importRead)
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		at = time.Now()
		e.rec.chunk(func() { _, _ = split.Write(buf[:n]) })
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// A file is read faster than a bus takes it: wait, rather than count
		// events as lost.
		if err := e.waitRoom(ctx); err != nil {
			return err
		}
		pace.wait(ctx)
	}
	return context.Cause(ctx)
}

// roomEvery is how often an import looks whether the bus has caught up.
const roomEvery = 20 * time.Millisecond

// waitRoom returns when less than an eighth of the run's spool awaits its
// acknowledgement, or there is nobody to wait for. Acknowledged files and one
// more read have room beside that.
func (e *edge) waitRoom(ctx context.Context) error {
	for {
		st := e.spool.Stats()
		kept := max(1, st.Last+1-min(st.First, st.Last))
		if open := st.Bytes / int64(kept) * int64(st.Last-st.Acked); open < e.o.SpoolRunMax/8 {
			return nil
		}
		select {
		case <-time.After(roomEvery):
		case <-e.ship.failed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const (
	// paceBytes is how far an import is ahead of the publisher: what that is to
	// read next is then still in memory.
	paceBytes = 2 << 20
	paceEvery = time.Millisecond
	// paceStall is how long the publisher may stand still before nobody waits
	// for it.
	paceStall = 20 * time.Millisecond
)

// A pacer keeps an import close ahead of a publisher that moves. It waits for
// none that does not: the spool is for that.
type pacer struct {
	e       *edge
	read    uint64
	stalled bool
}

func (p *pacer) wait(ctx context.Context) {
	for since := time.Now(); ; {
		st := p.e.spool.Stats()
		if st.Read > p.read {
			p.read, p.stalled, since = st.Read, false, time.Now()
		}
		kept := max(1, st.Last+1-min(st.First, st.Last))
		ahead := st.Bytes / int64(kept) * int64(st.Last-min(st.Read, st.Last))
		if p.stalled = p.stalled || time.Since(since) > paceStall; p.stalled || ahead < paceBytes {
			return
		}
		select {
		case <-time.After(paceEvery):
		case <-ctx.Done():
			return
		}
	}
}
