package trace

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// Bounds of one request, and of what is read of its answer.
const (
	requestSpans = 512
	requestBytes = 2 << 20 // before compression; a span alone may be larger
	answerBytes  = 64 << 10

	// maxRetryAfter bounds how long a collector can make us wait.
	maxRetryAfter = 5 * time.Minute
)

// A Collector is where spans go: OTLP over HTTP, protobuf.
type Collector struct {
	Endpoint string // of traces: https://collector:4318/v1/traces
	From     string // the variable that says it, for errors
	Headers  map[string]string
	Gzip     bool
	Timeout  time.Duration // of one request; 0 is 10 s
	TLS      *tls.Config
	Proxy    func(*http.Request) (*url.URL, error) // nil is none
	Resource Resource
}

// Check says what is set so that nothing can be sent. It asks no server.
func (c *Collector) Check() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
		return errors.New("no collector: set OTEL_EXPORTER_OTLP_ENDPOINT or CBCAST_TRACE_ENDPOINT")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// The URL may hold a secret.
		return fmt.Errorf("%s is no http or https URL with a host: write one like http://collector:4318", cmp.Or(c.From, "the collector's endpoint"))
	}
	return nil
}

// A waitError says that a collector takes nothing now; the same spans go again.
type waitError struct {
	after time.Duration // it asks for; 0 is nothing said
	err   error
}

func (e *waitError) Error() string { return e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

// A refusedError says that a collector will never take these spans.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// exporter sends spans to a collector, one request at a time.
type exporter struct {
	c      Collector
	res    *resourcepb.Resource
	client *http.Client
	log    *slog.Logger
	n      *counts
}

func newExporter(c Collector, log *slog.Logger, n *counts) *exporter {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	return &exporter{
		c: c, res: c.Resource.proto(), log: log, n: n,
		client: &http.Client{
			Timeout: c.Timeout,
			Transport: &http.Transport{
				Proxy: c.Proxy, TLSClientConfig: c.TLS, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
				TLSHandshakeTimeout: 10 * time.Second,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (x *exporter) close() { x.client.CloseIdleConnections() }

// send posts spans once. It returns nil when the collector has them, a [waitError] or
// a [refusedError]. The end of ctx does not cut it short, for the collector may have the
// spans already; its time is bounded.
func (x *exporter) send(ctx context.Context, spans []Span) error {
	body, err := encode(x.res, x.c.Resource.Version, spans)
	if err != nil {
		return &refusedError{err}
	}
	if len(body) > requestBytes && len(spans) > 1 {
		return &refusedError{errTooLarge} // the halves may be small enough
	}
	req, err := x.request(context.WithoutCancel(ctx), body)
	if err != nil {
		return &waitError{err: fmt.Errorf("ask the collector: %w", withoutURL(err))}
	}
	begin := time.Now()
	resp, err := x.client.Do(req)
	x.n.requests.Inc()
	if err != nil {
		return &waitError{err: fmt.Errorf("ask the collector: %w", withoutURL(err))}
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytes)) // what is missing of it explains nothing
	x.n.seconds.Observe(time.Since(begin).Seconds())
	return x.judge(resp, answer, len(spans))
}

var errTooLarge = errors.New("the request is too large")

func (x *exporter) request(ctx context.Context, body []byte) (*http.Request, error) {
	if x.c.Gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body) // to memory
		_ = z.Close()
		body = b.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.c.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range x.c.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("User-Agent", "cbcast/"+x.c.Resource.Version)
	req.Header.Set("Content-Type", "application/x-protobuf")
	if x.c.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	return req, nil
}

// judge reads the collector's answer. What it says of the data is believed (400, 413,
// 422); anything else is about the collector, the way there or our settings, and can
// be put right without losing a span.
func (x *exporter) judge(resp *http.Response, answer []byte, spans int) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		x.taken(resp, answer, spans)
		return nil
	}
	err := fmt.Errorf("the collector answers %d %s", code, http.StatusText(code))
	if text := strings.TrimSpace(string(answer)); text != "" && printable(text) {
		err = fmt.Errorf("%w: %s", err, clip(text, maxName))
	}
	switch code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return &refusedError{err}
	}
	return &waitError{retryAfter(resp.Header.Get("Retry-After"), time.Now()), err}
}

// taken counts what a collector has. What it rejects of a request is not sent again,
// as the protocol has it.
func (x *exporter) taken(resp *http.Response, answer []byte, spans int) {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") {
		if rejected, message := partial(answer); rejected > 0 || message != "" {
			rejected = min(max(rejected, 0), int64(spans))
			x.n.rejected.Add(float64(rejected))
			x.log.Warn("the collector did not take everything", "rejected", rejected, "of", spans, "says", message)
			spans -= int(rejected)
		}
	}
	x.n.spans.Add(float64(spans))
}

func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
		return time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// withoutURL drops the URL of an error, in which secrets may stand.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// printable reports whether a text is one that a log can take.
func printable(t string) bool {
	return !strings.ContainsFunc(t, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\ufffd' })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
