// Package replay holds the test that every recorded session of a real agent goes
// through the wrapper and the bus unchanged.
package replay

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/program"
)

// atOnce is how many recordings are played at the same time.
const atOnce = 16

// patience is when a recording is given up. The longest takes 40 s on an idle
// machine.
const patience = 3 * time.Minute

// trueTiming are played with the gaps they were recorded with.
var trueTiming = map[string]bool{
	"claude-2.1.220/04-partial-messages":            true,
	"claude-2.1.220/51-interrupt-midstream-partial": true,
	"claude-2.1.220/81-workflow-ok-partial":         true,
	"claude-2.1.220/31-perm-deny":                   true,
	"claude-2.1.220/c0-eof-midstream":               true,
	"cbc-2.163.0/workflow-live":                     true,
	"cbc-2.163.0/partial":                           true,
	"cbc-2.163.0/agent-tools-partial":               true,
	"cbc-2.163.0/two-sessions":                      true,
	"cbc-2.117.0/perm-allow-cbc":                    true,
	"codex-0.153.4/25-two-approvals":                true,
	"codex-0.153.4/81-collab-v2":                    true,
}

var server *natsd.Server

func signalName(s syscall.Signal) string { return unix.SignalName(s) }

func runTests(m *testing.M) int {
	// The recordings wait most of the time, for their own gaps: more of them run at once
	// than there are CPUs.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		fatal(err)
	}
	return program.Main(m, func(dir string) (func(), error) {
		var err error
		server, err = natsd.Start(natsd.Options{Dir: filepath.Join(dir, "store"), MaxStore: -1})
		if err != nil {
			return nil, err
		}
		return func() { _ = server.Shutdown(context.Background()) }, nil
	})
}

