package sink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxWebhookBody bounds a request's body: Standard Webhooks asks for less than
	// 20 kB.
	maxWebhookBody = 19 << 10

	// webhookTimeout is how long an answer is waited for.
	webhookTimeout = 20 * time.Second
)

// WebhookConfig is a generic webhook: CloudEvents over HTTP, signed as Standard
// Webhooks says.
type WebhookConfig struct {
	Name string
	URL  string // the secret that it mostly is
	// Secrets sign: "whsec_…" (HMAC-SHA256) and "whsk_…" (Ed25519). With several each
	// makes a signature, so that receivers can change theirs one by one. None: it is
	// not signed.
	Secrets []string
	// Binary sends the event's attributes as headers and the data alone as the body;
	// else the body is the whole event (structured).
	Binary  bool
	Headers map[string]string // further ones, for a gateway
	Timeout time.Duration     // of one attempt; 0 is 20 s
	RootCAs *x509.CertPool    // nil is the system's
	Guard   *Guard            // nil allows public addresses only
}

// A Webhook is a generic webhook.
type Webhook struct {
	cfg    WebhookConfig
	keys   []signer
	client *http.Client
	quiet  *Hidden
}

// NewWebhook checks the configuration. The error does not hold the URL.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	var bad settingErrors
	bad.add("url", checkURL(cfg.URL))
	checkHeaders(&bad, cfg.Headers)
	w := &Webhook{cfg: cfg, client: cmp.Or(cfg.Guard, &Guard{}).client(cmp.Or(cfg.Timeout, webhookTimeout), cfg.RootCAs)}
	hidden := append([]string{}, cfg.Secrets...)
	for _, v := range cfg.Headers {
		hidden = append(hidden, v)
	}
	w.quiet = NewHidden([]string{cfg.URL}, hidden...).And(cfg.Guard.hidden())
	for n, s := range cfg.Secrets {
		k, err := parseSigner(s)
		if err != nil {
			bad.add(fmt.Sprintf("secrets/%d", n), fmt.Errorf("secret %d: %w", n+1, err))
		}
		w.keys = append(w.keys, k)
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	return w, nil
}

// checkURL says what is wrong with an address, without showing it.
func checkURL(s string) error {
	u, err := url.Parse(strings.TrimSpace(s))
	switch {
	case s == "":
		return errors.New("it has no URL")
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return errors.New("its URL must begin with http:// or https:// and name a host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return errors.New("its URL has a port that cannot be: they go from 1 to 65535")
		}
	}
	return nil
}

// checkHeaders refuses headers that are the protocol's own, and what is no header.
func checkHeaders(bad *settingErrors, h map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		v, key := h[name], "headers/"+name
		lower := strings.ToLower(name)
		own := strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "ce-") || strings.HasPrefix(lower, "content-")
		switch {
		case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !tokenRune(r) }):
			bad.add(key, fmt.Errorf("%q is no name of a header", short(name, 40)))
		case own, lower == "host", lower == "transfer-encoding", lower == "connection":
			bad.add(key, fmt.Errorf("the header %s is cbcast's own: remove it", short(name, 40)))
		case strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }):
			bad.add(key, fmt.Errorf("the header %s has a character that no header may have", short(name, 40)))
		}
	}
}

func tokenRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// Name implements [Sink].
func (w *Webhook) Name() string { return w.cfg.Name }

// Capabilities implements [Sink].
func (w *Webhook) Capabilities() Capabilities { return Capabilities{Idempotent: true} }

// Lane implements [Sink].
func (w *Webhook) Lane(*Notice) string { return "" }

// Close implements [Sink].
func (w *Webhook) Close() error { return nil }

// Send implements [Sink].
func (w *Webhook) Send(ctx context.Context, n *Notice) Outcome {
	now := time.Now()
	body, header, err := w.request(n, now)
	if err != nil {
		return Outcome{Verdict: Refused, Permanent: true, Err: err}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(w.cfg.URL), bytes.NewReader(body))
	if err != nil {
		return Outcome{Verdict: Refused, Permanent: true, Err: errors.New("its URL cannot be used")}
	}
	q.Header = header
	a, o := do(w.client, q)
	if a != nil {
		o = a.outcome(now, w.quiet)
	}
	return o
}

// request is the body and the headers of one attempt.
func (w *Webhook) request(n *Notice, now time.Time) ([]byte, http.Header, error) {
	id := webhookID(n.ID)
	attrs := [][2]string{
		{"specversion", "1.0"}, {"id", n.ID}, {"source", sourceOf(n)}, {"type", typeOf(n)}, {"time", n.At.UTC().Format(time.RFC3339Nano)},
	}
	h := http.Header{}
	for name, v := range w.cfg.Headers {
		h.Set(name, v)
	}
	h.Set("User-Agent", "cbcast-notify")
	envelope := 0
	if !w.cfg.Binary {
		envelope = 2 << 10
	}
	body, err := payload(n, maxWebhookBody-envelope)
	if err != nil {
		return nil, nil, err
	}
	if w.cfg.Binary {
		for _, a := range attrs {
			h.Set("ce-"+a[0], percentEncoded(a[1]))
		}
		h.Set("Content-Type", "application/json")
	} else {
		if body, err = structured(attrs, body); err != nil {
			return nil, nil, fmt.Errorf("encode the event: %w", err)
		}
		h.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	if len(w.keys) > 0 {
		signatures := make([]string, len(w.keys))
		for i, k := range w.keys {
			if signatures[i], err = k(id, now, body); err != nil {
				return nil, nil, errors.New("it cannot be signed")
			}
		}
		h.Set("webhook-signature", strings.Join(signatures, " "))
	}
	return body, h, nil
}

// structured is a CloudEvent in JSON.
func structured(attrs [][2]string, data json.RawMessage) ([]byte, error) {
	m := map[string]any{"datacontenttype": "application/json", "data": data}
	for _, a := range attrs {
		m[a[0]] = a[1]
	}
	return encode(m)
}

// webhookID is an id as a header: an id must not hold the dot that signed texts are
// joined by.
func webhookID(id string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, id)
}

// percentEncoded is an attribute's value as the HTTP binding of CloudEvents wants it.
func percentEncoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
