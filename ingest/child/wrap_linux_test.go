package child_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/ingest/child"
)

// The parent reads no more and says TERM: we end, and the tap has everything.
func TestAbandon(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, nil, "termexit")
	last, same := 0, 0
	poll(t, "pipe to the parent is full", func() bool {
		n, err := unix.IoctlGetInt(int(w.pipe.Fd()), unix.TIOCINQ)
		if same++; n != last || n < 16<<10 {
			last, same = n, 0
		}
		return err != nil || same > 50
	})
	w.Process.Signal(syscall.SIGTERM)
	begin := time.Now()
	ws, got := w.end()
	if took := time.Since(begin); took > child.DrainTime+limit/4 {
		t.Errorf("ended %v after TERM", took)
	}
	if ws.ExitStatus() != 5 {
		t.Errorf("exit = %d, want 5", ws.ExitStatus())
	}
	if got.Result.Abandoned == 0 {
		t.Error("Abandoned = 0")
	}
	out := got.Tap[child.Out]
	if int64(len(out)) < got.Result.Abandoned || !bytes.HasPrefix(out, []byte("line 0 z")) {
		t.Errorf("tap got %d bytes, %d abandoned", len(out), got.Result.Abandoned)
	}
	for i, l := range bytes.Split(out, []byte("\n")) { // no line is missing or doubled
		if want := fmt.Sprintf("line %d ", i); !bytes.HasPrefix(l, []byte(want)) && len(l) > len(want) {
			t.Fatalf("tapped line %d = %q", i, l)
		}
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 1, 2, 127, 255} {
		ws, got := startWrapper(t, nil, "exit", fmt.Sprint(code)).end()
		if !ws.Exited() || ws.ExitStatus() != code || got.Result.Code != code || got.Result.Signal != 0 {
			t.Errorf("exit %d: wrapper %v, result %d, %v", code, ws.ExitStatus(), got.Result.Code, got.Result.Signal)
		}
	}
}

// A child that died of a signal makes the wrapper die of it, with no word of
// its own and no core file.
func TestReraise(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGSEGV,
		syscall.SIGABRT, syscall.SIGPIPE, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGXCPU,
	} {
		var stderr bytes.Buffer
		dir := t.TempDir()
		w := startWrapper(t, func(c *exec.Cmd) { c.Stderr, c.Dir = &stderr, dir }, "die", fmt.Sprint(int(sig)))
		ws, got := w.end()
		if !ws.Signaled() || ws.Signal() != sig || ws.CoreDump() || got.Result.Signal != sig || got.Result.Code != 128+int(sig) {
			t.Errorf("%v: wrapper %v (core %v, exit %d), result %v", sig, ws.Signal(), ws.CoreDump(), ws.ExitStatus(), got.Result)
		}
		if stderr.Len() > 0 {
			t.Errorf("%v: stderr = %q", sig, stderr.String())
		}
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Errorf("%v: left %v", sig, files)
		}
	}
}

// Each signal to the wrapper reaches the child once, and nobody else.
func TestSignals(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, nil, "signals", fmt.Sprint(int(syscall.SIGQUIT)))
	w.line()
	sent := []syscall.Signal{
		syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGUSR2, syscall.SIGQUIT,
	}
	for _, s := range sent {
		w.Process.Signal(s)
		if got := w.line(); got != fmt.Sprint(int(s)) {
			t.Fatalf("sent %d, child got %s", s, got)
		}
	}
	ws, got := w.end()
	if ws.ExitStatus() != 0 {
		t.Errorf("exit = %v", ws)
	}
	var noted []syscall.Signal
	for _, f := range got.Result.Signals {
		noted = append(noted, f.Signal)
		if f.From != child.FromParent || f.At.Before(got.Result.Started) || f.At.After(got.Result.Exited) {
			t.Errorf("noted %+v", f)
		}
	}
	if diff := cmp.Diff(sent, noted); diff != "" {
		t.Errorf("signals noted (-want +got):\n%s", diff)
	}
}

// The terminal stops the wrapper: the child stops too, and both go on.
func TestStop(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, nil, "idle")
	w.line()
	pid := childOf(t, w.Process.Pid)
	w.Process.Signal(syscall.SIGTSTP)
	poll(t, "both stopped", func() bool { return state(pid) == "T" && state(w.Process.Pid) == "T" })
	w.Process.Signal(syscall.SIGCONT)
	poll(t, "both go on", func() bool { return state(pid) == "S" && state(w.Process.Pid) == "S" })
	w.Process.Signal(syscall.SIGTERM)
	if ws, _ := w.end(); ws.Signal() != syscall.SIGTERM {
		t.Errorf("wrapper ended by %v, want SIGTERM", ws.Signal())
	}
}

// The wrapper is killed: the child dies with it. Both hold the pipe.
func TestWrapperKilled(t *testing.T) {
	t.Parallel()
	r, wr := pipe(t)
	w := startWrapper(t, func(c *exec.Cmd) { c.ExtraFiles = []*os.File{wr} }, "idle")
	w.line()
	wr.Close()
	w.Process.Kill()
	w.end()
	r.SetReadDeadline(time.Now().Add(limit))
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read = %d, %v; want EOF", n, err)
	}
}

