package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// pieceSize and pieces bound what a client has under way inside the proxy.
	pieceSize, pieces = 4 << 10, 128

	// travel bounds how long a piece is on its way, and late how long each
	// piece is that was under way when its connection was cut.
	travel, late = 15 * time.Millisecond, 120 * time.Millisecond
)

// A proxy stands between clients and a NATS server. When it cuts a connection
// the client knows at once, but what it had sent arrives, late and in pieces. So
// does what a client had sent when it ended.
type proxy struct {
	to   string
	ln   net.Listener
	stop context.CancelFunc
	wg   sync.WaitGroup

	drop atomic.Int64 // acknowledgements dropped of 1000

	cuts, dropped, lateBytes atomic.Int64

	mu    sync.Mutex
	conns map[*link]bool // guarded by mu
}

type piece struct {
	b   []byte
	due time.Time
}

// link is one connection of a client.
type link struct {
	client, server net.Conn
	cut            atomic.Bool
}

func newProxy(to string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &proxy{to: to, ln: ln, stop: cancel, conns: map[*link]bool{}}
	p.wg.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) url() string { return "nats://" + p.ln.Addr().String() }

func (p *proxy) close() {
	p.stop()
	_ = p.ln.Close()
	p.each(func(l *link) { _ = l.client.Close(); _ = l.server.Close() })
	p.wg.Wait()
}

func (p *proxy) each(f func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		f(l)
	}
}

// cutAll cuts every connection.
func (p *proxy) cutAll() {
	p.each(func(l *link) {
		if l.cut.CompareAndSwap(false, true) {
			p.cuts.Add(1)
			_ = l.client.Close()
		}
	})
}

func (p *proxy) accept(ctx context.Context) {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		var d net.Dialer
		s, err := d.DialContext(ctx, "tcp", p.to)
		if err != nil {
			_ = c.Close()
			continue
		}
		l := &link{client: c, server: s}
		p.mu.Lock()
		p.conns[l] = true
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(ctx, l) })
	}
}

func (p *proxy) serve(ctx context.Context, l *link) {
	queue := make(chan piece, pieces)
	var wg sync.WaitGroup
	wg.Go(func() {
		readPieces(l.client, queue)
		l.cut.Store(true) // a client that was killed leaves bytes under way as well
	})
	wg.Go(func() { p.down(l) })
	p.up(ctx, l, queue)
	_ = l.server.Close()
	_ = l.client.Close()
	for range queue { // until the reader has ended
	}
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
}

// readPieces takes what the client sends until its connection ends.
func readPieces(c net.Conn, queue chan<- piece) {
	defer close(queue)
	for {
		b := make([]byte, pieceSize)
		n, err := c.Read(b)
		if n > 0 {
			queue <- piece{b[:n], time.Now().Add(rand.N(travel))}
		}
		if err != nil {
			return
		}
	}
}

// up carries pieces to the server, until the last one of an ended connection.
func (p *proxy) up(ctx context.Context, l *link, queue <-chan piece) {
	for {
		select {
		case pc, ok := <-queue:
			if !ok {
				return
			}
			wait := time.Until(pc.due)
			if l.cut.Load() {
				wait = rand.N(late)
				p.lateBytes.Add(int64(len(pc.b)))
			}
			if !pause(ctx, wait) {
				return
			}
			if _, err := l.server.Write(pc.b); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// down carries the server's protocol to the client, without some of the
// acknowledgements.
func (p *proxy) down(l *link) {
	// When the server is gone the client must know; after a cut it knows, and
	// what it had sent goes on.
	defer l.client.Close()
	r := bufio.NewReaderSize(l.server, 64<<10)
	w := bufio.NewWriterSize(l.client, 64<<10)
	for {
		msg, err := readOp(r)
		if err != nil {
			return
		}
		if isAck(msg) && rand.Int64N(1000) < p.drop.Load() {
			p.dropped.Add(1)
			msg = nil
		}
		if _, err := w.Write(msg); err != nil && !l.cut.Load() {
			return
		}
		if r.Buffered() == 0 {
			_ = w.Flush()
		}
		if l.cut.Load() {
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

// readOp reads one operation of the NATS client protocol: a line, and what
// follows it where it is a message.
func readOp(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(line, []byte("MSG ")) && !bytes.HasPrefix(line, []byte("HMSG ")) {
		return line, nil
	}
	f := bytes.Fields(line)
	n, err := strconv.Atoi(string(f[len(f)-1]))
	if err != nil {
		return nil, err
	}
	msg := make([]byte, len(line)+n+2)
	copy(msg, line)
	_, err = io.ReadFull(r, msg[len(line):])
	return msg, err
}

// isAck reports whether msg is a stream's answer to something published: a
// PubAck or one of a batch's.
func isAck(msg []byte) bool {
	_, body, _ := bytes.Cut(msg, []byte("\r\n"))
	return bytes.HasPrefix(msg, []byte("MSG ")) &&
		(bytes.HasPrefix(body, []byte(`{"type":"ack"`)) || bytes.HasPrefix(body, []byte(`{"stream":"EV_`)))
}

// What was under way when a connection was cut arrives, though the client is gone.
func TestProxyDeliversLate(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p, err := newProxy(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := bytes.Repeat([]byte("0123456789"), 3*pieceSize/10)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(s, first); err != nil {
		t.Fatal(err)
	}
	p.cutAll()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Error("the client does not notice")
	}
	rest, err := io.ReadAll(s)
	if got := append(first, rest...); err != nil || !bytes.HasPrefix(want, got) || len(got) < pieceSize {
		t.Errorf("%d bytes arrived of %d (%v)", len(got), len(want), err)
	}
}
