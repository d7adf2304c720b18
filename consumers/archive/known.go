package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/segment"
)

// known is how far this machine has looked after each tenant's heads: which are in the
// catalogue, and which were handed to the copier. What it does not know is looked at
// again, so losing it costs time only.
type known struct {
	path string

	To      string            `json:"to,omitempty"` // where copies go
	Listed  map[string]uint64 `json:"listed"`
	Copied  map[string]uint64 `json:"copied"`
	changed bool
}

func openKnown(dir, to string) (*known, error) {
	k := &known{path: filepath.Join(dir, "known.json")}
	b, err := os.ReadFile(k.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("known heads: %w", err)
	}
	if err != nil || json.Unmarshal(b, k) != nil || k.Listed == nil || k.Copied == nil {
		k.Listed, k.Copied = map[string]uint64{}, map[string]uint64{}
	}
	if k.To != to { // another place begins with the first head
		k.To, k.Copied, k.changed = to, map[string]uint64{}, true
	}
	return k, nil
}

func (k *known) save() error {
	if !k.changed {
		return nil
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(k.path, b, 0o600); err != nil {
		return fmt.Errorf("known heads: %w", err)
	}
	k.changed = false
	return nil
}

// reconcile looks after the heads that an earlier process, or another, has added.
func (s *Service) reconcile(ctx context.Context) error {
	to := ""
	if s.copies != nil {
		to = s.copies.to.String()
	}
	k, err := openKnown(s.o.Dir, to)
	if err != nil {
		return err
	}
	s.known = k
	tenants, err := s.place.Reader().Tenants(ctx)
	if errors.Is(err, segment.ErrTenant) {
		s.o.Log.Error("a tenant is not looked after, the others are", "error", err)
	} else if err != nil {
		return err
	}
	for _, t := range tenants {
		if s.isAside(t) {
			continue
		}
		err := s.behind(ctx, t, 0)
		if segment.Damaged(err) {
			s.o.Log.Error("heads of a tenant are not looked after: cbcast archive verify says what is wrong", "tenant", t, "error", err)
		} else if err != nil {
			return err
		}
	}
	return k.save()
}

// upTo looks after a new head, and after those before it that others have added.
func (s *Service) upTo(ctx context.Context, h *segment.Head, p *page) error {
	if h.Number > s.known.after(h.Tenant, s.copies != nil)+1 {
		if err := s.behind(ctx, h.Tenant, h.Number); err != nil {
			return err
		}
	}
	return s.follow(ctx, h, p)
}

// behind looks after a tenant's heads before number end, 0 for all there are.
func (s *Service) behind(ctx context.Context, tenant string, end uint64) error {
	for h, err := range s.place.Reader().Heads(ctx, tenant, s.known.after(tenant, s.copies != nil)) {
		if err != nil {
			return err
		}
		if h.Number == end {
			break
		}
		if err := s.follow(ctx, h, nil); err != nil {
			return err
		}
	}
	return nil
}

// follow puts a head into the catalogue and hands it to the copier, once each.
func (s *Service) follow(ctx context.Context, h *segment.Head, p *page) error {
	k := s.known
	if h.Number > k.Listed[h.Tenant] {
		if err := s.list(ctx, h, p); err != nil {
			return err
		}
		k.Listed[h.Tenant], k.changed = h.Number, true
		s.at("listed")
	}
	if s.copies != nil && h.Number > k.Copied[h.Tenant] {
		if err := s.copies.room(); err != nil {
			return err
		}
		if err := s.copies.add(h.Encode()); err != nil {
			return err
		}
		k.Copied[h.Tenant], k.changed = h.Number, true
		s.at("copied")
	}
	s.set(func() {
		if h.Time.After(s.headAt) {
			s.headAt = h.Time
		}
	})
	return nil
}

// after is the head up to which everything is done.
func (k *known) after(tenant string, copies bool) uint64 {
	if copies {
		return min(k.Listed[tenant], k.Copied[tenant])
	}
	return k.Listed[tenant]
}

// list sees to it that the catalogue has a segment's page.
func (s *Service) list(ctx context.Context, h *segment.Head, p *page) error {
	if h.Segment == nil {
		return nil
	}
	if p == nil {
		_, err := readPage(ctx, s.place.Keys, h.Tenant, h.Number)
		if err == nil {
			return nil
		}
		if p, err = rebuildPage(ctx, s.place, h); err != nil {
			// Nothing of the archive is missing, only this list of it.
			s.o.Log.Warn("catalogue of a segment not made", "tenant", h.Tenant, "head", h.Number, "error", err)
			return nil
		}
	}
	if err := writePage(ctx, s.place.Keys, p); err != nil {
		return err
	}
	return s.dropErased(ctx, h, p)
}

// dropErased takes runs out of a page that were erased behind its head: erasing may have
// looked at the catalogue before the page was there.
func (s *Service) dropErased(ctx context.Context, h *segment.Head, p *page) error {
	n := len(p.Notes)
	for later, err := range s.place.Reader().Heads(ctx, h.Tenant, h.Number) {
		if err != nil {
			return err
		}
		if st := later.Statement; st != nil && st.Kind == segment.Erased {
			if i, ok := p.find(st.Run); ok {
				p.Notes = slices.Delete(p.Notes, i, i+1)
			}
		}
	}
	if len(p.Notes) == n {
		return nil
	}
	return writePage(ctx, s.place.Keys, p)
}
