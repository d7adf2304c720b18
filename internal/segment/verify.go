package segment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/subject"
)

// VerifyOptions configure [Verify].
type VerifyOptions struct {
	Store Store
	Trust []ed25519.PublicKey // the archive's first public key, or a later one where older heads need no trust
	Heads []*Head             // as kept elsewhere; a tail that was cut shows only against them

	// With Deep the records are decrypted and read, too, and the keys of what was erased
	// are looked for. That needs the keys.
	Deep bool
	Keys Store
	Wrap []byte

	Tenant string // "" is all
}

// A Finding is one thing that Verify has to say. Text is for people, the rest for programs.
type Finding struct {
	Code    Code   `json:"code"`
	Bad     bool   `json:"bad"` // false: it is explained by a statement, or can be made again
	Tenant  string `json:"tenant,omitempty"`
	Number  uint64 `json:"number,omitempty"` // of the head
	Object  string `json:"object,omitempty"` // key of the object
	Run     string `json:"run,omitempty"`
	Offset  int64  `json:"offset,omitempty"`  // in the object, of what is damaged
	First   uint64 `json:"first,omitempty"`   // of the seqs that are missing or double, or of the heads
	Last    uint64 `json:"last,omitempty"`    // as First
	Records int64  `json:"records,omitempty"` // that can still be read of a damaged segment
	Of      int64  `json:"of,omitempty"`      // of so many
	Text    string `json:"text"`
}

// A Code says what kind of thing was found.
type Code string

// The codes. Those marked with * are not bad by themselves.
const (
	HeadMissing   Code = "head_missing"   // a number of the chain is not there, later ones are
	HeadDamaged   Code = "head_damaged"   // a head is not in the form in which it was written
	HeadMisplaced Code = "head_misplaced" // a head stands under another's number or tenant
	ChainBroken   Code = "chain_broken"   // a head does not name the hash of the one before
	TimeBackwards Code = "time_backwards" // a head is older than the one before, or its logs go back

	SignersBad    Code = "signers_bad"    // the list of signing keys does not hold together from the trusted key on
	SignerUnknown Code = "signer_unknown" // a head is signed by a key that is not the archive's
	SignerOld     Code = "signer_old"     // a head is signed by a key that had been replaced
	SignatureBad  Code = "signature_bad"  // a signature is not of what it stands under

	TailCut     Code = "tail_cut"       // heads that were kept elsewhere are missing at the chain's end
	HeadDiffers Code = "head_differs"   // another head was kept elsewhere under this number
	HeadsBad    Code = "heads_bad"      // a head kept elsewhere is not signed by the archive
	TenantLost  Code = "tenant_lost"    // a tenant known from heads kept elsewhere has no chain
	TenantList  Code = "tenant_list"    // a tenant with a chain is not in the list of tenants, or its entry is damaged
	Unclaimed   Code = "unclaimed"      // * a segment or page of keys that no head names: left by a crash, or put there
	StrayObject Code = "object_stray"   // * an object where none belongs
	HoldBroken  Code = "hold_broken"    // something was erased or deleted under a hold
	FromErased  Code = "erased"         // * a run was erased
	FromRetain  Code = "retained"       // * a segment was deleted when its time was over
	Unfinished  Code = "unfinished"     // * a statement says that something is deleted, and it is still there
	KeySurvives Code = "key_survives"   // a run was erased, and a copy of its key is there, in whatever object
	KeysMissing Code = "keys_missing"   // the keys of a segment are gone, without a statement
	KeysDamaged Code = "keys_damaged"   // the keys of a segment cannot be read
	FactsWrong  Code = "facts_wrong"    // the records of a block are not what it says in clear
	Undecipher  Code = "undecipherable" // a block does not open with the run's key

	SegmentMissing   Code = "segment_missing"
	SegmentRenamed   Code = "segment_renamed"   // it has another name
	SegmentTruncated Code = "segment_truncated" // its end is missing
	SegmentDamaged   Code = "segment_damaged"   // some of its bytes are not what was sealed
	SegmentChanged   Code = "segment_changed"   // well formed, but not what the head says
	SegmentSwapped   Code = "segment_swapped"   // another segment stands under its name
	SegmentForeign   Code = "segment_foreign"   // a segment of another tenant stands under its name
	SegmentDouble    Code = "segment_double"    // two heads name one segment
	SegmentCopied    Code = "segment_copied"    // a second object is a segment that a head names elsewhere
	DayWrong         Code = "day_wrong"         // a record was stored on another day than the segment's

	Hole    Code = "hole"    // events of a run are missing
	Doubled Code = "doubled" // events of a run are there twice

	IndexMissing Code = "index_missing" // * it can be made again
	IndexDamaged Code = "index_damaged"
	IndexDiffers Code = "index_differs" // it says something else than the segments

	RunOpen Code = "run_open" // * with Deep: a run has no event that says how it ended

	TooMany Code = "too_many" // there was more to say
)

