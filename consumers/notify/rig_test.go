package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/testbus"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("NOTIFY_TEST_CHILD"); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// long is a safety net: nothing here takes that long.
const long = 2 * time.Minute

// serve starts a server with empty streams and connects to it.
func serve(tb testing.TB) *bus.Bus {
	tb.Helper()
	_, b := testbus.Start(tb, testbus.Streams)
	return b
}

const tenant = "acme"

// publish puts a run's events on the bus, from the first on; those that are there
// already stay.
func publish(tb testing.TB, b *bus.Bus, run string, events []*event.Event) {
	tb.Helper()
	testbus.Publish(tb, b, 0, events)
}

const (
	sid      = "00000000-0000-4000-8000-000000000001"
	initLine = `{"type":"system","subtype":"init","session_id":"` + sid + `"}`
	prompt   = `> {"type":"user","message":{"role":"user","content":"x"}}`
	done     = `{"type":"result","subtype":"success","is_error":false,"session_id":"` + sid + `","num_turns":1,"total_cost_usd":0.25,"result":"done"}`
	failed   = `{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"` + sid + `","uuid":"u-r","num_turns":1,"result":"x"}`
)

// askLine is a request for leave to run a command.
func askLine(id, command string) string {
	return fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":%q},"tool_use_id":"toolu_%s"},"session_id":%q}`, id, command, id, sid)
}

// script makes the events of a run told step by step: "> x" is a line on stdin,
// "exit N" its end, anything else a line on stdout. Without an exit it still lives.
func script(run string, steps ...string) []*event.Event {
	c := &capture.Capture{Argv: []string{"claude"}}
	ends := false
	for _, s := range steps {
		e := capture.Entry{Dir: capture.Out, Data: []byte(s)}
		if in, ok := strings.CutPrefix(s, "> "); ok {
			e.Dir, e.Data = capture.In, []byte(in)
		}
		if n, _ := fmt.Sscanf(s, "exit %d", &c.Code); n == 1 {
			e, ends = capture.Entry{Dir: capture.Exit}, true
		}
		c.Timeline = append(c.Timeline, e)
	}
	all := capture.Events(c, tenant, run)
	if !ends {
		all = slices.DeleteFunc(all, func(e *event.Event) bool { return e.Type == event.TypeExited })
	}
	return all
}

// fact stores a control fact of a run.
func fact(tb testing.TB, b *bus.Bus, run, typ, ref string) {
	tb.Helper()
	e := &event.Event{
		Tenant: tenant, Run: run, Ref: ref, Time: time.Now().UTC(), Type: typ, Kind: event.Life, Stream: event.Edge,
		ContentType: event.JSON, Data: []byte(`{"reason":"presence_expired"}`),
	}
	if _, err := b.PutControl(tb.Context(), e, subject.Liveness, bus.Any); err != nil {
		tb.Fatal(err)
	}
}

// got is one request at the receiver.
type got struct {
	ID, Kind, Run, Verdict string
	Body                   map[string]any
	Header                 http.Header
	Path                   string
}

// A receiver is a real HTTP server that keeps what comes.
type receiver struct {
	*httptest.Server
	reply func(w http.ResponseWriter, q *http.Request, n int) // nil: 204

	mu    sync.Mutex // guards the rest
	all   []got
	grown chan struct{}
}

func receive(tb testing.TB) *receiver {
	r := &receiver{grown: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	tb.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, q *http.Request) {
	b, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	g := got{ID: q.Header.Get("webhook-id"), Header: q.Header, Path: q.URL.Path}
	_ = json.Unmarshal(b, &g.Body)
	data := g.Body
	if d, ok := g.Body["data"].(map[string]any); ok {
		data = d
	}
	g.Kind, _ = data["kind"].(string)
	g.Run, _ = data["run"].(string)
	g.Verdict, _ = data["verdict"].(string)
	r.mu.Lock()
	r.all = append(r.all, g)
	n := len(r.all)
	close(r.grown)
	r.grown = make(chan struct{})
	r.mu.Unlock()
	if r.reply != nil {
		r.reply(w, q, n)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// wait waits until n requests have come, or what until says.
func (r *receiver) wait(tb testing.TB, what string, enough func([]got) bool, failed ...func()) []got {
	tb.Helper()
	deadline := time.After(long)
	for {
		r.mu.Lock()
		all, grown := slices.Clone(r.all), r.grown
		r.mu.Unlock()
		if enough(all) {
			return all
		}
		select {
		case <-grown:
		case <-deadline:
			for _, f := range failed {
				f()
			}
			tb.Fatalf("waited for %s; got %s", what, kinds(all))
		}
	}
}

func (r *receiver) n(tb testing.TB, n int) []got {
	tb.Helper()
	return r.wait(tb, fmt.Sprintf("%d notices", n), func(all []got) bool { return len(all) >= n })
}

func kinds(all []got) string {
	var list []string
	for _, g := range all {
		list = append(list, g.Run+" "+g.Kind)
	}
	return strings.Join(list, ", ")
}

// rulesFile writes rules; $URL is the receiver's.
func rulesFile(tb testing.TB, r *receiver, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "notify.yaml")
	if r != nil {
		text = strings.ReplaceAll(text, "$URL", r.URL)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

const plain = `
version: 1
destinations:
  hook: {type: webhook, url: $URL/hook, allow: [127.0.0.1]}
rules:
  - {name: all, to: [hook]}
`

// start runs a notifier until stop is called or the test ends.
func start(tb testing.TB, o notify.Options) (n *notify.Notifier, stop func()) {
	tb.Helper()
	if o.Log == nil {
		o.Log = testLog(tb)
	}
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	n, err := notify.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				tb.Errorf("run: %v", err)
			}
		case <-time.After(long):
			tb.Error("the notifier does not end")
		}
	})
	tb.Cleanup(stop)
	return n, stop
}

// testLog prints when the tests run with NOTIFY_TEST_LOG set.
func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("NOTIFY_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
