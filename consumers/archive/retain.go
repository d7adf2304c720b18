package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
// the catalogue. What is held stays.
func Retain(ctx context.Context, c *Config, p Place, ar *segment.Archive, by string) ([]Retained, error) {
	rules, err := parseRetention(c.Retention)
	if err != nil || len(rules) == 0 {
		return nil, err
	}
	tenants, err := p.Reader().Tenants(ctx)
	if err != nil {
		return nil, err
	}
	var all []Retained
	var errs []error
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

// Times of retention in a service.
const (
	retainFirst = time.Minute
	retainEvery = time.Hour
)

// retain runs retention until ctx ends. Only the instance that reads does it.
func (s *Service) retain(ctx context.Context, ar *segment.Archive) {
	if s.o.Retention == "" {
		return
	}
	t := time.NewTimer(retainFirst)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		t.Reset(retainEvery)
		if s.standsBy() {
			continue
		}
		done, err := Retain(ctx, &s.o.Config, s.place, ar, "cbcast archive")
		for _, r := range done {
			if r.Held != nil {
				s.o.Log.Debug("nothing deleted", "tenant", r.Tenant, "held", r.Held)
			}
			if r.Segments > 0 {
				s.o.Log.Info("segments deleted: their time is over", "tenant", r.Tenant, "segments", r.Segments, "before", r.Before)
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrClosed) {
			s.o.Log.Warn("retention", "error", err)
		}
	}
}
