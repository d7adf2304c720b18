package segment_test

import (
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cbcast/cbcast/internal/segment"
)

// TestVerifyNothing: where there is no archive, or no such tenant, verify has nothing to
// say, and says that it could not look.
func TestVerifyNothing(t *testing.T) {
	r := newRig(t)
	o := segment.VerifyOptions{Store: openStore(t, filepath.Join(t.TempDir(), "none")), Trust: []ed25519.PublicKey{public(newKey(t))}}
	if rep, err := segment.Verify(t.Context(), o); !errors.Is(err, segment.ErrNoArchive) {
		t.Errorf("nothing: %+v, %v", rep, err)
	}
	r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	o = segment.VerifyOptions{Store: r.Store, Trust: []ed25519.PublicKey{public(r.key)}, Tenant: "zzz"}
	if rep, err := segment.Verify(t.Context(), o); !errors.Is(err, segment.ErrNotFound) {
		t.Errorf("another tenant: %+v, %v", rep, err)
	}
	o.Tenant = "acme"
	if rep, err := segment.Verify(t.Context(), o); err != nil || !rep.OK() || rep.Tenants != 1 {
		t.Errorf("the tenant: %+v, %v", rep, err)
	}
}
