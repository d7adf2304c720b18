package trace

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/cbcast/cbcast/internal/run"
)

// a few spans to send.
func sample(t *testing.T) []Span {
	t.Helper()
	return build(BuilderOptions{}, load(t, "claude-2.1.220/70-agent-bg"))
}

// What is set is what is sent, and nothing that the environment says: an SDK would read
// these variables by itself.
func TestRequest(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-from=environment")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=environment")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for _, zip := range []bool{false, true} {
		f := newFake(t)
		x := newExporter(Collector{
			Endpoint: f.URL + "/custom/path", Headers: map[string]string{"Authorization": "Bearer t"}, Gzip: zip,
			Resource: Resource{Service: "ci", Version: "1.2", Attrs: map[string]string{"service.name": "x", "deployment.environment.name": "prod"}},
		}, testLog(t), newCounts())
		defer x.close()
		spans := sample(t)
		if err := x.send(t.Context(), spans); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{
			"path": f.last.URL.Path, "method": f.last.Method, "auth": f.last.Header.Get("Authorization"), "type": f.last.Header.Get("Content-Type"),
			"agent": f.last.Header.Get("User-Agent"), "environment": f.last.Header.Get("X-From"),
		}
		want := map[string]string{
			"path": "/custom/path", "method": "POST", "auth": "Bearer t", "type": "application/x-protobuf", "agent": "cbcast/1.2", "environment": "",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		res := map[string]string{}
		for _, a := range f.body.ResourceSpans[0].Resource.Attributes {
			res[a.Key] = a.Value.GetStringValue()
		}
		if d := cmp.Diff(map[string]string{
			"service.name": "ci", "service.version": "1.2", "deployment.environment.name": "prod", "telemetry.sdk.language": "go", "telemetry.sdk.name": "cbcast",
		}, res); d != "" {
			t.Error(d)
		}
		for i, p := range f.spans {
			s := spans[i]
			if p.Name != s.Name || string(p.SpanId) != string(s.ID[:]) || string(p.TraceId) != string(s.Context.Trace[:]) || string(p.ParentSpanId) != string(parentOf(s)) ||
				p.StartTimeUnixNano != uint64(s.Start.UnixNano()) || p.EndTimeUnixNano != uint64(s.End.UnixNano()) || int(p.Status.Code) != int(s.Status) ||
				int(p.Kind) != int(s.Kind) || len(p.Attributes) != len(s.Attrs) || len(p.Events) != len(s.Events) || p.Flags != 0x101 {
				t.Errorf("%s came as %v", s.Path, p)
			}
		}
	}
}

func parentOf(s Span) []byte {
	if s.Parent.IsZero() {
		return nil
	}
	return s.Parent[:]
}

// What a collector answers, and what is made of it.
func TestAnswers(t *testing.T) {
	type answer struct {
		Refused, Wait bool
		After         time.Duration
		Taken         float64
		Rejected      float64
	}
	spans := sample(t)
	n := float64(len(spans))
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter, []*tracepb.Span) bool
		want   answer
	}{
		"taken":     {nil, answer{Taken: n}},
		"partial":   {partly(3, "quota"), answer{Taken: n - 3, Rejected: 3}},
		"warning":   {partly(0, "old names"), answer{Taken: n}},
		"too many":  {partly(1<<62, "?"), answer{Rejected: n}},
		"negative":  {partly(1<<63, "?"), answer{Taken: n}},
		"busy":      {refuse(429, "Retry-After", "7"), answer{Wait: true, After: 7 * time.Second}},
		"away":      {refuse(503, "Retry-After", "999999"), answer{Wait: true, After: maxRetryAfter}},
		"nonsense":  {refuse(503, "Retry-After", "soon"), answer{Wait: true}},
		"gateway":   {refuse(502), answer{Wait: true}},
		"broken":    {refuse(500), answer{Wait: true}},
		"no leave":  {refuse(403), answer{Wait: true}},
		"no path":   {refuse(404), answer{Wait: true}},
		"bad":       {refuse(400), answer{Refused: true}},
		"large":     {refuse(413), answer{Refused: true}},
		"unknown":   {refuse(422), answer{Refused: true}},
		"elsewhere": {refuse(302, "Location", "/elsewhere"), answer{Wait: true}},
	} {
		f := newFake(t)
		f.say(tc.answer)
		c := newCounts()
		x := newExporter(Collector{Endpoint: f.URL}, testLog(t), c)
		err := x.send(t.Context(), spans)
		var wait *waitError
		var refused *refusedError
		got := answer{Refused: errors.As(err, &refused), Wait: errors.As(err, &wait), Taken: value(t, c.spans), Rejected: value(t, c.rejected)}
		if wait != nil {
			got.After = wait.after
		}
		if d := cmp.Diff(tc.want, got); d != "" || f.asked != 1 {
			t.Errorf("%s: asked %d times, %v: %s", name, f.asked, err, d)
		}
		x.close()
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if d := retryAfter(at.Add(30*time.Second).Format(http.TimeFormat), at); d != 30*time.Second {
		t.Errorf("retry after %s", d)
	}
}

func partly(rejected uint64, message string) func(http.ResponseWriter, []*tracepb.Span) bool {
	return func(w http.ResponseWriter, _ []*tracepb.Span) bool {
		partialAnswer(w, rejected, message)
		return true
	}
}

// A collector that is not there, and one whose certificate nobody signed, are waited for;
// the URL, in which secrets may stand, is in no error.
func TestUnreachable(t *testing.T) {
	f := newFake(t)
	f.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for _, endpoint := range []string{f.URL + "/v1/traces?key=secret", secure.URL + "?key=secret"} {
		x := newExporter(Collector{Endpoint: endpoint}, testLog(t), newCounts())
		err := x.send(t.Context(), sample(t))
		var wait *waitError
		if !errors.As(err, &wait) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
		x.close()
	}
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	x := newExporter(Collector{Endpoint: secure.URL, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, testLog(t), newCounts())
	defer x.close()
	if err := x.send(t.Context(), sample(t)); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("with its certificate: %v", err)
	}
}

