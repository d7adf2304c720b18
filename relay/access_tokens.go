package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Token is one entry of the list of tokens. The token itself is in no entry:
// only its hash is, which is enough because tokens are random.
type Token struct {
	// Name stands for the token in audits and logs.
	Name string `json:"name"`
	// SHA256 is the token's hash, 64 hexadecimal digits.
	SHA256 string  `json:"sha256"`
	Scopes []Scope `json:"scopes"`
	// Tenants are those whose runs it may see. Absent is every tenant.
	Tenants []string `json:"tenants,omitempty"`
	// Runs are the ids of those it may see, or "prefix*". Absent is every run of
	// the tenants.
	Runs []string `json:"runs,omitempty"`
	// Expires is when it ends. Absent is never.
	Expires time.Time `json:"expires,omitzero"`
}

const (
	// tokenPrefix begins the tokens that are made here, so that scanners for
	// secrets know one.
	tokenPrefix = "cbcast_"

	// maxTokens, maxTokensFile and maxBound bound a list of tokens: entries,
	// bytes, and tenants or runs of one entry.
	maxTokens, maxTokensFile, maxBound = 10_000, 8 << 20, 1000
)

var tokenKeys = []string{"name", "sha256", "scopes", "tenants", "runs", "expires"}

// NewToken makes a random token and fills in the hash in its entry.
func NewToken(t Token) (token string, entry Token, err error) {
	var b [sha256.Size]byte
	_, _ = rand.Read(b[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(token))
	t.SHA256 = hex.EncodeToString(sum[:])
	_, err = t.check()
	return token, t, err
}

// ParseTokens reads a list of tokens: a JSON array of entries. The error names the
// entry and what is wrong with it.
func ParseTokens(data []byte) ([]Token, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty; a list without tokens is []")
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("it must be a JSON array of tokens: %w", err)
	}
	if len(raw) > maxTokens {
		return nil, fmt.Errorf("it has %d tokens; at most %d are taken", len(raw), maxTokens)
	}
	list := make([]Token, len(raw))
	for n, r := range raw {
		t := &list[n]
		err := decode(r, t, tokenKeys)
		if err == nil {
			err = named(r)
		}
		if err == nil {
			_, err = t.check()
		}
		if err != nil {
			return nil, fmt.Errorf("token %d%s: %w", n+1, quoted(t.Name), err)
		}
	}
	return list, unique(list)
}

// named refuses lists that are there and empty, or null: whoever wrote one meant
// "none", and absent means all.
func named(entry json.RawMessage) error {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(entry, &fields) // decode has read it
	for _, name := range []string{"tenants", "runs"} {
		if v, ok := fields[name]; ok {
			var list []string
			if json.Unmarshal(v, &list) != nil || len(list) == 0 {
				return fmt.Errorf("%s is there and has none; leave it out for all", name)
			}
		}
	}
	return nil
}

func quoted(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", cut(name))
}

func unique(list []Token) error {
	names, hashes := map[string]bool{}, map[string]string{}
	for _, t := range list {
		sum := strings.ToLower(t.SHA256)
		switch other, twice := hashes[sum]; {
		case names[t.Name]:
			return fmt.Errorf("two tokens have the name %q", t.Name)
		case twice:
			return fmt.Errorf("%q and %q are the same token", other, t.Name)
		}
		names[t.Name], hashes[sum] = true, t.Name
	}
	return nil
}

// check says what is wrong with an entry, and returns the hash in it.
func (t *Token) check() (sum [sha256.Size]byte, err error) {
	switch {
	case t.Name == "" || len(t.Name) > 64 || !plainID(t.Name):
		return sum, errors.New("name must be 1 to 64 of the characters A-Z a-z 0-9 - . : and _")
	case t.Name == actorLocal || t.Name == actorLoopback:
		return sum, fmt.Errorf("the name %s is the relay's own", t.Name)
	case len(t.Scopes) == 0:
		return sum, errors.New("scopes is missing: some of " + scopeWords())
	case len(t.Tenants) > maxBound || len(t.Runs) > maxBound:
		return sum, fmt.Errorf("at most %d tenants and %d runs are taken", maxBound, maxBound)
	case slices.Contains(t.Tenants, "") || slices.ContainsFunc(t.Tenants, func(s string) bool { return strings.Contains(s, "*") }):
		return sum, errors.New("tenants are names, without wildcards; leave tenants out for all")
	}
	for _, s := range t.Scopes {
		if !slices.Contains(Scopes, s) {
			return sum, fmt.Errorf("there is no scope %q; there are %s", cut(string(s)), scopeWords())
		}
	}
	for _, p := range t.Runs {
		if id := strings.TrimSuffix(p, "*"); id == "" || strings.Contains(id, "*") || len(id) > maxRunID {
			return sum, fmt.Errorf("runs: %q is no id and no prefix*", cut(p))
		}
	}
	b, err := hex.DecodeString(t.SHA256)
	if err != nil || len(b) != len(sum) {
		return sum, errors.New("sha256 must be 64 hexadecimal digits: cbcast token makes an entry")
	}
	return [sha256.Size]byte(b), nil
}

// A grant is a token that counts now.
type grant struct {
	Token
	sum [sha256.Size]byte // of the token
	id  string            // in sessions
	// over ends with the grant: when the token expires, leaves the list or has
	// other rights there.
	over context.Context
	end  context.CancelFunc
}

func newGrant(t Token, sum [sha256.Size]byte) *grant {
	g := &grant{Token: t, sum: sum}
	id := sha256.Sum256(sum[:])
	g.id = hex.EncodeToString(id[:16])
	if t.Expires.IsZero() {
		g.over, g.end = context.WithCancel(context.Background())
	} else {
		g.over, g.end = context.WithDeadline(context.Background(), t.Expires)
	}
	return g
}

// localGrant is that of this machine's own token.
func localGrant(token string) *grant {
	return newGrant(Token{Name: actorLocal, Scopes: []Scope{ScopeAdmin}}, sha256.Sum256([]byte(token)))
}

func (g *grant) holds() bool { return g.over.Err() == nil }

func (g *grant) equal(o *grant) bool {
	return g.sum == o.sum && g.Name == o.Name && slices.Equal(g.Scopes, o.Scopes) && slices.Equal(g.Tenants, o.Tenants) &&
		slices.Equal(g.Runs, o.Runs) && g.Expires.Equal(o.Expires)
}

// grants are all that count now. They are not changed, only replaced.
type grants struct {
	key   []byte // of the index below
	bySum map[string]*grant
	byID  map[string]*grant
}

func newGrants(list []*grant) *grants {
	s := &grants{key: make([]byte, sha256.Size), bySum: map[string]*grant{}, byID: map[string]*grant{}}
	_, _ = rand.Read(s.key) // never fails
	for _, g := range list {
		s.bySum[s.index(g.sum)], s.byID[g.id] = g, g
	}
	return s
}

// index is where a token's hash stands: under a key that nobody knows, so that the
// time a look takes says nothing about any token.
func (s *grants) index(sum [sha256.Size]byte) string { return string(hash(s.key, sum[:])) }

// token finds the grant of a token, nil for one that does not count.
func (s *grants) token(token string) *grant {
	sum := sha256.Sum256([]byte(token))
	g := s.bySum[s.index(sum)]
	if g == nil || subtle.ConstantTimeCompare(g.sum[:], sum[:]) != 1 || !g.holds() {
		return nil
	}
	return g
}

// session finds the grant behind a session's id.
func (s *grants) session(id string) *grant {
	g := s.byID[id]
	if g == nil || !g.holds() {
		return nil
	}
	return g
}
