package child

import (
	"os"
	"os/signal"
	"syscall"
)

// A Pipe is the pass-through without a process: what one program writes into
// another, with a tap on it.
type Pipe struct {
	out  *output
	tap  *Tap
	sigs chan os.Signal
}

// StartPipe copies r to w as a child's stdout is copied to its parent, until EOF.
// The stream of its tap is [Out]. The caller must call Wait, and read the tap.
func StartPipe(r, w *os.File) *Pipe {
	p := &Pipe{tap: newTap(0, false), sigs: make(chan os.Signal, 1)}
	// Caught, so that a write to a reader that is gone is an error and not our end.
	signal.Notify(p.sigs, syscall.SIGPIPE)
	p.out = newOutput(Out, r, w, p.tap)
	go func() { // ends at EOF
		p.out.pump()
		p.tap.close()
	}()
	return p
}

// Tap gives the bytes that passed.
func (p *Pipe) Tap() *Tap { return p.tap }

// Wait waits for EOF. Of the result only Out and ReaderClosed are set.
func (p *Pipe) Wait() Result {
	<-p.out.done
	signal.Stop(p.sigs)
	res := Result{Out: p.out.stats}
	if p.out.closed {
		res.ReaderClosed, res.ReaderClosedByte, res.ReaderClosedLine = true, p.out.passed, p.out.passedL
	}
	res.Out.Dropped, res.Out.DroppedLines = p.tap.drops(Out)
	return res
}
