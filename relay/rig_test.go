package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef0123456789abcdef"

// patience is how long a test waits for what must come: a slow machine is no fault.
const patience = 2 * time.Minute

// A rig is a real server with streams, and a bus for the test's own edges.
type rig struct {
	t   testing.TB
	srv *natsd.Server
	bus *bus.Bus
	// silent has edges say themselves whether they live. Else they live as long
	// as the test, so that no relay looks after their runs.
	silent bool
	// archive is what relays get from now on.
	archive relay.Archive
}

func newRig(t testing.TB, top bus.Topology) *rig { return newRigOn(t, top, natsd.Options{}) }

func newRigOn(t testing.TB, top bus.Topology, o natsd.Options) *rig {
	t.Helper()
	o.Dir, o.DontListen = filepath.Join(t.TempDir(), "js"), true
	srv, err := natsd.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	r := &rig{t: t, srv: srv}
	r.bus = r.connect()
	if _, err := r.bus.Ensure(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	return r
}

// silentRig is a rig of silent edges.
func silentRig(t testing.TB) *rig {
	t.Helper()
	r := newRig(t, small())
	r.silent = true
	return r
}

func small() bus.Topology { return bus.Topology{MaxBytes: 256 << 20} }

func (r *rig) connect() *bus.Bus {
	r.t.Helper()
	b, err := bus.Connect(r.t.Context(), bus.Config{InProcess: r.srv}, testLog(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(b.Close)
	return b
}

func testLog(t testing.TB) *slog.Logger {
	if os.Getenv("RELAY_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A served is a relay with a bus of its own, on a listener.
type served struct {
	t      testing.TB
	relay  *relay.Relay
	url    string
	client *http.Client
	stop   func() // returns when the relay has ended
	// patience bounds a stream.
	patience time.Duration
}

func (r *rig) relay(cfg relay.Config) *served {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.serve(patient(cfg), ln, &http.Transport{})
}

// patient keeps a relay in real time from calling edges lost that these tests do
// not make present.
func patient(cfg relay.Config) relay.Config {
	cfg.LostGrace = 100 * time.Hour
	return cfg
}

// narrow is a relay to which the first connection buffers little, so that it is
// felt when its client does not read.
func (r *rig) narrow(cfg relay.Config) *served {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	return r.serve(patient(cfg), &narrow{Listener: ln}, &http.Transport{})
}

type narrow struct {
	net.Listener
	once sync.Once
}

func (l *narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.once.Do(func() { _ = c.(*net.TCPConn).SetWriteBuffer(16 << 10) })
	}
	return c, err
}

func (r *rig) serve(cfg relay.Config, ln net.Listener, tr *http.Transport) *served {
	r.t.Helper()
	return r.serveOn(cfg, ln, tr, r.connect())
}

func (r *rig) serveOn(cfg relay.Config, ln net.Listener, tr *http.Transport, b *bus.Bus) *served {
	r.t.Helper()
	rel := relay.New(relay.Options{Config: cfg, Bus: b, Token: token, Archive: r.archive, Log: testLog(r.t)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rel.Serve(ctx, ln); !errors.Is(err, context.Canceled) {
			r.t.Errorf("Serve: %v", err)
		}
	}()
	s := &served{t: r.t, relay: rel, url: "http://" + ln.Addr().String(), client: &http.Client{Transport: checked(r.t, tr)}, patience: 3 * patience}
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		b.Close()
		tr.CloseIdleConnections()
	})
	r.t.Cleanup(s.stop)
	s.until(func() bool { return s.get("/readyz", nil).status == http.StatusOK })
	return s
}

// until waits for a condition that only the relay's own work can bring.
func (s *served) until(ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			s.t.Fatal("waited in vain")
		}
		<-time.After(5 * time.Millisecond)
	}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("answer %d %.200s: %v", a.status, a.body, err)
	}
}

func (s *served) do(method, path, body string, header map[string]string) answer {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			q.Host = v
		} else {
			q.Header.Set(k, v)
		}
	}
	res, err := s.client.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{res.StatusCode, res.Header, b}
}

