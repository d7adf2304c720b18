// Package child runs one wrapped process, transparently: its parent cannot tell
// the wrapper from the bare child by what it reads, by signals or by the exit.
// It is the only package that starts processes, and it knows nothing of frames.
//
// Bytes pass through three pumps, one a stream, that wait for nothing but the
// two ends. A copy of each read goes to the [Tap], which never blocks them.
//
// Processes. The child leads its own process group, so that signals reach it
// once, from us, as a bare child gets them from its host. Where the system
// allows it (Linux) it dies with the wrapper, and orphans of it come to the
// wrapper, which ends them when the run is over.
package child

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// DrainTime is how long output is awaited after the child's exit when another
// process keeps a pipe open, e.g. a dev server. Hosts wait for our exit, some
// kill after 5 s; what stood in the pipe at the exit is read in any case.
const DrainTime = 2 * time.Second

// The waits after the child's exit once the parent has sent TERM, INT, HUP or
// QUIT: for a pipe that another process keeps, and for a parent that does not
// read. Its output goes to the tap alone then.
const (
	hurriedDrain = 200 * time.Millisecond
	stuckDrain   = time.Second
)

// readSize is the buffer of one read. A pipe holds 64 KiB, so one read takes
// all of it; hosts lose frames at the seams of smaller ones.
const readSize = 128 << 10

// Config says what to run and between which ends.
type Config struct {
	// Path is the executable; without a slash it is searched in PATH.
	Path string
	// Args are the child's arguments, argv[0] first, passed on untouched.
	// Empty means Path alone.
	Args []string
	// Env is the child's whole environment. nil means none.
	Env []string

	// Stdin is what the parent writes to us. nil: there is no parent that
	// writes; with HoldStdin the child's stdin is ours alone, without it the
	// child reads from /dev/null. When the child closes its stdin, Stdin is
	// closed, too, so that the parent's next write fails.
	Stdin *os.File
	// Stdout and Stderr are where the child's output goes. nil: to the tap only.
	// Stdout is closed when the child's has ended. Where Stdin or Stdout is a
	// standard descriptor, /dev/null takes its place.
	Stdout, Stderr *os.File
	// HoldStdin keeps the parent's EOF back until ReleaseStdin, so that lines
	// can be injected after it. A last line without LF gets one then: the child
	// would wait for it.
	HoldStdin bool
	// Gated lets Inject wait until OpenGate. Hosts send initialize first, and a
	// line before its answer confuses both sides.
	Gated bool

	// Terminal says that signals come from a terminal, which gives them to every
	// process of its foreground group: INT and QUIT go to the child's group then,
	// not to the child alone.
	Terminal bool

	// NoTap leaves out the copy; Tap is empty then.
	NoTap bool
	// TapMax bounds the tap in bytes a stream; 0 means [TapMax].
	TapMax int

	// Adopt makes the process adopt orphaned descendants of the child, reap
	// them, and kill what is left of them at the end. The caller vouches that
	// it starts no process by other means while the child runs: those could
	// not be told from orphans. Without it only the process group is killed.
	// It has an effect on Linux only.
	Adopt bool

	// Logger gets oddities; nil discards them.
	Logger *slog.Logger
}

// A Process is a started child. Its methods may be called from any goroutine.
type Process struct {
	cfg Config
	log *slog.Logger
	tap *Tap

	proc   *os.Process
	kin    *kin
	exited chan struct{} // closed when the child has ended
	done   chan struct{} // closed when res is complete
	res    Result        // owned by the goroutine of own until done

	in       *stdin
	out, err *output

	sigs   chan os.Signal
	mu     sync.Mutex // guards sent, urgent, killed
	sent   []Forwarded
	hurry  chan struct{} // closed when the parent asked us to end
	urgent bool
	killed int // descendants, by a Tree

	sweeping sync.Mutex // held by who kills descendants and counts them
}

