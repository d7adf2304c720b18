package sink

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A signer makes one signature of a webhook, with its version before it.
type signer func(id string, at time.Time, body []byte) (string, error)

// CheckSecret says what is wrong with the form of a webhook's secret, without showing it.
func CheckSecret(secret string) error {
	_, err := parseSigner(secret)
	return err
}

// parseSigner reads a secret of Standard Webhooks: whsec_ and 24 to 64 bytes in
// base64, or whsk_ and an Ed25519 key (its seed, or the seed and the public key).
func parseSigner(secret string) (signer, error) {
	secret = strings.TrimSpace(secret)
	prefix, rest, ok := strings.Cut(secret, "_")
	if !ok || prefix != "whsec" && prefix != "whsk" {
		return nil, errors.New("it must begin with whsec_ or whsk_")
	}
	key, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, errors.New("what follows the prefix is no base64")
	}
	if prefix == "whsec" {
		if len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("it has %d bytes; 24 to 64 are needed", len(key))
		}
		w, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, errors.New("it cannot be used")
		}
		return w.Sign, nil
	}
	var private ed25519.PrivateKey
	switch len(key) {
	case ed25519.SeedSize:
		private = ed25519.NewKeyFromSeed(key)
	case ed25519.PrivateKeySize:
		private = ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
		if !private.Equal(ed25519.PrivateKey(key)) {
			return nil, errors.New("its public key is not that of its seed")
		}
	default:
		return nil, fmt.Errorf("it has %d bytes; an Ed25519 key has 32 or 64", len(key))
	}
	return func(id string, at time.Time, body []byte) (string, error) {
		signed := fmt.Appendf(nil, "%s.%d.%s", id, at.Unix(), body)
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, signed)), nil
	}, nil
}