func connect(t *testing.T) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: server.ClientURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if _, err := b.Ensure(ctx, bus.Topology{MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryRecording(t *testing.T) {
	b := connect(t)
	for i, name := range capture.List() {
		if i%every != 0 && !trueTiming[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := capture.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			check(t, b, c)
		})
	}
}

// check wraps a child that plays c and compares what comes out on both sides.
func check(t *testing.T, b *bus.Bus, c *capture.Capture) {
	w := wrap(t, c)
	if !bytes.Equal(w.stdout, c.Stdout) {
		t.Errorf("the parent got %d bytes of stdout that differ from the %d written (stderr %.300q)", len(w.stdout), len(c.Stdout), w.stderr)
	}
	if !bytes.Equal(w.stderr, c.Stderr) {
		t.Errorf("stderr %.300q, want %.300q", w.stderr, c.Stderr)
	}
	wantCode, wantSignal := c.Code, syscall.Signal(0)
	if c.Signal != "" {
		wantCode, wantSignal = -1, signalNumber(c.Signal)
	}
	if w.code != wantCode || w.signal != wantSignal {
		t.Errorf("ended with code %d signal %v, want %d %v", w.code, w.signal, wantCode, wantSignal)
	}

	st := run.New(w.run)
	var join event.Joiner
	streams := map[event.Stream]*joined{event.Out: {}, event.Err: {}, event.In: {}}
	var next uint64 = 1
	var last *event.Event
	for e, err := range b.History(t.Context(), bus.Ref{Tenant: w.tenant, Run: w.run}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != next {
			t.Fatalf("event %d follows %d", e.Seq, next-1)
		}
		next++
		last = e
		st.Apply(e)
		if whole, _, broken := join.Add(e); broken != nil {
			t.Errorf("event %d: a frame is broken", broken.Seq)
		} else if whole != nil && streams[whole.Stream] != nil {
			streams[whole.Stream].add(whole)
		}
	}
	if last == nil || last.Type != event.TypeExited {
		t.Fatalf("%d events, the last one is %+v", next-1, last)
	}
	for s, want := range map[event.Stream][]byte{event.Out: c.Stdout, event.Err: c.Stderr} {
		if !redact.Matches(want, streams[s].data, streams[s].spans) {
			t.Errorf("%s joined from the events differs outside of %v", s, streams[s].spans)
		}
	}
	compareFold(t, c, st)
}

// joined is one stream put together from its events.
type joined struct {
	data  []byte
	spans []event.Span // in data
}

func (j *joined) add(e *event.Event) {
	for _, s := range e.Redacted {
		s.Off += len(j.data)
		j.spans = append(j.spans, s)
	}
	j.data = append(j.data, e.Data...)
	if !e.Cut {
		j.data = append(j.data, '\n')
	}
}

// compareFold compares the state of the run with the fold of the recording
// itself, whose golden files are reviewed.
func compareFold(t *testing.T, c *capture.Capture, got *run.State) {
	t.Helper()
	want := run.New("r")
	for _, e := range capture.Events(c, "t", "r") {
		want.Apply(e)
	}
	w, g := essence(want.View()), essence(got.View())
	if c.Killed {
		// The recording program killed a child that hung. Here nobody says so, and
		// a SIGKILL that nobody explains is a failure of the run.
		notVerdict := func(s string) bool { return !strings.HasPrefix(s, "verdict ") }
		w, g = keep(w, notVerdict), keep(g, notVerdict)
	}
	if d := cmp.Diff(w, g); d != "" {
		t.Errorf("the fold differs from that of the recording (-recording +run):\n%s", d)
	}
}

func keep(list []string, ok func(string) bool) []string {
	return slices.DeleteFunc(list, func(s string) bool { return !ok(s) })
}

// essence is what does not depend on times and numbers of a single run.
func essence(v run.View) []string {
	out := []string{"dialect " + v.Dialect, "state " + v.State, "session " + v.Session}
	if v.Verdict != nil {
		out = append(out, "verdict "+string(v.Verdict.Verdict))
	}
	for _, t := range v.Turns {
		s := fmt.Sprintf("turn %d %s %s results %d", t.N, t.State, t.Origin, t.Results)
		if t.Verdict != nil {
			s += " " + string(t.Verdict.Verdict)
		}
		out = append(out, s)
		for _, p := range t.Phases {
			out = append(out, "  step "+p.Title+" "+p.Status)
		}
		for _, a := range t.Agents {
			out = append(out, fmt.Sprintf("  agent %s %s tokens %d", a.Key, a.State, a.Tokens))
		}
	}
	for _, t := range v.Tasks {
		out = append(out, fmt.Sprintf("task %s %s %s %s", t.ID, t.Type, t.Status, t.By))
		for _, a := range t.Agents {
			out = append(out, fmt.Sprintf("  agent %s %s %s", a.Key, a.Label, a.State))
		}
	}
	for _, a := range v.Asks {
		out = append(out, fmt.Sprintf("ask %s %s %s %s %s", a.ID, a.Kind, a.Tool, a.State, a.Outcome))
	}
	return append(out, fmt.Sprintf("cost %.6f", v.Usage.CostUSD))
}

// wrapped is what the parent of a wrapped child saw.
type wrapped struct {
	tenant, run    string
	stdout, stderr []byte
	code           int
	signal         syscall.Signal
}

// wrap runs cbcast with a child that plays c, and is its host: it writes each
// line of stdin after the output that came before it.
func wrap(t *testing.T, c *capture.Capture) wrapped {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	longest := "200"
	if trueTiming[c.Name] {
		longest = "0"
	}
	home := t.TempDir()
	w := wrapped{tenant: tenantOf(c.Name)}
	d := "claude"
	switch {
	case strings.HasPrefix(c.Name, "cbc-"):
		d = "cbc"
	case strings.HasPrefix(c.Name, "codex-"):
		d = "codex"
	}
	args := append([]string{"run", "--dialect", d, "--", self}, c.Argv[1:]...)
	// Nothing in a recording takes a minute; a test that hangs says which one.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path, args...)
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CBCAST_NATS_URL=" + server.ClientURL(), "CBCAST_TENANT=" + w.tenant,
		"CBCAST_EXIT_FLUSH=60s", envPlay + "=" + c.Name, envCap + "=" + longest,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, errs := &counted{}, &counted{}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	host(t, c, cmd, stdin.Write, stdin.Close, out, errs, done)
	err = <-done
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	w.stdout, w.stderr, w.code = out.bytes(), errs.bytes(), cmd.ProcessState.ExitCode()
	if ws.Signaled() {
		w.signal = ws.Signal()
	}
	w.run = runOf(t, w.tenant)
	return w
}

// host plays the parent's side of a recording.
func host(t *testing.T, c *capture.Capture, cmd *exec.Cmd, write func([]byte) (int, error), closeIn func() error, out, errs *counted, done chan error) {
	t.Helper()
	defer closeIn()
	var outBytes, errBytes int
	for _, e := range c.Timeline {
		switch e.Dir {
		case capture.Out:
			outBytes += len(line(e))
		case capture.Err:
			errBytes += len(line(e))
		case capture.In, capture.InEOF, capture.Signal:
			if !out.wait(outBytes, done) || !errs.wait(errBytes, done) {
				return // it ended early; the comparison says how
			}
		}
		switch e.Dir {
		case capture.In:
			_, _ = write(line(e))
		case capture.InEOF:
			_ = closeIn()
		case capture.Signal:
			if name := string(e.Data); catchable(name) {
				_ = cmd.Process.Signal(signalNumber(name))
			}
		}
	}
}

func tenantOf(name string) string {
	return strings.NewReplacer("/", "-", ".", "-").Replace("t-" + name)
}

// runOf finds the one run of a tenant.
func runOf(t *testing.T, tenant string) string {
	t.Helper()
	b := connect(t)
	runs, err := b.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, r := range runs {
		if r.Tenant == tenant {
			id = r.Run
		}
	}
	if id == "" {
		t.Fatalf("no run of tenant %s is registered", tenant)
	}
	return id
}

// counted collects what is written to it and lets others wait for an amount.
type counted struct {
	mu   sync.Mutex // guards what follows
	buf  []byte
	grew chan struct{}
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf, p...)
	if c.grew != nil {
		close(c.grew)
		c.grew = nil
	}
	return len(p), nil
}

func (c *counted) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf
}

// wait returns true once n bytes are there, false when the process ended first.
func (c *counted) wait(n int, done chan error) bool {
	for {
		c.mu.Lock()
		enough := len(c.buf) >= n
		if c.grew == nil {
			c.grew = make(chan struct{})
		}
		grew := c.grew
		c.mu.Unlock()
		if enough {
			return true
		}
		select {
		case <-grew:
		case err := <-done:
			done <- err
			return false
		}
	}
}
