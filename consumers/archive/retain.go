package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
)

// retention is how long segments are kept, by tenant; "*" is everybody else.
type retention map[string]time.Duration

const minRetention = time.Hour

func parseRetention(s string) (retention, error) {
	r := retention{}
	for f := range strings.SplitSeq(s, ",") {
		if f = strings.TrimSpace(f); f == "" {
			continue
		}
		tenant, age, ok := strings.Cut(f, "=")
		if !ok {
			tenant, age = "*", f
		}
		d, err := time.ParseDuration(strings.TrimSpace(age))
		if err != nil || d < minRetention {
			return nil, fmt.Errorf("CBCAST_ARCHIVE_RETENTION: %q: want TENANT=AGE with an age of %v or more, like acme=720h,*=8760h", f, minRetention)
		}
		r[strings.TrimSpace(tenant)] = d
	}
	return r, nil
}

// of is a tenant's, 0 for ever.
func (r retention) of(tenant string) time.Duration {
	if d, ok := r[tenant]; ok {
		return d
	}
	return r["*"]
}

// A Retained is what retention did for one tenant.
type Retained struct {
	Tenant   string
	Before   time.Time
	Segments int             // deleted
	Heads    []*segment.Head // that say so
	Held     error           // the hold of the whole tenant, which keeps everything; nil without
}

// Retain deletes segments that are older than a tenant's retention, and their pages of
// the catalogue. What is held stays. A tenant of which that cannot be done keeps none of the
// others: it is named in the error.
func Retain(ctx context.Context, c *Config, p Place, ar *segment.Archive, by string) ([]Retained, error) {
	rules, err := parseRetention(c.Retention)
	if err != nil || len(rules) == 0 {
		return nil, err
	}
	tenants, err := p.Reader().Tenants(ctx)
	if err != nil && !errors.Is(err, segment.ErrTenant) {
		return nil, err
	}
	errs := []error{err}
	var all []Retained
	for _, t := range tenants {
		age := rules.of(t)
		if age == 0 {
			continue
		}
		r, err := retainTenant(ctx, p, ar, t, age, by)
		switch {
		case errors.Is(err, segment.ErrHeld):
			r.Held = err
		case err != nil:
			errs = append(errs, fmt.Errorf("retention of tenant %q: %w", t, err))
		}
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}

func retainTenant(ctx context.Context, p Place, ar *segment.Archive, tenant string, age time.Duration, by string) (Retained, error) {
	r := Retained{Tenant: tenant, Before: time.Now().Add(-age).UTC()}
	for {
		h, err := ar.Retain(ctx, tenant, r.Before, by, fmt.Sprintf("retention of %v", age))
		if h != nil {
			r.Segments += len(h.Statement.Segments)
			r.Heads = append(r.Heads, h)
			for _, n := range h.Statement.Segments {
				err = errors.Join(err, p.Keys.Delete(ctx, catalogKey(tenant, n)))
			}
		}
		if !errors.Is(err, segment.ErrTooMany) {
			return r, err
		}
	}
}
