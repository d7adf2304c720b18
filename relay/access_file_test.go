package relay

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever stands where the list of tokens stood, its reader does not wait for it.
func TestReadFile(t *testing.T) {
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
		most int
		want string // of the error
	}{
		{file, 6, ""},
		{file, 5, "larger than 5 bytes"},
		{pipe, 6, "no regular file"},
		{dir, 6, "no regular file"},
		{filepath.Join(dir, "none"), 6, "no such file"},
	} {
		data, err := readFile(c.name, c.most)
		if c.want == "" && (err != nil || string(data) != "123456") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, at most %d: %q, %v", filepath.Base(c.name), c.most, data, err)
		}
	}
}

// Codes of one token push out its own only.
func TestCodesOfOneToken(t *testing.T) {
	var s codes
	now := time.Now()
	admin, reader := localGrant("a"), localGrant("b")
	first := s.make(admin, now)
	var last CodeDoc
	for range 3 * maxCodes {
		last = s.make(reader, now)
	}
	if n := len(s.list); n != maxCodes+1 {
		t.Errorf("%d codes are kept", n)
	}
	if s.use(first.Code, now) != admin || s.use(last.Code, now) != reader || s.use(last.Code, now) != nil {
		t.Error("a code of another token was pushed out, or one counted twice")
	}
	s.make(admin, now)
	s.make(reader, now.Add(codeAge))
	if n := len(s.list); n != 1 {
		t.Errorf("%d codes are kept when all but one are over", n)
	}
}
