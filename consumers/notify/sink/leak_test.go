package sink_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// What a destination repeats of a request says nothing of who made it.
func TestUserinfoIsHidden(t *testing.T) {
	const user, password = "hookuser", "p@ss w/rd+é"
	both := user + ":" + password
	echoes := map[string]string{
		"header":       "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(both)),
		"unpadded":     base64.RawStdEncoding.EncodeToString([]byte(both)),
		"url alphabet": base64.RawURLEncoding.EncodeToString([]byte(both)),
		"in a query":   url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(both))),
		"plain":        both,
		"query":        url.QueryEscape(password),
		"path":         url.PathEscape(password),
		"as written":   url.UserPassword(user, password).String(),
	}
	check := func(t *testing.T, text, echo string) {
		t.Helper()
		for _, secret := range echoes {
			secret = strings.TrimPrefix(secret, "Authorization: Basic ")
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %q", text, secret)
			}
		}
		if !strings.Contains(text, "answered 400: ") {
			t.Errorf("%s says nothing of the answer %q", text, echo)
		}
	}
	for name, echo := range echoes {
		t.Run(name, func(t *testing.T) {
			refuse := func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte("you sent " + echo))
			}
			r := newReceiver(t, refuse)
			u, err := url.Parse(r.URL)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(user, password)
			w := webhook(t, sink.WebhookConfig{URL: u.String()})
			check(t, w.Send(t.Context(), notice(sink.Finished)).Err.Error(), echo)

			guard, err := sink.NewGuard([]string{"127.0.0.0/8"}, u.String()) // the receiver as a proxy that echoes
			if err != nil {
				t.Fatal(err)
			}
			w = webhook(t, sink.WebhookConfig{URL: "http://127.0.0.1:1/", Guard: guard})
			check(t, w.Send(t.Context(), notice(sink.Finished)).Err.Error(), echo)
			if got, _ := r.last(t); got.Header.Get("Proxy-Authorization") == "" {
				t.Error("the proxy was told of no user")
			}
		})
	}
}
