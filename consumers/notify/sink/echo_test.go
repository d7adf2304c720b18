package sink_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// echoes are the ways in which a receiver may repeat a secret.
func echoes(secret string) map[string]string {
	asJSON := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(b[1 : len(b)-1])
	}
	all := map[string]string{
		"as it is": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "JSON": asJSON(secret), "JSON in JSON": asJSON(asJSON(secret)),
		"slashes in JSON": strings.ReplaceAll(asJSON(secret), "/", `\/`), "Go": strconv.Quote(secret)[1 : len(strconv.Quote(secret))-1],
		"ASCII": strconv.QuoteToASCII(secret), "HTML": html.EscapeString(secret), "hex": hex.EncodeToString([]byte(secret)),
		"small hex":  regexp.MustCompile("%[0-9A-F]{2}").ReplaceAllStringFunc(url.QueryEscape(secret), strings.ToLower),
		"both":       url.QueryEscape(url.QueryEscape(secret)),
		"PLAIN":      base64.StdEncoding.EncodeToString([]byte("\x00hookuser\x00" + secret)),
		"PLAIN more": base64.StdEncoding.EncodeToString([]byte("admin\x00another\x00" + secret)),
		"LOGIN":      base64.StdEncoding.EncodeToString([]byte(secret)),
		"Basic":      "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("hookuser:"+secret)),
		"raw":        base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"URL":        base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"in a query": url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		"within":     base64.StdEncoding.EncodeToString([]byte(`{"token":"` + secret + `","x":1}`)),
	}
	return all
}

// Nothing that a destination repeats of its secrets comes through, in any form: all of
// them against receivers that say everything again.
func TestEveryEchoIsHidden(t *testing.T) {
	const secret = `s3cr+t/é"q&<k>7 Zw9=`
	var echo string
	answer := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "you sent %s to %s", echo, q.URL)
	})
	said := httptest.NewServer(answer)
	t.Cleanup(said.Close)
	word := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(map[string]any{"ok": false, "error": "bad " + echo}) // of text
		_, _ = w.Write(b)
	}))
	t.Cleanup(word.Close)
	through, err := sink.NewGuard([]string{"127.0.0.0/8"}, "http://"+url.UserPassword("hookuser", secret).String()+"@"+said.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	inPath := said.URL + "/hook/" + url.PathEscape(secret)
	sinks := map[string]func() (sink.Sink, error){
		"webhook, path": func() (sink.Sink, error) {
			return sink.NewWebhook(sink.WebhookConfig{Name: "d", URL: inPath, Guard: loopback})
		},
		"webhook, query": func() (sink.Sink, error) {
			return sink.NewWebhook(sink.WebhookConfig{Name: "d", URL: said.URL + "/?t=" + url.QueryEscape(secret), Guard: loopback})
		},
		"webhook, user": func() (sink.Sink, error) {
			return sink.NewWebhook(sink.WebhookConfig{Name: "d", URL: "http://" + url.UserPassword("hookuser", secret).String() + "@" + said.Listener.Addr().String(), Guard: loopback})
		},
		"webhook, header": func() (sink.Sink, error) {
			return sink.NewWebhook(sink.WebhookConfig{Name: "d", URL: said.URL, Headers: map[string]string{"X-Key": strings.ReplaceAll(secret, "é", "e")}, Guard: loopback})
		},
		"webhook, proxy": func() (sink.Sink, error) {
			return sink.NewWebhook(sink.WebhookConfig{Name: "d", URL: "http://127.0.0.1:1/", Guard: through})
		},
		"slack webhook": func() (sink.Sink, error) {
			return sink.NewIncoming(sink.IncomingConfig{Name: "d", URL: inPath, Guard: loopback})
		},
		"slack, status": func() (sink.Sink, error) {
			return sink.NewSlack(sink.SlackConfig{Name: "d", Token: secret, Channel: "C1", API: said.URL, Guard: loopback})
		},
		"slack, word": func() (sink.Sink, error) {
			return sink.NewSlack(sink.SlackConfig{Name: "d", Token: "xoxb-1", SigningSecret: secret, Channel: "C1", API: word.URL, Guard: loopback})
		},
		"command": func() (sink.Sink, error) {
			return sink.NewCommand(sink.CommandConfig{Name: "d", Argv: []string{"x"}, Env: []string{"KEY=" + secret}, Exec: func(context.Context, []string, []string, []byte) (int, []byte, error) {
				return 1, []byte("KEY is " + echo), nil
			}})
		},
		"email, PLAIN": func() (sink.Sink, error) { return parrot(t, "PLAIN", secret, &echo) },
		"email, LOGIN": func() (sink.Sink, error) { return parrot(t, "LOGIN", secret, &echo) },
	}
	for name, open := range sinks {
		t.Run(name, func(t *testing.T) {
			secret := secret
			if strings.HasSuffix(name, "header") {
				secret = strings.ReplaceAll(secret, "é", "e")
			}
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			if slack, ok := s.(*sink.Slack); ok {
				slack.SetGap(0)
			}
			for how, text := range echoes(secret) {
				echo = text
				o := s.Send(t.Context(), notice(sink.Finished))
				if o.Verdict == sink.Delivered || o.Err == nil {
					t.Fatalf("%s: %+v", how, o)
				}
				got := o.Err.Error() + o.Note
				for form, hidden := range echoes(secret) {
					if strings.Contains(got, hidden) || strings.Contains(got, strings.Trim(strconv.Quote(hidden), `"`)) {
						t.Errorf("%s: %s holds it (%s)", how, got, form)
					}
				}
				// Of base64 within more, all but what shares its characters with others.
				for before := range 3 {
					b := base64.StdEncoding.EncodeToString(append(make([]byte, before), secret...))
					if inner := b[3 : len(b)-4]; strings.Contains(got, inner) {
						t.Errorf("%s: %s holds %s", how, got, inner)
					}
				}
			}
		})
	}
}

