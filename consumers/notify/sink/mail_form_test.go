package sink_test

import (
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

func header(t testing.TB, l letter) mail.Header {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(l.data))
	if err != nil {
		t.Fatal(err)
	}
	return m.Header
}

func body(t testing.TB, l letter) string {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(l.data))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

func TestMailThreads(t *testing.T) {
	o := newOffice(t, false, true)
	m := o.sink()
	first := send(t, m, notice("", waiting(approval("a1", "Bash", map[string]string{"command": "make deploy"})), func(n *sink.Notice) { n.Mention = "on-call" }))
	second := send(t, m, notice(sink.Failed, func(n *sink.Notice) { n.Updates, n.ID = first.Ref, testRun+"/99" }))
	if first.Ref == nil || second.Ref == nil || first.Ref.Message != second.Ref.Message {
		t.Fatalf("refs %+v, %+v", first.Ref, second.Ref)
	}
	list := o.all()
	h1, h2 := header(t, list[0]), header(t, list[1])
	if id := h1.Get("Message-Id"); id != "<"+first.Ref.Message+">" || h2.Get("In-Reply-To") != id || h2.Get("References") != id || h2.Get("Message-Id") == id || h1.Get("References") != "" {
		t.Errorf("headers %v, %v", h1, h2)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(h2.Get("Subject"))
	if err != nil || subject != "[cbcast] ❌ Failed: fix-tests" || h1.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("subject %q, %v", subject, err)
	}
	if text := body(t, list[0]); !strings.Contains(text, "a1: wants to use Bash\ncommand: make deploy") || !strings.Contains(text, "For: on-call") || !strings.Contains(text, "Page: https://cbcast.example/#/run/"+testRun) {
		t.Errorf("the mail says %s", text)
	}
	if strings.Join(list[0].to, " ") != "team@example.test ops@example.test" || list[0].from != "bot@example.test" {
		t.Errorf("to %v from %s", list[0].to, list[0].from)
	}
	send(t, m, notice(sink.Finished, func(n *sink.Notice) { n.To = "other@example.test" }))
	if got := o.all()[2].to; strings.Join(got, " ") != "other@example.test" {
		t.Errorf("to %v", got)
	}
}

func TestMailHostileTexts(t *testing.T) {
	evil := "x\r\nBcc: victim@example.test\r\n\r\n.\r\nMAIL FROM:<a@b>\r\n\x1b]0;t\x07\u202e" + strings.Repeat("long \U0001F389", 30_000)
	o := newOffice(t, false, true)
	m := o.sink()
	send(t, m, notice(sink.Failed, withResult(evil), func(n *sink.Notice) {
		n.View.Tasks[0].Name, n.CI["cirepo"], n.Note, n.Mention, n.Links.Run, n.ID = evil, evil, evil, evil, "https://x/\r\nBcc: v@x", evil[:100]
		n.Updates = &sink.Ref{Message: "a@b>\r\nBcc: v@x"}
	}))
	list := o.all()
	if len(list) != 1 || len(list[0].to) != 2 {
		t.Fatalf("%d letters, to %v", len(list), list[0].to)
	}
	h := header(t, list[0])
	for name := range h {
		switch name {
		case "From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type", "Content-Transfer-Encoding", "Auto-Submitted":
		default:
			t.Errorf("a header %s: %s", name, h.Get(name))
		}
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
	if err != nil || len([]rune(subject)) > 150 || strings.ContainsAny(subject, "\r\n") {
		t.Errorf("subject %q, %v", subject, err)
	}
	if text := body(t, list[0]); strings.ContainsAny(text, "\x1b\u202e") || len(list[0].data) > 200_000 || !strings.Contains(text, "more characters; the run's page has all of it") {
		t.Errorf("%d bytes: %.200q", len(list[0].data), text)
	}
	for line := range strings.SplitSeq(list[0].data, "\r\n") {
		if len(line) > 998 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	for _, to := range []string{"a@b\r\nBcc: c@d", "nobody", strings.Repeat("a@b.test,", 200) + "a@b.test"} {
		if got := m.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.To = to })); got.Verdict != sink.Refused || !got.Permanent {
			t.Errorf("to %.30q: %+v", to, got)
		}
	}
}

func TestMailConfig(t *testing.T) {
	ok := sink.MailConfig{Name: "m", Host: "mail.example.test", From: "a@example.test"}
	for want, change := range map[string]func(*sink.MailConfig){
		"nothing else": func(c *sink.MailConfig) { c.Host = "smtp://x" }, "must be the name of a mail server": func(c *sink.MailConfig) { c.Host = "" },
		"tls must be": func(c *sink.MailConfig) { c.TLS = "ssl" }, "not sent without TLS": func(c *sink.MailConfig) { c.TLS, c.Password = "none", "SECRETPART" },
		"more than letters": func(c *sink.MailConfig) { c.From = "Ann, Inc. <a@b.test>" },
		"has 2 addresses":   func(c *sink.MailConfig) { c.From = "a@b.test, c@b.test" }, "line break": func(c *sink.MailConfig) { c.From = "a@b.test\r\nBcc: c@d.test" },
		"not seen": func(c *sink.MailConfig) { c.From = "=?utf-8?q?a=0D=0Ab?= <a@b.test>" }, "is for a user": func(c *sink.MailConfig) { c.Password = "SECRETPART" }, "is no address": func(c *sink.MailConfig) { c.To = []string{"x\ny"} },
	} {
		cfg := ok
		change(&cfg)
		_, err := sink.NewMail(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		holdsNone(t, "the error", fmt.Sprint(err), "SECRETPART")
	}
	m, err := sink.NewMail(ok)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Send(t.Context(), notice(sink.Finished)); got.Verdict != sink.Refused || !got.Permanent {
		t.Errorf("nobody to write to: %+v", got)
	}
}
