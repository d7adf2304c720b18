package segment

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
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

// Overlap is how long a key still signs after the next one was made.
const Overlap = 10 * time.Minute

const maxSigners = 1000

// signed is what the signature is over.
func (s *Signer) signed() []byte {
	c := *s
	c.Sig = []byte{}
	b, err := encodeJSON(&c)
	if err != nil { // as in Head.Encode
		panic(err)
	}
	return append([]byte("cbcast archive signer v1\n"), b...)
}

// Encode is the one form of a signer: JSON on one line.
func (s *Signer) Encode() []byte {
	b, err := encodeJSON(s)
	if err != nil { // as in Head.Encode
		panic(err)
	}
	return b
}

// ParseSigner reads what [Signer.Encode] wrote. It does not check the signature.
func ParseSigner(b []byte) (*Signer, error) {
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) > maxID {
		return nil, errors.New("parse signer: too long")
	}
	var s Signer
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("parse signer: %w", err)
	}
	if again, err := encodeJSON(&s); err != nil || !bytes.Equal(again, b) || s.Version != 1 || s.Public() == nil || s.Number < 1 {
		return nil, errors.New("parse signer: not in the form it was written in")
	}
	return &s, nil
}

// newSigner makes the entry for a key, signed by the one before, or by itself if it is the first.
func newSigner(number int, next ed25519.PublicKey, by string, at time.Time, with ed25519.PrivateKey) *Signer {
	s := &Signer{Version: 1, Number: number, Key: hex.EncodeToString(next), Time: at.UTC(), By: by}
	s.Sig = ed25519.Sign(with, s.signed())
	return s
}

// Signers lists an archive's signing keys. It does not check what they say of each other.
func Signers(ctx context.Context, st Store) ([]*Signer, error) {
	var out []*Signer
	for n := 1; n <= maxSigners; n++ {
		b, err := readObject(ctx, st, signerKey(n), maxID)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("signing keys: %w", err)
		}
		s, err := ParseSigner(b)
		if err != nil {
			return nil, fmt.Errorf("signing keys: %s: %w", signerKey(n), err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Begin makes key the first signing key of an archive that has none. Open does so, too.
func Begin(ctx context.Context, st Store, key ed25519.PrivateKey, by string) (*Signer, error) {
	s := newSigner(1, key.Public().(ed25519.PublicKey), by, time.Now(), key)
	if err := createBytes(ctx, st, signerKey(1), append(s.Encode(), '\n')); err != nil {
		return nil, fmt.Errorf("first signing key: %w", err)
	}
	return s, nil
}

// Rotate adds a new signing key to an archive; the old one, which must be the newest
// so far, signs it. From then on heads must be signed by the new one; for
// [Overlap] the old one still passes, so that an archiver can change over.
func Rotate(ctx context.Context, st Store, old, next ed25519.PrivateKey, by string) (*Signer, error) {
	all, err := Signers(ctx, st)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 || !all[len(all)-1].Public().Equal(old.Public()) {
		return nil, fmt.Errorf("rotate signing key: %w", ErrSigner)
	}
	s := newSigner(len(all)+1, next.Public().(ed25519.PublicKey), by, time.Now(), old)
	if err := createBytes(ctx, st, signerKey(s.Number), append(s.Encode(), '\n')); err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	return s, nil
}

// A ring is the keys that may sign, in order, each from a time on.
type ring struct {
	keys  []*Signer
	loose bool // the times and the order of the keys are not known
}

// newRing takes the signers from the trusted key on, each of which the one before must
// have signed. Keys before the trusted one sign nothing that is believed.
func newRing(all []*Signer, trust []ed25519.PublicKey) (*ring, error) {
	from := -1
	for i, s := range all {
		for _, t := range trust {
			if from < 0 && s.Public().Equal(t) {
				from = i
			}
		}
	}
	if from < 0 {
		return nil, errors.New("none of the archive's signing keys is the trusted one")
	}
	for i := from; i < len(all); i++ {
		s := all[i]
		if s.Number != i+1 {
			return nil, fmt.Errorf("signing key %d stands where %d belongs", s.Number, i+1)
		}
		by := s.Public()
		if i > from {
			by = all[i-1].Public()
		}
		if i > from || i == 0 {
			if !ed25519.Verify(by, s.signed(), s.Sig) {
				return nil, fmt.Errorf("signing key %d is not signed by the key before", s.Number)
			}
		}
		if i > from && s.Time.Before(all[i-1].Time) {
			return nil, fmt.Errorf("signing key %d is older than the one before", s.Number)
		}
	}
	return &ring{keys: all[from:]}, nil
}

// find returns which of the keys has this name, or -1.
func (r *ring) find(id string) int {
	for i, s := range r.keys {
		if KeyID(s.Public()) == id {
			return i
		}
	}
	return -1
}

// until is when the i-th key ceases to sign, ok is false where it does not.
func (r *ring) until(i int) (t time.Time, ok bool) {
	if r.loose || i+1 == len(r.keys) {
		return t, false
	}
	return r.keys[i+1].Time.Add(Overlap), true
}
