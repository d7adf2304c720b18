package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

// A Dialer connects to the bus. It returns when it is connected or ctx ends. The
// edge closes what it gets.
type Dialer func(ctx context.Context) (*bus.Bus, error)

// Options say what to wrap and how.
type Options struct {
	Config

	Argv    []string     // the command; Argv[0] is searched in PATH
	Env     []string     // the child's whole environment
	Dialect dialect.Name // "" guesses from Argv[0]
	// HoldStdin keeps the parent's EOF back until no turn, task or ask is open.
	HoldStdin bool
	// Drive is what is told to a child without a host; nil is that there is one.
	Drive *Drive
	// Progress is given the run as it stands, a few times a second while it changes
	// and once at its end; Say gets remarks for whoever started it. Both may be nil.
	Progress func(run.View)
	Say      func(string)
	Stdin    *os.File
	Stdout   *os.File
	Stderr   *os.File

	Terminal bool // signals come from a terminal; see child.Config

	// Unusable says why nothing may be kept on this machine; nil is that it may.
	Unusable   error
	SpoolRoot  string
	Key        []byte // of keyed hashes, the same for all runs of a host
	Partitions int
	Labels     map[string]string // CI identity
	Version    string
	Dial       Dialer // nil leaves everything in the spool
	// SyncInterval of the store: acknowledged events stay in the spool for twice
	// this time after the run.
	SyncInterval time.Duration
	// OnStart is told the run's id as soon as the child runs.
	OnStart func(id string)
	Source  string // tap, import, demo; "" is a wrapped child
	Log     *slog.Logger
}

// An Outcome is how a run ended, as its edge saw it.
type Outcome struct {
	Run     string
	Result  child.Result // zero for a tap or an import
	State   *run.State
	Last    uint64 // number of the last event
	Shipped bool   // every event is on the bus
	Lost    event.Gap
	Driven  // zero without [Options.Drive]
}

// edge is one run being recorded and shipped.
type edge struct {
	o     Options
	id    string
	log   *slog.Logger
	rec   *recorder
	spool *spool.Spool
	start time.Time
	ship  *shipper

	dialect dialect.Name // as guessed before the child has said anything

	alone bool // nothing passes through beside the recording
	pipe  bool // there is no child, only what one wrote
	holds bool // the parent's EOF is kept back
	claimed
	driver *driver // nil where there is a host

	abilities *abilities
}

// newEdge makes the run's id, its spool and all that records. It does not wait for
// anything but the local file system.
func newEdge(o Options) (*edge, error) {
	e, err := newRun(o)
	if err != nil {
		return nil, err
	}
	return e, e.keep()
}

// newRun makes what a run has before anything is kept of it.
func newRun(o Options) (*edge, error) {
	if err := errors.Join(o.Unusable, o.Validate()); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make a run id: %w", err)
	}
	e := &edge{o: o, id: id.String(), start: time.Now(), dialect: o.Dialect}
	e.log = o.Log.With("run", e.id)
	if e.dialect == "" && len(o.Argv) > 0 {
		e.dialect = dialect.FromArgv0(o.Argv[0])
	}
	track := dialect.NewTracker(e.dialect)
	track.SetOutput(dialect.OutputOf(o.Argv))
	e.holds = o.holds(track.Dialect())
	e.rec = &recorder{
		log: e.log, tenant: o.Tenant, run: e.id, allStdin: o.CaptureStdin == "all",
		track: track, state: run.New(e.id), inEOF: o.Stdin == nil,
		changed: make(chan struct{}, 1), active: make(chan struct{}, 1), watched: make(chan struct{}, 1),
		named: make(chan struct{}, 1),
	}
	if o.Progress != nil {
		e.rec.shown = make(chan struct{}, 1)
	}
	e.abilities = newAbilities(e.rec, o.Argv, o.Stdin != nil || e.holds)
	return e, nil
}

