package consumers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/program"
	"github.com/cbcast/cbcast/test/testbus"
)

// A stage is a server and the programs around it.
type stage struct {
	t    *testing.T
	dir  string
	url  string
	js   jetstream.JetStream
	bus  *bus.Bus
	wg   sync.WaitGroup
	logs []string // files
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir()}
	s.url = testbus.Serve(t, natsd.Options{MaxStore: 2 << 30}).ClientURL()
	s.bus = testbus.Connect(t, bus.Config{URL: s.url}, testbus.Streams)
	nc, err := nats.Connect(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return s
}

// env is the environment of a program: nothing of this machine's but PATH.
func (s *stage) env(name string, more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(s.dir, "home"), "CBCAST_STATE_DIR=" + filepath.Join(s.dir, name),
	}, more...)
}

// onBus is the same with the server's address.
func (s *stage) onBus(name string, more ...string) []string {
	return s.env(name, append(more, "CBCAST_NATS_URL="+s.url)...)
}

// run runs a command of the program to its end and returns what it printed.
func (s *stage) run(env []string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program.Path, args...)
	var errs bytes.Buffer
	cmd.Env, cmd.Stderr = env, &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("cbcast %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// A service is one of the programs at work.
type service struct {
	s    *stage
	name string
	env  []string
	addr string // http://…
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, after done
}

// start starts a program and waits until it says where it is.
func (s *stage) start(env []string, name string, args ...string) *service {
	s.t.Helper()
	p := &service{s: s, name: name, env: env, cmd: exec.Command(program.Path, append([]string{name}, args...)...), done: make(chan struct{})}
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.logs = append(s.logs, log.Name())
	p.cmd.Env, p.cmd.Stderr = env, log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	up := make(chan string, 1)
	go func() { // ends with the process
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for told := false; lines.Scan(); {
			if _, addr, ok := strings.Cut(lines.Text(), "http://"); ok && !told {
				up <- "http://" + strings.TrimSpace(addr)
				told = true
			}
		}
		p.err = p.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = log.Close()
		if s.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.t.Logf("%s said at the end:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	select {
	case p.addr = <-up:
	case <-p.done:
		s.t.Fatalf("%s has ended: %v", name, p.err)
	case <-time.After(long):
		s.t.Fatalf("%s does not say where it is", name)
	}
	return p
}

// stop ends the program in order.
func (p *service) stop() {
	p.s.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(long):
		p.s.t.Fatalf("%s does not end", p.name)
	}
	if p.err != nil {
		p.s.t.Errorf("%s: %v", p.name, p.err)
	}
}

// caughtUp waits until the server has nothing more for a consumer of the logs.
func (s *stage) caughtUp(consumer string, logs ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(long); ; <-time.After(50 * time.Millisecond) {
		var left []string
		for _, l := range logs {
			c, err := s.js.Consumer(s.t.Context(), l, consumer)
			if err != nil {
				left = append(left, fmt.Sprint(l, ": ", err))
			} else if i := c.CachedInfo(); i.NumPending+uint64(i.NumAckPending) > 0 {
				left = append(left, fmt.Sprint(l, ": ", i.NumPending, " and ", i.NumAckPending))
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not catch up: %s", consumer, left)
		}
	}
}

// A show is one recording that is wrapped.
type show struct {
	name   string // of the recording
	kind   string // of the last notice
	asks   string // who answers what it asks: "chat", "socket", "host"
	rest   bool   // it belongs to no CI job
	id     string
	c      *capture.Capture
	answer chan struct{} // closed when the ask is answered, or is to be by the host
	stdin  string        // file of what the agent read
	stdout []byte        // what the host got
}

// perform wraps an agent that plays the recording, and is its host: each line of stdin is
// written behind the output that came before it. What is answered elsewhere it leaves out.
func (s *stage) perform(v *show, env []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dialect, _, _ := strings.Cut(v.name, "-")
	cmd := exec.CommandContext(s.t.Context(), program.Path, append([]string{"run", "--dialect", dialect, "--", self}, v.c.Argv[1:]...)...)
	cmd.Env = append(env, playVar+"="+v.name, stdinVar+"="+v.stdin)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, errs := newFlow(), newFlow()
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		err = cmd.Wait()
		close(ended)
	}()
	s.host(v, cmd.Process, in, out, errs, ended)
	<-ended
	v.stdout = out.buf
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		return err
	}
	if got := cmd.ProcessState.ExitCode(); got != v.c.Code {
		return fmt.Errorf("%s: code %d, want %d: %s", v.name, got, v.c.Code, errs.buf)
	}
	return nil
}

// host plays the other side of a recording.
func (s *stage) host(v *show, p *os.Process, in io.WriteCloser, out, errs *flow, ended chan struct{}) {
	defer in.Close()
	last := 0 // the answer, where something is asked
	for i, e := range v.c.Timeline {
		if e.Dir == capture.In {
			last = i
		}
	}
	var outBytes, errBytes int
	for i, e := range v.c.Timeline {
		switch e.Dir {
		case capture.Out:
			outBytes += len(line(e))
			continue
		case capture.Err:
			errBytes += len(line(e))
			continue
		}
		if !out.wait(outBytes, ended) || !errs.wait(errBytes, ended) {
			return // it ended early: its code or its output tells
		}
		switch {
		case e.Dir == capture.In && v.asks != "" && i == last:
			select {
			case <-v.answer:
			case <-ended:
				return
			}
			if v.asks == "host" {
				_, _ = in.Write(line(e))
			}
		case e.Dir == capture.In:
			_, _ = in.Write(line(e))
		case e.Dir == capture.InEOF:
			_ = in.Close()
		case e.Dir == capture.Signal:
			_ = p.Signal(syscall.SIGTERM)
		}
	}
}

// A flow is output that others wait for.
type flow struct {
	mu   sync.Mutex // guards the rest
	buf  []byte
	grew chan struct{}
}

func newFlow() *flow { return &flow{grew: make(chan struct{})} }

func (f *flow) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf, p...)
	close(f.grew)
	f.grew = make(chan struct{})
	return len(p), nil
}

// wait returns true once n bytes are there, false when the process ended first.
func (f *flow) wait(n int, ended chan struct{}) bool {
	for {
		f.mu.Lock()
		enough, grew := len(f.buf) >= n, f.grew
		f.mu.Unlock()
		if enough {
			return true
		}
		select {
		case <-grew:
		case <-ended:
			return false
		}
	}
}
