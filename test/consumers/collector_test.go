package consumers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cbcast/cbcast/consumers/metrics/trace"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/testbus"
)

// A backend is what a collector passes spans on to.
type backend struct {
	*httptest.Server

	mu      sync.Mutex // guards the rest
	spans   map[string]*tracepb.Span
	service map[string]bool
	changed chan struct{}
}

func newBackend(t *testing.T) *backend {
	b := &backend{spans: map[string]*tracepb.Span{}, service: map[string]bool{}, changed: make(chan struct{})}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rs := range data.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				b.service[a.Value.GetStringValue()] = true
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				b.spans[string(s.TraceId)+string(s.SpanId)] = s // by its id, as such backends do
			}
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *backend) wait(t *testing.T, what string, ok func(map[string]*tracepb.Span) bool) {
	t.Helper()
	limit := time.After(long)
	for {
		b.mu.Lock()
		done, changed := ok(b.spans), b.changed
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// A collector is OpenTelemetry's own, which answers when the backend has what it was sent.
type collector struct {
	t              *testing.T
	program, dir   string
	addr, upstream string
	cmd            *exec.Cmd
	log            bytes.Buffer
}

func newCollector(t *testing.T, upstream string) *collector {
	t.Helper()
	c := &collector{t: t, program: tool(t, "otelcol"), dir: t.TempDir(), upstream: upstream}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = l.Addr().String()
	_ = l.Close()
	config := fmt.Sprintf(`receivers:
  otlp: {protocols: {http: {endpoint: %q}}}
exporters:
  otlphttp: {endpoint: %q, compression: none, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}
  debug: {verbosity: basic}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlphttp, debug]}}
`, c.addr, c.upstream)
	if err := os.WriteFile(filepath.Join(c.dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("the collector says:\n%s", c.log.String())
		}
	})
	return c
}

func (c *collector) start() {
	c.t.Helper()
	c.cmd = exec.Command(c.program, "--config="+filepath.Join(c.dir, "config.yaml"))
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *collector) kill() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.cmd = nil
	}
}

// A real collector takes the traces of recordings of each dialect, passes them on as they
// were meant, and may be away and killed meanwhile.
func TestCollector(t *testing.T) {
	back := newBackend(t)
	c := newCollector(t, back.URL)
	_, b := testbus.Start(t, testbus.Streams)
	to, sample, err := trace.FromEnv(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + c.addr, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_SERVICE_NAME": "cbcast-test",
	}, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := trace.New(trace.Options{Collector: to, Sample: sample, Dir: t.TempDir(), Bus: b})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	stopped := false
	t.Cleanup(func() {
		if cancel(); !stopped {
			<-ended
		}
	})

	want := map[string]trace.Span{}
	roots := 0
	has := func(spans map[string]*tracepb.Span) (n int) {
		for _, s := range spans {
			if string(s.ParentSpanId) == ciSpan {
				n++
			}
		}
		return n
	}
	for i, name := range capture.List() {
		if i%20 != 0 {
			continue
		}
		roots++
		playTraced(t, b, name, roots, want)
		switch roots {
		case 5: // so far there was nobody
			c.start()
			back.wait(t, "the first runs", func(s map[string]*tracepb.Span) bool { return has(s) == roots })
		case 10:
			c.kill()
		case 15:
			c.start()
		}
	}
	back.wait(t, "all runs", func(s map[string]*tracepb.Span) bool { return has(s) == roots })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stopped = true
	compare(t, want, back)
}

// ciSpan is the span of the CI job that all runs are below.
const ciSpan = "\xb7\xad\x6b\x71\x69\x20\x33\x31"

// playTraced publishes a recording as a run of a CI job, and notes its spans.
func playTraced(t *testing.T, b *bus.Bus, name string, n int, want map[string]trace.Span) {
	t.Helper()
	rec, err := capture.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	run := fmt.Sprintf("01a22b5c-84b8-7e83-bbee-%012d", n)
	list := capture.Events(rec, "acme", run)
	list[0].TraceParent = fmt.Sprintf("00-%032x-%x-01", n, ciSpan)
	maker := trace.NewBuilder(run, trace.BuilderOptions{})
	for _, e := range list {
		for _, s := range maker.Apply(e) {
			want[string(s.Context.Trace[:])+string(s.ID[:])] = s
		}
	}
	testbus.Publish(t, b, 0, list)
}

// compare holds what came out of the collector against what was meant.
func compare(t *testing.T, want map[string]trace.Span, back *backend) {
	t.Helper()
	back.mu.Lock()
	defer back.mu.Unlock()
	if d := cmp.Diff(map[string]bool{"cbcast-test": true}, back.service); d != "" {
		t.Error(d)
	}
	names := map[string]int{}
	for id, s := range want {
		got := back.spans[id]
		if got == nil {
			t.Errorf("%s %s is missing", s.Path, s.Name)
			continue
		}
		names[s.Name]++
		var parent []byte
		if !s.Parent.IsZero() {
			parent = s.Parent[:]
		}
		if got.Name != s.Name || !slices.Equal(got.ParentSpanId, parent) || int(got.Kind) != int(s.Kind) || int(got.Status.GetCode()) != int(s.Status) ||
			got.StartTimeUnixNano != uint64(s.Start.UnixNano()) || got.EndTimeUnixNano != uint64(s.End.UnixNano()) ||
			len(got.Attributes) != len(s.Attrs) || len(got.Events) != len(s.Events) || len(got.Links) != len(s.Links) {
			t.Errorf("%s came out as %v", s.Path, got)
		}
	}
	if len(back.spans) != len(want) {
		t.Errorf("%d spans came out, want %d", len(back.spans), len(want))
	}
	t.Logf("%d spans: %v", len(want), names)
}
