package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sigBuffer is how many signals wait while the child is being started. The
// kernel keeps at most one of each kind pending itself.
const sigBuffer = 64

// maxNoted bounds the signals kept in the Result; later ones are only sent.
const maxNoted = 256

// forwarded are passed on to the child. A bare child would have got them.
var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGTSTP, syscall.SIGCONT,
}

// catch takes the signals over, before the child is started: one that comes in
// between waits in the channel. A signal that we were started to ignore (nohup)
// stays ignored, and the child inherits that.
//
// SIGPIPE is caught, too: a Go program dies of it on a write to descriptor 1 or
// 2 otherwise, and the agent with it. It must not be ignored instead, for the
// child would inherit that.
func (p *Process) catch() {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(p.sigs, s)
		}
	}
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(p.sigs, syscall.SIGPIPE)
	}
}

// forward passes signals on until the output is drained; stop ends it.
func (p *Process) forward(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case s := <-p.sigs:
			p.pass(s.(syscall.Signal))
		}
	}
}

func (p *Process) pass(s syscall.Signal) {
	switch s { //nolint:exhaustive // the others are passed on as they come
	case syscall.SIGPIPE:
		return
	case syscall.SIGTSTP:
		// From the terminal, which would have stopped the child's whole group.
		syscall.Kill(-p.proc.Pid, s)
		p.note(s, FromParent)
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		return
	case syscall.SIGCONT:
		syscall.Kill(-p.proc.Pid, s)
		p.note(s, FromParent)
		return
	case syscall.SIGINT, syscall.SIGQUIT:
		p.urge()
		if p.cfg.Terminal {
			syscall.Kill(-p.proc.Pid, s)
			p.note(s, FromParent)
			return
		}
	case syscall.SIGTERM, syscall.SIGHUP:
		p.urge()
	}
	_ = p.send(s, FromParent)
}

// urge notes that the parent wants us to end.
func (p *Process) urge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.urgent {
		p.urgent = true
		close(p.hurry)
	}
}

// send sends s to the child alone, not to its group: hosts signal the one
// process they started. The handle never reaches another process that got the
// same id.
func (p *Process) send(s syscall.Signal, from string) error {
	select {
	case <-p.exited:
		return os.ErrProcessDone
	default:
	}
	if err := p.proc.Signal(s); err != nil {
		return err
	}
	p.note(s, from)
	return nil
}

func (p *Process) note(s syscall.Signal, from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) < maxNoted {
		p.sent = append(p.sent, Forwarded{s, from, time.Now()})
	}
}

// Sent returns the signals sent to the child so far.
func (p *Process) Sent() []Forwarded {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Forwarded(nil), p.sent...)
}

// noteKilled counts descendants that a Tree ended.
func (p *Process) noteKilled(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed += n
}

func (p *Process) treeKilled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}
