package natsd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cbcast/cbcast/internal/natsd"
)

// Looking takes no part: it makes nothing, and the store can still be owned.
func TestHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, held, err := natsd.Held(dir); held || err != nil {
		t.Fatalf("nothing there: %v, %v", held, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("looking made it: %v", err)
	}
	h, err := natsd.Open(t.Context(), natsd.HubOptions{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	info, held, err := natsd.Held(dir)
	if !held || err != nil || info.PID != os.Getpid() || info.URL != h.URL() {
		t.Errorf("owned: %+v, %v, %v", info, held, err)
	}
	if natsd.KeyFile(dir) != h.KeyFile() {
		t.Errorf("key file %s, want %s", natsd.KeyFile(dir), h.KeyFile())
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, held, err := natsd.Held(dir); held || err != nil {
		t.Errorf("after its end: %v, %v", held, err)
	}
}
