package segment_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/segment"
)

func body(s string) *io.SectionReader {
	return io.NewSectionReader(strings.NewReader(s), 0, int64(len(s)))
}

func get(t *testing.T, st segment.Store, key string) (string, error) {
	t.Helper()
	o, err := st.Open(t.Context(), key)
	if err != nil {
		return "", err
	}
	defer o.Close()
	b := make([]byte, o.Size())
	if _, err := o.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(b), nil
}

func list(t *testing.T, st segment.Store, prefix string) (keys []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf("%s %d", info.Key, info.Size))
	}
	return keys
}

// TestDir: what a store promises.
func TestDir(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b")
	d := openStore(t, root)
	for _, key := range []string{"a/b", "a-b", "a/c/d", "b", "a/b.x"} {
		if err := d.Create(t.Context(), key, body(key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Create(t.Context(), "b", body("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	if got, err := get(t, d, "b"); got != "b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := d.Replace(t.Context(), "b", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, d, "b"); got != "new" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for prefix, want := range map[string][]string{
		"":     {"a-b 3", "a/b 3", "a/b.x 5", "a/c/d 5", "b 3"},
		"a":    {"a-b 3", "a/b 3", "a/b.x 5", "a/c/d 5"},
		"a/":   {"a/b 3", "a/b.x 5", "a/c/d 5"},
		"a/c":  {"a/c/d 5"},
		"a/c/": {"a/c/d 5"},
		"none": nil, "none/x": nil, "../": nil,
	} {
		if d := cmp.Diff(want, list(t, d, prefix)); d != "" {
			t.Errorf("list %q:\n%s", prefix, d)
		}
	}
	for range 2 {
		if err := d.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"b", "a", "none/x"} {
		if _, err := get(t, d, key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: %v", key, err)
		}
	}
	for _, key := range []string{"", "/a", "a/", "a//b", "../x", "a/../b", ".tmp/x", "a b", strings.Repeat("x", 1001), "a\x00"} {
		_, err := get(t, d, key)
		if err == nil || errors.Is(err, fs.ErrNotExist) || d.Create(t.Context(), key, body("")) == nil ||
			d.Replace(t.Context(), key, nil) == nil || d.Delete(t.Context(), key) == nil {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if temp, err := os.ReadDir(filepath.Join(root, ".tmp")); err != nil || len(temp) > 0 {
		t.Errorf("%v, %v are left", temp, err)
	}
}

// TestDirOnce: of many that create one object one succeeds, and its bytes are there.
func TestDirOnce(t *testing.T) {
	d := openStore(t, t.TempDir())
	var wg sync.WaitGroup
	won := make(chan string, 8)
	for i := range 8 {
		wg.Go(func() {
			s := fmt.Sprint(i)
			switch err := d.Create(t.Context(), "x/y", body(s)); {
			case err == nil:
				won <- s
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	var all []string
	for s := range won {
		all = append(all, s)
	}
	if got, err := get(t, d, "x/y"); err != nil || len(all) != 1 || got != all[0] {
		t.Errorf("%v won, got %q, %v", all, got, err)
	}
}

// TestDirTemp: what a crash left is removed after a day, not before, by who writes.
func TestDirTemp(t *testing.T) {
	root := t.TempDir()
	temp := filepath.Join(root, ".tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": time.Hour} {
		path := filepath.Join(temp, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	d := openStore(t, root)
	list(t, d, "")
	if entries := must(os.ReadDir(temp)); len(entries) != 2 {
		t.Errorf("who reads left %v", entries)
	}
	if err := d.Create(t.Context(), "x", body("x")); err != nil {
		t.Fatal(err)
	}
	entries := must(os.ReadDir(temp))
	if len(entries) != 1 || entries[0].Name() != "new" {
		t.Errorf("left are %v", entries)
	}
	if _, err := segment.OpenDir(filepath.Join(temp, "new", "x")); err == nil {
		t.Error("a store below a file")
	}
	if _, err := segment.OpenDir(filepath.Join(temp, "new")); err == nil {
		t.Error("a store that is a file")
	}
}

// TestDirGone: reading creates nothing, and a directory that was written to and is gone, or
// empty, is not begun anew: a place that is not mounted looks so.
func TestDirGone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b")
	d := openStore(t, root)
	if _, err := d.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
	list(t, d, "")
	if _, err := os.Stat(filepath.Dir(root)); err == nil {
		t.Error("reading made the directory")
	}
	if err := d.Create(t.Context(), "x", body("x")); err != nil {
		t.Fatal(err)
	}
	for _, empty := range []bool{false, true} {
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
		if empty {
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Create(t.Context(), "y/x", body("x")); err == nil {
			t.Error("Create made the directory anew")
		}
		if err := d.Replace(t.Context(), "y/x", []byte("x")); err == nil {
			t.Error("Replace made the directory anew")
		}
		if entries, _ := os.ReadDir(root); len(entries) > 0 {
			t.Errorf("there is %v", entries)
		}
	}
}
