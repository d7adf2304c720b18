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
