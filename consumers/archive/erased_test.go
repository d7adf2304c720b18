package archive

import (
	"errors"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/segment"
)

// What the catalogue says of a run does not come back after the run was erased, neither with
// a segment that is sealed later nor with a page that is late.
func TestErasedStaysOutOfTheCatalogue(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k.take(t, r.entry(tenant, "r1", 1, bus.Place{Seq: 1, Time: at}), r.entry(tenant, "r2", 1, bus.Place{Seq: 2, Time: at}))
	k.commit(t)
	k.take(t, r.entry(tenant, "r1", 2, bus.Place{Seq: 3, Time: at}), r.entry(tenant, "r2", 2, bus.Place{Seq: 4, Time: at}))
	k.notes[open{tenant, "2026-03-01Z"}] = map[string]*Note{"r1": {Run: "r1", Repo: "acme/shop"}, "r2": {Run: "r2", Repo: "acme/shop"}}
	h, err := k.ar.Erase(t.Context(), tenant, "r1", "dpo", "x")
	if err != nil {
		t.Fatal(err)
	}
	k.commit(t)
	first := &page{Tenant: tenant, Number: 1, Notes: []Note{{Run: "r1", Repo: "acme/shop"}, {Run: "r2", Repo: "acme/shop"}}}
	for head, err := range r.place().Reader().Heads(t.Context(), tenant, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if head.Number == 1 {
			if err := k.s.list(t.Context(), head, first); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range []uint64{1, h.Number + 1} {
		p, err := readPage(t.Context(), r.place().Keys, tenant, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Notes) != 1 || p.Notes[0].Run != "r2" {
			t.Errorf("page %d: %+v", n, p.Notes)
		}
	}
}

// One damaged file among the tenants' keeps neither the archive nor the list from the others.
func TestDamagedTenantFile(t *testing.T) {
	r := bare(t)
	k := r.keeper("a")
	k.take(t, r.entry(tenant, "r1", 1, bus.Place{Seq: 1, Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}))
	k.commit(t)
	if err := r.place().Store.Replace(t.Context(), "tenants/aaa", []byte("else\n")); err != nil {
		t.Fatal(err)
	}
	if err := k.s.reconcile(t.Context()); err != nil {
		t.Errorf("the archive: %v", err)
	}
	var got []string
	err := List(t.Context(), r.place(), Filter{}, func(l Listed) error { got = append(got, l.Run); return nil })
	if len(got) != 1 || !errors.Is(err, segment.ErrTenant) {
		t.Errorf("listed %v, %v", got, err)
	}
}
