package relay_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/relay"
)

// Headers that come slowly, a body that comes slowly, and a connection that says
// nothing are all ended by the relay.
func TestSlowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		p := newPipes()
		s := r.serve(patient(relay.Config{}), p, &http.Transport{DialContext: p.dial})
		for what, x := range map[string]struct {
			begin string
			drip  string // every second
			bound time.Duration
			says  string
		}{
			"silence":        {"", "", 10 * time.Second, ""},
			"slow headers":   {"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n", "X-A: b\r\n", 10 * time.Second, ""},
			"half a line":    {"GET /v1", "", 10 * time.Second, ""},
			"no body":        {"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n", "", 15 * time.Second, "400"},
			"slow body":      {"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n", " ", 15 * time.Second, "400"},
			"slow chunks":    {"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 15 * time.Second, "400"},
			"body of nobody": {"POST /v1/runs/x/interrupt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n", "", 15 * time.Second, "401"},
		} {
			c, err := p.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := io.WriteString(c, x.begin)
				for err == nil && x.drip != "" && ctx.Err() == nil {
					<-time.After(time.Second) // of the bubble
					_, err = io.WriteString(c, x.drip)
				}
			})
			text, _ := io.ReadAll(c)
			took := time.Since(began)
			cancel()
			_ = c.Close()
			wg.Wait()
			if took > x.bound+time.Second || !strings.Contains(string(text), x.says) {
				t.Errorf("%s: ended after %v with %.60q, want at most %v and %q", what, took, text, x.bound, x.says)
			}
		}
		s.stop()
	})
}

func TestLargeRequests(t *testing.T) {
	r := newRig(t, small())
	s := r.relay(relay.Config{})
	for what, x := range map[string]struct {
		header map[string]string
		status int
	}{
		"a header":        {map[string]string{"X-Large": strings.Repeat("x", 64<<10)}, 431},
		"a token":         {map[string]string{"Authorization": "Bearer " + strings.Repeat("x", 20<<10)}, 401},
		"a cookie":        {map[string]string{"Cookie": "cbcast-000000000000=" + strings.Repeat("x", 20<<10)}, 200},
		"a Last-Event-ID": {map[string]string{"Last-Event-ID": strings.Repeat("9", 20<<10)}, 200},
	} {
		q, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/runs", nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range x.header {
			q.Header.Set(k, v)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != x.status {
			t.Errorf("%s: %d, want %d", what, res.StatusCode, x.status)
		}
	}
}

// distant makes connections come from other machines: from those in from, one after
// the other, then from the last.
type distant struct {
	net.Listener
	from func() string
}

func (l *distant) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &distantConn{c, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.from()))}, nil
}

type distantConn struct {
	net.Conn
	from net.Addr
}

func (c *distantConn) RemoteAddr() net.Addr { return c.from }

// closed reports whether the relay has closed a connection that nothing was sent on.
func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// An address without a token gets a few connections, one with a token is not counted
// by address, and others are not in its way.
func TestConnectionsByAddress(t *testing.T) {
	r := newRig(t, small())
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeRead}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	from := "127.0.0.1:1"
	come := func(addr string) {
		mu.Lock()
		defer mu.Unlock()
		from = addr
	}
	tr := &http.Transport{DisableKeepAlives: true}
	s := r.serve(patient(relay.Config{Tokens: k.json(), MaxPerAddr: 2, Proxies: []string{"198.51.100.0/24"}}),
		&distant{ln, func() string { mu.Lock(); defer mu.Unlock(); return from }}, tr)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	come("203.0.113.5:1")
	a, b := dial(), dial()
	s.until(func() bool { return closed(dial()) })
	if closed(a) || closed(b) {
		t.Error("those that were there before are closed")
	}
	// The same connection with a token makes room.
	if _, err := io.WriteString(a, "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+k.tokens["a"]+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = a.SetReadDeadline(time.Now().Add(patience))
	res, err := http.ReadResponse(bufio.NewReader(a), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("with a token: %v %v", res, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	c := dial()
	if closed(c) {
		t.Error("a connection with a token still counts for its address")
	}
	s.until(func() bool { return closed(dial()) })
	for _, other := range []string{"203.0.113.6:1", "198.51.100.7:1", "127.0.0.1:1"} {
		come(other)
		for range 2 {
			if closed(dial()) {
				t.Errorf("%s is closed", other)
			}
		}
	}
	come("127.0.0.1:1")
	if got := s.get("/v1/runs", k.header("a")); got.status != 200 {
		t.Errorf("%d", got.status)
	}
	if got := s.get("/metrics", nil); strings.Contains(string(got.body), `connections_refused_total{limit="address"} 0`) {
		t.Error("refused connections are not counted")
	}
	// What has gone makes room, too.
	_ = b.Close()
	_ = c.Close()
	come("203.0.113.5:1")
	s.until(func() bool { return !closed(dial()) })
}

func TestConnectionsInTotal(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	s := r.relay(relay.Config{MaxConns: 4})
	s.client.CloseIdleConnections()
	addr := strings.TrimPrefix(s.url, "http://")
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// A stream that has its connection itself counts, too.
	c := s.stream("/v1/runs/run-1/stream", nil)
	if _, ok := c.next(); !ok {
		t.Fatal("no event")
	}
	var open []net.Conn
	s.until(func() bool { // the connections of before are closed by and by
		for _, o := range open {
			_ = o.Close()
		}
		open = []net.Conn{dial(), dial(), dial(), dial()}
		return !closed(open[0]) && !closed(open[1]) && !closed(open[2]) && closed(open[3])
	})
	c.close()
	s.until(func() bool { return !closed(dial()) })
}

// The limit by token is for all of its requests, whatever the connection, and this
// machine's own token has none.
func TestRequestsByToken(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeRead}}, relay.Token{Name: "b", Scopes: []relay.Scope{relay.ScopeRead}})
	s := r.relay(relay.Config{Tokens: k.json(), MaxPerToken: 3})
	const path = "/v1/runs/run-1/stream"
	for range 3 {
		if c := s.stream(path, k.header("a")); c.res.StatusCode != 200 {
			t.Fatalf("%d", c.res.StatusCode)
		}
	}
	if got := s.get("/v1/runs", k.header("a")); got.status != http.StatusTooManyRequests {
		t.Errorf("one more request: %d %s", got.status, got.body)
	}
	if got := s.get("/v1/runs", s.logIn(k.tokens["a"])); got.status != http.StatusTooManyRequests {
		t.Errorf("one more request with a session: %d %s", got.status, got.body)
	}
	for range 5 {
		for what, header := range map[string]map[string]string{"local": {"Authorization": "Bearer " + token}, "loopback": nil} {
			if c := s.stream(path, header); c.res.StatusCode != 200 {
				t.Errorf("%s: %d", what, c.res.StatusCode)
			}
		}
	}
	if got := s.get("/v1/runs", k.header("b")); got.status != 200 {
		t.Errorf("another token: %d", got.status)
	}
}
