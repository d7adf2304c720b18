package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output is what a command prints, for tests that wait for it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// eventually waits for what another goroutine or process brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func send(t *testing.T, method, url, body string, header map[string]string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		q.Header.Set(k, v)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A relay of another bus is found where it is configured to be, if it is there.
func TestRelayAt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, c := range []struct{ addr, nats, want string }{
		{"127.0.0.1:" + port, "", "http://127.0.0.1:" + port},
		{"0.0.0.0:" + port, "", "http://127.0.0.1:" + port},
		{":" + port, "nats://n", "http://127.0.0.1:" + port},
		{"[::1]:1", "", "http://[::1]:1"}, // nobody there, and no hub
		{defaultRelayAddr, "", ""},
		{defaultRelayAddr, "nats://n", "http://" + defaultRelayAddr},
		{"127.0.0.1:0", "nats://n", ""},
	} {
		a := &app{}
		a.cfg.StateDir, a.cfg.Relay.Addr, a.cfg.Bus.URL = t.TempDir(), c.addr, c.nats
		if got, sure := a.relayAt(t.Context()); got != c.want || sure {
			t.Errorf("relay of %q with NATS %q = %q, %v; want %q", c.addr, c.nats, got, sure, c.want)
		}
	}
}

// A relay that is up gives an address that logs in once, and knows a token that is
// added after a hangup signal.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.json")
	var out output
	environ := []string{
		"HOME=" + dir, "CBCAST_STATE_DIR=" + filepath.Join(dir, "state"), "CBCAST_RELAY_ADDR=127.0.0.1:0", "CBCAST_RELAY_TOKENS_FILE=" + tokens,
	}
	cfg, err := loadConfig(environ)
	if err != nil {
		t.Fatal(err)
	}
	one := func(name string) string {
		var out output
		a := &app{environ: environ, cfg: cfg, io: stdio{out: &out, err: io.Discard}}
		if err := a.token(name, tokenOptions{scopes: []string{"read"}, add: tokens}, time.Now()); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	}
	first := one("first")
	a := &app{environ: environ, cfg: cfg, io: stdio{out: &out, err: io.Discard}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.up(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("up: %v", err)
		}
	}()
	eventually(t, "the relay's address", func() bool { return strings.Contains(out.String(), "token in") })

	client := &app{environ: environ, cfg: cfg}
	address, err := client.login(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	base, code, ok := strings.Cut(address, "/login#")
	if !ok || len(code) < 32 {
		t.Fatalf("address %q", address)
	}
	body := `{"code":"` + code + `"}`
	json := map[string]string{"Content-Type": "application/json"}
	for n, want := range []int{200, 401} {
		if got, text := send(t, "POST", base+"/v1/session", body, json); got != want {
			t.Errorf("use %d of the code: %d %s, want %d", n+1, got, text, want)
		}
	}
	file := filepath.Join(dir, "first")
	if err := os.WriteFile(file, []byte(first+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.login(t.Context(), base, file); err != nil {
		t.Errorf("login with a token of the list: %v", err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := client.login(t.Context(), base, file); err == nil || !strings.Contains(err.Error(), "open to others") {
		t.Errorf("a token file that others can read: %v", err)
	}

	second := one("second")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second token", func() bool {
		got, text := send(t, "GET", base+"/v1/session", "", map[string]string{"Authorization": "Bearer " + second})
		return got == 200 && strings.Contains(text, `"name":"second"`)
	})
}
