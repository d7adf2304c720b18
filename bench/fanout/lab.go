//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A proc is a process that one measurement needs.
type proc struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader

	role bool // this program
}

// spawn starts a program with its stdout to be read. Its stderr goes to a file in
// dir.
func spawn(ctx context.Context, dir string, env []string, name string, args ...string) (*proc, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), env...), dir
	log, err := os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &proc{cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, cmd.Start()
}

// role starts this program as another of its roles.
func role(ctx context.Context, dir, name string, arg any) (*proc, error) {
	b, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := spawn(ctx, dir, nil, self, name, string(b))
	if err == nil {
		p.role = true
	}
	return p, err
}

// say sends a line to a role and hear reads its answer.
func (p *proc) say(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

func (p *proc) hear() (string, error) {
	s, err := p.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

func (p *proc) ask(line string) (string, error) {
	if err := p.say(line); err != nil {
		return "", err
	}
	return p.hear()
}

// end closes stdin, which roles end at, and ends the others by signal.
func (p *proc) end() {
	_ = p.in.Close()
	if !p.role {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	t := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait()
}

// ticks is how many of /proc's units of CPU time a second has, on every Linux.
const ticks = 100

// cpu is what the process has used of the processors, in seconds.
func (p *proc) cpu() float64 {
	if p == nil {
		return 0
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	sys, _ := strconv.ParseFloat(f[12], 64)
	return (user + sys) / ticks
}

// rss is the process's resident memory in KiB.
func (p *proc) rss() float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	kib, _ := strconv.ParseFloat(f[0], 64)
	return kib
}

// A lab is one candidate, running.
type lab struct {
	server *proc
	bus    *proc // or nil
	addr   string
	path   string // of a client's request, with %d for the run
	feed   feed   // how events come in
}

func (l *lab) end() {
	if l.server != nil {
		l.server.end()
	}
	if l.bus != nil {
		l.bus.end()
	}
}

const (
	// warm is how long a server gets events before it has clients, settle how long
	// with them before the measurement.
	warm, settle = 2 * time.Second, 3 * time.Second
)

func (o options) measure(ctx context.Context, c *candidate) (m measurement, err error) {
	dir, err := os.MkdirTemp("", "cbcast-fanout-")
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			b, _ := os.ReadFile(filepath.Join(dir, "stderr"))
			err = fmt.Errorf("%w\n%s", err, b[max(0, len(b)-4000):])
		}
		_ = os.RemoveAll(dir)
	}()
	l, err := c.start(ctx, o, dir)
	if err != nil {
		return m, err
	}
	defer l.end()
	l.feed.Runs, l.feed.Rate, l.feed.Size = o.runs, o.rate, o.size
	pub, err := role(ctx, dir, "role-publish", l.feed)
	if err != nil {
		return m, err
	}
	defer pub.end()
	if err := expect(pub, "ready"); err != nil {
		return m, err
	}
	if err := pub.say("go"); err != nil {
		return m, err
	}
	sleep(ctx, warm)
	if err := pub.say("pause"); err != nil {
		return m, err
	}
	before := l.server.rss()
	load, err := role(ctx, dir, "role-load", loadSpec{Addr: l.addr, Path: l.path, Clients: o.clients, Runs: o.runs})
	if err != nil {
		return m, err
	}
	defer load.end()
	if err := expect(load, "ready"); err != nil {
		return m, err
	}
	if err := pub.say("go"); err != nil {
		return m, err
	}
	sleep(ctx, settle)
	if _, err := load.ask("reset"); err != nil {
		return m, err
	}
	begin, server, bus, clients := time.Now(), l.server.cpu(), l.bus.cpu(), load.cpu()
	sleep(ctx, o.take)
	got, err := load.ask("report")
	if err != nil {
		return m, err
	}
	took := time.Since(begin).Seconds()
	server, bus, clients = l.server.cpu()-server, l.bus.cpu()-bus, load.cpu()-clients
	if err := json.Unmarshal([]byte(got), &m.stats); err != nil {
		return m, err
	}
	m.perSecond, m.perCPU = float64(m.Events)/took, float64(m.Events)/server
	m.busCPU, m.loadCPU = bus/took, clients/took
	m.memory = (l.server.rss() - before) / float64(o.clients)
	want := float64(o.rate*o.clients/o.runs) * took
	switch {
	case m.Holes > 0 || m.Doubles > 0 || m.Closed > 0:
		err = fmt.Errorf("%d holes, %d doubles, %d connections closed", m.Holes, m.Doubles, m.Closed)
	case float64(m.Events) < 0.9*want:
		fmt.Fprintf(os.Stderr, "%s: %d of %.0f deliveries\n", c.name, m.Events, want)
	}
	return m, errors.Join(err, ctx.Err())
}

func expect(p *proc, want string) error {
	got, err := p.hear()
	if err != nil || got != want {
		return fmt.Errorf("a part says %q instead of %q: %w", got, want, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// freeAddr is an address on the loopback that nobody listens on now.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// answers waits until somebody listens.
func answers(ctx context.Context, addr string) error {
	for end := time.Now().Add(20 * time.Second); ; sleep(ctx, 20*time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}
