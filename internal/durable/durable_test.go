package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cbcast/cbcast/internal/durable"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, want := range []string{"one", "", "another"} {
		if err := durable.WriteFile(path, []byte(want), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	only(t, dir, "f")
}

// TestWriteFileKeepsOld: an error leaves the old file and nothing beside it.
func TestWriteFileKeepsOld(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "not empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	only(t, dir, "f")
	if err := durable.WriteFile(filepath.Join(dir, "none", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := durable.WriteFile("f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := durable.Rename("f", "g"); err != nil {
		t.Fatal(err)
	}
	only(t, ".", "g")
	if err := durable.Remove("g"); err != nil {
		t.Fatal(err)
	}
	only(t, ".")
}

func TestRenameAndRemove(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, p := range []string{filepath.Join(a, "f"), filepath.Join(b, "g")} {
		if err := durable.WriteFile(p, []byte(p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Rename(filepath.Join(a, "f"), filepath.Join(b, "g")); err != nil {
		t.Fatal(err)
	}
	only(t, a)
	if got, err := os.ReadFile(filepath.Join(b, "g")); err != nil || string(got) != filepath.Join(a, "f") {
		t.Errorf("got %q, %v", got, err)
	}
	if err := durable.Rename(filepath.Join(a, "f"), filepath.Join(b, "g")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := durable.Remove(filepath.Join(b, "g")); err != nil {
			t.Fatal(err)
		}
	}
	only(t, b)
	if err := durable.Remove(filepath.Join(b, "none", "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if i >= len(want) || e.Name() != want[i] {
			t.Errorf("found %s", e.Name())
		}
	}
	if len(entries) < len(want) {
		t.Errorf("found %v, want %v", entries, want)
	}
}
