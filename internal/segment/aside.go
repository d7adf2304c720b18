package segment

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A TenantError is what keeps one tenant's records from the archive.
type TenantError struct {
	Tenant string
	Err    error
}

func (e *TenantError) Error() string { return fmt.Sprintf("tenant %q: %v", e.Tenant, e.Err) }
func (e *TenantError) Unwrap() error { return e.Err }

// Damaged reports whether the tenant's own files are the reason, and not the store: a head
// that is none, a chain that does not fit together or has lost its end.
func (e *TenantError) Damaged() bool { return damagedChain(e.Err) }

func damagedChain(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, ErrHead) || errors.Is(err, ErrRolledBack)
}

// ofTenant names the tenant in an error about its chain.
func ofTenant(tenant string, err error) error {
	var named *TenantError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return &TenantError{tenant, err}
}

// TenantErrors are the tenants that an error is about.
func TenantErrors(err error) []*TenantError {
	var out []*TenantError
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it is taken apart
		case *TenantError:
			out = append(out, e)
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return out
}

// Damaged reports whether what was read, and not that it could not be, is the error.
func Damaged(err error) bool { return damagedChain(err) || errors.Is(err, ErrTenant) }

// CheckChain says whether a tenant's chain can be gone on with. dir is [Options.Dir]. It
// changes nothing.
func CheckChain(ctx context.Context, st Store, dir, tenant string) error {
	c, err := openChain(st, tenant, dir)
	if err == nil {
		err = c.check(ctx)
	}
	if err == nil {
		err = c.advance(ctx, nil)
	}
	return ofTenant(tenant, err)
}

// Aside are the tenants of which nothing is taken, and why: those of [Options.Aside], and
// those whose chain was damaged when the archive was opened.
func (a *Archive) Aside() map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.aside)
}

// Sealed says up to where the chain has all of a tenant, for each log.
func (a *Archive) Sealed(ctx context.Context, tenant string) (map[string]Place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		return nil, a.broken
	}
	t, err := a.tenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return maps.Clone(t.through), nil
}

// Pass notes that the message at a place is none for the archive, or is kept elsewhere: the
// log goes on behind it.
func (a *Archive) Pass(log Log, at Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[log] = later(a.last[log], at)
	a.readAgain(log, a.last[log])
}

// setAside leaves a tenant's segments in Options.Dir as they are: the next process that can
// write to the chain goes on with them.
func (a *Archive) setAside(tenant string, err error) {
	a.aside[tenant] = err
	var kept []*open
	for _, s := range a.segs {
		if s.tenant != tenant {
			kept = append(kept, s)
			continue
		}
		s.close()
		uid := hex.EncodeToString(s.uid[:])
		a.recovered = slices.DeleteFunc(a.recovered, func(r Recovered) bool { return r.UID == uid })
	}
	a.setSegs(kept)
}
