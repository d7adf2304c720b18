package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
)

// The test binary is also the agent that is wrapped (it does what the test tells
// it through a socket) and a whole edge, for tests that kill one.
const (
	roleEnv   = "INGEST_TEST_ROLE"
	socketEnv = "INGEST_TEST_SOCKET"
)

// patience bounds every wait for something that must come: a slow machine is no
// fault.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "puppet":
		os.Exit(puppet())
	case "edge":
		os.Exit(edgeProcess())
	case "true":
		os.Exit(0)
	case "helper":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		select {}
	}
	code := m.Run()
	theWorld.close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// An order is what a test tells the agent.
type order struct {
	Op   string `json:"op"` // out, repeat (Code times), err, exit, ignore (a signal), spawn
	Data []byte `json:"data,omitempty"`
	Code int    `json:"code,omitempty"`
}

// A report is what the agent tells the test: a line of its stdin, how much it has
// of one that is not whole yet, or the end.
type report struct {
	Line string `json:"line,omitempty"`
	Half int    `json:"half,omitempty"`
	EOF  bool   `json:"eof,omitempty"`
}

// spawn starts a process in a session of its own that ignores SIGTERM, as an
// agent starts its tools, and returns its pid.
func spawn() string {
	path, _ := os.Executable()
	c := exec.Command(path)
	c.Env = []string{roleEnv + "=helper"}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	if err := c.Start(); err != nil {
		return err.Error()
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line)
}

func puppet() int {
	c, err := net.Dial("unix", os.Getenv(socketEnv))
	if err != nil {
		return 90
	}
	enc := json.NewEncoder(c)
	go func() {
		r := bufio.NewReader(os.Stdin)
		var line []byte
		for {
			b, err := r.ReadByte()
			if err == nil {
				line = append(line, b)
			}
			switch {
			case len(line) > 0 && (b == '\n' || err != nil):
				enc.Encode(report{Line: string(line)})
				line = line[:0]
			case err == nil && r.Buffered() == 0:
				enc.Encode(report{Half: len(line)})
			}
			if err != nil {
				enc.Encode(report{EOF: true})
				return
			}
		}
	}()
	for dec := json.NewDecoder(c); ; {
		var o order
		if dec.Decode(&o) != nil {
			return 91 // the test is over
		}
		switch o.Op {
		case "out":
			os.Stdout.Write(o.Data)
		case "repeat":
			os.Stdout.Write(bytes.Repeat(o.Data, o.Code))
		case "err":
			os.Stderr.Write(o.Data)
		case "exit":
			return o.Code
		case "ignore":
			signal.Ignore(syscall.Signal(o.Code))
			enc.Encode(report{Line: "ignored"})
		case "spawn":
			enc.Encode(report{Line: spawn()})
		}
	}
}

// world is one server for all tests, and everything that its streams get.
type world struct {
	once   sync.Once
	srv    *natsd.Server
	bus    *bus.Bus
	cancel context.CancelFunc
	dir    string
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the rest
	events map[string][]*event.Event
	news   chan struct{}
}

var theWorld = world{events: map[string][]*event.Event{}, news: make(chan struct{})}

func theBus(tb testing.TB) *world {
	tb.Helper()
	w := &theWorld
	w.once.Do(func() {
		dir, err := os.MkdirTemp("", "ingest")
		if err != nil {
			tb.Fatal(err)
		}
		if w.srv, err = natsd.Start(natsd.Options{Dir: filepath.Join(dir, "js")}); err != nil {
			tb.Fatal(err)
		}
		w.dir = dir
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		if w.bus, err = bus.Connect(ctx, bus.Config{InProcess: w.srv}, slog.New(slog.DiscardHandler)); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.bus.Ensure(ctx, bus.Topology{MaxBytes: 256 << 20}); err != nil {
			tb.Fatal(err)
		}
		ready := make(chan struct{})
		w.wg.Go(func() { _ = w.bus.Tail(ctx, 0, func() { close(ready) }, w.take) })
		w.wg.Go(func() { _ = w.bus.TailControl(ctx, nil, w.take) })
		<-ready
	})
	if w.bus == nil {
		tb.Fatal("no server")
	}
	return w
}

func (w *world) close() {
	if w.bus == nil {
		return
	}
	w.cancel()
	w.wg.Wait()
	w.bus.Close()
	_ = w.srv.Shutdown(context.Background())
	os.RemoveAll(w.dir)
}

