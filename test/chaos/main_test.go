// Package chaos_test breaks the bus while runs are published: servers and edges
// are killed, connections cut with bytes still under way, acknowledgements
// dropped. Then it reads every stream and compares each run with what was
// published. TestChaos… run for about a minute in all; with CBCAST_CHAOS=long
// they run until the figures of "make chaos" are reached.
package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is for what takes far less: a server that starts, a stream that gets
// a leader.
const patience = 90 * time.Second

// roleEnv says which part a process of this binary plays, as JSON.
const roleEnv = "CBCAST_CHAOS_ROLE"

type role struct {
	Node *nodeSpec `json:",omitempty"`
	Edge *edgeSpec `json:",omitempty"`
}

func TestMain(m *testing.M) {
	s := os.Getenv(roleEnv)
	if s == "" {
		goleak.VerifyTestMain(m)
		return
	}
	var r role
	err := json.Unmarshal([]byte(s), &r)
	// The process ends with its parent, whatever became of that.
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	switch {
	case err != nil:
	case r.Node != nil:
		err = r.Node.run(ctx)
	case r.Edge != nil:
		err = r.Edge.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// long reports whether this is the long form.
func long() bool { return os.Getenv("CBCAST_CHAOS") == "long" }

// A proc is a process that plays a role.
type proc struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // what it prints; closed when it has ended
	wg    sync.WaitGroup
}

func play(r role) (*proc, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(b))
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
	p := &proc{cmd: cmd, stdin: in, lines: make(chan string, 1)}
	p.wg.Go(func() { // ends with the process
		for sc := bufio.NewScanner(out); sc.Scan(); {
			p.lines <- sc.Text()
		}
		close(p.lines)
		_ = cmd.Wait()
	})
	return p, nil
}

// expect waits for a line that begins with word and returns its rest.
func (p *proc) expect(ctx context.Context, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("process ended before it said %q", word)
			}
			if rest, ok := strings.CutPrefix(l, word+" "); ok {
				return rest, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for %q: %w", word, ctx.Err())
		}
	}
}

// kill is SIGKILL. It returns what the process said last, when it has ended.
func (p *proc) kill() (last string) {
	_ = p.cmd.Process.Kill()
	for l := range p.lines {
		last = l
	}
	p.wg.Wait()
	_ = p.stdin.Close()
	return last
}

// pause waits unless ctx ends. Faults come at times; nothing waits for them.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
