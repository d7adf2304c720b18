package archive

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
)

// Write opens an archive, which must be there, to state something about it, while a service may be writing,
// too: the chain has room for both. dir is the archive's state directory.
func Write(ctx context.Context, c *Config, dir string, fn func(Place, *segment.Archive) error) (err error) {
	p, err := c.OpenExisting(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("archive's directory: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, "command-")
	if err != nil {
		return fmt.Errorf("archive's directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	ar, err := segment.Open(ctx, segment.Options{
		Store: p.Store, Keys: p.Keys, Wrap: p.Wrap, Dir: tmp,
		Signer: func() (ed25519.PrivateKey, error) { return c.signingKey(dir) },
	})
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	return errors.Join(fn(p, ar), ar.Close())
}

// signingKey reads the key that signs.
func (c *Config) signingKey(dir string) (ed25519.PrivateKey, error) {
	text := []byte(c.SigningKey)
	if len(text) == 0 {
		var err error
		if text, err = durable.ReadRegular(c.SigningFile(dir), durable.MaxPEM); err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
	}
	return segment.ParsePrivateKey(text)
}

// CopyHead sends a head to the second place at once, if there is one. A service does so,
// too, when it next looks.
func (c *Config) CopyHead(ctx context.Context, h *segment.Head) error {
	to, err := c.headPlace()
	if err != nil || to == nil || h == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	return to.put(ctx, h.Encode())
}

// Erase destroys the keys of a run and takes it out of the catalogue.
func Erase(ctx context.Context, p Place, ar *segment.Archive, tenant, run, by, why string) (*segment.Head, error) {
	h, err := ar.Erase(ctx, tenant, run, by, why)
	if err != nil {
		return h, err
	}
	return h, forget(ctx, p, tenant)
}

// A Hold is a legal hold that stands.
type Hold struct {
	ID     string    `json:"id"`
	Tenant string    `json:"tenant"`
	Run    string    `json:"run,omitempty"` // "" is the whole tenant
	By     string    `json:"by"`
	Why    string    `json:"why"`
	Time   time.Time `json:"time"`
	Head   uint64    `json:"head"`
}

// Holds lists the holds of a tenant, or of all, oldest first. Those of a tenant that cannot be read
// are missing, and the error names it.
func Holds(ctx context.Context, p Place, tenant string) ([]Hold, error) {
	r := p.Reader()
	tenants, bad := []string{tenant}, error(nil)
	if tenant == "" {
		tenants, bad = r.Tenants(ctx)
		if bad != nil && !errors.Is(bad, segment.ErrTenant) {
			return nil, bad
		}
	}
	errs := []error{bad}
	var all []Hold
	for _, t := range tenants {
		here, err := holdsOf(ctx, r, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("holds of tenant %q: %w", t, err))
			continue
		}
		all = append(all, here...)
	}
	return all, errors.Join(errs...)
}

func holdsOf(ctx context.Context, r *segment.Reader, tenant string) (here []Hold, err error) {
	for h, err := range r.Heads(ctx, tenant, 0) {
		if err != nil {
			return nil, err
		}
		st := h.Statement
		switch {
		case st == nil:
		case st.Kind == segment.Held:
			here = append(here, Hold{st.Hold, tenant, st.Run, st.By, st.Why, h.Time, h.Number})
		case st.Kind == segment.Released:
			here = slices.DeleteFunc(here, func(o Hold) bool { return o.ID == st.Hold })
		}
	}
	return here, nil
}

// Rotate makes a new signing key, has the archive's newest one sign it, and puts it into
// that one's file; the old one stays beside it, under its name. The public key's file stays
// as it is: who trusts the first key finds the others from it. Where an earlier call
// ended in the middle it is finished.
func Rotate(ctx context.Context, c *Config, dir, by string) (*segment.Signer, error) {
	if c.SigningKey != "" {
		return nil, errors.New("the signing key is in CBCAST_ARCHIVE_SIGNING_KEY: only one in a file can be rotated")
	}
	p, err := c.OpenExisting(ctx)
	if err != nil {
		return nil, err
	}
	file := c.SigningFile(dir)
	old, err := c.signingKey(dir)
	if err != nil {
		return nil, err
	}
	next := file + ".next"
	if _, err := os.Stat(next); err != nil {
		private, _, err := segment.GenerateKey()
		if err != nil {
			return nil, err
		}
		if err := durable.WriteFile(next, private, 0o600); err != nil {
			return nil, fmt.Errorf("new signing key: %w", err)
		}
	}
	text, err := os.ReadFile(next)
	if err != nil {
		return nil, fmt.Errorf("new signing key: %w", err)
	}
	key, err := segment.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", next, err)
	}
	s, err := rotated(ctx, p.Store, old, key, by)
	if err != nil {
		return nil, err
	}
	return s, swapKeys(file, next, old)
}

// rotated adds the new key to the archive, unless an earlier call has.
func rotated(ctx context.Context, st segment.Store, old, key ed25519.PrivateKey, by string) (*segment.Signer, error) {
	all, err := segment.Signers(ctx, st)
	if err != nil {
		return nil, err
	}
	if n := len(all); n > 0 && all[n-1].Public().Equal(key.Public()) {
		return all[n-1], nil
	}
	return segment.Rotate(ctx, st, old, key, by)
}

func swapKeys(file, next string, old ed25519.PrivateKey) error {
	aside := fmt.Sprintf("%s.%s", file, segment.KeyID(old.Public().(ed25519.PublicKey)))
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("old signing key: %w", err)
	}
	if err := durable.WriteFile(aside, b, 0o600); err != nil {
		return fmt.Errorf("old signing key: %w", err)
	}
	if err := durable.Rename(next, file); err != nil {
		return fmt.Errorf("new signing key: %w", err)
	}
	return durable.SyncDir(filepath.Dir(file))
}
