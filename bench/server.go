package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
)

// serverRole is a server in a process of its own, until stdin ends.
func serverRole(args []string) error {
	s, err := natsd.Start(natsd.Options{Dir: args[0], MaxStore: 16 << 30})
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Shutdown(context.Background())
}

// A lab is a server with cbcast's streams.
type lab struct {
	url  string
	dir  string
	stop func()
	pid  int // of the server

	nc *nats.Conn // for what surrounds a measurement
	js jetstream.JetStream
}

func startLab(ctx context.Context) (*lab, error) {
	dir, err := os.MkdirTemp("", "cbcast-bench-")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "role-server", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &lab{dir: dir, pid: cmd.Process.Pid}
	l.stop = func() {
		if l.nc != nil {
			l.nc.Close()
		}
		_ = in.Close()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		l.url = strings.TrimSpace(line)
		err = l.prepare(ctx)
	}
	if err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

func (l *lab) prepare(ctx context.Context) error {
	b, err := bus.Connect(ctx, bus.Config{URL: l.url}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	drift, err := b.Ensure(ctx, bus.Topology{MaxBytes: 8 << 30})
	if err != nil || len(drift) > 0 {
		return errors.Join(err, fmt.Errorf("drift: %v", drift))
	}
	if l.nc, err = nats.Connect(l.url); err != nil {
		return err
	}
	l.js, err = jetstream.New(l.nc)
	return err
}

// empty purges the events, so that every measurement begins alike.
func (l *lab) empty(ctx context.Context) error {
	s, err := l.js.Stream(ctx, "EV_0")
	if err != nil {
		return err
	}
	return s.Purge(ctx)
}

// stored is how many events there are.
func (l *lab) stored(ctx context.Context) (uint64, error) {
	s, err := l.js.Stream(ctx, "EV_0")
	if err != nil {
		return 0, err
	}
	i, err := s.Info(ctx)
	if err != nil {
		return 0, err
	}
	return i.State.Msgs, nil
}

// ticks is how many of /proc's units of CPU time a second has, on every Linux.
const ticks = 100

// cpu is what a process and this one have used of the processors, in seconds.
// Where the system does not say, it is 0.
func cpu(pid int) (theirs, ours float64) {
	stat := func(name string) float64 {
		b, _ := os.ReadFile("/proc/" + name + "/stat")
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 13 {
			return 0
		}
		user, _ := strconv.ParseFloat(f[11], 64)
		sys, _ := strconv.ParseFloat(f[12], 64)
		return (user + sys) / ticks
	}
	return stat(strconv.Itoa(pid)), stat("self")
}
