package segment_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
)

// crashAt seals a record of runs a and b up to a step, and then ends as a crash does. The
// segment before it is in the chain.
func (r *rig) crashAt(step string) {
	r.Helper()
	down := false
	a := must(segment.OpenHook(r.Context(), r.Options, func(name string) error {
		if down && name == step {
			return errCrash
		}
		return nil
	}))
	r.a = a
	r.add(r.next("acme", "a"))
	r.seal()
	down = true
	r.add(r.next("acme", "a"), r.next("acme", "b"))
	if _, err := a.Seal(r.Context(), 0); !errors.Is(err, errCrash) {
		r.Fatal(err)
	}
	a.Close()
}

// objects counts what both stores have.
func (r *rig) objects() int {
	return len(r.Store.(*mem).keys("t/acme/segments/")) + len(r.Keys.(*mem).keys("keys/"))
}

// tidied is how many objects Tidy removed, of those that r has.
func (r *rig) tidied(a *segment.Archive) int {
	r.Helper()
	before := r.objects()
	gone := must(a.Tidy(r.Context(), "acme"))
	if left := r.objects(); before-left != len(gone) {
		r.Errorf("%v, and %d objects of %d are left", gone, left, before)
	}
	return len(gone)
}

// notes counts the findings of an archive in which nothing is bad.
func (r *rig) notes() int {
	r.Helper()
	rep := verifyDeep(r)
	if !rep.OK() {
		r.Errorf("verify: %+v", rep.Findings)
	}
	return len(rep.Findings)
}

// TestTidy: what a crash left between its segment and its head goes when the chain has it, also
// where the machine was lost, and with it the key of a run.
func TestTidy(t *testing.T) {
	for _, step := range []string{"create head", "create segment"} {
		r := newRig(t)
		r.crashAt(step)
		r.Dir = tempDir(t)
		a := r.open()
		if n := r.tidied(a); n != 0 {
			t.Errorf("%s: %d objects that may be needed are gone", step, n)
		}
		r.add(r.all[1:]...)
		r.seal()
		if step == "create segment" { // nobody knows what the keys are for
			if n := r.tidied(a); n != 0 {
				t.Errorf("%s: %d young objects are gone", step, n)
			}
			r.Keys.(*mem).at = time.Now().Add(-25 * time.Hour)
		}
		want := map[string]int{"create head": 2, "create segment": 1}[step]
		if n := r.notes(); n != want {
			t.Errorf("%s: %d notes", step, n)
		}
		if n := r.tidied(a); n != want {
			t.Errorf("%s: %d objects gone", step, n)
		}
		if n := r.notes(); n != 0 {
			t.Errorf("%s: %d notes", step, n)
		}
		r.whole(step)
	}
}

// TestTidyOwn: what this process goes on with stays, whatever its age.
func TestTidyOwn(t *testing.T) {
	for _, step := range []string{"create head", "create segment"} {
		r := newRig(t)
		r.crashAt(step)
		r.Keys.(*mem).at = time.Now().Add(-25 * time.Hour)
		a := r.open()
		if n := r.tidied(a); n != 0 {
			t.Errorf("%s: %d objects are gone", step, n)
		}
		r.seal()
		if n := r.notes(); n != 0 {
			t.Errorf("%s: %d notes", step, n)
		}
		r.whole(step)
	}
}

// TestTidyLiving: what another process has just stored stays. When this one has sealed the same,
// it goes, and the other drops what it has; a page that went although it was needed comes back.
func TestTidyLiving(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for _, step := range []string{"create segment", "create head"} {
			r := newRig(t)
			beside := r.Options
			beside.Dir = tempDir(t)
			var other *segment.Archive
			done := false
			a := must(segment.OpenHook(t.Context(), r.Options, func(name string) error {
				if name != step || done || other == nil {
					return nil
				}
				done = true
				if sealed {
					for _, rec := range r.all {
						must(other.Append(t.Context(), rec))
					}
					must(other.Seal(t.Context(), 0))
				}
				r.tidied(other)
				// The writer was stopped for long.
				r.a.AgePages()
				r.Keys.(*mem).at = time.Now().Add(-25 * time.Hour)
				r.tidied(other)
				return nil
			}))
			t.Cleanup(func() { a.Close() })
			r.a = a
			r.add(r.next("acme", "a"))
			r.seal()
			other = must(segment.Open(t.Context(), beside))
			t.Cleanup(func() { other.Close() })
			r.add(r.next("acme", "a"), r.next("acme", "b"))
			_, err := a.Seal(t.Context(), 0)
			if sealed && !errors.Is(err, segment.ErrAnother) || !sealed && err != nil {
				t.Errorf("%s, sealed %v: %v", step, sealed, err)
			}
			r.Keys.(*mem).at = time.Now()
			r.tidied(other)
			if n := r.notes(); !done || n != 0 {
				t.Errorf("%s, sealed %v: done %v, %d notes", step, sealed, done, n)
			}
			r.whole(step)
		}
	}
}

// TestTidyCut: behind a chain whose end or middle is gone nothing is removed.
func TestTidyCut(t *testing.T) {
	for n := uint64(2); n <= 3; n++ {
		r := newRig(t)
		a := r.open()
		for range 3 {
			r.add(r.next("acme", "a"))
			r.seal()
		}
		a.Close()
		r.Dir = tempDir(t)
		st, keys := r.Store.(*mem), r.Keys.(*mem)
		keys.at = time.Now().Add(-time.Hour * 1000)
		delete(st.m, segment.HeadKey("acme", n))
		a = r.open()
		if n := r.tidied(a); n != 0 {
			t.Errorf("head %d: %d objects are gone", n, n)
		}
		for _, k := range st.keys("t/acme/segments/")[2:] { // and a page without its segment
			delete(st.m, k)
		}
		if got := r.tidied(a); n == 2 && got != 0 {
			t.Errorf("head %d: %d objects are gone", n, got)
		}
	}
}

// TestTempKeys: what a crash left of a page that was being written has keys, too: erasing removes
// it, and verify finds it.
func TestTempKeys(t *testing.T) {
	r := newRig(t)
	dir := tempDir(t)
	r.Keys = openStore(t, dir)
	a := r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	pages := must(filepath.Glob(filepath.Join(dir, "keys", "acme", "*", "*.keys")))
	page := must(os.ReadFile(pages[0]))
	temp := filepath.Join(dir, ".tmp", "obj1")
	old := time.Now().Add(-time.Hour)
	leave := func() {
		if err := errors.Join(os.WriteFile(temp, page, 0o600), os.Chtimes(temp, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	if rep := verifyDeep(r); len(rep.Findings) > 0 {
		t.Errorf("got %+v", rep.Findings)
	}
	must(a.Erase(t.Context(), "acme", "a", "dpo", "x"))
	if _, err := os.Stat(temp); err == nil {
		t.Error("it is there")
	}
	leave()
	rep := verifyDeep(r)
	if rep.Bad != 1 || !strings.Contains(rep.Findings[len(rep.Findings)-1].Object, ".tmp/obj1") {
		t.Errorf("got %+v", rep.Findings)
	}
}
