package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
)

// When a service looks after what is in the stores.
const (
	tendFirst  = time.Minute // after a session has begun
	tendEvery  = time.Hour
	sweepEvery = 24 * time.Hour
	// sweepAge is how old an upload, or a file that is being written, must be to be given up:
	// no write takes so long.
	sweepAge = 24 * time.Hour
)

// begin looks whether the stores can hold an archive, once, and gives up what earlier processes
// were writing there.
func (s *Service) begin(ctx context.Context) error {
	if s.begun {
		return nil
	}
	if err := fit(ctx, s.stores()); err != nil {
		return err
	}
	s.begun = true
	s.sweep(ctx)
	return nil
}

// sweep gives up what writes left that have no end. Nothing depends on it: it frees space.
func (s *Service) sweep(ctx context.Context) {
	for _, st := range s.stores() {
		if w, ok := st.(segment.Sweeper); ok {
			if err := w.Sweep(ctx, time.Now().Add(-sweepAge)); err != nil && ctx.Err() == nil {
				s.o.Log.Warn("what unfinished writes left is not removed", "error", err)
			}
		}
	}
	s.swept = time.Now()
}

// retain looks after the stores until ctx ends: what crashes left, what unfinished writes left,
// and what is over its time. Only the instance that reads does it.
func (s *Service) retain(ctx context.Context, ar *segment.Archive) {
	t := time.NewTimer(tendFirst)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		t.Reset(tendEvery)
		if !s.standsBy() {
			s.tend(ctx, ar)
		}
	}
}

// tend does all of it once.
func (s *Service) tend(ctx context.Context, ar *segment.Archive) {
	if time.Since(s.swept) >= sweepEvery {
		s.sweep(ctx)
	}
	gone, err := Tidy(ctx, s.place, ar)
	for _, key := range gone {
		s.o.Log.Info("removed what a crash left, and nothing needs", "object", key)
	}
	s.tended(ctx, "tidying", err)
	done, err := Retain(ctx, &s.o.Config, s.place, ar, "cbcast archive")
	for _, r := range done {
		if r.Held != nil {
			s.o.Log.Debug("nothing deleted", "tenant", r.Tenant, "held", r.Held)
		}
		if r.Segments > 0 {
			s.o.Log.Info("segments deleted: their time is over", "tenant", r.Tenant, "segments", r.Segments, "before", r.Before)
		}
	}
	s.tended(ctx, "retention", err)
}

// tended says what went wrong, unless that is the session's end.
func (s *Service) tended(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrClosed) {
		s.o.Log.Warn("not everything was looked after", "what", what, "error", err)
	}
}

// Tidy removes what crashes left of all tenants; see segment.Archive.Tidy. A tenant of which that
// cannot be done keeps none of the others.
func Tidy(ctx context.Context, p Place, ar *segment.Archive) (gone []string, err error) {
	r := p.Reader()
	tenants, err := r.Tenants(ctx)
	if err != nil && !errors.Is(err, segment.ErrTenant) {
		return nil, err
	}
	errs := []error{err}
	for _, t := range tenants {
		keys, err := ar.Tidy(ctx, t)
		gone = append(gone, keys...)
		if err == nil {
			keys, err = tidyCatalog(ctx, p, r, t)
			gone = append(gone, keys...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tenant %q: %w", t, err))
		}
	}
	return gone, errors.Join(errs...)
}

// tidyCatalog removes pages of the catalogue whose segments retention has deleted.
func tidyCatalog(ctx context.Context, p Place, r *segment.Reader, tenant string) (gone []string, err error) {
	deleted, err := r.Deleted(ctx, tenant)
	if err != nil || len(deleted) == 0 {
		return nil, err
	}
	numbers, err := pages(ctx, p.Keys, tenant)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if !deleted[n] {
			continue
		}
		key := catalogKey(tenant, n)
		if err := p.Keys.Delete(ctx, key); err != nil {
			return gone, err
		}
		gone = append(gone, key)
	}
	return gone, nil
}
