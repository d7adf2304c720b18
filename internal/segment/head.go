package segment

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Head is one entry of a tenant's chain: it adds a sealed segment, or states
// a fact about the archive. Heads are numbered 1, 2, 3 …, each names the hash of
// the one before, and each is signed. An archive is what its heads say it is:
// an object that none names does not belong to it.
type Head struct {
	Version int       `json:"v"` // 1
	Tenant  string    `json:"tenant"`
	Number  uint64    `json:"number"`
	Prev    string    `json:"prev"` // [Head.Hash] of the head before, hex; "" for number 1
	Time    time.Time `json:"time"` // of the archiver's clock, never before that of the head before

	Segment   *Sealed    `json:"segment,omitempty"`
	Statement *Statement `json:"statement,omitempty"`

	// Through says, for each stream, up to where all its records of this tenant
	// are in the chain up to this head.
	Through map[string]Place `json:"through"`

	Key string `json:"key"` // [KeyID] of the key that signed
	Sig []byte `json:"sig"` // Ed25519, over [Head.Signed]
}

// A Place is where in a stream: a sequence and the time at which that message
// was stored.
type Place struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
}

// Sealed is what a head says of its segment.
type Sealed struct {
	Name    string    `json:"name"` // the object's key
	UID     string    `json:"uid"`  // 16 bytes, hex; the same is in the segment's header
	Day     string    `json:"day"`  // 2026-03-01Z: UTC, by the time stored
	Root    string    `json:"root"` // Merkle root over the whole file, hex
	Bytes   int64     `json:"bytes"`
	Blocks  int       `json:"blocks"`
	Records int64     `json:"records"`
	Runs    int       `json:"runs"`
	First   time.Time `json:"first"` // earliest time stored
	Last    time.Time `json:"last"`  // latest
}

// StatementKind is what a statement is about.
type StatementKind string

// The statements.
const (
	Erased   StatementKind = "erased"   // the keys of Run are destroyed
	Retained StatementKind = "retained" // Segments are deleted: their time was over
	Held     StatementKind = "held"     // a legal hold on Run, or on the tenant where Run is ""; Hold names it
	Released StatementKind = "released" // the end of Hold
	Missing  StatementKind = "missing"  // the bus did not have FirstSeq to LastSeq of Run any more
)

// A Statement is a fact in the chain beside the segments: what was done to the
// archive, by whom and why.
type Statement struct {
	Kind     StatementKind `json:"kind"`
	By       string        `json:"by"`
	Why      string        `json:"why"`
	Run      string        `json:"run,omitempty"`
	Hold     string        `json:"hold,omitempty"`
	Segments []uint64      `json:"segments,omitempty"` // numbers of heads
	Ends     []End         `json:"ends,omitempty"`     // of the runs in Segments that go on in others
	More     bool          `json:"more,omitempty"`     // there were more of these runs than a head can name
	FirstSeq uint64        `json:"first_seq,omitempty"`
	LastSeq  uint64        `json:"last_seq,omitempty"`
}

// An End is the last event of a run in segments that were deleted.
type End struct {
	Run string `json:"run"`
	Seq uint64 `json:"seq"`
}

// Bounds of what is parsed.
const (
	maxHead     = 1 << 20
	maxID       = 4096
	maxSegments = 10000     // a statement
	maxEnds     = 256 << 10 // bytes, in a statement
)

// ErrHead is returned for what is no head.
var ErrHead = errors.New("not a head")

// Encode is the one form of a head: JSON on one line, members in the order of
// the struct, without the line's end.
func (h *Head) Encode() []byte {
	b, err := encodeJSON(h)
	if err != nil { // nothing in a head cannot be encoded but a time beyond year 9999
		panic(err)
	}
	return b
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// ParseHead reads what [Head.Encode] wrote, and nothing else: not one byte may
// differ. It does not check the signature.
func ParseHead(b []byte) (*Head, error) {
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) > maxHead {
		return nil, fmt.Errorf("%w: %d bytes", ErrHead, len(b))
	}
	var h Head
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHead, err)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHead, err)
	}
	if again, err := encodeJSON(&h); err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("%w: not in the form it was written in", ErrHead)
	}
	return &h, nil
}

func (h *Head) check() error {
	switch {
	case h.Version != 1:
		return fmt.Errorf("version %d, this program reads 1", h.Version)
	case h.Number == 0 || (h.Number == 1) != (h.Prev == ""):
		return fmt.Errorf("number %d with previous %q", h.Number, h.Prev)
	case h.Prev != "" && !isHex(h.Prev, sha256.Size):
		return errors.New("previous hash is none")
	case h.Segment == nil == (h.Statement == nil):
		return errors.New("neither a segment nor a statement, or both")
	case len(h.Tenant) > maxID || len(h.Through) > 1<<12:
		return errors.New("too long")
	case len(h.Sig) != ed25519.SignatureSize:
		return errors.New("signature is cut")
	}
	if s := h.Segment; s != nil {
		switch {
		case !isHex(s.Root, sha256.Size) || !isHex(s.UID, 16):
			return errors.New("root or uid is none")
		case s.Bytes < 0 || s.Blocks < 0 || s.Records < 0 || s.Runs < 0:
			return errors.New("a negative number")
		case !validKey(s.Name):
			return fmt.Errorf("segment's name %q", s.Name)
		}
	}
	if s := h.Statement; s != nil && (len(s.Segments) > maxSegments || len(s.Run) > maxID) {
		return errors.New("statement is too long")
	}
	return nil
}

func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes && hex.EncodeToString(b) == s
}

// Signed is what the signature is over: a line of its own, then the head as
// encoded with an empty signature.
func (h *Head) Signed() []byte {
	c := *h
	c.Sig = []byte{}
	return append([]byte("cbcast archive head v1\n"), c.Encode()...)
}

// Hash is the SHA-256 of the encoded head with its signature, hex.
func (h *Head) Hash() string {
	sum := sha256.New()
	sum.Write([]byte("cbcast archive chain v1\n"))
	sum.Write(h.Encode())
	return hex.EncodeToString(sum.Sum(nil))
}

func (h *Head) sign(key ed25519.PrivateKey) {
	h.Key = KeyID(key.Public().(ed25519.PublicKey))
	h.Sig = ed25519.Sign(key, h.Signed())
}

// SignedBy reports whether key signed h.
func (h *Head) SignedBy(key ed25519.PublicKey) bool {
	return len(key) == ed25519.PublicKeySize && h.Key == KeyID(key) && ed25519.Verify(key, h.Signed(), h.Sig)
}

// KeyID names a public key: the first 8 bytes of its SHA-256, hex.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}
