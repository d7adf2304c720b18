package child_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
)

// limit is when a test that waits for something gives up.
const limit = 2 * time.Minute

// readTap reads a tap to its end.
func readTap(t *child.Tap) map[child.Stream][]byte {
	got := map[child.Stream][]byte{}
	for {
		c, err := t.Next(context.Background())
		if err != nil {
			return got
		}
		got[c.Stream] = append(got[c.Stream], c.Data...)
	}
}

// A parent holds the other ends of a started child.
type parent struct {
	*child.Process
	t        testing.TB
	stdin    *os.File
	stdout   *os.File
	stderr   *os.File
	out, err *bufio.Reader
	cfgErr   *os.File // our copy of the end that the child writes to
	tapped   chan map[child.Stream][]byte
}

// config runs the scripted child name between pipes; start adds the pipes.
func config(name string, args ...string) child.Config {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return child.Config{
		Path: exe, Args: append([]string{"child"}, args...),
		Env: append(os.Environ(), childEnv+"="+name),
	}
}

// start starts the child with a parent at three pipes, and reads the tap.
func start(t testing.TB, cfg child.Config) *parent {
	t.Helper()
	p := launch(t, cfg)
	go func() { p.tapped <- readTap(p.Tap()) }()
	return p
}

// launch is start, without a reader of the tap.
func launch(t testing.TB, cfg child.Config) *parent {
	t.Helper()
	p := &parent{t: t, tapped: make(chan map[child.Stream][]byte, 1)}
	cfg.Stdin, p.stdin = pipe(t)
	p.stdout, cfg.Stdout = pipe(t)
	p.stderr, cfg.Stderr = pipe(t)
	p.cfgErr = cfg.Stderr
	p.out, p.err = bufio.NewReaderSize(p.stdout, 1<<20), bufio.NewReader(p.stderr)
	var err error
	if p.Process, err = child.Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// line reads one line of the parent's stdout.
func (p *parent) line() string {
	p.t.Helper()
	p.stdout.SetReadDeadline(time.Now().Add(limit))
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read stdout after %q: %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// rest reads the parent's stdout to its end.
func (p *parent) rest() string {
	p.t.Helper()
	p.stdout.SetReadDeadline(time.Now().Add(limit))
	b, err := io.ReadAll(p.out)
	if err != nil {
		p.t.Fatalf("read stdout: %v", err)
	}
	return string(b)
}

// wait waits for the end and returns what the tap got.
func (p *parent) wait() (child.Result, map[child.Stream][]byte) {
	p.t.Helper()
	got := make(chan child.Result, 1)
	go func() { got <- p.Wait() }()
	select {
	case r := <-got:
		return r, <-p.tapped
	case <-time.After(limit):
		p.t.Fatal("child did not end")
		panic("unreachable")
	}
}

// wrapper is a process that wraps a child, as cbcast run does.
type wrapper struct {
	*exec.Cmd
	t      testing.TB
	out    *bufio.Reader
	pipe   *os.File // out's
	result string
}

// wrapped starts a wrapper around the scripted child name. set may change it.
func startWrapper(t testing.TB, set func(*exec.Cmd), name string, args ...string) *wrapper {
	t.Helper()
	w := &wrapper{t: t, result: filepath.Join(t.TempDir(), "result")}
	w.Cmd = self("wrap", append([]string{w.result, name}, args...)...)
	r, wr := pipe(t)
	w.pipe, w.Stdout, w.out = r, wr, bufio.NewReader(r)
	if set != nil {
		set(w.Cmd)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	wr.Close()
	t.Cleanup(func() { w.Process.Kill() })
	return w
}

func (w *wrapper) line() string {
	w.t.Helper()
	s, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("read stdout after %q: %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// end waits for the wrapper's end.
func (w *wrapper) end() (syscall.WaitStatus, wrapped) {
	w.t.Helper()
	w.Wait()
	var res wrapped
	if b, err := os.ReadFile(w.result); err == nil {
		if err := json.Unmarshal(b, &res); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.ProcessState.Sys().(syscall.WaitStatus), res
}

// poll waits for a state of the kernel that nothing tells of.
func poll(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not so after %v", what, limit)
		}
		time.Sleep(time.Millisecond)
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return string(f[0]) != "Z" && string(f[0]) != "X"
}

func (p *parent) closeStderr() { p.cfgErr.Close() }

func contains(t testing.TB, what, s, sub string) {
	t.Helper()
	if !strings.Contains(s, sub) {
		t.Errorf("%s = %q, want %q in it", what, s, sub)
	}
}
