package trace

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/testbus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a safety net: nothing here takes that long.
const long = 2 * time.Minute

// A fake is a collector that answers as it is told.
type fake struct {
	*httptest.Server
	// answer says what to do with a request; nil takes it.
	answer func(w http.ResponseWriter, spans []*tracepb.Span) bool

	mu      sync.Mutex // guards the rest
	spans   []*tracepb.Span
	last    *http.Request
	body    *tracepb.TracesData
	asked   int
	changed chan struct{}
}

func newFake(tb testing.TB) *fake {
	f := &fake{changed: make(chan struct{})}
	f.Server = httptest.NewServer(f)
	tb.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(b, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var spans []*tracepb.Span
	for _, rs := range data.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			spans = append(spans, ss.Spans...)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.body = r, &data
	f.asked++
	defer func() { close(f.changed); f.changed = make(chan struct{}) }()
	if f.answer != nil && !f.answer(w, spans) {
		return
	}
	f.spans = append(f.spans, spans...)
}

// say changes the answer.
func (f *fake) say(answer func(w http.ResponseWriter, spans []*tracepb.Span) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// refuse is an answer that takes nothing.
func refuse(code int, header ...string) func(http.ResponseWriter, []*tracepb.Span) bool {
	return func(w http.ResponseWriter, _ []*tracepb.Span) bool {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		return false
	}
}

// wait waits until ok of what the collector has.
func (f *fake) wait(tb testing.TB, what string, ok func(*fake) bool) {
	tb.Helper()
	limit := time.After(long)
	for {
		f.mu.Lock()
		done, changed := ok(f), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit:
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// has reports whether the root of a run is there.
func (f *fake) has(run string) bool {
	id := SpanOf(run, runPath)
	for _, s := range f.spans {
		if string(s.SpanId) == string(id[:]) {
			return true
		}
	}
	return false
}

// byID counts the spans by id.
func (f *fake) byID() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := map[string]int{}
	for _, s := range f.spans {
		m[string(s.TraceId)+string(s.SpanId)]++
	}
	return m
}

// want counts the spans of runs as they are to be.
func want(runs map[string][]*event.Event) map[string]int {
	m := map[string]int{}
	for run, events := range runs {
		b := NewBuilder(run, BuilderOptions{})
		for _, e := range events {
			for _, s := range b.Apply(e) {
				m[string(s.Context.Trace[:])+string(s.ID[:])] = 1
			}
		}
	}
	return m
}

// testLog prints when the tests run with TRACE_TEST_LOG set.
func testLog(tb testing.TB) *slog.Logger {
	if os.Getenv("TRACE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// publish puts the first n events of a run on the bus.
func publish(tb testing.TB, b *bus.Bus, events []*event.Event, n int) {
	tb.Helper()
	testbus.Publish(tb, b, 0, events[:n])
}

// runsOf are some recordings as runs of their own.
func runsOf(tb testing.TB, names ...string) map[string][]*event.Event {
	tb.Helper()
	runs := map[string][]*event.Event{}
	for i, name := range names {
		run := aRun[:len(aRun)-1] + string(rune('a'+i))
		for _, e := range load(tb, name) {
			e.Run = run
			runs[run] = append(runs[run], e)
		}
	}
	return runs
}

var some = []string{
	"claude-2.1.220/70-agent-bg", "claude-2.1.220/81-workflow-ok-partial", "cbc-2.163.0/workflow-live", "cbc-2.163.0/ask-user",
	"codex-0.153.4/81-collab-v2", "codex-0.153.4/25-two-approvals",
}

// options are a tracer's that sends to a fake.
func options(tb testing.TB, b *bus.Bus, f *fake) Options {
	return Options{
		Collector: Collector{Endpoint: f.URL + "/v1/traces", Resource: Resource{Service: "cbcast", Version: "test"}},
		Dir:       filepath.Join(tb.TempDir(), "trace"), Bus: b, Log: testLog(tb),
		every: 20 * time.Millisecond,
	}
}

// startTracer runs a tracer; stop ends it and waits for it.
func startTracer(tb testing.TB, o Options) (t *Tracer, stop func() error) {
	tb.Helper()
	t, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- t.Run(ctx) }()
	var once sync.Once
	stop = func() (err error) {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	tb.Cleanup(func() { _ = stop() })
	return t, stop
}

// partialAnswer is an answer with a partial success.
func partialAnswer(w http.ResponseWriter, rejected uint64, message string) {
	var p []byte
	p = protowire.AppendTag(p, 1, protowire.VarintType)
	p = protowire.AppendVarint(p, rejected)
	p = protowire.AppendTag(p, 2, protowire.BytesType)
	p = protowire.AppendString(p, message)
	var b []byte
	b = protowire.AppendTag(b, 7, protowire.Fixed32Type) // of a later version
	b = protowire.AppendFixed32(b, 1)
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, p)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b)
}

func attrOf(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return strings.TrimSpace(a.Value.GetStringValue())
		}
	}
	return ""
}

// value is what a counter or gauge says.
func value(tb testing.TB, m prometheus.Metric) float64 {
	tb.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		tb.Fatal(err)
	}
	if d.Counter != nil {
		return d.Counter.GetValue()
	}
	return d.Gauge.GetValue()
}
