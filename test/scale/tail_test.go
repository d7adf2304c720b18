package scale

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/test/program"
)

// cbcast tail --all prints what all runs say, once and in order, over the death of
// the process that had the store of this machine.
func TestTailAllOverTakeover(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CBCAST_HUB=auto", "CBCAST_RELAY_ADDR=127.0.0.1:0"}
	start := func(args ...string) (*exec.Cmd, *bufio.Scanner) {
		t.Helper()
		cmd := exec.Command(program.Path, args...)
		cmd.Env, cmd.Stderr = env, t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		})
		return cmd, bufio.NewScanner(out)
	}
	up, says := start("up")
	if !says.Scan() {
		t.Fatal("up ended")
	}
	_, tail := start("tail", "--all", "--json", "--kind", "raw,life")
	tail.Buffer(nil, 1<<20)
	lines := make(chan string)
	go func() { // ends with the process
		defer close(lines)
		for tail.Scan() {
			lines <- tail.Text()
		}
	}()

	wait := time.After(patience)
	next := map[string]int{}
	// until reads up to a run's line that says text.
	until := func(text string) {
		t.Helper()
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatal("tail ended")
				}
				var e struct {
					ID, Type string
					Sequence string
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				run, number, _ := strings.Cut(e.ID, "/")
				if number == "" || strings.Trim(number, "0123456789") != "" {
					continue // a fact beside the run
				}
				var n int
				fmt.Sscan(number, &n)
				if n <= next[run] {
					t.Errorf("event %d of %s after %d", n, run, next[run])
				}
				next[run] = n
				if strings.Contains(line, base64.StdEncoding.EncodeToString([]byte(text))) {
					return
				}
			case <-wait:
				t.Fatalf("%q is not told", text)
			}
		}
	}
	run := func(text string) {
		t.Helper()
		cmd := exec.Command(program.Path, "run", "--", "sh", "-c", "echo "+text)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("run: %v\n%s", err, out)
		}
	}
	// The first runs tell when tail is there.
	there := make(chan struct{})
	go func() {
		defer close(there)
		for n := 0; ; n++ {
			cmd := exec.Command(program.Path, "run", "--", "sh", "-c", "echo first")
			cmd.Env = env
			_ = cmd.Run()
			select {
			case there <- struct{}{}:
				return
			default:
			}
		}
	}()
	until("first")
	<-there
	if err := up.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait()
	run("second")
	until("second")
	run("third")
	until("third")
}
