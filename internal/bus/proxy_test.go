package bus_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A proxy stands between clients and a server and does what networks do.
type proxy struct {
	tb     testing.TB
	ln     net.Listener
	target atomic.Pointer[string]
	wg     sync.WaitGroup

	// edit sees each message to a client, and may change its payload or drop
	// it by returning nil. Guarded by mu.
	mu    sync.Mutex
	edit  func(subject string, payload []byte) []byte
	conns map[net.Conn]bool // of clients
	stuck chan struct{}     // while not nil, nothing from publishers is read; closed at its end
	late  time.Duration     // how much later the server gets what a cut connection had sent
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{tb: tb, ln: ln, conns: map[net.Conn]bool{}}
	p.aim(target)
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.ln.Addr().String() }

// aim sets where connections go from now on, "" refuses them.
func (p *proxy) aim(url string) {
	addr := strings.TrimPrefix(url, "nats://")
	p.target.Store(&addr)
}

func (p *proxy) setEdit(f func(subject string, payload []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.edit = f
}

// setStuck makes the proxy take nothing more from clients than one message each,
// until it is unset.
func (p *proxy) setStuck(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.stuck = make(chan struct{})
	} else {
		close(p.stuck)
		p.stuck = nil
	}
}

// cut breaks every connection. What clients had sent arrives later.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.join(c) })
	}
}

func (p *proxy) join(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	up := make(chan struct{})
	p.wg.Go(func() {
		defer close(up)
		p.upstream(s, c)
	})
	p.downstream(c, s)
	_ = c.Close()
	<-up
}

// upstream copies to the server, in pieces that are late once the client's
// side is cut.
func (p *proxy) upstream(s, c net.Conn) {
	pieces := make(chan []byte, 64)
	done := make(chan struct{})
	var broken atomic.Bool
	go func() { // ends with this call
		defer close(done)
		for b := range pieces {
			p.mu.Lock()
			late := p.late
			p.mu.Unlock()
			if !broken.Load() {
				late /= 50
			}
			if late > 0 {
				time.Sleep(rand.N(late)) //nolint:forbidigo // a slow network, not a synchronisation
			}
			if _, err := s.Write(b); err != nil {
				continue
			}
		}
		_ = s.Close()
	}()
	for {
		b := make([]byte, 16<<10)
		n, err := c.Read(b)
		if n > 0 {
			pieces <- b[:n]
		}
		if err != nil {
			break
		}
		p.mu.Lock()
		stuck := p.stuck
		p.mu.Unlock()
		if stuck != nil && n == len(b) { // in the middle of much
			<-stuck
		}
	}
	broken.Store(true)
	close(pieces)
	<-done
}

// downstream copies to the client message by message.
func (p *proxy) downstream(c, s net.Conn) {
	r, w := bufio.NewReaderSize(s, 1<<16), bufio.NewWriterSize(c, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		out := bytes.Clone(line)
		f := strings.Fields(string(line))
		if len(f) > 2 && (f[0] == "MSG" || f[0] == "HMSG") {
			n, _ := strconv.Atoi(f[len(f)-1])
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			p.mu.Lock()
			edit := p.edit
			p.mu.Unlock()
			if edit != nil && f[0] == "MSG" {
				payload := edit(f[1], body[:n])
				if payload == nil {
					continue
				}
				f[len(f)-1] = strconv.Itoa(len(payload))
				line, body = fmt.Appendf(nil, "%s\r\n", strings.Join(f, " ")), append(bytes.Clone(payload), "\r\n"...)
				out = line
			}
			out = append(out, body...)
		}
		if _, err := w.Write(out); err != nil {
			return
		}
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}