// parrot is a mail server over TLS that refuses every log-in and says what it was told.
func parrot(t *testing.T, mechanism, password string, echo *string) (sink.Sink, error) {
	cert, pool := certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			repeat(c, mechanism, echo)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return sink.NewMail(sink.MailConfig{
		Name: "d", Host: "localhost", Port: l.Addr().(*net.TCPAddr).Port, TLS: sink.MailTLS, User: "hookuser", Password: password, From: "a@b.test",
		To: []string{"c@b.test"}, RootCAs: pool, Guard: loopback,
	})
}

func repeat(c net.Conn, mechanism string, echo *string) {
	defer c.Close()
	say := func(s string) { _, _ = fmt.Fprintf(c, "%s\r\n", s) }
	in := bufio.NewScanner(c)
	heard, steps := "", 0
	say("220 localhost")
	for in.Scan() {
		line := in.Text()
		switch {
		case strings.HasPrefix(line, "EHLO"):
			say("250-localhost")
			say("250 AUTH " + mechanism)
		case strings.HasPrefix(line, "QUIT"):
			say("221 bye")
			return
		case mechanism == "LOGIN" && steps < 2:
			heard, steps = heard+line+" ", steps+1
			say("334 " + base64.StdEncoding.EncodeToString([]byte("Username:")))
		case line == "*":
			say("501 given up")
		default:
			say("535-no " + strings.ReplaceAll(heard+line, "\n", " "))
			say("535 and " + strings.ReplaceAll(*echo, "\n", " "))
		}
	}
}

// Short texts and a nil one hide nothing.
func TestHiddenNothing(t *testing.T) {
	var none *sink.Hidden
	for _, h := range []*sink.Hidden{none, sink.NewHidden(nil), sink.NewHidden([]string{""}, "", "ab"), none.And(nil), sink.HideLogin("bob", "")} {
		if got := h.Clean("ab the text of bob"); got != "ab the text of bob" {
			t.Errorf("got %q", got)
		}
	}
}