func (w *world) take(e *event.Event, _ uint64) {
	c := *e
	c.Data = bytes.Clone(e.Data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[c.Run] = append(w.events[c.Run], &c)
	close(w.news)
	w.news = make(chan struct{})
}

// await waits until ok says yes to the run's events.
func (w *world) await(tb testing.TB, run, what string, ok func([]*event.Event) bool) []*event.Event {
	tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		w.mu.Lock()
		evs, news := slices.Clone(w.events[run]), w.news
		w.mu.Unlock()
		if ok(evs) {
			return evs
		}
		select {
		case <-news:
		case <-timeout.C:
			for _, e := range evs {
				tb.Logf("%d %s %s %.200s", e.Seq, e.Stream, e.Type, e.Data)
			}
			tb.Fatalf("no %s in %s", what, patience)
		}
	}
}

func (w *world) dial(ctx context.Context) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{InProcess: w.srv}, slog.New(slog.DiscardHandler))
}

// options are those of an edge with a spool of its own.
func options(tb testing.TB) ingest.Options {
	w := theBus(tb)
	return ingest.Options{
		Config: ingest.Config{
			Tenant: "acme", ExitFlush: patience, SpoolRunMax: 1 << 30, SpoolMax: -1, CaptureStdin: "control", PresenceTTL: 30 * time.Second,
		},
		SpoolRoot: filepath.Join(tb.TempDir(), "spool"), Key: []byte("0123456789abcdef"), Partitions: 1, Version: "test",
		Dial: w.dial, Log: testLog(tb),
	}
}

// testLog prints everything when the tests run with INGEST_TEST_LOG set.
func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("INGEST_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A rig is one wrapped agent in the hands of a test: it is the parent and tells
// the agent what to do.
type rig struct {
	testing.TB
	w       *world
	run     string
	root    string   // of its spool
	stdin   *os.File // the parent's end
	conn    net.Conn
	orders  *json.Encoder
	reports chan report
	halves  chan int // the last report of a line that is not whole yet; capacity 1
	readers sync.WaitGroup

	mu       sync.Mutex // guards out, err
	out, err bytes.Buffer
	outcome  chan ingest.Outcome
	commands int
}

var streamArgs = []string{"-p", "--input-format", "stream-json", "--output-format", "stream-json"}

// wrap starts an agent under an edge.
func wrap(tb testing.TB, o ingest.Options, args ...string) *rig {
	tb.Helper()
	r := &rig{TB: tb, w: theBus(tb), root: o.SpoolRoot, reports: make(chan report, 1024), halves: make(chan int, 1), outcome: make(chan ingest.Outcome, 1)}
	l, env := listen(tb)
	o.Argv = append([]string{exe(tb)}, args...)
	o.Env = append(o.Env, append(env, roleEnv+"=puppet")...)
	in, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	r.stdin, o.Stdin = w, in
	if o.Drive != nil { // there is no parent
		o.Stdin = nil
		if o.Argv, err = o.Drive.Plan(o.Argv, o.Dialect); err != nil {
			tb.Fatal(err)
		}
	}
	o.Stdout = r.collect(&r.out)
	o.Stderr = r.collect(&r.err)
	started := make(chan string, 1)
	o.OnStart = func(id string) { started <- id }
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err := ingest.Run(context.WithoutCancel(tb.Context()), o)
		if err != nil {
			tb.Errorf("run: %v", err)
			close(started)
		}
		in.Close()
		o.Stdout.Close()
		o.Stderr.Close()
		r.outcome <- out
	}()
	tb.Cleanup(func() {
		if r.conn != nil {
			r.conn.Close() // an agent that is still there ends
		}
		r.stdin.Close()
		<-done
		r.readers.Wait()
	})
	r.run = <-started
	r.accept(l)
	return r
}

