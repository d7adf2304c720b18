package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/relay"
)

// Slack's request URL is served by the relay of up, too: what is signed is taken, nothing
// else is, and without notify there is nothing.
func TestUpTakesSlackRequests(t *testing.T) {
	rules := rulesFile(t, "version: 1\ndestinations:\n  chat: {type: slack, token: xoxb-1, channel: C1, signing_secret: s3cret-of-slack, users: {U1: [answer]}}\nrules: [{name: a, to: [chat]}]\n")
	a := &app{cfg: config{With: []string{"notify"}}}
	a.cfg.Notify.Rules = rules
	cs := a.newConsumers(nil, slog.New(slog.DiscardHandler))
	r := relay.New(relay.Options{Log: slog.New(slog.DiscardHandler), Token: strings.Repeat("t", 40), Others: cs.ready, Also: cs.also()})
	srv := httptest.NewServer(r.Handler())
	t.Cleanup(srv.Close)
	post := func(path, secret string) (int, string) {
		body := url.Values{"payload": {`{"type":"block_actions","user":{"id":"U1","team_id":"T1"},"actions":[]}`}}.Encode()
		at := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "v0:%s:%s", at, body)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("X-Slack-Request-Timestamp", at)
		q.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		got, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, string(text)
	}
	if code, text := post("/slack", "s3cret-of-slack"); code != http.StatusServiceUnavailable || !strings.Contains(text, "notify does not run here now") {
		t.Errorf("before it runs: %d %s", code, text)
	}
	n, err := notify.New(a.notifyOptions(consumerEnv{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	cs.all[0].set(&notifier{n, func() {}}, nil)
	for path, want := range map[string]int{"/slack": http.StatusOK, "/slack/chat": http.StatusOK, "/slack/other": http.StatusNotFound} {
		if code, text := post(path, "s3cret-of-slack"); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
	if code, text := post("/slack", "another"); code != http.StatusUnauthorized || !strings.Contains(text, "bad_signature") {
		t.Errorf("with another secret: %d %s", code, text)
	}
	q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, srv.URL+"/slack", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", got.StatusCode)
	}
	// Another up, without notify.
	if also := (&consumers{}).also(); len(also) != 0 {
		t.Errorf("without notify: %v", also)
	}
}
