package sink_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// A letter is a mail that a server took.
type letter struct {
	from string
	to   []string
	data string
	tls  bool
	user string
}

// A post office is a real SMTP server.
type office struct {
	t    testing.TB
	port int
	pool *x509.CertPool

	mu      sync.Mutex // guards the rest
	letters []letter
	fail    map[string]error // by step: mail, rcpt, data
	drop    bool             // closes the connection after the data
}

func newOffice(t testing.TB, implicit, offerTLS bool) *office {
	cert, pool := certificate(t)
	o := &office{t: t, pool: pool, fail: map[string]error{}}
	srv := smtp.NewServer(o)
	srv.Domain, srv.AllowInsecureAuth, srv.MaxMessageBytes, srv.MaxRecipients = "localhost", !offerTLS, 1<<20, 50
	srv.ErrorLog = log.New(io.Discard, "", 0)
	if offerTLS {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.port = l.Addr().(*net.TCPAddr).Port
	if implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() {
		l.Close() // the server may not have it yet
		srv.Close()
		<-done
	})
	return o
}

func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func (o *office) NewSession(c *smtp.Conn) (smtp.Session, error) {
	_, secure := c.TLSConnectionState()
	return &session{o: o, c: c, letter: letter{tls: secure}}, nil
}

func (o *office) set(step string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail[step] = err
}

func (o *office) step(step string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fail[step]
}

func (o *office) all() []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]letter{}, o.letters...)
}

type session struct {
	o *office
	c *smtp.Conn
	letter
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "bot" || password != "SECRETPART" {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no: " + password}
		}
		s.user = user
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return s.o.step("mail")
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = append(s.to, to)
	return s.o.step("rcpt")
}

func (s *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.o.step("data"); err != nil {
		return err
	}
	s.data = string(b)
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	s.o.letters = append(s.o.letters, s.letter)
	if s.o.drop {
		s.c.Conn().Close()
	}
	return nil
}

func (s *session) Reset()        { s.letter = letter{tls: s.tls, user: s.user} }
func (s *session) Logout() error { return nil }

func (o *office) sink(more ...func(*sink.MailConfig)) *sink.Mail {
	o.t.Helper()
	cfg := sink.MailConfig{
		Name: "team", Host: "localhost", Port: o.port, From: "cbcast <bot@example.test>", To: []string{"Team <team@example.test>, ops@example.test"},
		RootCAs: o.pool, Guard: loopback, Timeout: 2 * time.Minute,
	}
	for _, f := range more {
		f(&cfg)
	}
	m, err := sink.NewMail(cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	return m
}

// Every policy of TLS, against a server that has it and one that has not.
func TestMailTLS(t *testing.T) {
	login := func(c *sink.MailConfig) { c.User, c.Password = "bot", "SECRETPART" }
	tlsIs := func(s string) func(*sink.MailConfig) { return func(c *sink.MailConfig) { c.TLS = s } }
	untrusted := func(c *sink.MailConfig) { c.RootCAs = x509.NewCertPool() }
	for _, c := range []struct {
		name               string
		implicit, offerTLS bool
		more               []func(*sink.MailConfig)
		want               sink.Verdict
		secure             bool
		says               string
	}{
		{"STARTTLS", false, true, nil, sink.Delivered, true, ""},
		{"STARTTLS and log-in", false, true, []func(*sink.MailConfig){login}, sink.Delivered, true, ""},
		{"STARTTLS is not offered", false, false, nil, sink.Refused, false, "offers no STARTTLS"},
		{"if it is offered, and it is", false, true, []func(*sink.MailConfig){tlsIs("opportunistic")}, sink.Delivered, true, ""},
		{"if it is offered, and it is not", false, false, []func(*sink.MailConfig){tlsIs("opportunistic")}, sink.Delivered, false, ""},
		{"TLS from the start", true, true, []func(*sink.MailConfig){tlsIs("tls"), login}, sink.Delivered, true, ""},
		{"TLS where there is none", false, false, []func(*sink.MailConfig){tlsIs("tls")}, sink.Retry, false, "TLS"},
		{"none", false, true, []func(*sink.MailConfig){tlsIs("none")}, sink.Delivered, false, ""},
		{"nobody trusts it", false, true, []func(*sink.MailConfig){untrusted}, sink.Retry, false, "signed by nobody"},
		{"nobody trusts it, TLS", true, true, []func(*sink.MailConfig){untrusted, tlsIs("tls")}, sink.Retry, false, "signed by nobody"},
		{"the wrong password", false, true, []func(*sink.MailConfig){login, func(c *sink.MailConfig) { c.Password = "SECRETOTHER" }}, sink.Refused, false, "mail server said"},
		{"no public address", false, true, []func(*sink.MailConfig){func(c *sink.MailConfig) { c.Guard = nil }}, sink.Refused, false, "this machine's own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOffice(t, c.implicit, c.offerTLS)
			got := o.sink(c.more...).Send(t.Context(), notice(sink.Finished))
			if got.Verdict != c.want || c.says != "" && !strings.Contains(fmt.Sprint(got.Err), c.says) {
				t.Fatalf("%s, %v", got.Verdict, got.Err)
			}
			holdsNone(t, "the error", fmt.Sprint(got.Err), "SECRET")
			list := o.all()
			if (len(list) == 1) != (c.want == sink.Delivered) || len(list) == 1 && list[0].tls != c.secure {
				t.Errorf("letters %+v", list)
			}
		})
	}
}