func exe(tb testing.TB) string {
	tb.Helper()
	path, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// listen opens the socket that an agent reports to.
func listen(tb testing.TB) (net.Listener, []string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rig") // short: a socket's path is bounded
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	return l, []string{socketEnv + "=" + path}
}

func (r *rig) accept(l net.Listener) {
	r.Helper()
	defer l.Close()
	l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	c, err := l.Accept()
	if err != nil {
		r.Fatal(err)
	}
	r.conn, r.orders = c, json.NewEncoder(c)
	r.readers.Go(func() {
		defer close(r.reports)
		for dec := json.NewDecoder(c); ; {
			var rep report
			if dec.Decode(&rep) != nil {
				return
			}
			if rep.Half == 0 {
				r.reports <- rep
				continue
			}
			select {
			case <-r.halves:
			default:
			}
			r.halves <- rep.Half
		}
	})
}

// collect returns the write end of a pipe whose bytes go to b.
func (r *rig) collect(b *bytes.Buffer) *os.File {
	rd, w, err := os.Pipe()
	if err != nil {
		r.Fatal(err)
	}
	r.readers.Go(func() {
		defer rd.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := rd.Read(buf)
			r.mu.Lock()
			b.Write(buf[:n])
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return w
}

func (r *rig) order(o order) {
	r.Helper()
	if err := r.orders.Encode(o); err != nil {
		r.Fatalf("order %s: %v", o.Op, err)
	}
}

// say lets the agent write lines to its stdout, all at once.
func (r *rig) say(lines ...string) {
	r.Helper()
	if len(lines) > 0 {
		r.raw(strings.Join(lines, "\n") + "\n")
	}
}

func (r *rig) raw(s string) { r.Helper(); r.order(order{Op: "out", Data: []byte(s)}) }

// write is what the parent writes.
func (r *rig) write(s string) {
	r.Helper()
	if _, err := io.WriteString(r.stdin, s); err != nil {
		r.Fatal(err)
	}
}

// half is what the parent writes of a line. The agent has it: until the rest is
// written, too, nothing else may come.
func (r *rig) half(s string) {
	r.Helper()
	r.write(s)
	for timeout := time.After(patience); ; {
		select {
		case n := <-r.halves:
			if n == len(s) {
				return
			}
		case <-timeout:
			r.Fatal("half a line did not come to the agent")
		}
	}
}

// read waits for the agent's next line of stdin; io.EOF is its end.
func (r *rig) read() (string, error) {
	r.Helper()
	select {
	case rep, ok := <-r.reports:
		if !ok || rep.EOF {
			return "", io.EOF
		}
		return rep.Line, nil
	case <-time.After(patience):
		r.Fatal("nothing came to the agent's stdin")
		return "", nil
	}
}

// control is one control_request that the agent read.
type control struct {
	Type    string `json:"type"`
	ID      string `json:"request_id"`
	Request struct {
		Subtype string `json:"subtype"`
		Session string `json:"session_id"`
		Reason  string `json:"reason"`
		Task    string `json:"task_id"`
	} `json:"request"`
	line string
}

// request waits for a control_request of ours.
func (r *rig) request() control {
	r.Helper()
	line, err := r.read()
	if err != nil {
		r.Fatalf("want a control request, got %v", err)
	}
	var c control
	if err := json.Unmarshal([]byte(line), &c); err != nil || c.Type != "control_request" || !strings.HasPrefix(c.ID, "cbcast-") {
		r.Fatalf("not a request of ours: %q %v", line, err)
	}
	c.line = line
	return c
}

// exit lets the agent end, and waits for the edge.
func (r *rig) exit(code int) ingest.Outcome {
	r.Helper()
	r.order(order{Op: "exit", Code: code})
	return r.end()
}

func (r *rig) end() ingest.Outcome {
	r.Helper()
	select {
	case out := <-r.outcome:
		r.outcome <- out
		return out
	case <-time.After(patience):
		r.Fatal("the edge does not end")
		return ingest.Outcome{}
	}
}

// await waits for an event of the run.
func (r *rig) await(what string, ok func(*event.Event) bool) []*event.Event {
	r.Helper()
	return r.w.await(r, r.run, what, func(evs []*event.Event) bool { return slices.ContainsFunc(evs, ok) })
}

// seen waits until the bus has a line of the agent.
func (r *rig) seen(part string) {
	r.Helper()
	r.await(part, func(e *event.Event) bool { return e.Stream != event.Edge && bytes.Contains(e.Data, []byte(part)) })
}

// poll asks until yes, for what the disk alone tells.
func poll(tb testing.TB, what string, yes func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !yes(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("no %s in %s", what, patience)
		}
	}
}

// kept waits until the spool has a line of the agent, whatever the bus has.
func (r *rig) kept(part string) {
	r.Helper()
	poll(r, part, func() bool {
		segs, _ := filepath.Glob(filepath.Join(r.root, "*", "*.seg"))
		return slices.ContainsFunc(segs, func(name string) bool {
			b, _ := os.ReadFile(name)
			return bytes.Contains(b, []byte(part))
		})
	})
}

// ended waits until the edge has recorded the end, where nothing can be shipped: a
// spool that was goes away.
func (r *rig) ended() {
	r.Helper()
	poll(r, "end of the spool", func() bool {
		infos, _ := spool.List(r.root)
		return len(infos) == 1 && infos[0].Ended
	})
}

func (r *rig) stdout() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// command sends a command through the bus and returns its id.
func (r *rig) command(name, data string, change ...func(*bus.Command)) string {
	r.Helper()
	r.commands++
	now := time.Now()
	c := bus.Command{
		ID: fmt.Sprintf("c%d-%s", r.commands, r.run), Tenant: "acme", Run: r.run, Name: name, Data: []byte(data),
		Time: now, DeliverBy: now.Add(patience), EffectBy: now.Add(2 * patience),
	}
	for _, f := range change {
		f(&c)
	}
	if _, err := r.w.bus.SendCommand(r.Context(), c); err != nil {
		r.Fatal(err)
	}
	return c.ID
}

// brief sends a command that expires before it is written. One that is too late
// even for the edge is sent again, with more time.
func (r *rig) brief(name, data string) (got []string) {
	r.Helper()
	for d := 100 * time.Millisecond; d < patience; d *= 3 {
		got = r.final(r.command(name, data, func(c *bus.Command) { c.DeliverBy = c.Time.Add(d) }))
		if !slices.Equal(got, []string{"expired: delivered too late"}) {
			break
		}
	}
	return got
}

// facts are those of one command so far, "fact" or "fact: reason".
func facts(evs []*event.Event, id string) (out []string) {
	for _, e := range evs {
		var f event.CommandFact
		if e.Type != event.TypeCommand && e.Type != event.TypeCommandFact || json.Unmarshal(e.Data, &f) != nil || f.Command != id {
			continue
		}
		s := string(f.Fact)
		if f.Reason != "" {
			s += ": " + f.Reason
		}
		out = append(out, s)
	}
	return out
}

// final waits for a command's last fact and returns all of them.
func (r *rig) final(id string) []string {
	r.Helper()
	return facts(r.w.await(r, r.run, "final fact of "+id, func(evs []*event.Event) bool {
		return slices.ContainsFunc(facts(evs, id), func(s string) bool {
			f, _, _ := strings.Cut(s, ":")
			return event.Fact(f).Final()
		})
	}), id)
}

// fact waits until a command has a fact.
func (r *rig) fact(id string, f event.Fact) {
	r.Helper()
	r.w.await(r, r.run, fmt.Sprintf("%s of %s", f, id), func(evs []*event.Event) bool {
		return slices.ContainsFunc(facts(evs, id), func(s string) bool { return s == string(f) || strings.HasPrefix(s, string(f)+":") })
	})
}

// ack is the child's answer to a request.
func ack(id string) string {
	return `{"type":"control_response","response":{"subtype":"success","request_id":"` + id + `","response":{}}}`
}

// edgeProcess is a whole edge in a process of its own. Its options are in the
// environment; it writes the run's id as the first line of the file descriptor 3.
func edgeProcess() int {
	var o edgeOptions
	if err := json.Unmarshal([]byte(os.Getenv("INGEST_TEST_OPTIONS")), &o); err != nil {
		return 92
	}
	path, _ := os.Executable()
	opt := ingest.Options{
		Config: ingest.Config{Tenant: "acme", ExitFlush: time.Second, SpoolRunMax: 1 << 30, SpoolMax: -1, CaptureStdin: "control", PresenceTTL: 2 * time.Second},
		Argv:   append([]string{path}, o.Args...), Env: []string{roleEnv + "=puppet", socketEnv + "=" + o.Socket},
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SpoolRoot: o.Spool, Key: []byte("0123456789abcdef"),
		Partitions: 1, Version: "test", SyncInterval: time.Hour, Log: slog.New(slog.DiscardHandler),
		OnStart: func(id string) { fmt.Fprintln(os.NewFile(3, "id"), id) },
	}
	if o.URL != "" {
		opt.Dial = func(ctx context.Context) (*bus.Bus, error) {
			return bus.Connect(ctx, bus.Config{URL: o.URL}, opt.Log)
		}
	}
	out, err := ingest.Run(context.Background(), opt)
	if err != nil {
		return 93
	}
	if out.Result.Signal != 0 {
		return child.Reraise(out.Result.Signal)
	}
	return out.Result.Code
}

type edgeOptions struct {
	Args               []string
	Socket, Spool, URL string
}
