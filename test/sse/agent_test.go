package sse

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// agent is this test program as an agent: it says what comes from the socket until
// the test closes the connection.
func agent(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// A puppet is the agent of a real run, whose words come from the test.
type puppet struct {
	s    *site
	run  string
	conn net.Conn
	end  func() error // waits for the run's end
}

// start runs cbcast with a puppet behind it.
func (s *site) start() *puppet {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "sse") // a socket's path is short
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer ln.Close()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &puppet{s: s, run: "01890000-0000-7000-8000-000000000001"}
	c := s.command("run", "--dialect", "claude", "--", self, "--output-format", "stream-json", "--verbose")
	c.Env = append(c.Env, envAgent+"="+ln.Addr().String(), "CBCAST_RUN_ID="+p.run)
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { err := c.Wait(); _ = ln.Close(); gone <- err }()
	_ = ln.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := ln.Accept()
	if err != nil {
		_ = c.Process.Kill()
		s.t.Fatalf("the agent did not come: %v, %v\n%s", err, <-gone, stderr.String())
	}
	p.conn = conn
	p.end = func() error {
		_ = conn.Close()
		select {
		case err := <-gone:
			gone <- err
			return err
		case <-time.After(patience):
			_ = c.Process.Kill()
			return errors.Join(errors.New("the run does not end"), <-gone)
		}
	}
	s.t.Cleanup(func() { _ = p.end() })
	s.known(p.run)
	return p
}

// known waits until the relay has the run: until then it is one that does not exist.
func (s *site) known(run string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		r, err := http.Get("http://" + s.addr + "/v1/runs/" + run)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = r.Body.Close()
		switch {
		case r.StatusCode == http.StatusOK:
			return
		case time.Now().After(end):
			s.t.Fatalf("the run does not come: %d", r.StatusCode)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// text is what the agent says as line n: of any length, in many scripts, and with
// what would end an event if it stood there bare.
func text(n int) string {
	size := n * 37 % 700
	if n%200 == 7 {
		size = 100_000 // more than one write, and more than many a reader's buffer
	}
	return fmt.Sprintf(`line %d\n\nid: 5\nevent: end\ndata: ü€😀\r%s`, n, strings.Repeat("ä", size))
}

// say has the agent write the lines from one number up to another.
func (p *puppet) say(from, to int) {
	p.s.t.Helper()
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, `{"type":"assistant","uuid":"u%d","session_id":"s","message":{"role":"assistant","content":[{"type":"text","text":"%s"}]}}`+"\n", n, text(n))
	}
	if _, err := io.WriteString(p.conn, b.String()); err != nil {
		p.s.t.Fatal(err)
	}
}
