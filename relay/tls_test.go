package relay_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/relay"
)

// makeCert returns a certificate for the loopback that signs itself.
func makeCert(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(typ string, b []byte) string { return string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: b})) }
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", priv)
}

func TestTLS(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := makeCert(t, "first")
	writeFile(t, certFile, cert)
	writeFile(t, keyFile, key)
	k := newKeyring(t, relay.Token{Name: "a", Scopes: []relay.Scope{relay.ScopeRead}})
	tokens := k.file()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rel := relay.New(relay.Options{
		Config: patient(relay.Config{TLSCert: certFile, TLSKey: keyFile, TokensFile: tokens, Closed: true}), Bus: r.connect(), Token: token, Log: testLog(t),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rel.Serve(ctx, ln) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
	}()
	shown := func(cfg *tls.Config) (string, error) {
		cfg.InsecureSkipVerify = true // which one it is, is what is looked at
		c, err := tls.Dial("tcp", ln.Addr().String(), cfg)
		if err != nil {
			return "", err
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
	}
	if name, err := shown(&tls.Config{}); name != "first" || err != nil {
		t.Fatalf("%q %v", name, err)
	}
	if _, err := shown(&tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if res, err := http.Get("http://" + ln.Addr().String() + "/v1/runs"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("without TLS: %d", res.StatusCode)
		}
	}

	// A stream over HTTP/2 and one over HTTP/1.1 go on while the certificate changes,
	// and end with their token.
	var streams []*client
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(cert))
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: h2}
		defer tr.CloseIdleConnections()
		s := &served{t: t, url: "https://" + ln.Addr().String(), client: &http.Client{Transport: tr}, patience: 3 * patience}
		s.until(func() bool { return s.get("/readyz", nil).status == 200 })
		c := s.stream("/v1/runs/run-1/stream", k.header("a"))
		if ev, ok := c.next(); !ok || ev.id != "1" || c.res.Proto != proto {
			t.Fatalf("%s: %+v", c.res.Proto, ev)
		}
		streams = append(streams, c)
		in := s.do("POST", "/v1/session", `{"token":"`+k.tokens["a"]+`"}`, map[string]string{"Content-Type": "application/json"})
		if c, err := http.ParseSetCookie(in.header.Get("Set-Cookie")); err != nil || !c.Secure || !strings.HasPrefix(c.Name, "__Host-") {
			t.Errorf("cookie %+v %v", c, err)
		}
	}
	cert2, key2 := makeCert(t, "second")
	writeFile(t, certFile, cert2) // no pair yet: the old one stays
	rel.Reload()
	if name, err := shown(&tls.Config{}); name != "first" || err != nil {
		t.Errorf("half of a new pair: %q %v", name, err)
	}
	writeFile(t, keyFile, key2)
	rel.Reload()
	for end := time.Now().Add(patience); ; {
		if name, _ := shown(&tls.Config{}); name == "second" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the new certificate is not served")
		}
	}
	e.emit(note(2))
	for _, c := range streams {
		if ev, ok := c.next(); !ok || ev.id != "2" {
			t.Errorf("%s after the change: %+v", c.res.Proto, ev)
		}
	}
	writeFile(t, tokens, "[]")
	rel.Reload()
	for _, c := range streams {
		if ev, ok := c.next(); ok {
			t.Errorf("%s without its token: %+v", c.res.Proto, ev)
		}
	}
}
