package segment_test

import (
	"errors"
	"testing"

	"github.com/cbcast/cbcast/internal/segment"
)

// TestDamagedTenant: a head that is none keeps its tenant from the archive and no other. What
// an earlier process left of the tenant stays, and is sealed when the head is back.
func TestDamagedTenant(t *testing.T) {
	r := newRig(t)
	a := r.open()
	r.add(r.next("acme", "a"), r.next("beta", "b"))
	r.seal()
	left := r.next("acme", "a")
	r.add(left)
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Close()
	key := r.Store.(*mem).keys("t/acme/heads/")[0]
	whole := r.Store.(*mem).m[key]
	if err := r.Store.Replace(t.Context(), key, []byte("{\"v\":1,\"tenant\":\"ac\xffme\"}\n")); err != nil {
		t.Fatal(err)
	}

	a = r.open()
	if err := a.Aside()["acme"]; !errors.Is(err, segment.ErrHead) || len(a.Aside()) != 1 || len(a.Recovered()) != 0 {
		t.Errorf("aside %v, recovered %v", a.Aside(), a.Recovered())
	}
	var named *segment.TenantError
	if _, err := a.Append(t.Context(), left); !errors.As(err, &named) || named.Tenant != "acme" || !named.Damaged() {
		t.Errorf("append: %v", err)
	}
	if err := segment.CheckChain(t.Context(), r.Store, r.Dir, "acme"); !errors.As(err, &named) {
		t.Errorf("check: %v", err)
	}
	a.Pass(0, segment.Place{Seq: left.StreamSeq, Time: left.Stored})
	next := r.next("beta", "b")
	r.add(next)
	if p := a.Through()[0]; p.Seq != left.StreamSeq {
		t.Errorf("through %v before the seal", p)
	}
	r.seal()
	if p := a.Through()[0]; p.Seq != next.StreamSeq {
		t.Errorf("through %v", p)
	}
	a.Close()

	r.Store.(*mem).m[key] = whole
	if err := segment.CheckChain(t.Context(), r.Store, r.Dir, "acme"); err != nil {
		t.Errorf("check: %v", err)
	}
	a = r.open()
	if p, err := a.Sealed(t.Context(), "acme"); err != nil || p["EV_0"].Seq != 1 || len(a.Aside()) != 0 {
		t.Errorf("sealed %v, %v; aside %v", p, err, a.Aside())
	}
	if got, err := a.Append(t.Context(), left); err != nil || got == segment.Again {
		t.Errorf("append: %v, %v", got, err)
	}
	r.seal()
	r.whole("after all")
}

// TestTenantErrors: each tenant whose chain does not take what is sealed is named; one that
// was set aside by the caller is not looked at.
func TestTenantErrors(t *testing.T) {
	r := newRig(t)
	r.open()
	for _, tenant := range []string{"acme", "beta", "gamma"} {
		r.add(r.next(tenant, "a"))
	}
	r.seal()
	for _, tenant := range []string{"acme", "beta", "gamma"} {
		r.add(r.next(tenant, "a"))
	}
	for _, tenant := range []string{"acme", "beta"} {
		delete(r.Store.(*mem).m, r.Store.(*mem).keys("t/" + tenant + "/heads/")[0])
	}
	heads, err := r.a.Seal(t.Context(), 0)
	if len(heads) != 1 || heads[0].Tenant != "gamma" {
		t.Errorf("sealed %v", heads)
	}
	var names []string
	for _, e := range segment.TenantErrors(err) {
		names = append(names, e.Tenant)
		if !e.Damaged() {
			t.Errorf("%v", e)
		}
	}
	if len(names) != 2 || names[0] != "acme" || names[1] != "beta" {
		t.Errorf("named %v in %v", names, err)
	}
	r.a.Close()
	r.Aside = map[string]error{"gamma": errors.New("for now")}
	if n := len(r.open().Aside()); n != 3 {
		t.Errorf("%d aside", n)
	}
}
