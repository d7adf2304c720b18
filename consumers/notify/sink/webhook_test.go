package sink_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
)

// A receiver is a real HTTP server that keeps what it got.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	got     []*http.Request
	bodies  [][]byte
	handler func(w http.ResponseWriter, q *http.Request)
}

func newReceiver(t testing.TB, handler func(w http.ResponseWriter, q *http.Request)) *receiver {
	r := &receiver{handler: handler}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.mu.Lock()
		r.got, r.bodies = append(r.got, q), append(r.bodies, body)
		r.mu.Unlock()
		if r.handler != nil {
			r.handler(w, q)
		}
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) last(t testing.TB) (*http.Request, []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) == 0 {
		t.Fatal("nothing arrived")
	}
	return r.got[len(r.got)-1], r.bodies[len(r.bodies)-1]
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func webhook(t testing.TB, cfg sink.WebhookConfig) *sink.Webhook {
	t.Helper()
	cfg.Name = "hook1"
	if cfg.Guard == nil {
		cfg.Guard = loopback
	}
	w, err := sink.NewWebhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func whsec(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// Both modes are CloudEvents, and the library of Standard Webhooks verifies them with
// each of the secrets.
func TestWebhookSignedCloudEvent(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{whsec(1), whsec(2), "whsk_" + base64.StdEncoding.EncodeToString(private.Seed())}
	for _, binary := range []bool{false, true} {
		r := newReceiver(t, nil)
		w := webhook(t, sink.WebhookConfig{URL: r.URL + "/in", Secrets: secrets, Binary: binary, Headers: map[string]string{"X-Gate": "open"}})
		n := notice(sink.Finished, func(n *sink.Notice) { n.Tenant = "acme-\u00dcber" })
		const sourceWant = "/cbcast/acme-\u00dcber/" + testRun
		send(t, w, n)
		q, body := r.last(t)
		for _, s := range secrets[:2] {
			wh, err := standardwebhooks.NewWebhook(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := wh.Verify(body, q.Header); err != nil {
				t.Errorf("binary %v: %v", binary, err)
			}
		}
		if wh, _ := standardwebhooks.NewWebhook(whsec(3)); wh.Verify(body, q.Header) == nil {
			t.Error("another secret verifies it")
		}
		signed := q.Header.Get("webhook-id") + "." + q.Header.Get("webhook-timestamp") + "." + string(body)
		found := false
		for s := range strings.FieldsSeq(q.Header.Get("webhook-signature")) {
			if raw, ok := strings.CutPrefix(s, "v1a,"); ok {
				sig, err := base64.StdEncoding.DecodeString(raw)
				found = err == nil && ed25519.Verify(public, []byte(signed), sig)
			}
		}
		if !found {
			t.Errorf("binary %v: no v1a signature in %q", binary, q.Header.Get("webhook-signature"))
		}
		if id := q.Header.Get("webhook-id"); id != n.ID || q.Header.Get("X-Gate") != "open" {
			t.Errorf("webhook-id %q, want %q", id, n.ID)
		}
		e := ce.New()
		if binary {
			for name := range map[string]bool{"id": true, "source": true, "type": true, "time": true, "specversion": true} {
				v, err := url.PathUnescape(q.Header.Get("ce-" + name))
				switch name {
				case "id":
					e.SetID(v)
				case "source":
					e.SetSource(v)
				case "type":
					e.SetType(v)
				case "specversion":
					e.SetSpecVersion(v)
				case "time":
					at, terr := time.Parse(time.RFC3339, v)
					err = errors.Join(err, terr)
					e.SetTime(at)
				}
				if err != nil {
					t.Errorf("ce-%s: %v", name, err)
				}
			}
			if err := e.SetData(q.Header.Get("Content-Type"), body); err != nil {
				t.Fatal(err)
			}
		} else if err := json.Unmarshal(body, &e); err != nil || !strings.HasPrefix(q.Header.Get("Content-Type"), "application/cloudevents+json") {
			t.Fatalf("structured: %v, %s", err, q.Header.Get("Content-Type"))
		}
		if source, err := url.PathUnescape(e.Source()); err != nil || source != sourceWant {
			t.Errorf("binary %v: source %q", binary, e.Source())
		}
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if e.ID() != n.ID || e.Type() != "dev.cbcast.notice.finished" || e.DataContentType() != "application/json" {
			t.Errorf("event %s", e)
		}
		var p sink.Payload
		if err := json.Unmarshal(e.Data(), &p); err != nil {
			t.Fatal(err)
		}
		if p.ID != n.ID || p.Verdict != "success" || p.Tasks.Failed != 1 || p.CostUSD != 0.42 || p.Links.Run == "" || p.Result != "All tests pass." || p.Tenant != n.Tenant {
			t.Errorf("payload %+v", p)
		}
	}
}

func TestWebhookConfig(t *testing.T) {
	for want, cfg := range map[string]sink.WebhookConfig{
		"no URL":                      {},
		"must begin with http":        {URL: "ftp://SECRETPART@host/"},
		"name a host":                 {URL: "https:///SECRETPART"},
		"must begin with whsec_":      {URL: "https://h/", Secrets: []string{"SECRETPART"}},
		"no base64":                   {URL: "https://h/", Secrets: []string{"whsec_SECRETPART!"}},
		"24 to 64 are needed":         {URL: "https://h/", Secrets: []string{"whsec_c2hvcnQ="}},
		"an Ed25519 key has 32 or 64": {URL: "https://h/", Secrets: []string{"whsk_c2hvcnQ="}},
		"not that of its seed":        {URL: "https://h/", Secrets: []string{"whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 64))}},
		"is set here":                 {URL: "https://h/", Headers: map[string]string{"Webhook-Id": "1"}},
		"no header may have":          {URL: "https://h/", Headers: map[string]string{"X": "a\r\nY: SECRETPART"}},
		"is no name of a header":      {URL: "https://h/", Headers: map[string]string{"X:": "1"}},
	} {
		_, err := sink.NewWebhook(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
		holdsNone(t, "the error", fmt.Sprint(err), "SECRETPART")
	}
}

// A body is under 20 kB whatever the run said, and says what is not there.
func TestWebhookBodyIsBounded(t *testing.T) {
	for _, binary := range []bool{false, true} {
		r := newReceiver(t, nil)
		w := webhook(t, sink.WebhookConfig{URL: r.URL, Binary: binary})
		for name, text := range map[string]string{
			"controls": strings.Repeat("\x01", 8000), "quotes": strings.Repeat(`"\`, 4000), "han": strings.Repeat("\u4e2d", 8000), "lines": strings.Repeat("\u2028\n", 4000),
		} {
			var asks []run.AskView
			for i := range 30 {
				asks = append(asks, approval(fmt.Sprint("a", i), text[:300], map[string]string{"command": text}))
			}
			var lines []sink.Line
			for range 500 {
				lines = append(lines, sink.Line{Kind: sink.Failed, Run: testRun, Text: text, Link: "https://cbcast.example/"})
			}
			send(t, w, notice(sink.Waiting, withResult(text), func(n *sink.Notice) {
				n.Asks, n.Digest, n.Note, n.Mention = asks, lines, text, text
				n.View.Tasks[0].Name = text
				for i := range 20 {
					n.CI[fmt.Sprint("ci", i)] = text
				}
			}))
			_, body := r.last(t)
			var doc struct{ Data sink.Payload }
			into := any(&doc)
			if binary {
				into = &doc.Data
			}
			if err := json.Unmarshal(body, into); err != nil || len(body) >= 20_000 {
				t.Errorf("%s, binary %v: %d bytes, %v", name, binary, len(body), err)
			}
			if len(doc.Data.Left) == 0 || doc.Data.Links.Run == "" || doc.Data.Run != testRun {
				t.Errorf("%s: it does not say what is not there: %v", name, doc.Data.Left)
			}
		}
	}
}

// Case 109: every answer of a target, and no redirect is followed.
func TestCase109(t *testing.T) {
	other := newReceiver(t, nil)
	date := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		status   int
		header   map[string]string
		want     sink.Verdict
		busy     bool
		min, max time.Duration
		says     string
	}{
		{200, nil, sink.Delivered, false, 0, 0, ""},
		{204, nil, sink.Delivered, false, 0, 0, ""},
		{301, map[string]string{"Location": "http://other.example.test/SECRETPART?token=abc"}, sink.Refused, false, 0, 0, "a redirect to the host other.example.test; it is not followed"},
		{302, map[string]string{"Location": other.URL + "/SECRETPART"}, sink.Refused, false, 0, 0, "redirect to the host 127.0.0.1"},
		{303, map[string]string{"Location": "/elsewhere"}, sink.Refused, false, 0, 0, "within the host"},
		{307, map[string]string{"Location": other.URL}, sink.Refused, false, 0, 0, "redirect"},
		{308, map[string]string{"Location": other.URL}, sink.Refused, false, 0, 0, "redirect"},
		{400, nil, sink.Refused, false, 0, 0, "answered 400"},
		{401, nil, sink.Refused, false, 0, 0, "answered 401"},
		{404, nil, sink.Refused, false, 0, 0, "answered 404"},
		{410, nil, sink.Gone, false, 0, 0, "answered 410"},
		{408, nil, sink.Retry, false, 0, 0, "answered 408"},
		{429, map[string]string{"Retry-After": "7"}, sink.Retry, true, 7 * time.Second, 7 * time.Second, "answered 429"},
		{429, map[string]string{"Retry-After": date}, sink.Retry, true, 30 * time.Second, time.Minute, "answered 429"},
		{429, nil, sink.Retry, true, 0, 0, "answered 429"},
		{500, nil, sink.Retry, false, 0, 0, "answered 500"},
		{502, nil, sink.Retry, true, 0, 0, "answered 502"},
		{503, map[string]string{"Retry-After": "86400"}, sink.Retry, true, time.Hour, time.Hour, "answered 503"},
		{504, map[string]string{"Retry-After": "-1"}, sink.Retry, true, 0, 0, "answered 504"},
	} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range c.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(c.status)
		})
		o := webhook(t, sink.WebhookConfig{URL: r.URL + "/in?token=abc"}).Send(t.Context(), notice(sink.Finished))
		if o.Verdict != c.want || o.Throttled != c.busy || o.After < c.min || o.After > c.max {
			t.Errorf("%d %v: %+v", c.status, c.header, o)
		}
		if c.says != "" && !strings.Contains(fmt.Sprint(o.Err), c.says) || c.says == "" && o.Err != nil {
			t.Errorf("%d: %v, want %s", c.status, o.Err, c.says)
		}
		holdsNone(t, "the error", fmt.Sprint(o.Err), "SECRETPART", "abc", r.URL)
		if r.count() != 1 {
			t.Errorf("%d: %d requests", c.status, r.count())
		}
	}
	if other.count() != 0 {
		t.Errorf("%d redirects were followed", other.count())
	}
}

// Case 114: no error shows where a target is.
func TestCase114(t *testing.T) {
	const path = "/services/T0/B0/SECRETPART?token=abc"
	hidden := []string{"SECRETPART", "abc", "hooks.example.test", "127.0.0.1", "services"}
	closed := httptest.NewServer(nil)
	closed.Close()
	quiet := log.New(io.Discard, "", 0)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	old := httptest.NewUnstartedServer(nil)
	old.Config.ErrorLog = quiet
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} //nolint:gosec // too old on purpose
	old.StartTLS()
	defer old.Close()
	echo := newReceiver(t, func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(404)
		fmt.Fprintf(w, "no route for %s here\x1b[31m, token %s unknown", q.URL, q.URL.Query().Get("token"))
	})
	page := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		fmt.Fprint(w, "<html>"+strings.Repeat("SECRETPART ", 100_000))
	})
	hang := newReceiver(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	reset := newReceiver(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	hijack := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	})
	for _, c := range []struct {
		name, url string
		want      sink.Verdict
		says      string
	}{
		{"refused", closed.URL, sink.Retry, "connection refused"},
		{"no such name", "http://hooks.example.test.invalid", sink.Retry, "host's name"},
		{"nobody trusts it", secure.URL, sink.Retry, "TLS: the certificate is signed by nobody who is trusted"},
		{"TLS too old", old.URL, sink.Retry, "TLS: no common ground"},
		{"TLS where there is none", "https" + strings.TrimPrefix(echo.URL, "http"), sink.Retry, "TLS"},
		{"not found", echo.URL, sink.Refused, "answered 404"},
		{"a page", page.URL, sink.Retry, "answered 500"},
		{"no answer", hang.URL, sink.Unknown, "no answer in time after the request was sent"},
		{"closed", reset.URL, sink.Unknown, "connection lost after the request was sent"},
		{"reset", hijack.URL, sink.Unknown, "connection lost after the request was sent"},
	} {
		o := webhook(t, sink.WebhookConfig{URL: c.url + path, Timeout: 2 * time.Second}).Send(t.Context(), notice(sink.Finished))
		if o.Verdict != c.want || o.Err == nil || !strings.Contains(o.Err.Error(), c.says) {
			t.Errorf("%s: %s, %v; want %s, %s", c.name, o.Verdict, o.Err, c.want, c.says)
		}
		holdsNone(t, c.name, fmt.Sprintf("%v %+v", o.Err, o), append(hidden, "\x1b")...)
		if o.Err != nil && len(o.Err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", c.name, len(o.Err.Error()))
		}
		// The incoming webhook of Slack is no different.
		in, err := sink.NewIncoming(sink.IncomingConfig{Name: "hook1", URL: c.url + path, Timeout: 2 * time.Second, Guard: loopback})
		if err != nil {
			t.Fatal(err)
		}
		o = in.Send(t.Context(), notice(sink.Finished))
		if o.Verdict == sink.Delivered || o.Err == nil {
			t.Errorf("%s: incoming %s", c.name, o.Verdict)
		}
		holdsNone(t, c.name, fmt.Sprintf("%v %+v", o.Err, o), hidden...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := webhook(t, sink.WebhookConfig{URL: hang.URL + path}).Send(ctx, notice(sink.Finished)); o.Verdict != sink.Retry || !strings.Contains(o.Err.Error(), "given up") {
		t.Errorf("given up before: %+v", o)
	}
}

func TestIncomingUnsureIsNotSentTwice(t *testing.T) {
	r := newReceiver(t, nil)
	s, err := sink.NewIncoming(sink.IncomingConfig{Name: "ci", URL: r.URL, Guard: loopback})
	if err != nil {
		t.Fatal(err)
	}
	if o := s.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true })); o.Verdict != sink.Unknown || r.count() != 0 {
		t.Errorf("%+v, %d requests", o, r.count())
	}
}

// What a program is handed, and what its end means.
func TestCommand(t *testing.T) {
	var got []byte
	code, stderr, fail := 0, "", error(nil)
	exec := func(ctx context.Context, argv, env []string, stdin []byte) (int, []byte, error) {
		got = stdin
		if code == -2 {
			<-ctx.Done()
			return -1, []byte(stderr), ctx.Err()
		}
		return code, []byte(stderr), fail
	}
	c, err := sink.NewCommand(sink.CommandConfig{Name: "page", Argv: []string{"/bin/page"}, Env: []string{"PATH=/bin", "TOKEN=SECRETPART"}, Timeout: 50 * time.Millisecond, Exec: exec})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		code   int
		stderr string
		err    error
		want   sink.Verdict
		says   string
	}{
		{0, "", nil, sink.Delivered, ""},
		{75, "busy", nil, sink.Retry, `exit code 75): "busy"`},
		{3, "no route\x1b[2J with SECRETPART", nil, sink.Refused, `exit code 3: "no route[U+001B][2J with …"`},
		{-1, "", nil, sink.Unknown, "by a signal"},
		{-2, "", nil, sink.Unknown, "killed after 50ms"},
		{-1, "", errors.New("exec: SECRETPART not found"), sink.Refused, "did not run"},
	} {
		code, stderr, fail = x.code, x.stderr, x.err
		o := c.Send(t.Context(), notice(sink.Finished))
		if o.Verdict != x.want || x.says != "" && !strings.Contains(fmt.Sprint(o.Err), x.says) {
			t.Errorf("%d: %s, %v", x.code, o.Verdict, o.Err)
		}
		holdsNone(t, "the error", fmt.Sprint(o.Err), "SECRETPART")
	}
	var p sink.Payload
	if err := json.Unmarshal(got, &p); err != nil || p.Run != testRun || !bytes.HasSuffix(got, []byte("}\n")) {
		t.Errorf("stdin: %v %s", err, got)
	}
	got = nil
	if o := c.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true })); o.Verdict != sink.Unknown || got != nil {
		t.Errorf("run again: %+v", o)
	}
	for _, cfg := range []sink.CommandConfig{{Exec: exec}, {Argv: []string{"x"}}, {Argv: []string{"x"}, Exec: exec, Env: []string{"CBCAST_TOKEN=1"}}, {Argv: []string{"x"}, Exec: exec, Env: []string{"none"}}} {
		if _, err := sink.NewCommand(cfg); err == nil {
			t.Errorf("taken: %+v", cfg)
		}
	}
}
