package durable_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/internal/durable"
)

// Whatever stands where a file should, its reader does not wait for it.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("123456"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		most int64
		want string // of the error
	}{
		{file, 6, ""},
		{file, 5, "more than 5 bytes"},
		{pipe, 6, "no regular file"},
		{"/dev/zero", 6, "no regular file"},
		{dir, 6, "no regular file"},
		{filepath.Join(dir, "none"), 6, "no such file"},
	} {
		data, err := durable.ReadRegular(c.name, c.most)
		if c.want == "" && (err != nil || string(data) != "123456") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, at most %d: %q, %v", filepath.Base(c.name), c.most, data, err)
		}
	}
}
