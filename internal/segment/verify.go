package segment

import (
	"context"
	"crypto/ed25519"
	"errors"
)

// VerifyOptions configure [Verify].
type VerifyOptions struct {
	Store Store
	Trust []ed25519.PublicKey // the archive's first public key, or any later one
	Heads []*Head             // as kept elsewhere; a tail that was cut shows only against them

	// With Deep the records are decrypted and read, too. That needs the keys.
	Deep bool
	Keys Store
	Wrap []byte

	Tenant string // "" is all
}

// A Finding is one thing that Verify has to say. Text is for people, the rest for programs.
type Finding struct {
	Code    Code   `json:"code"`
	Bad     bool   `json:"bad"` // false: as it should be, or explained by a statement
	Tenant  string `json:"tenant,omitempty"`
	Number  uint64 `json:"number,omitempty"` // of the head
	Object  string `json:"object,omitempty"` // key of the object
	Run     string `json:"run,omitempty"`
	Offset  int64  `json:"offset,omitempty"`  // in the object
	First   uint64 `json:"first,omitempty"`   // of the seqs that are missing or double
	Last    uint64 `json:"last,omitempty"`    //
	Records int64  `json:"records,omitempty"` // that can still be read of what is damaged
	Text    string `json:"text"`
}

// A Code says what kind of thing was found. docs/archive.md lists them.
type Code string

// Report is the outcome of Verify.
type Report struct {
	Findings []Finding      `json:"findings"`
	Bad      int            `json:"bad"` // findings that are
	Tenants  int            `json:"tenants"`
	Heads    int            `json:"heads"`
	Segments int            `json:"segments"`
	Blocks   int            `json:"blocks"`
	Records  int64          `json:"records"`
	Runs     int            `json:"runs"`
	Bytes    int64          `json:"bytes"`
	Last     map[string]any `json:"-"`
}

// OK reports whether the archive is whole and unchanged, as far as could be told.
func (r *Report) OK() bool { return r.Bad == 0 }

// Verify checks an archive against the public key, without any secret: every byte of every
// segment, the chain, the signatures, the index, and that no run has a hole. An
// error means that it could not look; what it found wrong is in the report.
func Verify(ctx context.Context, o VerifyOptions) (*Report, error) { return nil, errors.ErrUnsupported }