func (s *served) get(path string, header map[string]string) answer {
	s.t.Helper()
	return s.do("GET", path, "", header)
}

func (s *served) post(path, body string, header map[string]string) answer {
	s.t.Helper()
	h := map[string]string{"Authorization": "Bearer " + token}
	for k, v := range header {
		h[k] = v
	}
	return s.do("POST", path, body, h)
}

// An sseEvent is one event as a client sees it.
type sseEvent struct{ id, name, data string }

func (e sseEvent) seq(t testing.TB) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(e.id, 10, 64)
	if err != nil {
		t.Fatalf("event %+v has no seq", e)
	}
	return n
}

// A client reads one stream by the rules of the HTML standard.
type client struct {
	t        testing.TB
	res      *http.Response
	sc       *bufio.Scanner
	cancel   context.CancelFunc
	comments int
}

func (s *served) stream(path string, header map[string]string) *client {
	s.t.Helper()
	c, err := s.open(path, header)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *served) open(path string, header map[string]string) (*client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	q, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	for k, v := range header {
		q.Header.Set(k, v)
	}
	res, err := s.client.Do(q)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &client{t: s.t, res: res, sc: bufio.NewScanner(res.Body), cancel: cancel}
	c.sc.Buffer(nil, 256<<20)
	s.t.Cleanup(c.close)
	return c, nil
}

func (c *client) close() {
	c.cancel()
	_ = c.res.Body.Close()
}

// next returns the next event, false at the end of the stream.
func (c *client) next() (sseEvent, bool) {
	var e sseEvent
	var data []string
	for c.sc.Scan() {
		line := c.sc.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if len(data) > 0 {
				e.data = strings.Join(data, "\n")
				return e, true
			}
			e = sseEvent{}
		case field == "":
			c.comments++
		case field == "id":
			e.id = value
		case field == "event":
			e.name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return sseEvent{}, false
}

// heartbeat waits for the next comment.
func (c *client) heartbeat() {
	c.t.Helper()
	for line := ""; line != ":"; line = c.sc.Text() {
		if !c.sc.Scan() {
			c.t.Fatalf("the stream ended: %v", c.sc.Err())
		}
	}
}

func (c *client) all() []sseEvent {
	var list []sseEvent
	for e, ok := c.next(); ok; e, ok = c.next() {
		list = append(list, e)
	}
	return list
}

// later reads on in the background; the returned function waits for the end.
func (c *client) later() func() []sseEvent {
	list := make(chan []sseEvent, 1)
	go func() { list <- c.all() }() // ends with the stream
	return func() []sseEvent { return <-list }
}

func (c *client) take(n int) []sseEvent {
	c.t.Helper()
	var list []sseEvent
	for range n {
		e, ok := c.next()
		if !ok {
			c.t.Fatalf("stream ended after %d of %d events: %v", len(list), n, c.sc.Err())
		}
		list = append(list, e)
	}
	return list
}

func ids(list []sseEvent) string {
	var b strings.Builder
	for _, e := range list {
		if e.id == "" {
			fmt.Fprintf(&b, "%s ", e.name)
		} else {
			fmt.Fprintf(&b, "%s ", e.id)
		}
	}
	return strings.TrimSpace(b.String())
}

// An edge publishes a run with the real publisher, from memory.
type edge struct {
	r    *rig
	info bus.RunInfo
	ref  bus.Ref

	mu     sync.Mutex // guards the rest
	events []*event.Event
	acked  uint64
	ended  bool
	grown  chan struct{}

	stop func()
}

const tenant = "acme"

func (r *rig) edge(run string) *edge {
	r.t.Helper()
	e := &edge{r: r, ref: bus.Ref{Tenant: tenant, Run: run}, grown: make(chan struct{})}
	e.info = bus.RunInfo{Run: run, Tenant: tenant, Dialect: "claude", State: "working", Started: time.Now().UTC()}
	e.begin()
	return e
}

func (e *edge) begin() {
	e.r.t.Helper()
	r := e.r
	if !r.silent {
		e.present(24 * time.Hour)
	}
	e.register()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := bus.Publisher{Bus: r.bus, Ref: e.ref, Source: e, Log: testLog(r.t)}
		if err := p.Run(ctx); err != nil && ctx.Err() == nil {
			r.t.Errorf("publish %s: %v", e.ref.Run, err)
		}
	}()
	e.stop = func() { cancel(); <-done }
	r.t.Cleanup(e.stop)
}