func TestMailAnswers(t *testing.T) {
	say := func(code int) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: "no, \x1b[2J " + strings.Repeat("long ", 200)}
	}
	for _, c := range []struct {
		step string
		code int
		want sink.Verdict
		says string
	}{
		{"mail", 451, sink.Retry, "refused the sender"},
		{"mail", 553, sink.Refused, "refused the sender"},
		{"rcpt", 450, sink.Retry, "refused a recipient"},
		{"rcpt", 550, sink.Refused, "refused a recipient"},
		{"data", 452, sink.Retry, "refused the mail"},
		{"data", 554, sink.Refused, "refused the mail"},
	} {
		o := newOffice(t, false, true)
		o.set(c.step, say(c.code))
		got := o.sink().Send(t.Context(), notice(sink.Finished))
		if got.Verdict != c.want || !strings.Contains(fmt.Sprint(got.Err), c.says) || !strings.Contains(fmt.Sprint(got.Err), fmt.Sprint(c.code)) {
			t.Errorf("%s %d: %s, %v", c.step, c.code, got.Verdict, got.Err)
		}
		if text := fmt.Sprint(got.Err); len(text) > 400 || strings.Contains(text, "\x1b") {
			t.Errorf("%s %d: %q", c.step, c.code, text)
		}
	}
	o := newOffice(t, false, true)
	o.drop = true
	m := o.sink()
	if got := m.Send(t.Context(), notice(sink.Finished)); got.Verdict != sink.Unknown {
		t.Errorf("closed after the mail: %+v", got)
	}
	o.mu.Lock()
	o.drop = false
	o.mu.Unlock()
	send(t, m, notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true }))
	list := o.all()
	if len(list) != 2 || header(t, list[0]).Get("Message-Id") != header(t, list[1]).Get("Message-Id") || !m.Capabilities().Idempotent {
		t.Errorf("the same notice again is another mail")
	}
	o = newOffice(t, false, true)
	m = o.sink(func(c *sink.MailConfig) { c.Port = 1 })
	if got := m.Send(t.Context(), notice(sink.Finished)); got.Verdict != sink.Retry || got.Err.Error() != "connection refused" {
		t.Errorf("nobody is there: %+v", got)
	}
}

// Mails of one run are one conversation, and say what there is to say.
// Texts of others make no header, no second mail and no end of the mail.
