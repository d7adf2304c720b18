package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
	"github.com/cbcast/cbcast/internal/subject"
)

// A tenant whose chain cannot be gone on with is set aside: that is written down in the
// store of keys, where every instance finds it, before a message of the tenant is passed
// over. The bus keeps what is passed over, as long as it keeps anything. When the chain can
// be gone on with again, what the bus has behind the chain's end is archived first (see
// catchUp), and then the tenant is as any other.
type aside struct {
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	Why    string    `json:"why"`

	tries int
	next  time.Time // when its chain is looked at again
	back  bool      // it is caught up with in this session
}

// Bounds of the time between two looks at the chain of a tenant that is aside.
const (
	firstLook = 10 * time.Second
	lastLook  = 10 * time.Minute
)

const asidePrefix = "aside/"

func asideKey(tenant string) string { return asidePrefix + subject.Token(tenant) + ".json" }

// setAside passes over a tenant from now on. After an error it is not.
func (s *Service) setAside(ctx context.Context, tenant string, why error) error {
	// What is not mounted has lost the chains of all tenants.
	if err := segment.Exists(ctx, s.place.Store); err != nil {
		return fmt.Errorf("tenant %q: %w: %w", tenant, why, err)
	}
	s.mu.Lock()
	a := s.asides[tenant]
	s.mu.Unlock()
	fresh := a == nil
	if fresh {
		a = &aside{Tenant: tenant, Since: time.Now().UTC(), Why: why.Error()}
		b, err := json.Marshal(a)
		if err == nil {
			err = s.place.Keys.Replace(ctx, asideKey(tenant), b)
		}
		if err != nil {
			return fmt.Errorf("tenant %q: %w: it is not set aside: %w", tenant, why, err)
		}
	}
	s.set(func() {
		a.Why, a.back = why.Error(), false
		s.later(a)
		s.asides[tenant] = a
	})
	s.o.Log.Error("tenant set aside: nothing more of it is archived until its chain can be gone on with; the others go on",
		"tenant", tenant, "error", why, "look", "cbcast archive verify --tenant "+tenant)
	return nil
}

// later says when a tenant's chain is looked at again. mu is held.
func (s *Service) later(a *aside) {
	first := firstLook
	if s.o.look > 0 {
		first = s.o.look
	}
	a.next = time.Now().Add(min(first<<min(a.tries, 10), lastLook))
	a.tries++
}

// isAside reports whether a tenant is passed over.
func (s *Service) isAside(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asides[tenant]
	return a != nil && !a.back
}

// returning are the tenants that this session catches up with.
func (s *Service) returning() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, t := range slices.Sorted(maps.Keys(s.asides)) {
		if s.asides[t].back {
			out = append(out, t)
		}
	}
	return out
}

// loadAside reads which tenants are aside, and looks at their chains. It returns those that
// stay there.
func (s *Service) loadAside(ctx context.Context) (map[string]error, error) {
	all := map[string]*aside{}
	for info, err := range s.place.Keys.List(ctx, asidePrefix) {
		if err != nil {
			return nil, fmt.Errorf("tenants that are aside: %w", err)
		}
		b, err := readAll(ctx, s.place.Keys, info.Key)
		if err != nil {
			return nil, fmt.Errorf("tenants that are aside: %w", err)
		}
		a := &aside{}
		if json.Unmarshal(b, a) != nil || asideKey(a.Tenant) != info.Key {
			tenant, ok := subject.Untoken(strings.TrimSuffix(strings.TrimPrefix(info.Key, asidePrefix), ".json"))
			if !ok {
				return nil, fmt.Errorf("tenants that are aside: %s is damaged: remove it when no archive runs", info.Key)
			}
			*a = aside{Tenant: tenant, Since: time.Now().UTC(), Why: "the note about it is damaged"}
		}
		all[a.Tenant] = a
	}
	s.set(func() {
		for t, a := range all {
			if old := s.asides[t]; old != nil {
				old.back, all[t] = false, old
			} else {
				all[t] = a
			}
		}
		s.asides = all
	})
	out := map[string]error{}
	for t, a := range all {
		if err := s.look(ctx, a); err != nil {
			out[t] = err
			continue
		}
		s.o.Log.Info("the tenant's chain can be gone on with: what the bus has of it is archived", "tenant", t, "since", a.Since)
		s.set(func() { a.back = true })
	}
	return out, nil
}

// look says why a tenant stays aside, nil where its chain can be gone on with.
func (s *Service) look(ctx context.Context, a *aside) error {
	s.mu.Lock()
	early, why := time.Now().Before(a.next), a.Why
	s.mu.Unlock()
	if early {
		return errors.New(why)
	}
	err := segment.CheckChain(ctx, s.place.Store, s.openDir(), a.Tenant)
	if err != nil {
		s.set(func() {
			a.Why = err.Error()
			s.later(a)
		})
	}
	return err
}

// probe looks at the chains of tenants that are aside, and ends the session when one can be
// gone on with: the next one begins with it. So it does when a former partition is gone.
func (s *Service) probe(ctx context.Context, end context.CancelCauseFunc) {
	every := firstLook
	if s.o.look > 0 {
		every = s.o.look
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if err := s.formerGone(ctx); err != nil {
			end(err)
			return
		}
		s.mu.Lock()
		var all []*aside
		for _, a := range s.asides {
			if !a.back {
				all = append(all, a)
			}
		}
		s.mu.Unlock()
		for _, a := range all {
			if s.look(ctx, a) == nil {
				end(fmt.Errorf("tenant %q can be archived again", a.Tenant))
				return
			}
		}
	}
}

// returned forgets that tenants were aside: the chain has all of them.
func (s *Service) returned(ctx context.Context, tenants []string) {
	for _, t := range tenants {
		if err := s.place.Keys.Delete(ctx, asideKey(t)); err != nil {
			s.o.Log.Warn("the note that a tenant is aside is not removed yet", "tenant", t, "error", err)
			continue
		}
		s.set(func() { delete(s.asides, t) })
		s.o.Log.Info("tenant caught up with", "tenant", t)
	}
}

// asideError names the tenants that are aside, nil for none.
func (s *Service) asideError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	var first *aside
	for _, t := range slices.Sorted(maps.Keys(s.asides)) {
		if a := s.asides[t]; !a.back {
			names = append(names, fmt.Sprintf("%q", t))
			if first == nil {
				first = a
			}
		}
	}
	if first == nil {
		return nil
	}
	const most = 5
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("%d more", n-most))
	}
	return fmt.Errorf("tenants set aside: %s, since %s: %s; the others are archived. cbcast archive verify --tenant %s says what is wrong; "+
		"what the bus has is archived when that is mended", strings.Join(names, ", "), first.Since.Format(time.RFC3339), first.Why, first.Tenant)
}

// asideSince is how many tenants are aside or not caught up with, and since when.
func (s *Service) asideSince() (n int, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asides {
		if since.IsZero() || a.Since.Before(since) {
			since = a.Since
		}
	}
	return len(s.asides), since
}
