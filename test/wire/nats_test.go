package wire

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// A listener subscribes to everything of cbcast by the protocol of NATS itself.
type listener struct {
	t    *testing.T
	conn net.Conn
	done chan struct{}

	mu    sync.Mutex // guards the rest
	list  []message
	grown chan struct{}
}

func listen(t *testing.T, addr string) *listener {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, conn: conn, done: make(chan struct{}), grown: make(chan struct{})}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(conn, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"lang\":\"test\",\"version\":\"0\",\"protocol\":1}\r\n"+
		"SUB cbc.> 1\r\nSUB $KV.> 2\r\nPING\r\n")
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "PONG") {
		t.Fatalf("%q, %v", line, err)
	}
	go l.read(r)
	t.Cleanup(func() { _ = conn.Close(); <-l.done })
	return l
}

// read takes messages until the connection is closed.
func (l *listener) read(r *bufio.Reader) {
	defer close(l.done)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		switch {
		case len(f) == 1 && f[0] == "PING":
			fmt.Fprint(l.conn, "PONG\r\n")
			continue
		case len(f) < 4 || f[0] != "MSG" && f[0] != "HMSG":
			continue
		}
		size, err := strconv.Atoi(f[len(f)-1])
		if err != nil {
			return
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return
		}
		m := message{subject: f[1], header: map[string]string{}, data: data[:size]}
		if f[0] == "HMSG" {
			n, err := strconv.Atoi(f[len(f)-2])
			if err != nil || n > size {
				return
			}
			m.header, m.data = headers(string(data[:n])), data[n:size]
		}
		l.mu.Lock()
		l.list = append(l.list, m)
		close(l.grown)
		l.grown = make(chan struct{})
		l.mu.Unlock()
	}
}

func headers(block string) map[string]string {
	h := map[string]string{}
	for _, line := range strings.Split(block, "\r\n")[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		if strings.HasPrefix(name, event.HeaderPrefix) {
			value = event.DecodeValue(value)
		}
		h[name] = value
	}
	return h
}

func (l *listener) all() []message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[:len(l.list):len(l.list)]
}

// until waits for a message, which may have come already.
func (l *listener) until(ok func(message) bool) message {
	l.t.Helper()
	timeout := time.After(patience)
	for i := 0; ; {
		l.mu.Lock()
		list, grown := l.list, l.grown
		l.mu.Unlock()
		for ; i < len(list); i++ {
			if ok(list[i]) {
				return list[i]
			}
		}
		select {
		case <-grown:
		case <-timeout:
			l.t.Fatalf("waited in vain; the last of %d messages is %v", len(list), list[max(0, len(list)-3):])
		}
	}
}
