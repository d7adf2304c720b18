// Package ui looks at the page in a real browser: a headless Chromium against the
// built cbcast, a real NATS server, and agents that the tests speak for.
//
// `make ui` sets CBCAST_UI_BROWSER to the browser; without it these tests are
// skipped. CBCAST_UI_SHOTS names a directory for pictures of what was seen.
package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
)

const (
	envBrowser = "CBCAST_UI_BROWSER"
	envShots   = "CBCAST_UI_SHOTS"
	envAgent   = "UI_AGENT" // the socket of the test that speaks for this process

	// patience bounds the wait for what must come.
	patience = 3 * time.Minute
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(envAgent); socket != "" {
		os.Exit(agent(socket))
	}
	if os.Getenv(envBrowser) == "" {
		os.Exit(m.Run()) // every test skips itself and says how to run it
	}
	os.Exit(program.Main(m, startBrowser))
}

// A site is a bus, a relay, and a directory for everything of one test.
type site struct {
	t     *testing.T
	dir   string
	env   []string
	url   string // of the relay
	relay *exec.Cmd
	token string
}

// newSite starts a server and a relay. env is for the relay.
func newSite(t *testing.T, env ...string) *site {
	t.Helper()
	return newSiteWith(t, nil, env...)
}

// newSiteWith is newSite with variables for the streams.
func newSiteWith(t *testing.T, streams []string, env ...string) *site {
	t.Helper()
	if os.Getenv(envBrowser) == "" {
		t.Skip("needs a browser: make ui")
	}
	s := &site{t: t, dir: t.TempDir()}
	srv, err := natsd.Start(natsd.Options{Dir: filepath.Join(s.dir, "nats"), MaxStore: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	s.env = []string{
		"HOME=" + s.dir, "XDG_STATE_HOME=" + filepath.Join(s.dir, "state"), "PATH=" + os.Getenv("PATH"), "TZ=UTC",
		"CBCAST_NATS_URL=" + srv.ClientURL(), "CBCAST_PRESENCE_TTL=2s",
	}
	if out, err := s.command(streams, "provision").CombinedOutput(); err != nil {
		t.Fatalf("provision: %v\n%s", err, out)
	}
	s.up("127.0.0.1:0", env...)
	t.Cleanup(s.down)
	return s
}

func (s *site) command(env []string, args ...string) *exec.Cmd {
	c := exec.Command(program.Path, args...)
	c.Env = append(append([]string{}, s.env...), env...)
	c.Dir = s.dir
	return c
}

var (
	relayLine = regexp.MustCompile(`^relay\s+(http://\S+)`)
	tokenLine = regexp.MustCompile(`token in (\S+)`)
)

// up starts the relay and reads from its first words where it listens.
func (s *site) up(addr string, env ...string) {
	s.t.Helper()
	c := s.command(append([]string{"CBCAST_RELAY_ADDR=" + addr}, env...), "up")
	out, err := c.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var said, stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.relay = c
	sc := bufio.NewScanner(out)
	s.url = ""
	for sc.Scan() {
		said.WriteString(sc.Text() + "\n")
		if m := relayLine.FindStringSubmatch(sc.Text()); m != nil {
			s.url = m[1]
		}
		if m := tokenLine.FindStringSubmatch(sc.Text()); m != nil {
			b, err := os.ReadFile(m[1])
			if err != nil {
				s.t.Fatal(err)
			}
			s.token = strings.TrimSpace(string(b))
			break
		}
	}
	if s.url == "" || s.token == "" {
		_ = c.Process.Kill()
		_ = c.Wait()
		s.t.Fatalf("cbcast up said:\n%s%s", said.String(), stderr.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
}

// down ends the relay, as its user would.
func (s *site) down() {
	if s.relay == nil {
		return
	}
	_ = s.relay.Process.Signal(os.Interrupt)
	_ = s.relay.Wait()
	s.relay = nil
}

// get reads a document of the relay, with its own token.
func (s *site) get(path string, into any) {
	s.t.Helper()
	s.send(http.MethodGet, path, "", http.StatusOK, into)
}

// post sends a request with the relay's own token.
func (s *site) post(path, body string, want int) {
	s.t.Helper()
	s.send(http.MethodPost, path, body, want, nil)
}

func (s *site) send(method, path, body string, want int, into any) {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.token)
	q.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		s.t.Fatalf("%s %s: %d %s %v, want %d", method, path, res.StatusCode, b, err, want)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(b, into); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// addr is where the relay listens.
func (s *site) addr() string { return strings.TrimPrefix(s.url, "http://") }

// A puppet is an agent process whose words come from the test.
type puppet struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner // what was written to the agent's stdin
	host io.WriteCloser // what its host writes
	end  func() error   // waits for the run's end
	kill func()         // takes the edge away
}

// agent is this test program as an agent: it says what comes from the socket, and
// passes on what it is told, until the test closes the connection.
func agent(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { _, _ = io.Copy(conn, os.Stdin) }() // ends with the process
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// start runs cbcast with a puppet behind it. The host has said its first words.
func (s *site) start(dialect string, env ...string) *puppet {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "ui") // a socket's path is short
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
	c := s.command(append([]string{envAgent + "=" + ln.Addr().String()}, env...),
		"run", "--dialect", dialect, "--", self, "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
	host, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = ln.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := ln.Accept()
	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		s.t.Fatalf("the agent did not come: %v\n%s", err, stderr.String())
	}
	p := &puppet{t: s.t, conn: conn, in: bufio.NewScanner(conn), host: host}
	p.in.Buffer(nil, 16<<20)
	p.kill = func() { _ = c.Process.Kill() }
	p.end = sync.OnceValue(func() error {
		_ = host.Close()
		_ = conn.Close()
		return c.Wait()
	})
	s.t.Cleanup(func() {
		timer := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		defer timer.Stop()
		_ = p.end()
	})
	p.tell(`{"type":"user","message":{"role":"user","content":"go"},"uuid":"u0"}`)
	p.hear(`"uuid":"u0"`)
	return p
}

// say has the agent write lines.
func (p *puppet) say(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.conn, l+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

// tell has the host write a line.
func (p *puppet) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.host, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// hear waits for a line on the agent's stdin that matches.
func (p *puppet) hear(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	for p.in.Scan() {
		if re.MatchString(p.in.Text()) {
			return p.in.Text()
		}
	}
	p.t.Fatalf("nothing like %s was written to the agent: %v", pattern, errors.Join(p.in.Err(), io.EOF))
	return ""
}

// field reads a string field out of a line, by the first place where it stands.
func field(line, name string) string {
	m := regexp.MustCompile(`"` + name + `":\s*"([^"]*)"`).FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	return m[1]
}