func (e *edge) register() {
	e.r.t.Helper()
	if err := e.r.bus.PutRun(e.r.t.Context(), e.info); err != nil {
		e.r.t.Fatal(err)
	}
}

func (e *edge) present(ttl time.Duration) {
	e.r.t.Helper()
	if err := e.r.bus.RenewPresence(e.r.t.Context(), e.ref.Run, ttl); err != nil {
		e.r.t.Fatal(err)
	}
}

func (e *edge) Event(n uint64) (*event.Event, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > uint64(len(e.events)) {
		return nil, false, nil
	}
	return e.events[n-1], true, nil
}

func (e *edge) Wait(ctx context.Context, n uint64) error {
	for {
		e.mu.Lock()
		have, grown, ended := uint64(len(e.events)), e.grown, e.ended
		e.mu.Unlock()
		switch {
		case n <= have:
			return nil
		case ended:
			return bus.ErrDone
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (e *edge) Acked(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.acked = n
	close(e.grown)
	e.grown = make(chan struct{})
}

// emit gives events their place in the run, split where they are long, and
// returns the seq of the last.
func (e *edge) emit(events ...event.Event) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range events {
		chunks := event.Split(ev.Data, 256<<10)
		for i, data := range chunks {
			c := ev
			c.Tenant, c.Run, c.Seq, c.Data = tenant, e.ref.Run, uint64(len(e.events)+1), data
			if c.Time.IsZero() {
				c.Time = time.Now().UTC()
			}
			if len(chunks) > 1 {
				c.Chunk = event.Part{I: i + 1, N: len(chunks)}
			}
			e.events = append(e.events, &c)
		}
	}
	close(e.grown)
	e.grown = make(chan struct{})
	return uint64(len(e.events))
}

// shipped waits until everything emitted is on the bus.
func (e *edge) shipped() {
	e.r.t.Helper()
	timeout := time.After(patience)
	for {
		e.mu.Lock()
		ok, grown := e.acked == uint64(len(e.events)), e.grown
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-grown:
		case <-timeout:
			e.r.t.Fatal("events not shipped")
		}
	}
}

func frameOf(line string) event.Event {
	return event.Event{
		Type: "dev.cbcast.claude.assistant", Kind: event.Msg, Stream: event.Out, Session: "s1", ContentType: event.JSON, Data: []byte(line),
	}
}

func note(n int) event.Event {
	return frameOf(fmt.Sprintf(`{"type":"assistant","session_id":"s1","n":%d,"message":{"content":[{"type":"text","text":"a<b & c"}]}}`, n))
}

func notes(n int) []event.Event {
	var list []event.Event
	for i := range n {
		list = append(list, note(i))
	}
	return list
}

func fact(typ string, kind event.Kind, data any) event.Event {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return event.Event{Type: typ, Kind: kind, Stream: event.Edge, ContentType: event.JSON, Data: b}
}

func exited() event.Event {
	code := 0
	return fact(event.TypeExited, event.Life, event.Exited{Code: &code, Complete: true})
}

// dataOf is the raw text of "data" in an event's JSON.
func dataOf(t testing.TB, e sseEvent) []byte {
	t.Helper()
	ev, err := event.ParseJSON([]byte(e.data))
	if err != nil {
		t.Fatalf("event %.200s: %v", e.data, err)
	}
	return ev.Data
}

func sameBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes %.120q, want %d bytes %.120q", what, len(got), got, len(want), want)
	}
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
