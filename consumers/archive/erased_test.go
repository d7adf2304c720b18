package archive

import (
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
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
