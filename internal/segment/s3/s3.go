// Package s3 keeps an archive in an S3-compatible bucket. A new object is
// created with If-None-Match: *, in one part or in many, so that of two writers
// of one name one is told so. A server that does not honour that header is
// refused at the start; see [Store.Check].
//
// Credentials never appear in an error or a log line of this package.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
)

// Config names a bucket and says how to reach it.
type Config struct {
	// Endpoint is the server's address, https://host[:port], or http:// for one
	// on a network that is trusted. "" is Amazon's of the region.
	Endpoint string `env:"ENDPOINT"`
	Region   string `env:"REGION"`
	// PathStyle puts the bucket into the path in place of the host name, which most
	// servers other than Amazon's need. It is so in any case where the endpoint is
	// an address.
	PathStyle bool `env:"PATH_STYLE"`
	// CA is a PEM file of the authorities to trust in place of the system's.
	CA string `env:"CA"`

	// The keys, or files that hold them, which are read again every minute. Without
	// any, the role of the machine, container or pod is used.
	AccessKey        string `env:"ACCESS_KEY"`
	AccessKeyFile    string `env:"ACCESS_KEY_FILE"`
	SecretKey        string `env:"SECRET_KEY"`
	SecretKeyFile    string `env:"SECRET_KEY_FILE"`
	SessionToken     string `env:"SESSION_TOKEN"`
	SessionTokenFile string `env:"SESSION_TOKEN_FILE"`

	// PartSize is the size of the parts of a large object, and what a small one is
	// at most: from 5 MiB on.
	PartSize int64 `env:"PART_SIZE" envDefault:"16777216"`
	// Timeout bounds one request, of which an object may need several.
	Timeout time.Duration `env:"TIMEOUT" envDefault:"1m"`
	// Tries is how often a request is made that fails for a cause that may pass.
	Tries int `env:"TRIES" envDefault:"4"`

	Bucket string // of the address s3://bucket/prefix
	Prefix string // begins every key; "" or ends in "/"
}

// Bounds of a configuration.
const (
	minPart = 5 << 20 // S3's own, of every part but the last
	maxPart = 1 << 30
	// maxParts is S3's own.
	maxParts = 10_000
)

var _ segment.Store = (*Store)(nil)

// A Store is the objects under one prefix of a bucket. It is safe for concurrent use.
type Store struct {
	cfg  Config
	core minio.Core
	keys *keys
	pool *http.Transport
}

// Parse takes s3://bucket[/prefix] apart.
func Parse(dest string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(dest, "s3://")
	if !ok {
		return "", "", fmt.Errorf("%q is not s3://bucket/prefix", dest)
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	if bucket == "" || strings.ContainsAny(bucket, "@:?#") {
		return "", "", fmt.Errorf("%q is not s3://bucket/prefix", dest)
	}
	if prefix != "" {
		prefix += "/"
	}
	return bucket, prefix, nil
}

// New makes a store. It does not speak to the server; [Store.Check] does.
func New(cfg Config) (*Store, error) {
	if cfg.Bucket == "" {
		return nil, errors.New("s3: no bucket")
	}
	if cfg.PartSize == 0 {
		cfg.PartSize = 16 << 20
	}
	if cfg.PartSize < minPart || cfg.PartSize > maxPart {
		return nil, fmt.Errorf("s3: part size %d: it must be from %d to %d", cfg.PartSize, minPart, maxPart)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Minute
	}
	cfg.Tries = max(cfg.Tries, 1)
	host, secure, err := cfg.host()
	if err != nil {
		return nil, err
	}
	pool, err := cfg.transport()
	if err != nil {
		return nil, err
	}
	k, err := newKeys(cfg)
	if err != nil {
		return nil, err
	}
	o := minio.Options{
		Creds: k.credentials(), Secure: secure, Transport: pool, Region: cfg.Region,
		// Retries are this package's: after one of its own the library takes the
		// object that its first try created for another's.
		MaxRetries: 1,
	}
	if cfg.PathStyle {
		o.BucketLookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(host, &o)
	if err != nil {
		return nil, fmt.Errorf("s3: endpoint %s: %w", host, err)
	}
	core.SetAppInfo("cbcast", "archive")
	return &Store{cfg: cfg, core: *core, keys: k, pool: pool}, nil
}

// host splits the endpoint.
func (c *Config) host() (host string, secure bool, err error) {
	if c.Endpoint == "" {
		if c.Region == "" || c.Region == "us-east-1" {
			return "s3.amazonaws.com", true, nil
		}
		return "s3." + c.Region + ".amazonaws.com", true, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", false, errors.New("s3: the endpoint must be http://host[:port] or https://host[:port]")
	}
	if u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return "", false, errors.New("s3: the endpoint has a host and nothing else: no keys, no path")
	}
	return u.Host, u.Scheme == "https", nil
}

func (c *Config) transport() (*http.Transport, error) {
	t, err := minio.DefaultTransport(true)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	t.ResponseHeaderTimeout = c.Timeout
	t.DisableCompression = true // bytes as they are
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := durable.ReadRegular(c.CA, durable.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("s3: authorities: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("s3: authorities: %s has no certificate", c.CA)
		}
	}
	return t, nil
}

// Close lets go of the connections.
func (s *Store) Close() { s.pool.CloseIdleConnections() }

// String is the store's address.
func (s *Store) String() string {
	return strings.TrimSuffix("s3://"+s.cfg.Bucket+"/"+s.cfg.Prefix, "/")
}

func (s *Store) key(name string) string { return s.cfg.Prefix + name }

// Check finds out whether the server can hold an archive: the bucket is there, the
// keys may write, read and delete, and a second object of one name is refused, in
// one part and in several. What it writes is below "check/" and taken away again.
func (s *Store) Check(ctx context.Context) error {
	name := "check/" + strings.ToLower(rand.Text())
	small := []byte("cbcast")
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancel()
		_ = s.Delete(ctx, name)
	}()
	if err := s.put(ctx, name, bytes.NewReader(small), int64(len(small)), true); err != nil {
		return err
	}
	other := strings.NewReader("other")
	for _, put := range []struct {
		what string
		do   func(context.Context, string, io.ReaderAt, int64, bool) error
	}{{"object", s.single}, {"multipart upload", s.multipart}} {
		if err := put.do(ctx, name, other, other.Size(), true); err == nil {
			return fmt.Errorf("%s is %w: it does not honour If-None-Match for a second %s, so two archives could overwrite one another's segments",
				s, segment.ErrUnfit, put.what)
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	o, err := s.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.Close()
	got := make([]byte, len(small))
	if _, err := o.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(got, small) {
		return fmt.Errorf("%s is %w: it gives other bytes than were put there", s, segment.ErrUnfit)
	}
	return nil
}
