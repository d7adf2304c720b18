package segment_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

var errAway = errors.New("the store is away")

// TestStoreAway lets each operation on the stores fail in turn, for each thing that can be done
// with an archive: it is done, or the error says why not, and doing it again helps.
func TestStoreAway(t *testing.T) {
	ctx := context.Background()
	base := newRig(t)
	base.open()
	for range 3 {
		base.add(base.next("acme", "a"), base.next("acme", "b"))
		base.seal()
	}
	for range 13 { // up to an index
		must(base.a.Missing(ctx, "acme", "x", 1, 1, "x", "y"))
	}
	base.next("acme", "a")
	for _, tt := range []struct {
		name string
		do   func(r *rig, a *segment.Archive) error
	}{
		{"seal", func(_ *rig, a *segment.Archive) error { _, err := a.Seal(ctx, 0); return err }},
		{"erase", func(_ *rig, a *segment.Archive) error { _, err := a.Erase(ctx, "acme", "a", "x", "y"); return err }},
		{"retain", func(_ *rig, a *segment.Archive) error {
			_, err := a.Retain(ctx, "acme", day.Add(time.Hour), "x", "y")
			return err
		}},
		{"hold and release", func(_ *rig, a *segment.Archive) error {
			holds, err := a.Holds(ctx, "acme")
			if err == nil && len(holds) == 0 {
				_, err = a.Hold(ctx, "acme", "b", "h", "x", "y")
			}
			if err == nil {
				_, err = a.Release(ctx, "acme", "h", "x", "y")
			}
			return err
		}},
		{"missing", func(_ *rig, a *segment.Archive) error {
			_, err := a.Missing(ctx, "acme", "z", 1, 2, "x", "y")
			return err
		}},
		{"open", func(r *rig, _ *segment.Archive) error {
			o := r.Options
			o.Dir = tempDir(r.TB)
			b, err := segment.Open(ctx, o)
			if err == nil {
				rec := *r.all[0]
				_, err = b.Append(ctx, &rec)
				b.Close()
			}
			return err
		}},
		{"rotate", func(r *rig, _ *segment.Archive) error {
			_, err := segment.Rotate(ctx, r.Store, r.key, newKey(r.TB), "x")
			return err
		}},
		{"reindex", func(r *rig, _ *segment.Archive) error {
			return segment.Reindex(ctx, r.Store, "acme", r.Dir)
		}},
		{"read", func(r *rig, _ *segment.Archive) error {
			rd := r.reader()
			if _, err := rd.Run(ctx, "", "a"); err != nil {
				return err
			}
			for _, err := range rd.Runs(ctx, "", time.Time{}, time.Time{}) {
				if err != nil {
					return err
				}
			}
			for _, err := range rd.Heads(ctx, "acme", 0) {
				if err != nil {
					return err
				}
			}
			for _, q := range []segment.Query{{}, {Run: "a"}, {Tenant: "acme"}} {
				for _, err := range r.reader().Records(ctx, q) {
					if err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"verify", func(r *rig, _ *segment.Archive) error {
			rep, err := segment.Verify(ctx, segment.VerifyOptions{
				Store: r.Store, Keys: r.Keys, Deep: true, Trust: []ed25519.PublicKey{public(r.key)},
			})
			if err == nil && !rep.OK() {
				err = errors.New("not good")
			}
			return err
		}},
	} {
		for n := 1; ; n += stride {
			r := &rig{TB: t, Options: base.Options, key: base.key, all: base.all}
			r.Store, r.Keys, r.Dir = base.Store.(*mem).clone(), base.Keys.(*mem).clone(), tempDir(t)
			a := r.open()
			r.add(base.all[6])
			left, hit := n, ""
			for _, st := range []segment.Store{r.Store, r.Keys} {
				st.(*mem).fail = func(op, key string) error {
					if left--; left == 0 {
						hit = op + " " + key
						return errAway
					}
					return nil
				}
			}
			err := tt.do(r, a)
			if hit == "" {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				break
			}
			if err != nil && !errors.Is(err, errAway) && !strings.Contains(err.Error(), "not good") {
				t.Errorf("%s, %s away: %v", tt.name, hit, err)
			}
			if err := tt.do(r, a); err != nil {
				t.Errorf("%s, %s away: again: %v", tt.name, hit, err)
			}
			a.Close()
			if n > 400 {
				t.Fatalf("%s has no end", tt.name)
			}
		}
	}
}

// TestDamagedReads: a reader refuses what is not what the head says, and says what.
func TestDamagedReads(t *testing.T) {
	r := newRig(t)
	r.open()
	for range 16 {
		r.add(r.next("acme", "a"), r.next("acme", "b"))
		r.seal()
	}
	whole, keys := r.Store.(*mem).clone(), r.Keys.(*mem).clone()
	var objects []string
	for _, key := range whole.keys("") {
		if strings.Contains(key, "heads/000000000003") || strings.Contains(key, "index/") || strings.HasPrefix(key, "tenants/") {
			objects = append(objects, key)
		}
	}
	objects = append(objects, whole.keys("t/acme/segments/")[2])
	want := len(r.read(segment.Query{Run: "a"}))
	for _, key := range objects {
		size := len(whole.m[key])
		for off := 0; off < size; off += max(1, size/30) {
			st := whole.clone()
			flip(st, key, int64(off))
			got, bad := 0, 0
			rd := segment.NewReader(segment.ReaderOptions{Store: st, Keys: keys, Trust: []ed25519.PublicKey{public(r.key)}})
			for _, err := range rd.Records(t.Context(), segment.Query{Run: "a"}) {
				if err != nil {
					bad++
					break
				}
				got++
			}
			// An index is only asked where it is used; a byte of another run's block is not read.
			if bad == 0 && got != want {
				t.Fatalf("%s: byte %d changed: %d records of %d without an error", key, off, got, want)
			}
			if strings.Contains(key, "heads/") && bad == 0 && got != want {
				t.Errorf("%s: byte %d", key, off)
			}
		}
	}
}

// TestDisk: what cannot be written is in memory still, and is written later.
func TestDisk(t *testing.T) {
	for _, step := range []string{"write key", "write block", "write directory", "sync keys", "sync segment"} {
		r := newRig(t)
		fail := false
		a := must(segment.OpenHook(t.Context(), r.Options, func(name string) error {
			if fail && name == step {
				return errAway
			}
			return nil
		}))
		r.a = a
		for range 3 {
			r.add(r.next("acme", "a"), r.next("beta", "b"))
		}
		fail = true
		if _, err := a.Seal(t.Context(), 0); !errors.Is(err, errAway) {
			t.Errorf("%s: %v", step, err)
		}
		if step != "write directory" {
			if err := a.Sync(t.Context()); !errors.Is(err, errAway) {
				t.Errorf("%s: %v", step, err)
			}
		}
		fail = false
		if err := a.Sync(t.Context()); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		r.seal()
		r.whole(step)
		a.Close()
	}
}

// TestKeysFiles: PEM files are what other programs read, and others' are refused.
func TestKeysFiles(t *testing.T) {
	private, pub, err := segment.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	key := must(segment.ParsePrivateKey(private))
	if got := must(segment.ParsePublicKey(pub)); !got.Equal(public(key)) {
		t.Error("another key")
	}
	if id := segment.KeyID(public(key)); len(id) != 16 {
		t.Error(id)
	}
	rsa := "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAL3f\n-----END PUBLIC KEY-----\n"
	for _, b := range []string{"", string(pub), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := segment.ParsePrivateKey([]byte(b)); err == nil {
			t.Errorf("%q is a private key", b)
		}
	}
	for _, b := range []string{"", string(private), rsa} {
		if _, err := segment.ParsePublicKey([]byte(b)); err == nil {
			t.Errorf("%q is a public key", b)
		}
	}
}

// TestMemory: what an earlier process knew of a chain must be readable.
func TestMemory(t *testing.T) {
	r := newRig(t)
	a := r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	a.Close()
	paths := must(filepath.Glob(filepath.Join(r.Dir, "chain-*.json")))
	if len(paths) != 1 {
		t.Fatal(paths)
	}
	if err := os.WriteFile(paths[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a = r.open()
	if _, err := a.Append(t.Context(), r.next("acme", "a")); err == nil {
		t.Error("appended without knowing where the chain was")
	}
}

// TestErrors: what errors say.
func TestErrors(t *testing.T) {
	for err, want := range map[error]string{
		&segment.ErasedError{Tenant: "t", Run: "r"}: `run r of tenant "t" was erased`,
		&segment.GoneError{Tenant: "t", Number: 3}:  `segment 3 of tenant "t" was deleted when its time was over`,
	} {
		if d := cmp.Diff(want, err.Error()); d != "" {
			t.Error(d)
		}
	}
	if _, err := segment.Verify(t.Context(), segment.VerifyOptions{Store: newMem()}); err == nil {
		t.Error("verified without a key")
	}
	if _, err := segment.Verify(t.Context(), segment.VerifyOptions{Store: newMem(), Deep: true, Trust: []ed25519.PublicKey{nil}}); err == nil {
		t.Error("verified deeply without keys")
	}
}

// TestManyHeads: an index of 256 heads is written of 16 smaller ones, verified, and tampered with.
func TestManyHeads(t *testing.T) {
	r := newRig(t)
	a := r.open()
	for n := range 64 {
		r.add(r.next("acme", fmt.Sprint("run-", n%5)))
		r.seal()
		for range 3 {
			must(a.Missing(t.Context(), "acme", "x", 1, 1, "x", "y"))
		}
	}
	key := segment.IndexKey("acme", 1, 256)
	st := r.Store.(*mem)
	verify := func() (codes []segment.Code) {
		t.Helper()
		rep := must(segment.Verify(t.Context(), segment.VerifyOptions{Store: st, Trust: []ed25519.PublicKey{public(r.key)}}))
		for _, f := range rep.Findings {
			codes = append(codes, f.Code)
		}
		return codes
	}
	if got := verify(); len(got) > 0 || st.m[key] == nil {
		t.Fatalf("got %v", got)
	}
	old := st.m[key]
	st.m[key] = st.m[segment.IndexKey("acme", 1, 16)]
	if got := verify(); !slices.Equal(got, []segment.Code{segment.IndexDiffers}) {
		t.Errorf("got %v", got)
	}
	flip(st, key, 40)
	if got := verify(); !slices.Equal(got, []segment.Code{segment.IndexDamaged}) {
		t.Errorf("got %v", got)
	}
	if err := segment.Reindex(t.Context(), st, "acme", tempDir(t)); err != nil {
		t.Fatal(err)
	}
	if got := verify(); len(got) > 0 || len(st.m[key]) != len(old) {
		t.Errorf("got %v", got)
	}
	flip(st, segment.IndexKey("acme", 17, 32), 40)
	if got := verify(); !slices.Equal(got, []segment.Code{segment.IndexDamaged}) {
		t.Errorf("got %v", got)
	}
	if info := must(r.reader().Run(t.Context(), "acme", "run-3")); info.Records != 13 {
		t.Errorf("got %+v", info)
	}
}