// A collector is left alone for as long as it asks for.
func TestRetryAfter(t *testing.T) {
	f := newFake(t)
	f.say(refuse(429, "Retry-After", "60"))
	now := time.Now()
	tr, err := New(Options{Collector: Collector{Endpoint: f.URL}, Dir: t.TempDir(), Log: testLog(t), now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.x.close()
	for _, s := range sample(t) {
		tr.out = append(tr.out, outgoing{span: s})
	}
	h := handler{tr}
	for range 3 {
		if _, err := h.Commit(t.Context(), true); err == nil {
			t.Fatal("nothing is there, and all is well")
		}
	}
	if f.asked != 1 {
		t.Errorf("asked %d times", f.asked)
	}
	f.say(nil)
	now = now.Add(time.Minute)
	if _, err := h.Commit(t.Context(), true); err != nil || f.asked != 2 || len(tr.out) > 0 {
		t.Errorf("%v, asked %d times, %d spans left", err, f.asked, len(tr.out))
	}
}

func TestFromEnv(t *testing.T) {
	type seen struct {
		Endpoint, Service string
		Headers           map[string]string
		Gzip              bool
		Timeout           time.Duration
		Attrs             map[string]string
	}
	for _, tc := range []struct {
		env      map[string]string
		endpoint string
		want     seen
	}{
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "", seen{Endpoint: "http://c:4318/v1/traces", Service: "cbcast"}},
		{
			map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x", "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
				"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key = a%20b%3D , x=", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TIMEOUT": "1500",
				"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment.name=prod", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
			},
			"",
			seen{
				"https://t/x", "mine",
				map[string]string{"api-key": "a b=", "x": ""},
				true, 1500 * time.Millisecond,
				map[string]string{"service.name": "other", "deployment.environment.name": "prod"},
			},
		},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://ours/v1/traces", seen{Endpoint: "http://ours/v1/traces", Service: "cbcast"}},
		{nil, "https://ours:1?k=v", seen{Endpoint: "https://ours:1/v1/traces?k=v", Service: "cbcast"}},
		{nil, "", seen{Service: "cbcast"}},
	} {
		c, sample, err := FromEnv(tc.env, tc.endpoint, "v")
		if err != nil || sample == nil {
			t.Fatal(err)
		}
		got := seen{c.Endpoint, c.Resource.Service, c.Headers, c.Gzip, c.Timeout, c.Resource.Attrs}
		for _, m := range []*map[string]string{&tc.want.Headers, &tc.want.Attrs} {
			if *m == nil {
				*m = map[string]string{}
			}
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%v: %s", tc.env, d)
		}
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "secret", "OTEL_EXPORTER_OTLP_TIMEOUT": "secret", "OTEL_EXPORTER_OTLP_HEADERS": "secret",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=%secret", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "99999999999", "OTEL_RESOURCE_ATTRIBUTES": "secret",
		"OTEL_TRACES_SAMPLER": "secret", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such/file", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/no/such/file",
	} {
		if _, _, err := FromEnv(map[string]string{name: value}, "", ""); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for name, endpoint := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "CBCAST_TRACE_ENDPOINT": "collector:4318/secret"} {
		c, _, err := FromEnv(map[string]string{name: "collector:4318/secret"}, endpoint, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), name+" is no http") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSamplers(t *testing.T) {
	own := ContextOf(aRun, "")
	on := ContextOf(aRun, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	off := ContextOf(aRun, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	for name, want := range map[string][]bool{
		"": {true, true, false}, "parentbased_always_on": {true, true, false}, "always_on": {true, true, true}, "always_off": {false, false, false},
		"parentbased_always_off": {false, true, false}, "parentbased_traceidratio": {true, true, false}, "traceidratio": {true, true, true},
	} {
		s, err := sampler(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := []bool{s(own), s(on), s(off)}; !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	s, err := sampler("traceidratio", "0.25")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range 4000 {
		if s(ContextOf(strings.Repeat("x", i), "")) {
			n++
		}
	}
	if n < 800 || n > 1200 {
		t.Errorf("%d of 4000 at a quarter", n)
	}
	if _, err := sampler("traceidratio", "2"); err == nil {
		t.Error("a ratio of 2 is fine")
	}
}

// Trace parents by the rules of W3C Trace Context, and ids that follow from the run.
func TestContexts(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for in, want := range map[string]bool{
		good: true, "cc" + good[2:]: true, "cc" + good[2:] + "-more": true, "": false, good[:54]: false, good + "-more": false, "ff" + good[2:]: false,
		strings.ToUpper(good): false, good[:3] + strings.Repeat("0", 32) + good[35:]: false, good[:36] + strings.Repeat("0", 16) + good[52:]: false,
		"0g" + good[2:]: false, "cc" + good[2:] + "more": false,
	} {
		if _, ok := run.ParseTraceParent(in); ok != want {
			t.Errorf("%q: %t", in, ok)
		}
	}
	a, b := ContextOf("a", ""), ContextOf("b", "x")
	if a != ContextOf("a", "bad") || a.Trace == b.Trace || !a.Parent.IsZero() || a.Flags != 1 {
		t.Errorf("%+v, %+v", a, b)
	}
	if SpanOf("a", "run") == SpanOf("b", "run") || SpanOf("a", "run") == SpanOf("a", "turn/1") || SpanOf("a", "run").IsZero() {
		t.Error("span ids")
	}
}
