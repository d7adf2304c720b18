package ingest

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/dialect"
)

func reasonOf(err error) string {
	var e *outputError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.reason
	}
	return err.Error()
}

// outputTree makes the directories of a task below temp and returns the path of
// the file that would be its output.
func outputTree(t *testing.T, temp string) (dir string, parts []string) {
	t.Helper()
	parts = []string{"-w", "S", "tasks", "b1.output"}
	dir = filepath.Join(append([]string{temp, "claude-0"}, parts[:3]...)...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, parts
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever stands where an output should be: nothing but a plain file of this user
// is opened, and a FIFO or a device holds nobody up.
func TestOpenOutput(t *testing.T) {
	write := func(t *testing.T, name string) { t.Helper(); must(t, os.WriteFile(name, []byte("text"), 0o644)) }
	for _, tc := range []struct {
		name  string
		make  func(t *testing.T, temp, dir, file string)
		want  string
		asUID bool // needs root
	}{
		{"plain", func(t *testing.T, _, _, file string) { write(t, file) }, "", false},
		{"nothing", func(*testing.T, string, string, string) {}, outputGone, false},
		{"link to a file", func(t *testing.T, temp, _, file string) {
			write(t, filepath.Join(temp, "secret"))
			must(t, os.Symlink(filepath.Join(temp, "secret"), file))
		}, outputLink, false},
		{"link that leads nowhere", func(t *testing.T, _, _, file string) { must(t, os.Symlink("/nowhere", file)) }, outputLink, false},
		{"link to a device", func(t *testing.T, _, _, file string) { must(t, os.Symlink("/dev/zero", file)) }, outputLink, false},
		{"hard link", func(t *testing.T, temp, _, file string) {
			write(t, filepath.Join(temp, "secret"))
			must(t, os.Link(filepath.Join(temp, "secret"), file))
		}, outputLink, false},
		{"directory that is a link", func(t *testing.T, temp, dir, file string) {
			write(t, file)
			must(t, os.Rename(dir, filepath.Join(temp, "moved")))
			must(t, os.Symlink(filepath.Join(temp, "moved"), dir))
		}, outputLink, false},
		{"top directory that is a link", func(t *testing.T, temp, _, file string) {
			write(t, file)
			must(t, os.Rename(filepath.Join(temp, "claude-0"), filepath.Join(temp, "moved")))
			must(t, os.Symlink("moved", filepath.Join(temp, "claude-0")))
		}, outputLink, false},
		{"FIFO", func(t *testing.T, _, _, file string) { must(t, syscall.Mkfifo(file, 0o600)) }, outputKind, false},
		{"directory", func(t *testing.T, _, _, file string) { must(t, os.Mkdir(file, 0o755)) }, outputKind, false},
		{"socket", func(t *testing.T, _, dir, file string) {
			t.Chdir(dir) // a socket's path is bounded
			l, err := net.Listen("unix", filepath.Base(file))
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
		}, outputKind, false},
		{"device", func(t *testing.T, _, _, file string) {
			if err := unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
				t.Skip("no devices can be made here: ", err)
			}
		}, outputKind, true},
		{"file of another user", func(t *testing.T, _, _, file string) {
			write(t, file)
			must(t, os.Chown(file, 65534, -1))
		}, outputOwner, true},
		{"directory of another user", func(t *testing.T, temp, _, file string) {
			write(t, file)
			must(t, os.Chown(filepath.Join(temp, "claude-0"), 65534, -1))
		}, outputOwner, true},
		{"directory that others can write to", func(t *testing.T, _, dir, file string) {
			write(t, file)
			must(t, os.Chmod(dir, 0o777))
		}, outputOwner, false},
		{"directory of a shared group", func(t *testing.T, _, dir, file string) {
			write(t, file)
			must(t, os.Chmod(dir, 0o775)) // umask 002
		}, "", false},
		{"file in the way of a directory", func(t *testing.T, _, dir, _ string) {
			must(t, os.RemoveAll(dir))
			write(t, dir)
		}, outputGone, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.asUID && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			temp := t.TempDir()
			dir, parts := outputTree(t, temp)
			tc.make(t, temp, dir, filepath.Join(dir, parts[3]))
			f, info, err := openOutput(temp, "claude-0", parts)
			if got := reasonOf(err); got != tc.want {
				t.Fatalf("%q, want %q", got, tc.want)
			}
			if err != nil {
				return
			}
			defer f.Close()
			got, err := readOutput(f, info.Size())
			if err != nil || len(got) != 1 || string(got[0].data) != "text" {
				t.Errorf("read %v, %v", got, err)
			}
		})
	}
}

