package child

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// own starts the child and owns it to the end. It keeps its thread for as long:
// the kernel ties the child's death signal to the thread that started it, and
// not to the process, so that thread must not end before the child. It waits for
// every goroutine that the Process starts.
func (p *Process) own(path string, files [3]*os.File, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	before := enroll(p.cfg.Adopt)
	p.res.Started = time.Now()
	proc, err := before.start(func() (*os.Process, error) {
		return os.StartProcess(path, p.cfg.Args, &os.ProcAttr{Env: p.cfg.Env, Files: files[:], Sys: attr()})
	})
	closeAll(files[:])
	if err != nil {
		started <- err
		return
	}
	p.proc, p.kin = proc, before

	stopReap := before.reap(proc.Pid)
	go p.out.pump()
	go p.err.pump()
	go p.in.pump()
	stop, fwDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fwDone)
		p.forward(stop)
	}()
	started <- nil

	waitExit(proc.Pid)
	p.res.Exited = time.Now()
	close(p.exited)
	p.in.exit()
	p.drain()
	p.in.wait()
	p.res.Drained = time.Now()
	stopReap()
	p.sweeping.Lock()
	p.res.Leftovers = before.sweep(proc.Pid) + p.treeKilled()
	p.sweeping.Unlock()
	// Reaped only now: until then the pid, and so the group, is nobody else's.
	state, err := proc.Wait()
	before.leave(proc.Pid)
	close(stop)
	<-fwDone
	p.finish(state, err)
	p.tap.close()
	close(p.done)
}

// drain waits until both outputs have ended or are given up. A parent that wants
// us to end may kill us 5 s later, and a child may have taken half of that: then
// the waits are short.
func (p *Process) drain() {
	outs := []*output{p.out, p.err}
	bound := func(d time.Duration) {
		for _, o := range outs {
			o.r.SetReadDeadline(time.Now().Add(d))
		}
	}
	bound(DrainTime)
	hurry := p.hurry
	var giveUp <-chan time.Time
	for i := 0; i < len(outs); {
		select {
		case <-outs[i].done:
			i++
		case <-hurry:
			bound(hurriedDrain)
			hurry, giveUp = nil, time.After(stuckDrain)
		case <-giveUp:
			if outs[i].abandon() {
				i++
			}
			giveUp = expired // the next one at once
		}
	}
}

// expired is a timer that has ended.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// finish fills in the result. All other goroutines have ended, or an abandoned
// pump has left its output to us.
func (p *Process) finish(state *os.ProcessState, err error) {
	r := &p.res
	if ws, ok := state.Sys().(syscall.WaitStatus); err == nil && ok {
		r.Code = ws.ExitStatus()
		if ws.Signaled() {
			r.Signal, r.Code, r.CoreDumped = ws.Signal(), 128+int(ws.Signal()), ws.CoreDump()
		}
		r.CPU = state.UserTime() + state.SystemTime()
	} else {
		p.log.Error("exit status is unknown", "error", err)
		r.Code = 255
	}
	r.Out, r.Err, r.In = p.out.stats, p.err.stats, p.in.taken()
	for s, st := range map[Stream]*Stats{Out: &r.Out, Err: &r.Err, In: &r.In} {
		st.Dropped, st.DroppedLines = p.tap.drops(s)
	}
	r.Signals = p.Sent()
	r.Injected = p.in.lines()
	r.Hidden, r.HiddenBytes = p.out.hide.lines, p.out.hide.bytes
	r.PipeHeld = p.out.held || p.err.held
	r.ReaderClosed = p.out.closed
	if r.ReaderClosed {
		r.ReaderClosedByte, r.ReaderClosedLine = p.out.passed, p.out.passedL
	}
	r.Abandoned = p.out.dropped + p.err.dropped
	for _, o := range []*output{p.out, p.err} {
		if o.failed != nil {
			p.log.Warn("output is not passed on", "stream", string(o.stream), "error", o.failed)
		}
	}
}
