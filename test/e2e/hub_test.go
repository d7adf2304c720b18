package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A hub is a running `cbcast up`: a NATS server and a relay on a state directory
// of its own.
type hub struct {
	t     *testing.T
	state string // CBCAST_STATE_DIR
	url   string // of the relay
	nats  string // of the NATS server
	token string
	more  []string // of an environment
}

// cbcast is the program under test.
func cbcast() string { return os.Getenv(envProgram) }

func up(t *testing.T) *hub {
	t.Helper()
	h := &hub{t: t, state: filepath.Join(scratch(t), "state")}
	cmd := exec.Command(cbcast(), "up", "--listen", "127.0.0.1:0")
	cmd.Env = append(h.env(), "HOME="+filepath.Dir(h.state), "CBCAST_LOG_LEVEL=debug")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log lockedBuffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("cbcast up: %v\n%s", err, log.String())
		}
	})
	for h.nats == "" && lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 2 && f[0] == "relay":
			h.url = f[1]
		case len(f) == 2 && f[0] == "nats":
			h.nats = f[1]
		}
	}
	if h.url == "" || h.nats == "" {
		t.Fatalf("cbcast up names no relay or no server: %v\n%s", lines.Err(), log.String())
	}
	b, err := os.ReadFile(filepath.Join(h.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	h.token = strings.TrimSpace(string(b))
	return h
}

// env points a cbcast at this hub.
func (h *hub) env() []string { return append([]string{"CBCAST_STATE_DIR=" + h.state}, h.more...) }

// elsewhere makes what runs from now on keep its spools where the hub does not
// look for them.
func (h *hub) elsewhere() {
	h.more = []string{"CBCAST_STATE_DIR=" + scratch(h.t), "CBCAST_NATS_URL=" + h.nats, "CBCAST_NATS_NKEY=" + filepath.Join(h.state, "hub", "key")}
}

// call makes a request and decodes the answer into v.
func (h *hub) call(method, path string, body, v any) int {
	h.t.Helper()
	status := h.try(method, path, body, v)
	if status >= 300 && status != http.StatusServiceUnavailable { // the relay says itself when it is not ready
		h.t.Fatalf("%s %s: %d", method, path, status)
	}
	return status
}

// try is call where an error is an answer, too: v gets its body.
func (h *hub) try(method, path string, body, v any) int {
	h.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			h.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, r)
	if err != nil {
		h.t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set("Authorization", "Bearer "+h.token)
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusServiceUnavailable {
		h.t.Logf("%s %s: %s\n%s", method, path, res.Status, b)
	}
	if v == nil {
		return res.StatusCode
	}
	if err := json.Unmarshal(b, v); err != nil {
		h.t.Fatalf("%s %s: %v\n%s", method, path, err, b)
	}
	return res.StatusCode
}

// cbcast runs a command of cbcast on this hub and returns what it printed, and its
// exit code.
func (h *hub) cbcast(args ...string) (string, int) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), cbcast(), args...)
	cmd.Env = append(h.env(), "HOME="+filepath.Dir(h.state))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// theRun waits until the registry has its one run and returns its id.
func (h *hub) theRun() string {
	h.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		var list struct{ Runs []struct{ Run string } }
		if h.call(http.MethodGet, "/v1/runs", nil, &list) == http.StatusOK && len(list.Runs) > 0 {
			return list.Runs[0].Run
		}
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatal("the wrapped agent does not become a run")
		}
	}
}

// An event is one that the relay streamed.
type event struct {
	ID, Type, Sequence, Session, Task, Stream, Origin string
	Data                                              json.RawMessage
}

// A stream is an SSE subscription to one run, from its first event on.
type stream struct {
	t    *testing.T
	done chan struct{}

	mu      sync.Mutex // guards what follows
	events  []event
	changed chan struct{}
}

func (h *hub) follow(run string) *stream {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+"/v1/runs/"+run+"/stream", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		h.t.Fatalf("stream: %s", res.Status)
	}
	s := &stream{t: h.t, done: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer res.Body.Close()
		s.read(res.Body)
	}()
	h.t.Cleanup(func() {
		<-s.done // the request ends with the test's context
		if h.t.Failed() {
			h.t.Logf("the relay streamed:\n%s", s)
		}
	})
	return s
}

func (s *stream) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e event
		if json.Unmarshal([]byte(data), &e) != nil || e.Type == "" {
			continue
		}
		s.mu.Lock()
		s.events = append(s.events, e)
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
}

// await waits until fits holds of the events so far.
func (s *stream) await(what string, fits func([]event) bool) {
	s.t.Helper()
	deadline := time.After(patience)
	for ended := false; ; {
		s.mu.Lock()
		ok, changed := fits(s.events), s.changed
		s.mu.Unlock()
		switch {
		case ok:
			return
		case ended:
			s.t.Fatalf("the stream ended without %s", what)
		}
		select {
		case <-changed:
		case <-s.done:
			ended = true
		case <-deadline:
			s.t.Fatalf("no %s in %s", what, patience)
		}
	}
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.events {
		fmt.Fprintf(&b, "%s %-4s %s", strings.TrimLeft(e.Sequence, "0"), e.Stream, e.Type)
		if e.Stream == "edge" {
			fmt.Fprintf(&b, " %.300s", e.Data)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// lockedBuffer is a bytes.Buffer for a process that writes while a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
