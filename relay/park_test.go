package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// parked waits until n clients are.
func (s *served) parked(n int) {
	s.t.Helper()
	s.until(func() bool { return relay.Parked(s.relay) == n })
}

// seqs calls each for the seq of every event, and leaves all else unread.
func (c *client) seqs(each func(seq string)) {
	for c.sc.Scan() {
		if seq, ok := strings.CutPrefix(c.sc.Text(), "id: "); ok {
			each(seq)
		}
	}
}

// Many clients at the live end get single events and bursts, each in order, and a
// clean end.
func TestParked(t *testing.T) { testParked(t, 70, note(1)) } // more than one goroutine writes to

// So do they where no socket takes a frame at once.
func TestParkedLongFrame(t *testing.T) {
	big := frameOf(strings.Repeat("y", 3<<20)) // in 12 parts
	big.ContentType = event.Binary
	testParked(t, 2, big)
}

func testParked(t *testing.T, clients int, second event.Event) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	var wg sync.WaitGroup
	word := make(chan struct{}, clients)
	all := func() {
		t.Helper()
		for range clients {
			select {
			case <-word:
			case <-time.After(3 * patience):
				t.Fatal("a client waits in vain")
			}
		}
		s.parked(clients)
	}
	got := make([][]string, clients)
	for i := range clients {
		c := s.stream("/v1/runs/run-1/stream", nil)
		wg.Go(func() {
			c.seqs(func(seq string) {
				if got[i] = append(got[i], seq); len(got[i]) <= 2 {
					word <- struct{}{}
				}
			})
			if c.sc.Err() != nil {
				t.Errorf("end: %v", c.sc.Err())
			}
		})
	}
	all()
	want := []string{"1", itoa(e.emit(second))}
	all()
	for range 20 {
		want = append(want, itoa(e.emit(note(2))))
	}
	want = append(want, itoa(e.emit(exited())))
	wg.Wait()
	for i := range clients {
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Fatalf("client %d:\n%s", i, d)
		}
	}
	s.parked(0)
}

// A parked client hears the heartbeat, and its end is noticed.
func TestParkedHeartbeat(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{Heartbeat: 40 * time.Millisecond})
	c := s.stream("/v1/runs/run-1/stream", nil)
	c.take(1)
	s.parked(1)
	for range 3 {
		c.heartbeat()
	}
	e.emit(note(1))
	if got := ids(c.take(1)); got != "2" {
		t.Errorf("after heartbeats: %s", got)
	}
	s.parked(1)
	c.close()
	s.parked(0)
}

// A parked client gets what its filter lets through.
func TestParkedFilter(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	c := s.stream("/v1/runs/run-1/stream?task=t1", nil)
	s.parked(1)
	for i := range 9 {
		ev := note(i)
		ev.Task = fmt.Sprintf("t%d", i%3)
		e.emit(ev)
	}
	got := c.take(3)
	e.emit(exited())
	if got = append(got, c.all()...); ids(got) != "3 6 9 11" {
		t.Errorf("got %s", ids(got))
	}
}

// Facts without a place in the sequence reach parked clients; lost ends the stream.
func TestParkedLost(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	c := s.stream("/v1/runs/run-1/stream", nil)
	c.take(1)
	s.parked(1)
	f := fact(event.TypeLost, event.Life, relay.Lost{Synthesised: true, Reason: "presence_expired", Time: time.Now()})
	f.Tenant, f.Run, f.Ref, f.Time = tenant, "run-1", "lost-1", time.Now()
	if _, err := r.bus.PutControl(t.Context(), &f, subject.Liveness, 0); err != nil {
		t.Fatal(err)
	}
	if got := c.all(); len(got) != 1 || got[0].name != "lost" || got[0].id != "" {
		t.Errorf("got %+v", got)
	}
}

// A relay that ends gives parked clients what there is and a clean end.
func TestParkedDrain(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{Drain: patience})
	var list []*client
	for range 20 {
		list = append(list, s.stream("/v1/runs/run-1/stream", nil))
	}
	s.parked(len(list))
	e.emit(note(1))
	e.shipped()
	s.stop()
	for _, c := range list {
		if got := ids(c.all()); got != "1 2" || c.sc.Err() != nil {
			t.Errorf("got %s, end: %v", got, c.sc.Err())
		}
	}
}

// raw sends a request as it is and returns the connection.
func (s *served) raw(request string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		s.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// What stands on the wire before the events: chunks for HTTP/1.1, none for 1.0.
func TestWire(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	for _, version := range []string{"1.0", "1.1"} {
		_, in := s.raw("GET /v1/runs/run-1/stream HTTP/" + version + "\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Content-Type": "text/event-stream", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store, no-transform",
		} {
			if got := res.Header.Get(k); got != v {
				t.Errorf("HTTP/%s: %s %q", version, k, got)
			}
		}
		if _, err := http.ParseTime(res.Header.Get("Date")); err != nil {
			t.Errorf("HTTP/%s: %v", version, err)
		}
		if chunked := len(res.TransferEncoding) == 1; chunked != (version == "1.1") || !res.Close {
			t.Errorf("HTTP/%s: transfer encoding %v, close %v", version, res.TransferEncoding, res.Close)
		}
		c := &client{t: t, res: res, sc: bufio.NewScanner(res.Body), cancel: func() {}}
		if got := ids(c.take(1)); got != "1" {
			t.Errorf("HTTP/%s: %s", version, got)
		}
	}
	s.parked(1)
}

// What a client sends behind its request changes nothing, up to a bound.
func TestWireInput(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	const request = "GET /v1/runs/run-1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
	c, in := s.raw(request + request)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	sse := &client{t: t, res: res, sc: bufio.NewScanner(res.Body), cancel: func() {}}
	sse.take(1)
	s.parked(1)
	if _, err := c.Write(bytes.Repeat([]byte("x"), relay.MaxInput/2)); err != nil {
		t.Fatal(err)
	}
	e.emit(note(1))
	if got := ids(sse.take(1)); got != "2" {
		t.Errorf("got %s", got)
	}
	_, _ = c.Write(bytes.Repeat([]byte("x"), relay.MaxInput)) // fails where the relay was faster
	s.parked(0)
}

func TestChunk(t *testing.T) {
	for _, n := range []int{1, 15, 16, 255, 256, 4095, 1 << 20} {
		data := bytes.Repeat([]byte("z"), n)
		b := relay.Chunk(data)
		if b[0] == '0' {
			t.Errorf("%d bytes: the size begins with 0", n)
		}
		got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(append(b, "0\r\n\r\n"...))))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
}
