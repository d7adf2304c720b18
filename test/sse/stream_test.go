package sse

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/cbcast/cbcast/relay/client"
)

// A road is one way to the relay.
type road struct{ name, addr string }

// A stream is what one client was told over one road.
type stream struct {
	name string

	mu    sync.Mutex // guards the rest
	lines []string   // kind, id, length of the data, id of the event
	ended bool
	bad   string
	news  chan struct{} // closed by what comes next
}

func newStream(client string, r road) *stream {
	return &stream{name: client + " over " + r.name, news: make(chan struct{})}
}

// tell takes a line of a client.
func (s *stream) tell(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
	switch {
	case s.ended:
		s.bad = "told behind the end: " + line
	case line == "end":
		s.ended = true
	case strings.HasPrefix(line, "failed"):
		s.bad, s.ended = line, true
	default:
		s.lines = append(s.lines, line)
		if f := strings.Fields(line); s.bad == "" && (len(f) != 4 || f[1] != strconv.Itoa(len(s.lines))) {
			s.bad = fmt.Sprintf("event %d is told as %q", len(s.lines), line)
		}
	}
}

// wait returns when the stream has n events, or its end for 0.
func (s *stream) wait(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		have, ended, bad, news := len(s.lines), s.ended, s.bad, s.news
		s.mu.Unlock()
		switch {
		case bad != "":
			return fmt.Errorf("%s: %s", s.name, bad)
		case n > 0 && have >= n, n == 0 && ended:
			return nil
		case ended:
			return fmt.Errorf("%s: it stopped behind event %d", s.name, have)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("%s: event %d, and no more", s.name, have)
		}
	}
}

// waitAll waits for every stream and fails the test for those that do not come.
func waitAll(t *testing.T, what string, streams []*stream, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range streams {
		if err := s.wait(ctx, n); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// line is what a client says of an event.
func line(e client.Event) string {
	var d struct{ ID string }
	_ = json.Unmarshal(e.Data, &d)
	return fmt.Sprintf("%s %d %d %s", e.Name, e.Seq, len(utf16.Encode([]rune(string(e.Data)))), d.ID)
}

// ours follows with relay/client.
func (s *site) ours(run string, r road, see func(client.Event)) *stream {
	st := newStream("relay/client", r)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := client.Client{URL: "http://" + r.addr, Token: s.token}
		err := c.Follow(ctx, run, 0, func(e client.Event) error {
			see(e)
			st.tell(line(e))
			return nil
		})
		if err != nil {
			st.tell("failed " + err.Error())
			return
		}
		st.tell("end")
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return st
}

// theirs runs a client program over all roads. stop waits until it has ended by
// itself.
func (s *site) theirs(name, run string, roads []road, command ...string) (streams []*stream, stop func() error) {
	s.t.Helper()
	for _, r := range roads {
		streams = append(streams, newStream(name, r))
		command = append(command, "http://"+r.addr+"/v1/runs/"+run+"/stream")
	}
	c := exec.Command(command[0], command[1:]...)
	c.Dir = filepath.Join(os.Getenv(envTools), "node")
	c.Env = append(os.Environ(), "CBCAST_TOKEN="+s.token)
	c.Stderr = s.t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			n, rest, _ := strings.Cut(sc.Text(), " ")
			if i, err := strconv.Atoi(n); err == nil && i < len(streams) {
				streams[i].tell(rest)
			}
		}
		gone <- c.Wait()
	}()
	stop = func() error {
		select {
		case err := <-gone:
			gone <- nil
			return err
		case <-time.After(patience):
			_ = c.Process.Kill()
			err := fmt.Errorf("%s does not stop: %w", name, <-gone)
			gone <- nil
			return err
		}
	}
	s.t.Cleanup(func() { _ = c.Process.Kill(); <-gone })
	return streams, stop
}