// Case 038: edge | head -5.
func TestStdoutClosed(t *testing.T) {
	t.Parallel()
	in, feed := pipe(t)
	w := startWrapper(t, func(c *exec.Cmd) { c.Stdin = in }, "cat")
	for i := range 5 {
		fmt.Fprintf(feed, "frame %d\n", i)
		w.line()
	}
	w.pipe.Close()
	for i := 5; i < 1000; i++ {
		fmt.Fprintf(feed, "frame %d\n", i)
	}
	feed.Close()
	ws, got := w.end()
	if !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("wrapper ended by %v, exit %d", ws.Signal(), ws.ExitStatus())
	}
	if n := bytes.Count(got.Tap[child.Out], []byte("\n")); n != 1000 {
		t.Errorf("tap got %d frames, want 1000", n)
	}
	if !got.Result.ReaderClosed || got.Result.ReaderClosedLine != 5 {
		t.Errorf("reader closed = %v at line %d, want true at 5", got.Result.ReaderClosed, got.Result.ReaderClosedLine)
	}
}

// The child closes its ends: the host sees it at ours, which are the standard
// descriptors, while both live.
func TestStandardEnds(t *testing.T) {
	t.Parallel()
	t.Run("stdout", func(t *testing.T) {
		in, feed := pipe(t)
		w := startWrapper(t, func(c *exec.Cmd) { c.Stdin = in }, "closeout")
		if got := w.line(); got != "last" {
			t.Errorf("line = %q, want %q", got, "last")
		}
		if _, err := w.out.ReadByte(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
		if !alive(w.Process.Pid) {
			t.Error("wrapper has ended")
		}
		feed.Close()
		if ws, _ := w.end(); ws.ExitStatus() != 0 {
			t.Errorf("exit %d", ws.ExitStatus())
		}
	})
	t.Run("stdin", func(t *testing.T) {
		in, feed := pipe(t)
		w := startWrapper(t, func(c *exec.Cmd) { c.Stdin = in }, "closein")
		in.Close()
		w.line()
		var err error
		feed.SetWriteDeadline(time.Now().Add(limit))
		for err == nil {
			_, err = feed.WriteString("nobody reads this\n")
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write = %v, want EPIPE", err)
		}
		w.Process.Signal(syscall.SIGTERM)
		w.end()
	})
}

// The child's place is the one it has without a wrapper.
func TestWorld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, wr := pipe(t)
	args := []string{"--system-prompt", "", "--mcp-config", "{\"a\":\"b c\"}\n", "ä\xff", ""}
	run := func(wrapIt bool) place {
		set := func(c *exec.Cmd) {
			c.Dir = dir
			c.ExtraFiles = []*os.File{wr}
			c.Env = append([]string{"B=2", "A=1", "A=doubled", "EMPTY=", "X=\xff", childEnv + "=world"}, c.Env[len(os.Environ()):]...)
			c.Stdin, c.Stderr = r, wr
		}
		var p place
		if wrapIt {
			w := startWrapper(t, set, "world", args...)
			line := w.line()
			w.end()
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		c := self("world", args...)
		c.Env = []string{"B=2", "A=1", "A=doubled", "EMPTY=", "X=\xff", childEnv + "=world"}
		c.Dir, c.Stdin, c.Stderr, c.ExtraFiles = dir, r, wr, []*os.File{wr}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	want, got := run(false), run(true)
	want.Args[0] = "child"
	want.Leads = true // the one difference
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("place (-bare +wrapped):\n%s", diff)
	}
	if len(got.NonBlock) > 0 {
		t.Errorf("non-blocking descriptors = %v", got.NonBlock)
	}
}

// TERM while only a helper keeps the pipe: no more waiting.
func TestTermEndsDrain(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, nil, "helpers", "1", "out", "pid")
	pid := atoi(w.line())
	w.line()
	poll(t, "child is a zombie", func() bool { return state(pid) == "Z" })
	w.Process.Signal(syscall.SIGTERM)
	ws, got := w.end()
	if took := got.Result.Drained.Sub(got.Result.Exited); took >= child.DrainTime {
		t.Errorf("drained for %v", took)
	}
	if ws.ExitStatus() != 0 || !got.Result.PipeHeld {
		t.Errorf("exit %d, PipeHeld %v; want 0, true", ws.ExitStatus(), got.Result.PipeHeld)
	}
}

// childOf is the scripted child of a wrapper: its first one.
func childOf(t *testing.T, pid int) (c int) {
	t.Helper()
	poll(t, "wrapper has a child", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			for _, s := range bytes.Fields(b) {
				if p := atoi(string(s)); c == 0 || p < c {
					c = p
				}
			}
		}
		return c != 0
	})
	return c
}

func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return string(bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])[0])
}
