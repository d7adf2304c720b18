package relay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// An outlet takes the bytes of a stream to its client.
type outlet interface {
	// deadline bounds the writes that follow.
	deadline(t time.Time)
	// write returns when the connection has taken b.
	write(b []byte) error
	// kick ends a write that is under way. It does not block.
	kick()
	// chunked says that the bytes must come as chunks of HTTP/1.1.
	chunked() bool
}

// An answer is the outlet through net/http. It holds a goroutine and some 20 KiB
// of its server for each client.
type answer struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// answerOf sends the headers at once.
func answerOf(w http.ResponseWriter, timeout time.Duration) (*answer, *apiErr) {
	a := &answer{w, http.NewResponseController(w)}
	streamHeaders(w.Header())
	_ = a.rc.SetReadDeadline(time.Time{}) // the connection lives as long as the run
	a.deadline(time.Now().Add(timeout))
	if err := a.rc.Flush(); errors.Is(err, http.ErrNotSupported) {
		clear(w.Header())
		return nil, fail(CodeNoStreaming, "something between the relay and the connection cannot flush")
	}
	return a, nil
}

func streamHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// deadline does nothing where there are none: the server's own hold.
func (a *answer) deadline(t time.Time) { _ = a.rc.SetWriteDeadline(t) }

func (a *answer) write(b []byte) error {
	if _, err := a.w.Write(b); err != nil {
		return err
	}
	return a.rc.Flush()
}

func (a *answer) kick()         { a.deadline(time.Unix(1, 0)) }
func (a *answer) chunked() bool { return false }

// A wire is the outlet that is the connection itself. Beside the blocking writes
// it has one that takes what there is room for.
type wire struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	head []byte // of the answer, for the first write
}

type connKey struct{}

// withConn lets hijack know what the connection is. It is for a server's
// ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*net.TCPConn); ok && canTryWrite {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// hijack takes the connection from the server, or returns nil where that cannot
// be: HTTP/2, HTTP/1.0 (no chunks), TLS, and whatever stands between the relay
// and the connection.
func hijack(w http.ResponseWriter, q *http.Request) *wire {
	c, ok := q.Context().Value(connKey{}).(*net.TCPConn)
	if !ok || q.ProtoMajor != 1 || q.ProtoMinor < 1 || q.TLS != nil || q.Method != http.MethodGet {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
		return nil
	}
	l := &wire{conn: c, raw: raw}
	h := w.Header()
	streamHeaders(h)
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Connection", "close")
	h.Set("Transfer-Encoding", "chunked")
	l.head = head(h)
	return l
}

func (l *wire) deadline(t time.Time) { _ = l.conn.SetWriteDeadline(t) }

func (l *wire) write(b []byte) error {
	_, err := l.conn.Write(b)
	return err
}

func (l *wire) kick()         { l.deadline(time.Unix(1, 0)) }
func (l *wire) chunked() bool { return true }

// lastChunk tells a client that it got everything it is to get.
var lastChunk = []byte("0\r\n\r\n")

// maxInput bounds what a client may send behind its request.
const maxInput = 64 << 10

// gone returns when the client has closed its side, or the connection failed or
// was closed, or the client sends what nobody asked for.
func (l *wire) gone() {
	var b [64]byte
	for total := 0; total < maxInput; {
		n, err := l.conn.Read(b[:])
		if err != nil {
			return
		}
		total += n
	}
}

// A pusher writes to wires what they take at once.
type pusher struct {
	b   []byte
	n   int
	err error
	fn  func(fd uintptr) bool
}

func newPusher() *pusher {
	p := &pusher{}
	p.fn = func(fd uintptr) bool {
		p.n, p.err = tryWrite(fd, p.b)
		return true
	}
	return p
}

// push returns how much of b the wire took.
func (p *pusher) push(l *wire, b []byte) (int, error) {
	p.b, p.n, p.err = b, 0, nil
	if err := l.raw.Write(p.fn); err != nil {
		return 0, err
	}
	p.b = nil
	return p.n, p.err
}
