package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A frame is one line that the agent wrote.
type frame struct {
	raw               []byte
	Type, Subtype     string
	SessionID         string `json:"session_id"`
	TaskID            string `json:"task_id"`
	Status            string
	Aborted           bool
	IsError           bool   `json:"is_error"`
	TerminalReason    string `json:"terminal_reason"`
	Patch             struct{ Status string }
	Tasks             []any
	Event             struct{ Type string }
	Response, Request struct{ Subtype string }
	WorkflowProgress  []any `json:"workflow_progress"`

	// Of codex:
	Method        string
	ID            json.RawMessage
	Result, Error json.RawMessage
	Params        struct {
		ThreadID string
		Turn     struct{ ID, Status string }
		Item     struct {
			ID, Type, Status string
			ExitCode         *int
		}
	}
}

// name is a short name for a frame: its type, subtype and what tells it apart.
func (f *frame) name() string {
	n := f.Type + f.Method
	if n == "" {
		n = "answer " + string(f.ID)
	}
	for _, s := range []string{f.Params.Item.Type, f.Params.Item.Status, f.Params.Turn.Status, f.Subtype, f.Patch.Status, f.Status, f.TerminalReason, f.Event.Type} {
		if s != "" {
			n += "/" + s
		}
	}
	if f.Aborted {
		n += "/aborted"
	}
	return n
}

// is reports whether f has the type and, if given, the subtype.
func is(typ string, sub ...string) func(*frame) bool {
	return func(f *frame) bool { return f.Type == typ && (len(sub) == 0 || f.Subtype == sub[0]) }
}

// A session is a running agent whose stdin the test holds.
type session struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when both pipes are at their end and the process is gone

	mu      sync.Mutex // guards what follows
	frames  []*frame
	stdout  bytes.Buffer
	stderr  bytes.Buffer
	changed chan struct{} // closed and replaced at each frame
	next    int           // the first frame that await has not passed
}

// start runs argv with p's environment and directory.
func start(t *testing.T, p program, argv []string, extraEnv ...string) *session {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(append([]string{}, p.env...), extraEnv...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &session{t: t, cmd: cmd, done: make(chan struct{}), changed: make(chan struct{})}
	var err error
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = writerFunc(func(b []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stderr.Write(b)
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.read(stdout)
		_ = cmd.Wait() // the exit is asked for by exit
	}()
	t.Cleanup(func() {
		_ = s.stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-s.done
		if t.Failed() {
			t.Logf("%s wrote:\n%s", argv[0], s.transcript())
		}
	})
	return s
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (s *session) read(r io.Reader) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		f := &frame{raw: line}
		isFrame := json.Unmarshal(line, f) == nil
		s.mu.Lock()
		s.stdout.Write(line)
		if isFrame {
			s.frames = append(s.frames, f)
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes one line to the agent.
func (s *session) send(v any) {
	s.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(append(b, '\n'))
}

func (s *session) write(line []byte) {
	s.t.Helper()
	if _, err := s.stdin.Write(line); err != nil {
		s.t.Fatalf("write to the agent: %v", err)
	}
}

// say sends a user message.
func (s *session) say(text string) {
	s.t.Helper()
	s.send(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": text}})
}

// await returns the next frame that fits; later calls look behind it. It fails
// the test when the agent ends first.
func (s *session) await(what string, fits func(*frame) bool) *frame {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ended := false
	for {
		s.mu.Lock()
		changed := s.changed
		for s.next < len(s.frames) {
			f := s.frames[s.next]
			s.next++
			if fits(f) {
				s.mu.Unlock()
				return f
			}
		}
		s.mu.Unlock()
		if ended {
			s.t.Fatalf("the agent ended before %s", what)
		}
		select {
		case <-changed:
		case <-s.done:
			ended = true
		case <-deadline.C:
			s.t.Fatalf("no %s in %s", what, patience)
		}
	}
}

// between returns the names of the frames after a up to and with b.
func (s *session) between(a, b *frame) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	in := false
	for _, f := range s.frames {
		if in {
			names = append(names, f.name())
		}
		if f == a {
			in = true
		}
		if f == b {
			return names
		}
	}
	return names
}

// exit closes stdin, waits for the end and returns the exit code, -1 after a
// signal.
func (s *session) exit() int {
	s.t.Helper()
	_ = s.stdin.Close()
	return s.wait()
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (s *session) wait() int {
	s.t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatalf("still there after %s", patience)
		return 0
	}
}

// terminate is exit for an agent that does not leave by itself (cbc with any
// workflow): SIGTERM follows the end of its input.
func (s *session) terminate() int {
	s.t.Helper()
	_ = s.stdin.Close()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.t.Log("terminate:", err)
	}
	return s.exit()
}

// output is what the agent wrote to stdout so far, as it came.
func (s *session) output() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.stdout.Bytes())
}

func (s *session) transcript() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, f := range s.frames {
		mark := " "
		if i == s.next {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %3d %s\n", mark, i, f.name())
	}
	fmt.Fprintf(&b, "stderr: %s", s.stderr.Bytes())
	return b.String()
}
