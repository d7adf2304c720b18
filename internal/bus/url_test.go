package bus_test

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/bus"
)

func TestConfigCheck(t *testing.T) {
	for _, tt := range []struct{ url, want string }{ // "" is fine
		{"", ""},
		{"nats://a:4222", ""},
		{"a", ""},
		{"a:4222, tls://b ,", ""},
		{"wss://a/,ws://b:80/path", ""},
		{"nats://u:p%2Fw@[::1]:4222/", ""},
		{"http://127.0.0.1:8222", "http:// is no scheme of a NATS server; write nats://127.0.0.1:4222"},
		{"https://a", "write nats://a:4222"},
		{"nats://a:1,http://u:SECRET@b", "http://u:xxxxx@b: http:// is no scheme"},
		{"foo://a:1", "foo:// is no scheme"},
		{"nats://", "names no host; write nats://HOST:4222"},
		{"nats://:4222", "names no host"},
		{":4222", "names no host"},
		{"nats:/a:4222", "has a path; write nats://HOST:4222"},
		{"nats://a:4222/x", "has a path"},
		{"nats://a:0", "port 0 is not from 1 to 65535"},
		{"nats://a:99999", "port 99999 is not from 1 to 65535"},
		{"nats://a:port", `port "port" is no number`},
		{"nats://a b:4222", "cannot be read as a URL"},
		{"nats://u:SEC/RET@a:1", "cannot be read; a special character"},
		{"nats://SEC#RET@a:1", "cannot be read; a special character"},
		{"nats://u:SEC?RET@a:1", "cannot be read; a special character"},
		{",", "names no server"},
		{"nats://a,ws://b", "cannot be in one list"},
	} {
		err := bus.Config{URL: tt.url}.Check()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%q: %v", tt.url, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "CBCAST_NATS_URL: ")):
			t.Errorf("%q: %v, want %q", tt.url, err, tt.want)
		case err != nil && (strings.Contains(err.Error(), "SEC") || strings.Contains(err.Error(), "RET")):
			t.Errorf("%q: the error has the secret: %v", tt.url, err)
		}
	}
	if err := (bus.Config{TLSCert: "a"}).Check(); err == nil || !strings.Contains(err.Error(), "CBCAST_NATS_TLS_KEY") {
		t.Errorf("a certificate without its key: %v", err)
	}
}

// A file that cannot be used is named with its variable, and none is waited for.
func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.nk")
	if err := os.WriteFile(bad, []byte("not a seed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cfg  bus.Config
		want string
	}{
		{bus.Config{Creds: filepath.Join(dir, "none")}, "CBCAST_NATS_CREDS: stat " + filepath.Join(dir, "none")},
		{bus.Config{Creds: dir}, "CBCAST_NATS_CREDS: " + dir + " is no regular file"},
		{bus.Config{TLSCA: os.DevNull}, "CBCAST_NATS_TLS_CA: /dev/null is no regular file"},
		{bus.Config{Nkey: bad}, "CBCAST_NATS_NKEY: " + bad},
	} {
		b, err := bus.Open(tt.cfg, nil)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// What is said of a server that is not reached names each address, and what listens
// there when it is none.
func TestConnectSays(t *testing.T) {
	listen := func(serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				serve(c)
			}
		}()
		t.Cleanup(func() { ln.Close(); <-done })
		return ln.Addr().String()
	}
	web := listen(func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		c.Close()
	})
	for _, tt := range []struct {
		url  string
		want []string
	}{
		{closed(t), []string{"connection refused"}},
		{closed(t) + "," + closed(t), []string{"connection refused; dial tcp 127.0.0.1:"}},
		{web, []string{"does not speak NATS as it should", "4222"}},
	} {
		said := make(heard, 1)
		b, err := bus.Open(bus.Config{URL: tt.url}, slog.New(slog.NewTextHandler(said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		<-said // the first attempt has failed
		err = b.Err()
		b.Close()
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.url, err, want)
			}
		}
	}
}

// heard gets something for what is logged.
type heard chan struct{}

func (h heard) Write(b []byte) (int, error) {
	select {
	case h <- struct{}{}:
	default:
	}
	return len(b), nil
}

// closed is an address that nobody listens at.
func closed(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
