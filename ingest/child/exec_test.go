package child_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cbcast/cbcast/ingest/child"
)

func TestNotRunnable(t *testing.T) {
	dir := t.TempDir()
	plain, noFormat, noInterp := filepath.Join(dir, "plain"), filepath.Join(dir, "noformat"), filepath.Join(dir, "nointerp")
	os.WriteFile(plain, []byte("text"), 0o600)
	os.WriteFile(noFormat, []byte("text"), 0o700)
	os.WriteFile(noInterp, []byte("#!/no/such/interpreter\n"), 0o700)
	for _, tt := range []struct {
		path string
		code int
		is   error
	}{
		{"no-such-command-anywhere", 127, exec.ErrNotFound},
		{filepath.Join(dir, "none"), 127, fs.ErrNotExist},
		{plain, 126, fs.ErrPermission},
		{dir, 126, nil},
		{noFormat, 126, syscall.ENOEXEC},
		{noInterp, 127, fs.ErrNotExist},
	} {
		p, err := child.Start(child.Config{Path: tt.path})
		var ee *child.ExecError
		if p != nil || !errors.As(err, &ee) || ee.Code != tt.code || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("Start(%s) = %v, %v; want an ExecError with code %d, %v", tt.path, p, err, tt.code, tt.is)
		}
	}
	if err := child.Exec(noFormat, []string{"x"}, nil); !errors.Is(err, syscall.ENOEXEC) {
		t.Errorf("Exec = %v, want ENOEXEC", err)
	}
}

// Nothing of a failed start is left.
func TestNotRunnableLeaks(t *testing.T) {
	count := func() int {
		fds, _ := os.ReadDir("/proc/self/fd")
		return len(fds)
	}
	path := filepath.Join(t.TempDir(), "noformat")
	os.WriteFile(path, []byte("text"), 0o700)
	child.Start(child.Config{Path: path})
	before := count()
	for range 50 {
		child.Start(child.Config{Path: path})
	}
	if after := count(); after > before+5 {
		t.Errorf("descriptors: %d, then %d", before, after)
	}
}

func TestExec(t *testing.T) {
	c := self("exec", "a", "", "c")
	out, err := c.CombinedOutput()
	if got, want := string(out), "a||c|B=2|A=1\n"; got != want || err != nil {
		t.Errorf("exec'd program printed %q, %v; want %q", got, err, want)
	}
}