// maxFindings bounds a report.
const maxFindings = 10000

// Report is the outcome of Verify.
type Report struct {
	Findings []Finding `json:"findings"`
	Bad      int       `json:"bad"` // findings that are
	Tenants  int       `json:"tenants"`
	Heads    int       `json:"heads"`
	Segments int       `json:"segments"` // that are there and unchanged
	Blocks   int       `json:"blocks"`
	Records  int64     `json:"records"`
	Runs     int       `json:"runs"`
	Bytes    int64     `json:"bytes"`
	Deep     bool      `json:"deep"` // the records were decrypted
}

// OK reports whether the archive is whole and unchanged, as far as could be told.
func (r *Report) OK() bool { return r.Bad == 0 }

// A verifier is one call of Verify.
type verifier struct {
	o     VerifyOptions
	rep   *Report
	ring  *ring
	coder coder
}

func (v *verifier) find(f Finding) {
	if f.Bad {
		v.rep.Bad++
	}
	switch n := len(v.rep.Findings); {
	case n < maxFindings:
		v.rep.Findings = append(v.rep.Findings, f)
	case n == maxFindings:
		v.rep.Findings = append(v.rep.Findings, Finding{Code: TooMany, Bad: true, Text: "there is more: the rest is counted only"})
	}
}

// Verify checks an archive against the public key, without any secret: every byte of every
// segment, the chain, the signatures, the index, and that no run has a hole. An
// error means that it could not look, ErrNoArchive and ErrNotFound that there is no archive,
// or not that tenant; what it found wrong is in the report. It needs
// memory for the names of the objects, and about 100 bytes a run.
func Verify(ctx context.Context, o VerifyOptions) (*Report, error) {
	v := &verifier{o: o, rep: &Report{Deep: o.Deep, Findings: []Finding{}}}
	if len(o.Trust) == 0 {
		return nil, errors.New("verify: no public key to trust")
	}
	if o.Deep && o.Keys == nil {
		return nil, errors.New("verify: no keys to decrypt with")
	}
	all, err := Signers(ctx, o.Store)
	if err == nil && len(all) == 0 {
		if empty, err := bare(ctx, o.Store); err != nil || empty {
			return nil, fmt.Errorf("verify: %w", errors.Join(err, ErrNoArchive))
		}
	}
	if err == nil {
		v.ring, err = newRing(all, o.Trust)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		v.find(Finding{Code: SignersBad, Bad: true, Text: err.Error()})
		v.ring = trusted(o.Trust)
	}
	chains, err := v.chains(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	for _, c := range chains {
		if o.Tenant != "" && c.token != subject.Token(o.Tenant) {
			continue
		}
		if err := c.verify(ctx); err != nil {
			return nil, fmt.Errorf("verify tenant %q: %w", c.tenant, err)
		}
		v.rep.Tenants++
	}
	if o.Deep {
		if err := v.verifyKeys(ctx, chains); err != nil {
			return nil, fmt.Errorf("verify keys: %w", err)
		}
	}
	if err := v.lost(chains); err != nil {
		return nil, err
	}
	if o.Tenant != "" && v.rep.Tenants == 0 && v.rep.OK() {
		return nil, fmt.Errorf("verify: tenant %q: %w", o.Tenant, ErrNotFound)
	}
	return v.rep, nil
}

// bare reports whether a store has no object of an archive.
func bare(ctx context.Context, st Store) (bool, error) {
	for _, prefix := range []string{tenantsPrefix, tenantRoot, signersPrefix} {
		for _, err := range st.List(ctx, prefix) {
			return false, err
		}
	}
	return true, nil
}

// trusted is a ring of the trusted keys alone, for an archive whose own list is of no use.
func trusted(keys []ed25519.PublicKey) *ring {
	r := &ring{loose: true}
	for i, k := range keys {
		r.keys = append(r.keys, &Signer{Number: i + 1, Key: fmt.Sprintf("%x", []byte(k))})
	}
	return r
}

// A verifyChain is one tenant's part of the store.
type verifyChain struct {
	*verifier
	token    string // of the tenant, as in keys
	tenant   string
	listed   bool // in the list of tenants
	misnamed bool // there, under another name
	heads    []uint64
	segments map[string]int64 // sizes by key
	indexes  map[string]bool
	stray    []string

	chain   map[uint64]*Head // those that could be read
	last    uint64
	gone    map[uint64]uint64 // by the segment's number, that of the statement
	erased  map[string]uint64
	missing []*Statement
	uids    map[string]uint64 // number by uid
	runs    map[sum]position
	recent  []runEntry        // of the segments since the last index
	skip    map[uint64]bool   // segments that are not as they were
	ends    map[string]uint64 // by run, the last event in deleted segments
	more    bool              // ends does not have all
	lives   map[string]life   // by run, of those whose records were read
}

// chains lists the store.
func (v *verifier) chains(ctx context.Context) ([]*verifyChain, error) {
	byToken := map[string]*verifyChain{}
	of := func(token string) *verifyChain {
		c := byToken[token]
		if c == nil {
			c = &verifyChain{
				verifier: v, token: token, segments: map[string]int64{}, indexes: map[string]bool{}, chain: map[uint64]*Head{},
				gone: map[uint64]uint64{}, erased: map[string]uint64{}, skip: map[uint64]bool{}, ends: map[string]uint64{}, uids: map[string]uint64{}, runs: map[sum]position{},
			}
			byToken[token] = c
		}
		return c
	}
	for info, err := range v.o.Store.List(ctx, tenantsPrefix) {
		if err != nil {
			return nil, err
		}
		c := of(strings.TrimPrefix(info.Key, tenantsPrefix))
		c.listed = true
		if b, err := readObject(ctx, v.o.Store, info.Key, maxID+1); err == nil {
			c.tenant = strings.TrimSuffix(string(b), "\n")
		}
		if tenantKey(c.tenant) != info.Key {
			c.tenant, c.listed, c.misnamed = "", false, true
		}
	}
	for info, err := range v.o.Store.List(ctx, tenantRoot) {
		if err != nil {
			return nil, err
		}
		token, rest, _ := strings.Cut(strings.TrimPrefix(info.Key, tenantRoot), "/")
		of(token).sort(info, rest)
	}
	for _, h := range v.o.Heads {
		of(subject.Token(h.Tenant)).tenant = h.Tenant
	}
	out := make([]*verifyChain, 0, len(byToken))
	for _, c := range byToken {
		slices.Sort(c.heads)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *verifyChain) int { return strings.Compare(a.token, b.token) })
	return out, nil
}

