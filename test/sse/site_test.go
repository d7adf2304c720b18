package sse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/test/program"
)

// A site is a bus, a relay at one address, and a directory for everything.
type site struct {
	t     *testing.T
	dir   string
	env   []string
	addr  string // of the relay
	token string
	relay *exec.Cmd
}

func newSite(t *testing.T) *site {
	t.Helper()
	if os.Getenv(envTools) == "" {
		t.Skip("needs SSE clients of others and nginx: make sse")
	}
	s := &site{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	srv, err := natsd.Start(natsd.Options{Dir: filepath.Join(s.dir, "nats"), MaxStore: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	s.env = []string{
		"HOME=" + s.dir, "XDG_STATE_HOME=" + filepath.Join(s.dir, "state"), "PATH=" + os.Getenv("PATH"), "TZ=UTC",
		"CBCAST_NATS_URL=" + srv.ClientURL(),
	}
	if out, err := s.command("provision").CombinedOutput(); err != nil {
		t.Fatalf("provision: %v\n%s", err, out)
	}
	s.up()
	t.Cleanup(func() { s.down(syscall.SIGKILL) })
	return s
}

func (s *site) command(args ...string) *exec.Cmd {
	c := exec.Command(program.Path, args...)
	c.Env, c.Dir = s.env, s.dir
	return c
}

var (
	relayLine = regexp.MustCompile(`^relay\s+http://(\S+)`)
	tokenLine = regexp.MustCompile(`token in (\S+)`)
)

// up starts the relay, where it was before if there was one.
func (s *site) up() {
	s.t.Helper()
	c := s.command("up", "--listen", s.addr)
	out, err := c.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.relay = c
	for sc := bufio.NewScanner(out); sc.Scan(); {
		said.WriteString(sc.Text() + "\n")
		if m := relayLine.FindStringSubmatch(sc.Text()); m != nil {
			s.addr = m[1]
		}
		if m := tokenLine.FindStringSubmatch(sc.Text()); m != nil {
			b, err := os.ReadFile(m[1])
			if err != nil {
				s.t.Fatal(err)
			}
			s.token = strings.TrimSpace(string(b))
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
			return
		}
	}
	s.down(syscall.SIGKILL)
	s.t.Fatalf("cbcast up said:\n%s", said.String())
}

// down ends the relay, and returns when it is gone.
func (s *site) down(sig syscall.Signal) {
	if s.relay == nil {
		return
	}
	_ = s.relay.Process.Signal(sig)
	_ = s.relay.Wait()
	s.relay = nil
}

// startNginx runs nginx in front of the relay. plain passes on and knows nothing of
// streams; again is as docs/clients.md has it, which tells a client that comes while
// the relay is away to come again.
func (s *site) startNginx() (plain, again string) {
	s.t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		s.t.Fatal(err)
	}
	plain, again = freeAddr(s.t), freeAddr(s.t)
	dir := filepath.Join(s.dir, "nginx")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	// One process, which stays the user who runs the tests. Buffering and time limits
	// are nginx's own, gzip is Debian's.
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr crit;
events {}
http {
	gzip on; log_format who '$server_addr:$server_port $upstream_status $http_user_agent'; access_log %[1]s/access who;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[3]s; location / { proxy_pass http://%[2]s; } }
	server { listen %[4]s;
%[5]s
	}
}
`, dir, s.addr, plain, again, strings.ReplaceAll(recipe(s.t, "nginx"), "127.0.0.1:8420", s.addr))
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(path, "-p", dir, "-e", "stderr", "-c", file)
	c.Stderr = s.t.Output()
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = c.Wait() }()
	s.t.Cleanup(func() { _ = c.Process.Kill(); <-gone })
	for _, addr := range []string{plain, again} {
		for end := time.Now().Add(patience); ; {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
				break
			}
			select {
			case <-gone:
				s.t.Fatalf("nginx ended: %v\n%s", c.ProcessState, conf)
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(end) {
				s.t.Fatal(err)
			}
		}
	}
	return plain, again
}

// knocked waits until clients of each kind came to both of nginx's addresses, and
// found that the relay is away.
func (s *site) knocked(addrs ...string) {
	s.t.Helper()
	kinds := []string{"Go-http-client", "node"}
	if theBrowser != nil {
		kinds = append(kinds, "Mozilla")
	}
	file := filepath.Join(s.dir, "nginx", "access")
	old, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		log, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		missing := ""
		for _, addr := range addrs {
			for _, kind := range kinds {
				if who := addr + " 502 " + kind; !strings.Contains(string(log[len(old):]), who) {
					missing = who
				}
			}
		}
		switch {
		case missing == "":
			return
		case time.Now().After(end):
			s.t.Fatalf("nobody came: %s", missing)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// freeAddr is an address that nobody listened at just now.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
