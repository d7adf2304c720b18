package sse

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A cutter passes connections on and cuts those of streams somewhere, as networks do.
type cutter struct {
	addr string
	cuts atomic.Int64

	// gentle cutters reset a connection that they cut in the head of an answer: with a
	// plain end there Chromium takes the half head for a whole one without a
	// Content-Type, at which an EventSource gives up.
	gentle bool

	to string
	mu sync.Mutex // guards the rest
	r  *rand.Rand
	on map[net.Conn]bool // false once the cutter is closed
}

func newCutter(t *testing.T, to string, seed uint64, gentle bool) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String(), gentle: gentle, to: to, r: rand.New(rand.NewPCG(seed, seed)), on: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		c.mu.Lock()
		for conn := range c.on {
			_ = conn.Close()
		}
		c.on = nil
		c.mu.Unlock()
		all.Wait()
	})
	return c
}

// hold notes an open connection. It reports whether the cutter is there.
func (c *cutter) hold(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on == nil {
		return false
	}
	c.on[conn] = true
	return true
}

func (c *cutter) drop(conn net.Conn) {
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.on, conn)
}

// maxHead is more than the head of any answer has.
const maxHead = 600

// after is how many bytes of a stream go through: a quarter ends in its head, in its
// first events or at once, the others anywhere in a good part of the run.
func (c *cutter) after() (n int64, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = c.r.Int64N(1_600_000)
	if c.r.IntN(4) == 0 {
		n = c.r.Int64N(2000)
	}
	return n, c.r.IntN(2) == 0 || c.gentle && n < maxHead
}

func (c *cutter) pass(down *net.TCPConn) {
	defer c.drop(down)
	up, err := net.Dial("tcp", c.to)
	if err != nil {
		return // the client finds a connection that is closed at once
	}
	defer c.drop(up)
	if !c.hold(down) || !c.hold(up) {
		return
	}
	var left atomic.Int64 // bytes until the cut, once there is a stream
	left.Store(1 << 62)
	var reset atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		defer up.Close()
		for b := make([]byte, 16<<10); ; {
			n, err := down.Read(b)
			if bytes.Contains(b[:n], []byte("/stream")) {
				limit, hard := c.after()
				reset.Store(hard)
				left.Store(limit)
			}
			if _, werr := up.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	c.give(down, up, &left, &reset)
	_ = down.Close()
	_ = up.Close()
	back.Wait()
}

// give passes on what comes from the relay, up to the cut.
func (c *cutter) give(down *net.TCPConn, up io.Reader, left *atomic.Int64, reset *atomic.Bool) {
	for b := make([]byte, 16<<10); ; {
		n, err := up.Read(b)
		if rest := left.Load(); int64(n) > rest {
			c.cuts.Add(1)
			_, _ = down.Write(b[:rest])
			if reset.Load() {
				_ = down.SetLinger(0) // the client is told that the connection failed, not that it ended
			}
			return
		}
		left.Add(int64(-n))
		if _, werr := down.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}
