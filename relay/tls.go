package relay

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

// A certificate is the relay's own, read again when its files change.
type certificate struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]

	mu        sync.Mutex // guards the rest
	cert, key []byte     // as they are in force
}

// newCertificate reads both files; it returns nil where none is configured.
func newCertificate(certFile, keyFile string) (*certificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return nil, nil
	case certFile == "" || keyFile == "":
		return nil, errors.New("CBCAST_RELAY_TLS_CERT and CBCAST_RELAY_TLS_KEY: both or neither must be set")
	}
	c := &certificate{certFile: certFile, keyFile: keyFile}
	_, err := c.read()
	return c, err
}

// read puts the pair in the files in force, if it is one and another than before.
// While only one of the files is replaced they are no pair, and the old one stays.
func (c *certificate) read() (changed bool, err error) {
	if c == nil {
		return false, nil
	}
	cert, err := durable.ReadRegular(c.certFile, durable.MaxPEM)
	if err != nil {
		return false, fmt.Errorf("CBCAST_RELAY_TLS_CERT: %w", err)
	}
	key, err := durable.ReadRegular(c.keyFile, durable.MaxPEM)
	if err != nil {
		return false, fmt.Errorf("CBCAST_RELAY_TLS_KEY: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("the certificate in %s with the key in %s: %w", c.certFile, c.keyFile, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return false, fmt.Errorf("the certificate in %s: %w", c.certFile, err)
		}
	}
	c.cert, c.key = cert, key
	c.current.Store(&pair)
	return true, nil
}

// expires is when the certificate in force ends, zero without one.
func (c *certificate) expires() time.Time {
	if c == nil {
		return time.Time{}
	}
	pair := c.current.Load()
	if pair == nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := c.current.Load(); pair != nil {
				return pair, nil
			}
			return nil, errors.New("relay: no certificate")
		},
	}
}
