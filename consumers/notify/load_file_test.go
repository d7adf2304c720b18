package notify

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is no file of a bounded size is refused, and not waited for.
func TestLoadFileKind(t *testing.T) {
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxRulesFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo: "is no regular file", "/dev/zero": "is no regular file", dir: "is no regular file", large: "has more than",
	} {
		if _, err := LoadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A secret's file and a file of authorities are read within bounds, too, and never waited
// for.
func TestReferencesKind(t *testing.T) {
	dir := t.TempDir()
	fifo, large, empty := filepath.Join(dir, "fifo"), filepath.Join(dir, "large"), filepath.Join(dir, "empty")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{large: maxAuthorities + 1, empty: 0} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{fifo: "is no regular file", "/dev/zero": "is no regular file", dir: "is no regular file", large: "has more than"} {
		if _, err := resolve("file:"+path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("secret in %s: %v", path, err)
		}
		if _, err := authorities(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("authorities in %s: %v", path, err)
		}
	}
	if _, err := resolve("file:"+empty, nil); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty secret: %v", err)
	}
}

// A secret that stands where the name of a variable does is not repeated.
func TestSecretForAName(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for _, s := range []string{"env:xoxb-1-SECRET", "env:whsec_SECRET", "env:https://h/SECRET", "env:a b SECRET"} {
		d := &Destination{settings: []byte(`{"type":"slack","token":"` + s + `"}`)}
		set, err := d.resolved(none)
		if err != nil || len(set.bad) != 1 || strings.Contains(set.bad[0].Error(), "SECRET") || !strings.Contains(set.bad[0].Error(), "the name of a variable") {
			t.Errorf("%s: %v %v", s, set, err)
		}
	}
}
