package recover

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A host that sends TERM while what a fast child left is still being recorded gets
// its exit, with the child's code, and no byte is lost: what was not cut into lines
// is on the bus as it was read.
func TestToldToEndWhileRecording(t *testing.T) {
	w := newWorld(t)
	flood := filepath.Join(w.dir, "flood")
	want := []byte(strings.Repeat(`{"type":"x"}`+"\n", 300_000))
	if err := os.WriteFile(flood, want, 0o600); err != nil {
		t.Fatal(err)
	}
	edge := w.command("run", "--", "sh", "-c", "read go; exec cat "+flood)
	in, err := edge.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	edge.Stdout = &out
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	child := func() bool {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(edge.Process.Pid) + "/task/*/children")
		return slices.ContainsFunc(lists, func(name string) bool {
			pids, _ := os.ReadFile(name)
			return len(pids) > 0
		})
	}
	w.until("the child is there", child)
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	w.until("the child is gone", func() bool { return !child() })
	_ = edge.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	if err := edge.Wait(); err != nil {
		t.Errorf("the exit: %v", err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("the parent got %d bytes of %d", out.Len(), len(want))
	}
	if b, err := w.command("flush").CombinedOutput(); err != nil {
		t.Fatalf("flush: %v\n%s", err, b)
	}
	got, err := w.command("tail", "--raw", "last").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the bus has %d bytes of %d", len(got), len(want))
	}
}
