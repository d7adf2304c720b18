package ingest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

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
	e.rec.started(s, e.o.TraceParent)
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

// signalName is "SIGTERM" for SIGTERM.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}