// keep makes the spool and the rest of what records.
func (e *edge) keep() (err error) {
	o := &e.o
	part := subject.Partition(e.id, o.Partitions)
	meta := spool.Meta{Run: e.id, Tenant: o.Tenant, Partition: part, Created: e.start, Data: mustJSON(flushInfo{
		Dialect: string(e.dialect), Labels: o.Labels, Version: o.Version, Source: o.Source,
	})}
	e.spool, err = spool.Create(o.SpoolRoot, meta, spool.Options{
		RunCap: o.SpoolRunMax, TotalCap: o.SpoolMax, SegmentSize: segmentSize(o.SpoolRunMax),
		Retain: 2 * o.SyncInterval, SyncEvery: 5 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("open the spool: %w", err)
	}
	e.rec.spool = e.spool
	e.rec.red, err = redact.New(redact.Config{
		Key: o.Key, Env: o.Env, EnvNames: o.RedactEnv, Patterns: o.RedactPatterns, CaptureStdin: o.CaptureStdin == "all",
	})
	if err != nil {
		return errors.Join(fmt.Errorf("set up redaction: %w", err), e.spool.Remove())
	}
	e.ship = newShipper(e, bus.Ref{Tenant: o.Tenant, Run: e.id, Partition: part})
	return nil
}

// segmentSize is that of a run's spool files: room comes back one file at a
// time, so a small bound needs small ones.
func segmentSize(limit int64) int64 { return min(max(limit/8, 64<<10), 16<<20) }

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
	kept := make(chan error, 1)
	if o.Drive != nil {
		if err := e.prepare(ctx); err != nil {
			return Outcome{Run: e.id}, err
		}
		kept <- nil
	} else {
		go func() { kept <- e.keep() }() // is waited for below
	}
	p, err := child.Start(child.Config{
		Path: o.Argv[0], Args: o.Argv, Env: o.Env, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		HoldStdin: e.holds, Gated: true, Adopt: true, Terminal: o.Terminal, Logger: e.log,
	})
	keptErr := <-kept
	switch {
	case err != nil && keptErr != nil:
		return Outcome{}, err
	case err != nil:
		e.disclaim()
		return Outcome{Run: e.id}, errors.Join(err, e.spool.Remove())
	case keptErr != nil:
		o.Log.Error("nothing is recorded", "error", keptErr)
		return forget(p), nil
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

// bare runs the child without recording: the agent comes first.
func bare(o Options, cause error) (Outcome, error) {
	o.Log.Error("nothing is recorded", "error", cause)
	p, err := child.Start(child.Config{
		Path: o.Argv[0], Args: o.Argv, Env: o.Env, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
		NoTap: true, Adopt: true,
	})
	if err != nil {
		return Outcome{}, err
	}
	res := p.Wait()
	p.Close()
	return Outcome{Result: res}, nil
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

// started records the run's first event.
func (e *edge) started(pid int) {
	argv, masked := e.rec.red.MaskArgv(e.o.Argv)
	cwd, can := e.cwd(), e.abilities.told
	host, _ := os.Hostname()
	out := dialect.OutputOf(e.o.Argv)
	s := event.Started{
		Argv: argv, ArgvMasked: masked, Cwd: cwd, Host: host, Pid: pid, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Version: e.o.Version, Dialect: string(e.rec.track.Dialect()), Source: e.o.Source,
		HoldStdin: e.holds, CI: e.o.Labels, Capabilities: &can,
	}
	if out == dialect.OutputText || out == dialect.OutputJSON {
		s.Output = string(out)
	}
	s.Resume = e.resume()
	if d := e.o.Drive; d != nil {
		s.Driven, s.Sandbox, s.Approval = true, d.Sandbox, d.Approval
	}
	e.rec.fact(event.TypeStarted, event.Life, s)
}

// channel reports whether the child takes control messages: it was told to read
// stream-json, or its host speaks it.
func (e *edge) channel() bool {
	if appServer(e.o.Argv) {
		return true
	}
	if in, ok := flagValue(e.o.Argv, "--input-format"); ok {
		return in == "stream-json"
	}
	return e.rec.controlled.Load()
}

// exited records the run's last event and ends the spool.
func (e *edge) exited(res child.Result, ended string) {
	x := event.Exited{
		DurationMS: res.Exited.Sub(e.start).Milliseconds(), Leftovers: res.Leftovers, PipeHeld: res.PipeHeld,
		StdinEOF: res.In.EOF, Injected: res.Injected, Ended: ended,
	}
	code := res.Code
	x.Code = &code
	if res.Signal != 0 {
		x.Signal = signalName(res.Signal)
	}
	for _, s := range res.Signals {
		from := s.From // parent, command
		if from == child.FromEdge {
			from = "cbcast"
		}
		x.Forwarded = append(x.Forwarded, event.Signal{Signal: signalName(s.Signal), Time: s.At, From: from})
	}
	if res.ReaderClosed {
		x.ReaderClosed = &res.ReaderClosedLine
	}
	e.close(x, !res.PipeHeld)
}

// close records x, completed by what was counted, as the run's last event.
func (e *edge) close(x event.Exited, whole bool) {
	if err := e.rec.close(x, whole); err != nil {
		e.log.Error("end the spool", "error", err)
	}
}

// finish gives the bus its time, then leaves the rest to the spool.
func (e *edge) finish(ctx context.Context, late <-chan struct{}) Outcome {
	e.ship.drain(ctx, e.o.ExitFlush, late)
	out := Outcome{Run: e.id, State: e.rec.state, Last: e.spool.Last(), Shipped: e.spool.Shipped(), Lost: e.rec.gone}
	var err error
	if e.spool.Removable(time.Now()) {
		err = e.spool.Remove()
	} else {
		err = e.spool.Close()
	}
	if err != nil {
		e.log.Error("close the spool", "error", err)
	}
	return out
}

// signalName is "SIGTERM" for SIGTERM.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}
