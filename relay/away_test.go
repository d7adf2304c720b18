package relay_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

// A moving server is the one that runs now.
type moving struct{ now atomic.Pointer[natsd.Server] }

func (m *moving) InProcessConn() (net.Conn, error) {
	if s := m.now.Load(); s != nil {
		return s.InProcessConn()
	}
	return nil, net.ErrClosed
}

// The bus goes away and comes back: the relay says so, streams are held and go
// on without a hole, and nothing is called lost that was only not heard.
func TestBusAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "js")
	m := &moving{}
	start := func() {
		s, err := natsd.Start(natsd.Options{Dir: dir, DontListen: true})
		if err != nil {
			t.Fatal(err)
		}
		m.now.Store(s)
	}
	stop := func() {
		if s := m.now.Swap(nil); s != nil {
			_ = s.Shutdown(context.Background())
		}
	}
	start()
	t.Cleanup(stop)
	connect := func() *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{InProcess: m}, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	r := &rig{t: t, bus: connect()}
	if _, err := r.bus.Ensure(t.Context(), small()); err != nil {
		t.Fatal(err)
	}
	e := r.edge("run-1")
	e.emit(notes(10)...)
	e.shipped()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.srv = m.now.Load()
	s := r.serveOn(relay.Config{Heartbeat: 20 * time.Millisecond, LostGrace: 30 * time.Second}, ln, &http.Transport{}, connect())
	c := s.stream("/v1/runs/run-1/stream", nil)
	c.take(10)
	for range 2 {
		stop()
		s.until(func() bool { return s.get("/readyz", nil).status == http.StatusServiceUnavailable })
		e.emit(notes(10)...)
		if got := s.get("/v1/runs/run-1/events", nil); got.status != http.StatusServiceUnavailable {
			t.Errorf("a page without a bus: %d", got.status)
		}
		if got := s.get("/livez", nil); got.status != http.StatusOK {
			t.Errorf("livez: %d", got.status)
		}
		start()
		s.until(func() bool { return s.get("/readyz", nil).status == http.StatusOK })
	}
	e.emit(exited())
	list := c.all()
	for i, ev := range list {
		if ev.seq(t) != uint64(i+11) {
			t.Fatalf("event %d: %s %s", i, ev.id, ev.name)
		}
	}
	if len(list) != 21 || c.comments == 0 {
		t.Errorf("%d events, %d heartbeats", len(list), c.comments)
	}
}

// A stalled client does not hold up the relay's end.
func TestDrainCutsStalled(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	for range 40 {
		e.emit(frameOf(`{"x":"` + string(pad(200<<10)) + `"}`))
	}
	e.shipped()
	s := r.narrow(relay.Config{WriteTimeout: time.Hour, Drain: 8 * time.Second})
	s.stream("/v1/runs/run-1/stream", nil).take(1)
	other := s.stream("/v1/runs/run-1/stream?after=39", nil)
	other.take(1)
	e.emit(note(1))
	e.shipped()
	s.stop()
	if got := ids(other.all()); got != "41" {
		t.Errorf("what was on the bus at the end: %s", got)
	}
}

func pad(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return b
}
