package sink_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		e := attributes(t, binary, q.Header, body)
		want := map[string]string{
			"specversion": "1.0", "id": n.ID, "source": "/cbcast/acme-\u00dcber/" + testRun, "type": "dev.cbcast.notice.finished",
			"time": n.At.UTC().Format(time.RFC3339Nano), "datacontenttype": "application/json",
		}
		data := e["data"]
		delete(e, "data")
		if d := cmp.Diff(want, e); d != "" {
			t.Errorf("binary %v (-want +got):\n%s", binary, d)
		}
		var p sink.Payload
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			t.Fatal(err)
		}
		if p.ID != n.ID || p.Verdict != "success" || p.Tasks.Failed != 1 || p.CostUSD != 0.42 || p.Links.Run == "" || p.Result != "All tests pass." || p.Tenant != n.Tenant {
			t.Errorf("payload %+v", p)
		}
	}
}

// attributes are those of a CloudEvent, by the HTTP binding, and its data.
func attributes(t *testing.T, binary bool, h http.Header, body []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	if binary {
		for name := range h {
			if attr, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
				v, err := url.PathUnescape(h.Get(name))
				if err != nil || strings.ContainsFunc(h.Get(name), func(r rune) bool { return r <= ' ' || r > '~' }) {
					t.Errorf("%s: %q, %v", name, h.Get(name), err)
				}
				out[attr] = v
			}
		}
		out["datacontenttype"], out["data"] = h.Get("Content-Type"), string(body)
		return out
	}
	if !strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("Content-Type %s", h.Get("Content-Type"))
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	for name, raw := range doc {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			v = string(raw)
		}
		out[name] = v
	}
	return out
}

func TestWebhookConfig(t *testing.T) {
	for want, cfg := range map[string]sink.WebhookConfig{
		"no URL":                      {},
		"must begin with http":        {URL: "ftp://SECRETPART@host/"},
		"name a host":                 {URL: "https:///SECRETPART"},
		"a port that cannot be":       {URL: "https://h:99999/SECRETPART"},
		"must begin with whsec_":      {URL: "https://h/", Secrets: []string{"SECRETPART"}},
		"no base64":                   {URL: "https://h/", Secrets: []string{"whsec_SECRETPART!"}},
		"24 to 64 are needed":         {URL: "https://h/", Secrets: []string{"whsec_c2hvcnQ="}},
		"an Ed25519 key has 32 or 64": {URL: "https://h/", Secrets: []string{"whsk_c2hvcnQ="}},
		"not that of its seed":        {URL: "https://h/", Secrets: []string{"whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 64))}},
		"is cbcast's own":             {URL: "https://h/", Headers: map[string]string{"Webhook-Id": "1"}},
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
// Case 114: no error shows where a target is.

// A receiver whose certificate is signed by the rules' own authority is trusted.
func TestWebhookOwnAuthority(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	send(t, webhook(t, sink.WebhookConfig{URL: secure.URL, RootCAs: pool}), notice(sink.Finished))
}
