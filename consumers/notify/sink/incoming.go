package sink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

// IncomingConfig is a Slack incoming webhook.
type IncomingConfig struct {
	Name    string
	URL     string // the secret
	Timeout time.Duration
	RootCAs *x509.CertPool // nil is the system's
	Guard   *Guard
}

// Incoming tells each notice in a message of its own: an incoming webhook does not
// say where a message is, so nothing is updated and nothing has a thread or buttons.
type Incoming struct {
	cfg    IncomingConfig
	client *http.Client
	quiet  *Hidden
}

// NewIncoming checks the configuration. The error does not hold the URL.
func NewIncoming(cfg IncomingConfig) (*Incoming, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, &SettingError{"url", err}
	}
	return &Incoming{
		cfg, cmp.Or(cfg.Guard, &Guard{}).client(cmp.Or(cfg.Timeout, slackTimeout), cfg.RootCAs), NewHidden([]string{cfg.URL}).And(cfg.Guard.hidden()),
	}, nil
}

// Name implements [Sink].
func (s *Incoming) Name() string { return s.cfg.Name }

// Capabilities implements [Sink].
func (s *Incoming) Capabilities() Capabilities { return Capabilities{} }

// Lane implements [Sink].
func (s *Incoming) Lane(*Notice) string { return "" }

// Close implements [Sink].
func (s *Incoming) Close() error { return nil }

// Send implements [Sink]. What may have arrived is not sent again: nobody can look.
func (s *Incoming) Send(ctx context.Context, n *Notice) Outcome {
	if n.Unsure {
		return Outcome{Verdict: Unknown, Err: errors.New("nobody can tell whether it has arrived; it is not sent twice")}
	}
	note, _ := render(n, nil, true) // only buttons can fail
	code, o := s.post(ctx, note)
	if slices.Contains(slackForm, code) {
		refused := o.Err
		if _, o = s.post(ctx, minimal(n)); o.Verdict == Delivered {
			o.Note = fmt.Sprintf("sent in its minimal form: %v", refused)
		}
	}
	return o
}

// post makes one request. code is Slack's word for an error.
func (s *Incoming) post(ctx context.Context, note slackNote) (code string, o Outcome) {
	off := false
	m := struct {
		Text        string        `json:"text"`
		Blocks      []slack.Block `json:"blocks,omitempty"`
		Parse       string        `json:"parse"`
		LinkNames   bool          `json:"link_names"`
		Mrkdwn      *bool         `json:"mrkdwn,omitempty"`
		UnfurlLinks bool          `json:"unfurl_links"`
		UnfurlMedia bool          `json:"unfurl_media"`
	}{Text: note.text, Blocks: note.blocks, Parse: "none"}
	if note.bare {
		m.Mrkdwn = &off
	}
	body, err := encode(m)
	if err != nil {
		return "", Outcome{Verdict: Refused, Permanent: true, Err: fmt.Errorf("encode the message: %w", err)}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(s.cfg.URL), bytes.NewReader(body))
	if err != nil {
		return "", Outcome{Verdict: Refused, Permanent: true, Err: errors.New("its URL cannot be used")}
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "cbcast-notify")
	a, o := do(s.client, q)
	if a == nil {
		return "", o
	}
	o = a.outcome(time.Now(), s.quiet)
	word := strings.TrimSpace(string(a.body))
	switch {
	case o.Verdict == Refused && len(word) < 64:
		code = word
	case o.Verdict == Retry && a.status >= 500 && a.status != http.StatusServiceUnavailable:
		o.Verdict = Unknown // it may have been told before that
	}
	return code, o
}
