package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says how to reach NATS. The tags name environment variables, which
// only cmd reads, with the prefix CBCAST_. At most one way to authenticate is
// used: Creds, then Nkey, then Token, then User.
type Config struct {
	// URL lists servers, separated by commas. Empty is nats://127.0.0.1:4222.
	URL string `env:"NATS_URL"`

	Creds    string `env:"NATS_CREDS"` // file with a user JWT and its nkey seed
	Nkey     string `env:"NATS_NKEY"`  // file with a user nkey seed
	Token    string `env:"NATS_TOKEN"`
	User     string `env:"NATS_USER"`
	Password string `env:"NATS_PASSWORD"`

	TLSCA    string `env:"NATS_TLS_CA"`   // PEM file of the server's CA
	TLSCert  string `env:"NATS_TLS_CERT"` // PEM files of the client's certificate
	TLSKey   string `env:"NATS_TLS_KEY"`
	TLSFirst bool   `env:"NATS_TLS_FIRST"` // handshake before the server's first word

	// InboxPrefix is where answers come to, "_INBOX" by default. An edge with
	// narrow permissions has its own.
	InboxPrefix string `env:"NATS_INBOX_PREFIX"`

	// MaxAge is how long the server keeps events. An edge that may not ask is told;
	// 0 asks.
	MaxAge time.Duration `env:"-"`

	// Name is what the server's operator sees.
	Name string `env:"-"`

	// InProcess replaces the network, where the server or the way to it is
	// inside this process. It is asked again for every reconnect.
	InProcess interface {
		InProcessConn() (net.Conn, error)
	} `env:"-"`
}

// options are those that stay the same for every connection. Files are read
// now, so that a wrong path is an error and not a retry, and again by the client
// library for each connection, so that renewed credentials work.
func (c Config) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(backoff),
		nats.ReconnectBufSize(-1), // never hold messages back: they would arrive late, out of order
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(dialTimeout),
		nats.FlusherTimeout(10 * time.Second),
		nats.SkipSubjectValidation(), // package subject makes no others
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if err := errors.Join(c.Check(), c.files()); err != nil {
		return nil, err
	}
	switch {
	case c.Creds != "":
		opts = append(opts, nats.UserCredentials(c.Creds))
	case c.Nkey != "":
		o, err := nats.NkeyOptionFromSeed(c.Nkey)
		if err != nil {
			return nil, fmt.Errorf("CBCAST_NATS_NKEY: %s: %w", c.Nkey, err)
		}
		opts = append(opts, o)
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.TLSCA != "" {
		opts = append(opts, nats.RootCAs(c.TLSCA))
	}
	if c.TLSCert != "" {
		opts = append(opts, nats.ClientCert(c.TLSCert, c.TLSKey))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// files says which of the files cannot be read, by the name of the variable.
func (c Config) files() error {
	var errs []error
	for _, f := range []struct{ variable, name string }{
		{"CREDS", c.Creds}, {"NKEY", c.Nkey}, {"TLS_CA", c.TLSCA}, {"TLS_CERT", c.TLSCert}, {"TLS_KEY", c.TLSKey},
	} {
		if f.name == "" {
			continue
		}
		if err := readable(f.name); err != nil {
			errs = append(errs, fmt.Errorf("CBCAST_NATS_%s: %w", f.variable, err))
		}
	}
	return errors.Join(errs...)
}

// readable says why a file cannot be read. One that is no regular file could be waited
// for without end.
func readable(name string) error {
	st, err := os.Stat(name)
	if err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	if err == nil {
		var f *os.File
		if f, err = os.Open(name); err == nil {
			return f.Close()
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w for the user that runs cbcast (%d)", err, os.Getuid())
	}
	return err
}