// Start starts the child and its pumps. They end with the child; the caller
// must call Wait, and read the tap. A command that cannot be run is an
// [*ExecError].
func Start(cfg Config) (*Process, error) {
	path, err := LookPath(cfg.Path)
	if err != nil {
		return nil, err
	}
	if len(cfg.Args) == 0 {
		cfg.Args = []string{cfg.Path}
	}
	if cfg.Env == nil {
		cfg.Env = []string{}
	}
	p := &Process{
		cfg: cfg, log: cfg.Logger,
		exited: make(chan struct{}), done: make(chan struct{}), hurry: make(chan struct{}),
		sigs: make(chan os.Signal, sigBuffer),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.tap = newTap(cfg.TapMax, cfg.NoTap)
	files, err := p.pipes()
	if err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	p.catch()
	started := make(chan error, 1)
	go p.own(path, files, started)
	if err := <-started; err != nil {
		p.Close()
		p.closePipes()
		return nil, execError(path, err)
	}
	return p, nil
}

// pipes makes the child's three ends and ours.
func (p *Process) pipes() (files [3]*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files[:])
			p.closePipes()
		}
	}()
	var r, w *os.File
	if p.cfg.Stdin == nil && !p.cfg.HoldStdin {
		if files[0], err = os.Open(os.DevNull); err != nil {
			return files, err
		}
		p.in = newStdin(nil, p.cfg, p.tap)
	} else {
		if files[0], w, err = os.Pipe(); err != nil {
			return files, err
		}
		p.in = newStdin(w, p.cfg, p.tap)
		if p.in.wakeR, p.in.wakeW, err = os.Pipe(); err != nil {
			return files, err
		}
	}
	if r, files[1], err = os.Pipe(); err != nil {
		return files, err
	}
	p.out = newOutput(Out, r, p.cfg.Stdout, p.tap)
	if r, files[2], err = os.Pipe(); err != nil {
		return files, err
	}
	p.err = newOutput(Err, r, p.cfg.Stderr, p.tap)
	return files, nil
}

func (p *Process) closePipes() {
	if p.in != nil {
		closeAll([]*os.File{p.in.w, p.in.wakeR, p.in.wakeW})
	}
	for _, o := range []*output{p.out, p.err} {
		if o != nil {
			o.r.Close()
		}
	}
	p.tap.close()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.proc.Pid }

// Tap gives the bytes that passed.
func (p *Process) Tap() *Tap { return p.tap }

// Exited is closed when the child has ended, before its output is drained.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until the child has ended, its output is drained and its
// descendants are gone.
func (p *Process) Wait() Result {
	<-p.done
	return p.res
}

// Inject writes one line to the child's stdin: ASCII, ended by its only LF. It
// waits until the gate is open, the parent is not inside a line, and the child
// reads; ctx bounds that wait.
//
// Once Inject returns nil the line is in the pipe; whether the child reads it is
// not known. After [ErrPartial] its beginning is in the pipe and the rest
// follows before anything else, if the child reads at all. After any other
// error nothing of it was written. [ErrStdinClosed], [ErrNoStdin] and
// [ErrExited] are final.
func (p *Process) Inject(ctx context.Context, line []byte) error {
	return p.in.inject(ctx, line)
}

// OpenGate lets injected lines pass; see Config.Gated.
func (p *Process) OpenGate() { p.in.openGate() }

// ReleaseStdin passes the parent's EOF on, now or when it comes.
func (p *Process) ReleaseStdin() { p.in.release() }

// Hide keeps the control_response that names id from the parent, once. id is
// one that no host makes up. The tap gets the line in any case. Call it before
// Inject, and Unhide when the answer is no more expected: while one is, a line
// that may be it is held back until its LF.
func (p *Process) Hide(id string) { p.out.hide.add(id) }

// Unhide gives up on the answer to id.
func (p *Process) Unhide(id string) { p.out.hide.remove(id) }

// Signal sends sig to the child, and notes it as the edge's.
func (p *Process) Signal(sig syscall.Signal) error { return p.send(sig, FromEdge) }

// SignalFrom is Signal, noted as from another one: see the From constants.
func (p *Process) SignalFrom(sig syscall.Signal, from string) error { return p.send(sig, from) }

// Late gives the signals that reach the wrapper once Wait has returned, SIGPIPE
// and SIGCONT among them. They stay caught until Close, so that one that comes
// while the rest of the run is shipped does not replace the child's exit.
func (p *Process) Late() <-chan os.Signal { return p.sigs }

// Close lets signals act on the wrapper again. Call it after Wait, as the last
// thing before the exit.
func (p *Process) Close() { signal.Stop(p.sigs) }
