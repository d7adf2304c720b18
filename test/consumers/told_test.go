package consumers

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// told is what all receivers were told: by "destination run state" the ids, one for each
// time.
type told struct {
	mu    sync.Mutex // guards the rest
	all   map[string][]string
	bad   []string // what was wrong with what came
	moved chan struct{}
}

func newTold() *told { return &told{all: map[string][]string{}, moved: make(chan struct{})} }

func (o *told) add(dest, run, kind, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := dest + " " + run + " " + kind
	o.all[key] = append(o.all[key], id)
	close(o.moved)
	o.moved = make(chan struct{})
}

func (o *told) wrong(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bad = append(o.bad, fmt.Sprintf(format, args...))
}

// wait waits until all of keys were told.
func (o *told) wait(t *testing.T, keys ...string) {
	t.Helper()
	limit := time.After(long)
	for {
		o.mu.Lock()
		missing, moved := []string(nil), o.moved
		for _, k := range keys {
			if len(o.all[k]) == 0 {
				missing = append(missing, k)
			}
		}
		o.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		select {
		case <-moved:
		case <-limit:
			t.Fatalf("nobody was told: %s; wrong was: %s", strings.Join(missing, ", "), o.bad)
		}
	}
}

func secretOf(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// hook is a receiver of webhooks: the path is the destination's name. It takes what the
// library of Standard Webhooks verifies with each of the secrets, and the SDK of
// CloudEvents can read.
func hook(t *testing.T, o *told, secrets ...string) string {
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // its sender was stopped
		}
		dest := strings.TrimPrefix(q.URL.Path, "/")
		for _, s := range secrets {
			wh, err := standardwebhooks.NewWebhook(s)
			if err == nil {
				err = wh.Verify(body, q.Header)
			}
			if err != nil {
				o.wrong("%s: signature: %v", dest, err)
			}
		}
		if wh, err := standardwebhooks.NewWebhook(secretOf(9)); err != nil || wh.Verify(body, q.Header) == nil {
			o.wrong("%s: another secret verifies it", dest)
		}
		if structured := strings.HasPrefix(q.Header.Get("Content-Type"), "application/cloudevents+json"); structured != (dest == "structured") {
			o.wrong("%s: Content-Type %s", dest, q.Header.Get("Content-Type"))
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		e, err := cehttp.NewEventFromHTTPRequest(q)
		if err == nil {
			err = e.Validate()
		}
		if err != nil {
			o.wrong("%s: no CloudEvent: %v", dest, err)
			return
		}
		var p sink.Payload
		if err := json.Unmarshal(e.Data(), &p); err != nil {
			o.wrong("%s: data: %v", dest, err)
		}
		id := q.Header.Get("Webhook-Id")
		if e.ID() != id || p.ID != id || e.Type() != "dev.cbcast.notice."+string(p.Kind) || e.Source() != "/cbcast/"+p.Tenant+"/"+p.Run || p.Event == nil || p.Event.ID != id {
			o.wrong("%s: id %q: %v of %+v", dest, id, e.Context, p)
		}
		rw.WriteHeader(http.StatusNoContent)
		o.add(dest, p.Run, string(p.Kind), id)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// mailPassword is what the mail server wants.
const mailPassword = "mail-7c1d50a3f2"

// A mailbox is a real SMTP server with STARTTLS and a log-in.
type mailbox struct {
	*told
	port int
	ca   string // file of its certificate
}

func newMailbox(t *testing.T, o *told) *mailbox {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailbox{told: o, port: l.Addr().(*net.TCPAddr).Port, ca: filepath.Join(t.TempDir(), "ca.pem")}
	if err := os.WriteFile(m.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := smtp.NewServer(m)
	srv.Domain, srv.ErrorLog = "localhost", log.New(io.Discard, "", 0)
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }() // ends with the server
	t.Cleanup(func() {
		_ = l.Close()
		_ = srv.Close()
		<-done
	})
	return m
}

// NewSession implements [smtp.Backend].
func (m *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	_, secure := c.TLSConnectionState()
	return &delivery{m: m, secure: secure}, nil
}

type delivery struct {
	m             *mailbox
	secure, login bool
}

func (d *delivery) AuthMechanisms() []string { return []string{sasl.Plain} }

func (d *delivery) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if d.login = user == "bot" && password == mailPassword; !d.login {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (d *delivery) Mail(string, *smtp.MailOptions) error { return nil }
func (d *delivery) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (d *delivery) Reset()                               {}
func (d *delivery) Logout() error                        { return nil }

// runURL finds the run that a mail is about.
var runURL = regexp.MustCompile(`https://cbcast\.example/#/run/([0-9a-f-]{36})`)

// states find in a subject what it tells.
var states = map[string]*regexp.Regexp{
	"finished": regexp.MustCompile(`^\[cbcast\] \S* ?Finished, `), "failed": regexp.MustCompile(`^\[cbcast\] \S* ?Failed: `),
	"interrupted": regexp.MustCompile(`^\[cbcast\] \S* ?Interrupted: `), "waiting": regexp.MustCompile(`^\[cbcast\] \S* ?Waiting for an approval: `),
}

func (d *delivery) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	msg, err := mail.ReadMessage(bytes.NewReader(b))
	if err != nil || !d.secure || !d.login {
		d.m.wrong("mail: TLS %v, log-in %v, %v", d.secure, d.login, err)
		return nil
	}
	run := runURL.FindSubmatch(bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("=\r\n"), nil), []byte("=3D"), []byte("=")))
	subject, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject"))
	for kind, is := range states {
		if err == nil && is.MatchString(subject) && run != nil {
			d.m.add("post", string(run[1]), kind, msg.Header.Get("Message-ID"))
			return nil
		}
	}
	d.m.wrong("mail: %v, %q\n%s", err, subject, b)
	return nil
}
