package child_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Case 042: nothing of a run is left, run after run.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := startWrapper(t, nil, "helpers", "3")
		pids := []int{atoi(w.line()), atoi(w.line()), atoi(w.line())}
		_, got := w.end()
		if got.Result.Leftovers != 3 || got.Result.PipeHeld {
			t.Errorf("Leftovers = %d, PipeHeld = %v; want 3, false", got.Result.Leftovers, got.Result.PipeHeld)
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("process %d is alive", pid)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// Descendants in sessions of their own are found and killed too; a process that
// the wrapper had before is not touched.
func TestLeftoversSetsid(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, func(c *exec.Cmd) {
		// The shell's background job becomes a child of the wrapper by exec.
		c.Args = append([]string{"sh", "-c", `sleep 300 >/dev/null 2>&1 & echo $!; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}, "tree", "2", "exit")
	own := atoi(w.line())
	defer syscall.Kill(own, syscall.SIGKILL)
	var pids []int
	for line := w.line(); line != "ready"; line = w.line() {
		pids = append(pids, atoi(line))
	}
	if len(pids) != 3 {
		t.Fatalf("descendants = %v, want 3", pids)
	}
	_, got := w.end()
	if got.Result.Leftovers != 3 {
		t.Errorf("Leftovers = %d, want 3", got.Result.Leftovers)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if !alive(own) {
		t.Error("a process that is not the child's was killed")
	}
}

// Orphans that end during the run are reaped, and the child's status is not
// taken away.
func TestOrphansReaped(t *testing.T) {
	t.Parallel()
	in, feed := pipe(t)
	w := startWrapper(t, func(c *exec.Cmd) { c.Stdin = in }, "zombies", "10")
	w.line()
	main := childOf(t, w.Process.Pid)
	poll(t, "only the child is left", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", w.Process.Pid))
		var b []byte
		for _, f := range files {
			c, _ := os.ReadFile(f)
			b = append(b, c...)
		}
		return string(bytes.TrimSpace(b)) == fmt.Sprint(main)
	})
	feed.Close()
	ws, got := w.end()
	if ws.ExitStatus() != 7 || got.Result.Code != 7 || got.Result.Leftovers != 0 {
		t.Errorf("exit %d, code %d, Leftovers %d; want 7, 7, 0", ws.ExitStatus(), got.Result.Code, got.Result.Leftovers)
	}
}
