package segment

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/subject"
)

// A chain is what a writer knows of a tenant's chain.
type chain struct {
	st     Store
	tenant string
	memory string // the file in which this machine keeps what it knows, "" for none

	number  uint64
	hash    string
	time    time.Time
	through map[string]Place
	erased  map[string]uint64 // by run, the number of the head
	holds   map[string]*Statement
}

// chainMemory is the form of the file.
type chainMemory struct {
	Tenant  string                `json:"tenant"`
	Number  uint64                `json:"number"`
	Hash    string                `json:"hash"`
	Time    time.Time             `json:"time"`
	Through map[string]Place      `json:"through"`
	Erased  map[string]uint64     `json:"erased"`
	Holds   map[string]*Statement `json:"holds"`
}

// openChain begins with what this machine knows; dir "" is nothing.
func openChain(st Store, tenant, dir string) (*chain, error) {
	c := &chain{
		st: st, tenant: tenant, through: map[string]Place{}, erased: map[string]uint64{}, holds: map[string]*Statement{},
	}
	if dir == "" {
		return c, nil
	}
	c.memory = filepath.Join(dir, "chain-"+subject.Token(tenant)+".json")
	b, err := os.ReadFile(c.memory)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open chain: %w", err)
	}
	var m chainMemory
	if err := json.Unmarshal(b, &m); err != nil || m.Tenant != tenant {
		return nil, fmt.Errorf("open chain: %s: %w", filepath.Base(c.memory), errDamaged)
	}
	c.number, c.hash, c.time = m.Number, m.Hash, m.Time
	maps.Copy(c.through, m.Through)
	maps.Copy(c.erased, m.Erased)
	maps.Copy(c.holds, m.Holds)
	return c, nil
}

// remember writes what is known, so that a store that is rolled back shows.
func (c *chain) remember() error {
	if c.memory == "" {
		return nil
	}
	b, err := json.Marshal(chainMemory{c.tenant, c.number, c.hash, c.time, c.through, c.erased, c.holds})
	if err != nil {
		return fmt.Errorf("remember chain: %w", err)
	}
	return durable.WriteFile(c.memory, b, 0o600)
}

// readHead reads one head. It checks that it is of the place where it stands.
func readHead(ctx context.Context, st Store, tenant string, n uint64) (*Head, error) {
	b, err := readObject(ctx, st, headKey(tenant, n), maxHead)
	if err != nil {
		return nil, fmt.Errorf("head %d of tenant %q: %w", n, tenant, err)
	}
	h, err := ParseHead(b)
	if err != nil {
		return nil, fmt.Errorf("head %d of tenant %q: %w", n, tenant, err)
	}
	if h.Tenant != tenant || h.Number != n {
		return nil, fmt.Errorf("head %d of tenant %q: %w: it is %d of %q", n, tenant, errDamaged, h.Number, h.Tenant)
	}
	return h, nil
}

// check compares the store with what is known: that the known end is still there.
func (c *chain) check(ctx context.Context) error {
	if c.number == 0 {
		return nil
	}
	h, err := readHead(ctx, c.st, c.tenant, c.number)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("chain of tenant %q: %w: head %d is gone", c.tenant, ErrRolledBack, c.number)
	case err != nil:
		return err
	case h.Hash() != c.hash:
		return fmt.Errorf("chain of tenant %q: %w: head %d is another", c.tenant, ErrRolledBack, c.number)
	}
	return nil
}

// advance reads the heads that others have added, calling each for every one.
func (c *chain) advance(ctx context.Context, each func(*Head)) error {
	for {
		h, err := readHead(ctx, c.st, c.tenant, c.number+1)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Prev != c.hash {
			return fmt.Errorf("chain of tenant %q: %w: head %d does not follow the one before", c.tenant, errDamaged, h.Number)
		}
		c.take(h)
		if each != nil {
			each(h)
		}
	}
}

// take makes h the chain's end.
func (c *chain) take(h *Head) {
	c.number, c.hash, c.time = h.Number, h.Hash(), h.Time
	for log, p := range h.Through {
		c.through[log] = p
	}
	if s := h.Statement; s != nil {
		switch s.Kind {
		case Erased:
			c.erased[s.Run] = h.Number
		case Held:
			c.holds[s.Hold] = s
		case Released:
			delete(c.holds, s.Hold)
		case Retained, Missing:
		}
	}
}

// held returns the hold that a run is under, nil for none; run "" asks for the whole tenant.
func (c *chain) held(run string) *Statement {
	for _, s := range c.holds {
		if s.Run == "" || s.Run == run {
			return s
		}
	}
	return nil
}

// errMoved says that another head stands where one was to be added.
var errMoved = errors.New("the chain went on")

// add makes h the next head. It returns errMoved when another was faster: advance and
// try again. Whether it is there after another error is not known.
func (c *chain) add(ctx context.Context, h *Head, key ed25519.PrivateKey) error {
	h.Version, h.Tenant, h.Number, h.Prev = 1, c.tenant, c.number+1, c.hash
	if h.Time = time.Now().UTC(); h.Time.Before(c.time) {
		h.Time = c.time // a clock that was set back does not turn the chain's time
	}
	through := maps.Clone(c.through)
	for log, p := range h.Through {
		through[log] = later(through[log], p)
	}
	h.Through = through
	h.sign(key)
	b := h.Encode()
	if _, err := ParseHead(b); err != nil { // written, it would be the end of the chain
		return fmt.Errorf("add head %d of tenant %q: it could not be read: %w", h.Number, c.tenant, err)
	}
	if h.Number == 1 {
		if err := noteTenant(ctx, c.st, c.tenant); err != nil {
			return fmt.Errorf("add tenant %q: %w", c.tenant, err)
		}
	}
	err := createBytes(ctx, c.st, headKey(c.tenant, h.Number), append(b, '\n'))
	if errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return fmt.Errorf("add head %d of tenant %q: %w", h.Number, c.tenant, err)
	}
	c.take(h)
	return nil
}

// later is the place that is behind both. A stream that was made anew counts from 1
// again, later.
func later(a, b Place) Place {
	if b.Time.Before(a.Time) {
		return Place{max(a.Seq, b.Seq), a.Time}
	}
	if b.Time.Equal(a.Time) {
		return Place{max(a.Seq, b.Seq), a.Time}
	}
	return b
}

// has reports whether a message is at p or before it.
func (p Place) has(seq uint64, t time.Time) bool { return seq <= p.Seq && !t.After(p.Time) }
