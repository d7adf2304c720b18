package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	// bodyTimeout bounds the wait for a request's body, all of it.
	bodyTimeout = 15 * time.Second

	// readHeaderTimeout bounds the wait for a request's headers and for a TLS
	// handshake, idleTimeout the life of a connection between requests.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute

	// maxHeader bounds a request's headers. A cursor and a token are short.
	maxHeader = 32 << 10
)

// A hold is what an open request takes of its caller's share.
type hold struct {
	gate  *gate
	key   string // in slots; "" counts nowhere
	guest *guest

	mu   sync.Mutex // guards the rest
	kept bool
}

// holdFor counts a request of c in. c may be nil: then the address counts.
func (g *gate) holdFor(q *http.Request, c *caller) (*hold, *apiErr) {
	h := &hold{gate: g, guest: guestOf(q.Context())}
	most := g.r.cfg.MaxPerToken
	switch {
	case c != nil && c.grant != nil:
		h.guest.known()
		if c.grant != g.local { // this machine's own user has all that there is
			h.key = "token " + c.grant.id
		}
	default:
		if ip := addrOf(q.RemoteAddr); !ip.IsLoopback() && !g.proxy(ip) {
			h.key, most = "address "+ip.String(), g.r.cfg.MaxPerAddr
		}
	}
	if h.key != "" && !g.slots.take(h.key, most) {
		return nil, fail(CodeTooOften, "too many requests and streams are open for this token or address").with("limit", most)
	}
	return h, nil
}

// leave counts the request out, unless it is kept.
func (h *hold) leave() {
	h.mu.Lock()
	kept := h.kept
	h.mu.Unlock()
	if !kept {
		h.release()
	}
}

func (h *hold) release() {
	if h.key != "" {
		h.gate.slots.give(h.key)
	}
}

// keep lets a request outlive its handler, which has taken the connection: it counts
// until the returned function is called, once. end is called, at most once and from
// a goroutine of its own, when the caller's rights end before that; it must not
// block.
func (c *caller) keep(end func()) (release func()) {
	h := c.hold
	h.mu.Lock()
	h.kept = true
	h.mu.Unlock()
	back := h.guest.stay()
	stop := c.atEnd(end)
	return func() {
		stop()
		back()
		h.release()
	}
}

// atEnd has fn called when the caller's rights end, unless stop is called before.
func (c *caller) atEnd(fn func()) (stop func()) {
	if c.grant == nil {
		return func() {}
	}
	ended := context.AfterFunc(c.grant.over, fn)
	if c.until.IsZero() {
		return func() { ended() }
	}
	t := time.AfterFunc(time.Until(c.until), fn)
	return func() {
		ended()
		t.Stop()
	}
}

// slots count what is open, by whose it is. They are as many as there are open
// requests.
type slots struct {
	mu   sync.Mutex
	open map[string]int
}

func (s *slots) take(key string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key] >= most {
		return false
	}
	s.open[key]++
	return true
}

func (s *slots) give(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key]--; s.open[key] <= 0 {
		delete(s.open, key)
	}
}

// guests count the connections: all of them, and by address those that have not
// shown a token yet.
type guests struct {
	g *gate

	mu     sync.Mutex // guards the rest
	open   int
	byAddr map[netip.Addr]int
	byConn map[net.Conn]*guest // until it is closed, or a handler has it
}

// A guest is one connection.
type guest struct {
	all  *guests
	addr netip.Addr // counted under it; zero where it is not, or no more
	in   bool       // counted
}

type guestKey struct{}

// enter counts a connection in. One too many is closed before anything is read from
// it. It is for a server's ConnContext.
func (s *guests) enter(ctx context.Context, c net.Conn) context.Context {
	g := &guest{all: s, in: true}
	if ip := addrOf(c.RemoteAddr().String()); ip.IsValid() && !ip.IsLoopback() && !s.g.proxy(ip) {
		g.addr = ip
	}
	cfg := s.g.r.cfg
	s.mu.Lock()
	why := ""
	switch {
	case s.open >= cfg.MaxConns:
		why = "total"
	case g.addr.IsValid() && s.byAddr[g.addr] >= cfg.MaxPerAddr:
		why = "address"
	}
	s.open++
	s.byConn[c] = g
	if g.addr.IsValid() {
		s.byAddr[g.addr]++
	}
	s.mu.Unlock()
	if why != "" {
		s.g.r.met.connRefused(why)
		_ = c.Close() // its server finds it so, and counts it out
	}
	return context.WithValue(ctx, guestKey{}, g)
}

// state counts a connection out that was closed, or that a handler has taken: see
// [guest.stay]. It is a server's ConnState.
func (s *guests) state(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	s.mu.Lock()
	g := s.byConn[c]
	delete(s.byConn, c)
	s.mu.Unlock()
	g.left()
}

func guestOf(ctx context.Context) *guest {
	g, _ := ctx.Value(guestKey{}).(*guest)
	return g
}

// known says that the connection showed a token: it counts for its address no more.
func (g *guest) known() {
	if g == nil {
		return
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	g.unname()
}

func (g *guest) unname() {
	if g.addr.IsValid() {
		if g.all.byAddr[g.addr]--; g.all.byAddr[g.addr] <= 0 {
			delete(g.all.byAddr, g.addr)
		}
		g.addr = netip.Addr{}
	}
}

// left counts the connection out, once.
func (g *guest) left() {
	if g == nil {
		return
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	if g.in {
		g.in = false
		g.all.open--
		g.unname()
	}
}

// stay counts a connection in again that a handler took from the server, until the
// returned function is called.
func (g *guest) stay() (leave func()) {
	if g == nil {
		return func() {}
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	if !g.in {
		g.in = true
		g.all.open++
	}
	return g.left
}

func (s *guests) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// addrOf is the IP in "ip:port", zero where there is none.
func addrOf(hostport string) netip.Addr {
	ap, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// takeBody reads the body, within its bounds, before anything is done: a slow or
// endless one costs no more than its connection.
func takeBody(w http.ResponseWriter, q *http.Request) *apiErr {
	if q.Body == nil || q.Body == http.NoBody {
		return nil
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fail(CodeTooLarge, "the body is over 1 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return fail(CodeBadRequest, "the body did not come in time")
	case err != nil:
		return fail(CodeBadRequest, "the body did not come whole")
	}
	_ = rc.SetReadDeadline(time.Now().Add(answerTimeout))
	q.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
