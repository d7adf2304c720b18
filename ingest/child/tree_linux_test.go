package child_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/ingest/child"
)

func init() { children["wraptree"], children["spawner"] = wrapTree, spawner }

// wrapTree wraps the child args[2] as wrap does. On a line "tree" of its stdin it
// takes hold of the tree, on "kill" it kills it. It answers each.
func wrapTree(args []string) int {
	if os.Getenv(noHandles) != "" {
		child.NoHandles()
	}
	exe, _ := os.Executable()
	p, err := child.Start(child.Config{
		Path: exe, Args: append([]string{"child"}, args[2:]...),
		Env:    append(slices.Clone(environ), childEnv+"="+args[1]),
		Stdout: os.Stdout, Stderr: os.Stderr, Adopt: true, NoTap: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	var tree *child.Tree
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "tree":
			tree = p.Tree()
			fmt.Fprintln(os.Stderr, "held", tree.Size())
		case "term":
			fmt.Fprintln(os.Stderr, "term", p.SignalFrom(syscall.SIGTERM, child.FromCommand))
			<-p.Exited()
		case "kill":
			fmt.Fprintln(os.Stderr, "killed", tree.Kill(child.FromCommand))
			tree.Close()
		}
	}
	b, _ := json.Marshal(wrapped{Result: p.Wait()})
	if err := os.WriteFile(args[0], b, 0o600); err != nil {
		return 96
	}
	return 0
}

// spawner starts processes in sessions of their own, one after the other and
// each the next one's parent, for as long as it lives, and ignores SIGTERM.
func spawner(args []string) int {
	signal.Ignore(syscall.SIGTERM)
	n := atoi(args[0])
	if n == 20 {
		fmt.Println("ready")
	}
	c := self("spawner", fmt.Sprint(n+1))
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Stdout = os.Stdout; n < 5000 {
		_ = c.Start()
	}
	return idle()
}

// noHandles is set where the system has no process handles.
const noHandles = "CBCAST_TEST_NO_HANDLES"

// A tree whose processes all have sessions of their own and ignore SIGTERM is
// killed to the last one, and nothing else is.
func TestTreeKill(t *testing.T) {
	for _, env := range []string{noHandles + "=", noHandles + "=1"} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			testTreeKill(t, env)
		})
	}
}

func testTreeKill(t *testing.T, env string) {
	var own int
	w, order, pids := startTree(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, env)
		// The shell's background job becomes a child of the wrapper by exec.
		c.Args = append([]string{"sh", "-c", `sleep 300 >/dev/null 2>&1 & echo $!; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}, &own, "tree", "2", "stay")
	defer syscall.Kill(own, syscall.SIGKILL)
	if got := order("tree"); got != "held 3" {
		t.Errorf("tree: %q, want held 3", got)
	}
	if got := order("kill"); got != "killed 3" {
		t.Errorf("kill: %q, want killed 3", got)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if !alive(own) {
		t.Error("a process that is not the child's was killed")
	}
	res := w.finish()
	if res.Signal != syscall.SIGKILL || res.Leftovers != 3 {
		t.Errorf("signal %v, Leftovers %d; want SIGKILL, 3", res.Signal, res.Leftovers)
	}
	if len(res.Signals) != 1 || res.Signals[0].From != child.FromCommand || res.Signals[0].Signal != syscall.SIGKILL {
		t.Errorf("signals noted: %+v", res.Signals)
	}
}

// A process that is not seen where it is said to be is not held: its id may have
// been another's a moment before.
func TestTreeStranger(t *testing.T) {
	t.Parallel()
	stranger := self("idle")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer stranger.Wait()
	defer stranger.Process.Kill()
	p := start(t, config("idle"))
	p.line()
	tree := p.Tree()
	defer tree.Close()
	if tree.Hold(stranger.Process.Pid, p.Pid()) || tree.Size() != 0 {
		t.Error("a process that is not the child's is held")
	}
	if !tree.Hold(stranger.Process.Pid, os.Getpid()) {
		t.Error("a process is not held as its parent's child")
	}
	stranger.Process.Kill()
	stranger.Wait()
	if tree.Size() != 0 {
		t.Error("a process that has ended counts")
	}
	tree.Kill(child.FromCommand)
	if res, _ := p.wait(); res.Signal != syscall.SIGKILL {
		t.Errorf("the child ended by %v", res.Signal)
	}
}

// The child ends by SIGTERM and leaves its tree: what was held, and is an orphan
// now, is killed, and counted once with what the end itself kills.
func TestTreeAfterTerm(t *testing.T) {
	t.Parallel()
	w, order, pids := startTree(t, nil, nil, "tree", "1", "stay")
	order("tree")
	if got := order("term"); got != "term <nil>" {
		t.Errorf("term: %q", got)
	}
	order("kill")
	res := w.finish()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if res.Signal != syscall.SIGTERM || len(res.Signals) != 1 || res.Leftovers != 2 {
		t.Errorf("signal %v, Leftovers %d, noted %+v; want one SIGTERM, 2", res.Signal, res.Leftovers, res.Signals)
	}
}

// A tree that grows while it is being killed is killed, too.
func TestTreeGrows(t *testing.T) {
	t.Parallel()
	w, order, _ := startTree(t, nil, nil, "spawner", "0")
	order("tree")
	if got := order("kill"); !strings.HasPrefix(got, "killed ") || atoi(got[len("killed "):]) < 20 {
		t.Errorf("kill: %q, want 20 or more", got)
	}
	// The pipe of all of them has no writer left but the wrapper.
	w.finish()
	if rest, err := io.ReadAll(w.out); err != nil {
		t.Errorf("read the rest: %q %v", rest, err)
	}
}

// treeRig is a wrapper that obeys orders.
type treeRig struct {
	*wrapper
	feed *os.File
}

// finish lets the wrapper wait for its child's end and returns the result.
func (w *treeRig) finish() child.Result {
	w.t.Helper()
	w.feed.Close()
	_, got := w.end()
	return got.Result
}

// startTree starts wrapTree around a child that prints pids until "ready". own,
// if not nil, is printed before.
func startTree(t *testing.T, set func(*exec.Cmd), own *int, name string, args ...string) (w *treeRig, order func(string) string, pids []int) {
	t.Helper()
	in, feed := pipe(t)
	said, say := pipe(t)
	w = &treeRig{feed: feed}
	w.wrapper = startWrapper(t, func(c *exec.Cmd) {
		c.Stdin, c.Stderr = in, say
		for i, v := range c.Env {
			if strings.HasPrefix(v, childEnv+"=") {
				c.Env[i] = childEnv + "=wraptree"
			}
		}
		if set != nil {
			set(c)
		}
	}, name, args...)
	say.Close()
	if own != nil {
		*own = atoi(w.line())
	}
	for line := w.line(); line != "ready"; line = w.line() {
		pids = append(pids, atoi(line))
	}
	answers := bufio.NewReader(said)
	return w, func(s string) string {
		fmt.Fprintln(feed, s)
		line, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %q %v", s, line, err)
		}
		return strings.TrimSuffix(line, "\n")
	}, pids
}
