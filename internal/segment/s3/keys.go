package s3

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cbcast/cbcast/internal/durable"
)

// rereadKeys is how long keys from files are used before they are read again.
const rereadKeys = time.Minute

// keys is where the credentials come from: the configuration, files, or a role.
type keys struct {
	cfg Config

	mu    sync.Mutex
	read  time.Time
	known []string // everything that must not be shown
}

func newKeys(cfg Config) (*keys, error) {
	for _, p := range []struct{ what, value, file string }{
		{"access key", cfg.AccessKey, cfg.AccessKeyFile},
		{"secret key", cfg.SecretKey, cfg.SecretKeyFile},
		{"session token", cfg.SessionToken, cfg.SessionTokenFile},
	} {
		if p.value != "" && p.file != "" {
			return nil, fmt.Errorf("s3: the %s is given as itself and as a file; only one may be", p.what)
		}
	}
	if (cfg.AccessKey+cfg.AccessKeyFile == "") != (cfg.SecretKey+cfg.SecretKeyFile == "") {
		return nil, errors.New("s3: an access key and a secret key go together")
	}
	return &keys{cfg: cfg}, nil
}

func (k *keys) credentials() *credentials.Credentials {
	if k.cfg.AccessKey+k.cfg.AccessKeyFile == "" {
		return credentials.NewIAM("")
	}
	return credentials.New(k)
}

// Retrieve reads the keys; it is part of credentials.Provider.
func (k *keys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext is Retrieve; nothing is asked of a server.
func (k *keys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	v := credentials.Value{SignerType: credentials.SignatureV4}
	for _, p := range []struct {
		to          *string
		value, file string
	}{
		{&v.AccessKeyID, k.cfg.AccessKey, k.cfg.AccessKeyFile},
		{&v.SecretAccessKey, k.cfg.SecretKey, k.cfg.SecretKeyFile},
		{&v.SessionToken, k.cfg.SessionToken, k.cfg.SessionTokenFile},
	} {
		*p.to = p.value
		if p.file == "" {
			continue
		}
		b, err := durable.ReadRegular(p.file, durable.MaxPEM)
		if err != nil {
			return v, fmt.Errorf("s3: read keys: %w", err)
		}
		*p.to = string(bytes.TrimSpace(b))
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return v, errors.New("s3: the file of a key is empty")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = time.Now()
	k.known = []string{v.SecretAccessKey, v.SessionToken}
	return v, nil
}

// IsExpired makes the library read files again.
func (k *keys) IsExpired() bool {
	if k.cfg.AccessKeyFile+k.cfg.SecretKeyFile+k.cfg.SessionTokenFile == "" {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.read) > rereadKeys
}

// clean takes the keys out of a text of somebody else.
func (k *keys) clean(s string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, secret := range k.known {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	return s
}
