package segment

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// GenerateKey makes a signing key and its two PEM files: PKCS #8 for the private
// one, PKIX for the public one. OpenSSL reads both.
func GenerateKey() (private, public []byte, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate signing key: %w", err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), EncodePublicKey(pub), nil
}

// EncodePublicKey is the PEM form of a public key.
func EncodePublicKey(key ed25519.PublicKey) []byte {
	b, err := x509.MarshalPKIXPublicKey(key)
	if err != nil { // an Ed25519 key always encodes
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b})
}

// ParsePrivateKey reads a private key's PEM file.
func ParsePrivateKey(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("parse signing key: no PEM block PRIVATE KEY")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("parse signing key: not PKCS #8") // the cause might quote it
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("parse signing key: not Ed25519")
	}
	return key, nil
}

// ParsePublicKey reads a public key's PEM file.
func ParsePublicKey(b []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("parse public key: no PEM block PUBLIC KEY")
	}
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse public key: %w", err)
	}
	key, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("parse public key: not Ed25519")
	}
	return key, nil
}

// A Signer is one entry in the list of an archive's signing keys. The first is
// signed by itself, each later one by the key before it, so that who knows the
// first key can verify everything.
type Signer struct {
	Version int       `json:"v"` // 1
	Number  int       `json:"number"`
	Key     string    `json:"key"` // the public key, 32 bytes hex
	Time    time.Time `json:"time"`
	By      string    `json:"by"` // who made it
	Sig     []byte    `json:"sig"`
}

// Public is the key, nil if it is none.
func (s *Signer) Public() ed25519.PublicKey {
	b, err := hex.DecodeString(s.Key)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil
	}
	return b
}

// Rotate adds a new signing key to an archive; the old one, which must be the newest
// so far, signs it. From then on heads must be signed by the new one; for
// [Overlap] the old one still passes, so that an archiver can change over.
func Rotate(ctx context.Context, st Store, old, next ed25519.PrivateKey, by string) (*Signer, error) {
	return nil, errors.ErrUnsupported
}

// Signers lists an archive's signing keys. It checks nothing.
func Signers(ctx context.Context, st Store) ([]*Signer, error) { return nil, errors.ErrUnsupported }

// Overlap is how long a key signs after the next one was made.
const Overlap = 10 * time.Minute
