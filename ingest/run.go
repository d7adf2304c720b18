package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cbcast/cbcast/ingest/child"
)

// Run wraps one child until it has ended and returns how. Signals to the process
// are passed on. The error is one of starting: afterwards nothing that goes
// wrong on the way to the bus ends or changes the run.
//
// The child is started while the spool is made: what it says meanwhile waits in
// the tap, which has its bound.
func Run(ctx context.Context, o Options) (Outcome, error) {
	e, err := newRun(o)
	if err != nil {
		if o.Drive != nil {
			return Outcome{}, err // what is not seen cannot be driven
		}
		// A wrapper that cannot keep anything still runs the agent.
		return bare(o, err)
	}
	p, err := e.launch(ctx)
	switch {
	case errors.Is(err, errNotKept):
		o.Log.Error("nothing is recorded", "error", err)
		out := forget(p)
		out.Run, out.Why = e.id, err
		return out, nil
	case err != nil:
		return Outcome{Run: e.id}, err
	}
	if o.OnStart != nil {
		o.OnStart(e.id)
	}
	e.started(p.Pid())
	if o.Drive != nil {
		e.driver = newDriver(e, p)
	}
	cmd := e.commander(ctx, p)
	aside := e.asides()
	e.ship.run(ctx)
	release := e.holdStdin(ctx, p)
	driven := e.lead(ctx)
	dog := newWatchdog(e.rec, p, &e.o)
	dog.start(ctx)
	late := lateSignal(p)
	e.take(p, late)
	res := p.Wait()
	release()
	cmd.end()
	aside.end(late.hurry)
	told := driven.stop()
	e.exited(res, cmp.Or(dog.stop(), told.Ended))
	driven.last()
	out := e.finish(ctx, late.told)
	out.Result, out.Driven = res, told
	late.stop()
	p.Close()
	return out, nil
}

// errNotKept is the error of a run whose child is there and whose spool is not.
var errNotKept = errors.New("no spool")

// launch starts the child. With errNotKept it runs, and nothing of it can be kept.
func (e *edge) launch(ctx context.Context) (*child.Process, error) {
	kept := make(chan error, 1)
	if e.o.Drive != nil {
		if err := e.prepare(ctx); err != nil {
			return nil, err
		}
		kept <- nil
	} else {
		go func() { kept <- e.keep() }() // is waited for below
	}
	c := e.o.child()
	c.HoldStdin, c.Gated, c.Logger = e.holds, true, e.log
	p, err := child.Start(c)
	keptErr := <-kept
	switch {
	case err != nil && keptErr != nil:
		return nil, err
	case err != nil:
		e.disclaim()
		return nil, errors.Join(err, e.spool.Remove())
	case keptErr != nil:
		return p, fmt.Errorf("%w: %w", errNotKept, keptErr)
	}
	return p, nil
}

// child is what every child is started with.
func (o *Options) child() child.Config {
	return child.Config{
		Path: o.Argv[0], Args: o.Argv, Env: o.Env, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		Adopt: true, Terminal: o.Terminal,
	}
}

// bare runs the child without recording: the agent comes first.
func bare(o Options, cause error) (Outcome, error) {
	o.Log.Error("nothing is recorded", "error", cause)
	c := o.child()
	c.NoTap = true
	p, err := child.Start(c)
	if err != nil {
		return Outcome{}, err
	}
	out := forget(p)
	out.Run, out.Why = o.RunID, cause
	return out, nil
}

// forget lets a child run to its end without recording what it says.
func forget(p *child.Process) Outcome {
	p.ReleaseStdin()
	for {
		if _, err := p.Tap().Next(context.Background()); err != nil { // io.EOF at the end
			break
		}
	}
	res := p.Wait()
	p.Close()
	return Outcome{Result: res}
}

// commander sets up what takes commands for the child.
func (e *edge) commander(ctx context.Context, p gated) *commander {
	journal, err := e.spool.Journal()
	if err != nil {
		e.log.Error("open the command journal; commands are refused", "error", err)
	}
	var in injector = p
	if e.driver != nil {
		in = e.driver.injector()
	}
	cmd := newCommander(ctx, e.rec, in, journal, e.channel, e.log)
	cmd.late, cmd.rungs, cmd.hosted = e.ship.refuse, e.o.Escalate, e.o.Stdin != nil
	e.ship.commands = cmd.handle
	g := &gate{open: p.OpenGate}
	if e.o.Stdin == nil {
		g.watch(line{eof: true}) // there is no host
	}
	e.policy(cmd)
	e.rec.watch = func(l line) {
		g.watch(l)
		cmd.watch(l)
		cmd.asks.watch(l)
		if e.driver != nil {
			e.driver.watch(l)
		}
	}
	e.rec.busy = func() bool { return e.driver != nil || g.waits() || len(cmd.open) > 0 || cmd.asks.waits() }
	return cmd
}

// policy lets what is configured decide asks. It was checked before the child was
// started; where it has gone since, people decide.
func (e *edge) policy(cmd *commander) {
	p, err := e.o.LoadPolicy()
	switch {
	case err != nil:
		e.log.Error("read the policy; it decides nothing", "error", err)
	case p != nil:
		cmd.asks.policy = &policy{Policy: p, repo: e.o.Labels["cirepo"], tenant: e.o.Tenant}
		e.rec.auto = cmd.asks.auto
	}
}
