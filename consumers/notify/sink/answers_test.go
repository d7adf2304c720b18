package sink_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func TestCase109(t *testing.T) {
	other := newReceiver(t, nil)
	date := time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat)
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
		{429, map[string]string{"Retry-After": date}, sink.Retry, true, 20 * time.Minute, 30 * time.Minute, "answered 429"},
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
	nobody, err := sink.NewGuard([]string{"127.0.0.0/8", "::1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	nobody.SetResolver(&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }})
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
		{"closed", reset.URL, sink.Unknown, "connection lost after the request was sent"},
		{"reset", hijack.URL, sink.Unknown, "connection lost after the request was sent"},
	} {
		o := webhook(t, sink.WebhookConfig{URL: c.url + path, Guard: nobody, Timeout: 2 * time.Minute}).Send(t.Context(), notice(sink.Finished))
		if o.Verdict != c.want || o.Err == nil || !strings.Contains(o.Err.Error(), c.says) {
			t.Errorf("%s: %s, %v; want %s, %s", c.name, o.Verdict, o.Err, c.want, c.says)
		}
		holdsNone(t, c.name, fmt.Sprintf("%v %+v", o.Err, o), append(hidden, "\x1b")...)
		if o.Err != nil && len(o.Err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", c.name, len(o.Err.Error()))
		}
		// The incoming webhook of Slack is no different.
		in, err := sink.NewIncoming(sink.IncomingConfig{Name: "hook1", URL: c.url + path, Timeout: 2 * time.Minute, Guard: nobody})
		if err != nil {
			t.Fatal(err)
		}
		o = in.Send(t.Context(), notice(sink.Finished))
		if o.Verdict == sink.Delivered || o.Err == nil {
			t.Errorf("%s: incoming %s", c.name, o.Verdict)
		}
		holdsNone(t, c.name, fmt.Sprintf("%v %+v", o.Err, o), hidden...)
	}
	// On a busy machine the time is over before anything is sent: then once more.
	for timeout := time.Second; hang.count() == 0; timeout *= 4 {
		o := webhook(t, sink.WebhookConfig{URL: hang.URL + path, Timeout: timeout}).Send(t.Context(), notice(sink.Finished))
		if hang.count() > 0 && (o.Verdict != sink.Unknown || o.Err.Error() != "no answer in time after the request was sent") {
			t.Errorf("no answer: %s, %v", o.Verdict, o.Err)
		}
		holdsNone(t, "no answer", fmt.Sprintf("%v %+v", o.Err, o), hidden...)
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
