package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/bus"
)

// A lab is a server in a process of its own, with the streams.
type lab struct {
	o    options
	dir  string
	url  string
	bus  *bus.Bus
	js   jetstream.JetStream
	nc   *nats.Conn
	pid  int // of the server
	stop func()
}

func startLab(ctx context.Context, o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "cbcast-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{o: o, dir: dir}
	cmd := exec.CommandContext(ctx, os.Args[0], "role-server", filepath.Join(dir, "js"))
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
	l.pid = cmd.Process.Pid
	l.stop = func() {
		if l.bus != nil {
			l.bus.Close()
		}
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
		err = l.connect(ctx)
	}
	if err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

func (l *lab) connect(ctx context.Context) (err error) {
	if l.bus, err = bus.Connect(ctx, bus.Config{URL: l.url}, nil); err != nil {
		return err
	}
	drift, err := l.bus.Ensure(ctx, bus.Topology{MaxBytes: 12 << 30})
	if err != nil || len(drift) > 0 {
		return errors.Join(err, fmt.Errorf("drift: %v", drift))
	}
	if l.nc, err = nats.Connect(l.url); err != nil {
		return err
	}
	l.js, err = jetstream.New(l.nc)
	return err
}

// A candidate is a way to read the stream: a program of cbcast, or a role of this one.
type candidate struct {
	name     string
	consumer string // durable's name
	streams  []string
	args     []string
	env      []string
	self     bool // a role
	results  []result
}

// candidates are the reference and what is measured against it.
func (l *lab) candidates() []*candidate {
	ev := []string{"EV_0"}
	all := []*candidate{
		{name: "raw pull consumer, explicit acks", consumer: "raw", streams: ev, args: []string{"role-raw"}, self: true},
		{name: "internal/consume, nothing done", consumer: "cbcast-nothing", streams: ev, args: []string{"role-nothing"}, self: true},
		{name: "cbcast metrics", consumer: "cbcast-metrics", streams: []string{"EV_0", "CTL"}, args: []string{"metrics"}, env: []string{"CBCAST_METRICS_ADDR=127.0.0.1:0"}},
		{name: "cbcast archive", consumer: "cbcast-archive", streams: []string{"EV_0", "CTL", "CMD"}, args: []string{"archive"}, env: []string{
			"CBCAST_ARCHIVE_ADDR=127.0.0.1:0", "CBCAST_ARCHIVE_DEST=DIR/kept",
		}},
	}
	if l.o.only == "" {
		return all
	}
	some := all[:1]
	for _, c := range all[1:] {
		for name := range strings.SplitSeq(l.o.only, ",") {
			if strings.HasSuffix(c.name, name) || strings.HasSuffix(c.consumer, name) {
				some = append(some, c)
			}
		}
	}
	return some
}

func (c *candidate) primed(l *lab) string { return filepath.Join(l.dir, "primed-"+c.consumer) }

// prime lets a program begin on an empty stream, so that all it reads later it
// reads through its consumer.
func (l *lab) prime(ctx context.Context, c *candidate) error {
	if err := os.MkdirAll(c.primed(l), 0o700); err != nil {
		return err
	}
	if c.self {
		return nil
	}
	p, err := l.start(ctx, c, c.primed(l))
	if err != nil {
		return err
	}
	if _, err := p.get("/readyz"); err != nil {
		return err
	}
	return p.end()
}

// measure has a candidate read n events. sample, which may be nil, is called meanwhile.
func (l *lab) measure(ctx context.Context, c *candidate, n int, sample func(handled int, p *process)) (result, error) {
	dir, err := os.MkdirTemp(l.dir, "round-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "d"), os.DirFS(c.primed(l))); err != nil {
		return result{}, err
	}
	for _, s := range c.streams {
		if err := l.js.DeleteConsumer(ctx, s, c.consumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return result{}, err
		}
	}
	server := used(l.pid)
	p, err := l.start(ctx, c, filepath.Join(dir, "d"))
	if err != nil {
		return result{}, err
	}
	var begin time.Time
	for done := false; !done; {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.done:
			return result{}, fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return result{}, ctx.Err()
		}
		i, err := l.info(ctx, c)
		switch {
		case err != nil:
			continue // it has not made its consumer yet
		case begin.IsZero() && i.Delivered.Stream > 0:
			begin = time.Now()
		}
		if i.NumPending > 0 && sample == nil {
			continue
		}
		handled, err := p.handled()
		if err != nil {
			return result{}, err
		}
		if sample != nil {
			sample(handled, p)
		}
		done = handled >= n
	}
	r := result{events: n, peak: p.peak()}
	if err := p.end(); err != nil {
		return r, err
	}
	r.seconds = time.Since(begin).Seconds()
	r.cpu = (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()
	r.all = r.cpu + used(l.pid) - server
	i, err := l.info(ctx, c)
	if err == nil && i.AckFloor.Stream != uint64(n) {
		err = fmt.Errorf("acked up to %d of %d", i.AckFloor.Stream, n)
	}
	return r, err
}

func (l *lab) info(ctx context.Context, c *candidate) (*jetstream.ConsumerInfo, error) {
	x, err := l.js.Consumer(ctx, "EV_0", c.consumer)
	if err != nil {
		return nil, err
	}
	return x.CachedInfo(), nil
}

// A process is a candidate at work.
type process struct {
	c    *candidate
	cmd  *exec.Cmd
	addr string
	done chan struct{}
	err  error

	mu sync.Mutex // guards n
	n  int        // of a role: events so far
}

func (l *lab) start(ctx context.Context, c *candidate, dir string) (*process, error) {
	program, args := l.o.cbcast, c.args
	if c.self {
		program, args = os.Args[0], append(args, l.url, dir)
	}
	p := &process{c: c, cmd: exec.CommandContext(ctx, program, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "CBCAST_NATS_URL="+l.url, "CBCAST_STATE_DIR="+dir, "CBCAST_LOG_LEVEL=warn")
	for _, v := range c.env {
		p.cmd.Env = append(p.cmd.Env, strings.ReplaceAll(v, "DIR", dir))
	}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	up := make(chan struct{})
	go func() { // ends with the process
		defer close(p.done)
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				p.mu.Lock()
				p.n = n
				p.mu.Unlock()
			}
			if _, addr, ok := strings.Cut(lines.Text(), "http://"); ok || c.self {
				p.addr = "http://" + strings.TrimSpace(addr)
				if !said {
					close(up)
				}
				said = true
			}
		}
		p.err = p.cmd.Wait()
	}()
	select {
	case <-up:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("it ended: %w", p.err)
	}
}

// end stops it in order.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	return p.err
}

func (p *process) get(path string) (string, error) {
	r, err := http.Get(p.addr + path) //nolint:noctx // loopback
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// handled is how many events of all logs it has handled.
func (p *process) handled() (int, error) {
	if p.c.self {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.n, nil
	}
	text, err := p.get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "cbcast_consumer_handled_total") {
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			return int(v), err
		}
	}
	return 0, errors.New("no cbcast_consumer_handled_total")
}

// status is a line of the process's status, in bytes.
func (p *process) status(name string) int64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func (p *process) peak() int64     { return p.status("VmHWM") }
func (p *process) resident() int64 { return p.status("VmRSS") }

// ticks is how many of /proc's units of CPU time a second has, on every Linux.
const ticks = 100

// used is what a process has used of the processors, in seconds.
func used(pid int) float64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	sys, _ := strconv.ParseFloat(f[12], 64)
	return (user + sys) / ticks
}