// The temporary directory itself may be a link: it is the child's own setting.
func TestOutputParts(t *testing.T) {
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(real, link))
	_, parts := outputTree(t, real)
	owner := dialect.OutputOwner{Cwds: []string{"/w"}, Sessions: []string{"S"}, Task: "b1"}
	for _, tc := range []struct {
		path string
		want string
	}{
		{filepath.Join(append([]string{link, "claude-0"}, parts...)...), ""},
		{filepath.Join(append([]string{real, "claude-0"}, parts...)...), ""},
		{filepath.Join(real, "claude-0", "-w", "S", "tasks", "b2.output"), outputOutside},
		{filepath.Join(real, "claude-0", "-x", "S", "tasks", "b1.output"), outputOutside},
		{filepath.Join(real, "claude-1", "-w", "S", "tasks", "b1.output"), outputOutside},
		{real + "/claude-0/-w/S/tasks/../tasks/b1.output", outputOutside},
		{real + "/claude-0/-w/S//tasks/b1.output", outputOutside},
		{"claude-0/-w/S/tasks/b1.output", outputOutside},
		{"/etc/passwd", outputOutside},
		{"", outputOutside},
	} {
		_, err := outputParts(dialect.Claude, dialect.OutputPlace{Temp: link, Own: "claude-0"}, tc.path, owner)
		if got := reasonOf(err); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.path, got, tc.want)
		}
	}
}

// A large file is its head and its tail, both whole lines.
func TestReadOutput(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	lines := func(n int) string { return strings.Repeat(line, (n+99)/100)[:n] }
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(strings.Repeat("A", 64)+"\n", 20000) + "-----END RSA PRIVATE KEY-----\nafter\n"
	for _, tc := range []struct {
		name       string
		text       string
		size       int // as it was when it was opened; 0 is all
		head, tail int // bytes; tail 0 is one part
	}{
		{"empty", "", 0, 0, 0},
		{"small", "a\nb", 0, 3, 0},
		{"at the bound", lines(maxOutput), 0, maxOutput, 0},
		{"above it", lines(maxOutput + 100), 0, maxOutput/2 - 88, maxOutput/2 - 88 + 76},
		{"no lines", strings.Repeat("y", 3*maxOutput), 0, maxOutput/2 - cutSearch, maxOutput/2 - cutSearch},
		{"it has grown since", lines(2 * maxOutput), 500, 500, 0},
		{"it has shrunk since", lines(500), 900, 500, 0},
		{"a key across the cut", strings.Repeat("z\n", maxOutput/4) + key, 0, maxOutput / 2, len("after\n")},
	} {
		size := int64(tc.size)
		if size == 0 {
			size = int64(len(tc.text))
		}
		parts, err := readOutput(bytes.NewReader([]byte(tc.text)), size)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if len(parts[0].data) != tc.head || tc.tail == 0 != (len(parts) == 1) || tc.tail > 0 && len(parts[1].data) != tc.tail {
			t.Errorf("%s: %d parts, head %d, want %d and %d", tc.name, len(parts), len(parts[0].data), tc.head, tc.tail)
		}
		for _, p := range parts {
			if want := tc.text[p.off : int(p.off)+len(p.data)]; string(p.data) != want {
				t.Errorf("%s: the part at %d is not the file's", tc.name, p.off)
			}
		}
		if len(parts) > 1 {
			if end := parts[1].off + int64(len(parts[1].data)); end != size {
				t.Errorf("%s: the tail ends at %d of %d", tc.name, end, size)
			}
		}
	}
}