// sort puts an object to its kind.
func (c *verifyChain) sort(info Info, rest string) {
	kind, name, _ := strings.Cut(rest, "/")
	switch kind {
	case "heads":
		var n uint64
		if _, err := fmt.Sscanf(name, "%d.json", &n); err == nil && n > 0 && strings.HasSuffix(headKey("", n), "/heads/"+name) {
			c.heads = append(c.heads, n)
			return
		}
	case "segments":
		c.segments[info.Key] = info.Size
		return
	case "index":
		c.indexes[info.Key] = true
		return
	}
	c.stray = append(c.stray, info.Key)
}

// lost looks for tenants that only the heads kept elsewhere know.
func (v *verifier) lost(chains []*verifyChain) error {
	for _, c := range chains {
		if len(c.chain) > 0 || v.o.Tenant != "" && c.token != subject.Token(v.o.Tenant) {
			continue
		}
		for _, h := range v.o.Heads {
			if h.Tenant == c.tenant {
				v.find(Finding{Code: TenantLost, Bad: true, Tenant: c.tenant, Text: "heads of this tenant were kept elsewhere; the archive has none"})
				break
			}
		}
	}
	return nil
}

// bad adds a finding of this tenant.
func (c *verifyChain) bad(f Finding) {
	f.Tenant, f.Bad = c.tenant, true
	c.find(f)
}

// row adds one about a head; heads that follow each other and have the same are one finding.
func (c *verifyChain) row(f Finding) {
	if n := len(c.rep.Findings); n > 0 {
		p := &c.rep.Findings[n-1]
		if p.Code == f.Code && p.Tenant == c.tenant && p.Text == f.Text && p.Last+1 == f.First {
			p.Last = f.Last
			return
		}
	}
	c.bad(f)
}

// note adds one that is not bad.
func (c *verifyChain) note(f Finding) {
	f.Tenant = c.tenant
	c.find(f)
}
