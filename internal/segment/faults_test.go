package segment_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/segment"
)

// TestNotUTF8: what no head can hold is refused before it is written, and the archive goes on.
func TestNotUTF8(t *testing.T) {
	r := newRig(t)
	a := r.open()
	r.add(r.next("acme", "a"))
	r.seal()
	bad := "\xff\xfe"
	for _, change := range []func(*segment.Record){
		func(rec *segment.Record) { rec.Run = bad },
		func(rec *segment.Record) { rec.Tenant = bad },
	} {
		rec := *r.all[0]
		rec.StreamSeq, rec.Stored = 9, rec.Stored.Add(1)
		change(&rec)
		if _, err := a.Append(t.Context(), &rec); !errors.Is(err, segment.ErrRecord) {
			t.Errorf("append: %v", err)
		}
	}
	ctx := t.Context()
	for name, state := range map[string]func() (*segment.Head, error){
		"erase run":    func() (*segment.Head, error) { return a.Erase(ctx, "acme", bad, "dpo", "x") },
		"erase reason": func() (*segment.Head, error) { return a.Erase(ctx, "acme", "a", "dpo", bad) },
		"erase by":     func() (*segment.Head, error) { return a.Erase(ctx, "acme", "a", bad, "x") },
		"hold name":    func() (*segment.Head, error) { return a.Hold(ctx, "acme", "a", bad, "dpo", "x") },
		"hold run":     func() (*segment.Head, error) { return a.Hold(ctx, "acme", bad, "h", "dpo", "x") },
	} {
		if h, err := state(); !errors.Is(err, segment.ErrText) || h != nil {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
	if _, err := a.Hold(ctx, bad, "a", "h", "dpo", "x"); !errors.Is(err, segment.ErrHead) {
		t.Errorf("tenant: %v", err)
	}
	a.Close()
	a = r.open()
	must(a.Hold(ctx, "acme", "a", "h", "dpo", "x"))
	r.whole("after all")
}

// TestEraseUnnamed: a crash before the head leaves a page of keys that no head names, and the
// directory with the open segment is lost. To erase the run is to destroy those keys, too.
func TestEraseUnnamed(t *testing.T) {
	r := newRig(t)
	crash := func(step string) error {
		if step == "create head" {
			return errCrash
		}
		return nil
	}
	a := must(segment.OpenHook(t.Context(), r.Options, crash))
	r.a = a
	r.add(r.next("acme", "a"), r.next("acme", "b"))
	if _, err := a.Seal(t.Context(), 0); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	a.Close()
	r.Dir = tempDir(t)
	a = r.open()
	r.add(r.all...)
	r.seal()
	must(a.Erase(t.Context(), "acme", "a", "dpo", "x"))
	pages := 0
	for info, err := range r.Keys.List(context.Background(), "keys/acme/") {
		if err != nil {
			t.Fatal(err)
		}
		pages++
		o := must(r.Keys.Open(t.Context(), info.Key))
		b := make([]byte, o.Size())
		if _, err := o.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		o.Close()
		if segment.HasKey(b, "a") || !segment.HasKey(b, "b") {
			t.Errorf("%s: key of a %v, of b %v", info.Key, segment.HasKey(b, "a"), segment.HasKey(b, "b"))
		}
	}
	if pages != 2 {
		t.Errorf("%d pages", pages)
	}
}

// TestPipe: a pipe in the place of an object is none, and nobody waits for its other end.
func TestPipe(t *testing.T) {
	root := tempDir(t)
	d := openStore(t, root)
	if err := unix.Mkfifo(filepath.Join(root, "x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := d.Replace(t.Context(), "y", []byte("y")); err != nil {
		t.Fatal(err)
	}
	if o, err := d.Open(t.Context(), "y"); err != nil {
		t.Error(err)
	} else {
		o.Close()
	}
	if b, err := os.ReadFile(filepath.Join(root, "y")); err != nil || !strings.HasPrefix(string(b), "y") {
		t.Errorf("got %q, %v", b, err)
	}
}
