package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/dialect"
)

const (
	// maxOutput bounds what is published of one file, in bytes: half of it from
	// the beginning, half from the end.
	maxOutput = 1 << 20
	// cutSearch is how far from a cut a line's end is looked for. A cut in the
	// middle of a line could lie in a secret, and half of one is not recognised.
	cutSearch = 64 << 10
)

// Why a task's output is not published.
const (
	outputOutside  = "outside"     // not in the directory of the child's own task
	outputLink     = "link"        // a symbolic link on the way, or a hard link
	outputKind     = "not_regular" // a directory, FIFO, socket or device
	outputOwner    = "owner"       // another user's, or in a directory that everybody can write to
	outputGone     = "gone"        // nothing is there
	outputNoAccess = "unreadable"
	outputLimit    = "run_limit" // this run has published its share
	outputBusy     = "too_many"  // more ended at once than are remembered
	outputLate     = "no_time"   // the run ended first
)

// outputError is a reason not to publish a file.
type outputError struct {
	reason string
	err    error
}

func (e *outputError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}

func (e *outputError) Unwrap() error { return e.err }

// below splits path into what lies below one of the directories that dir is known
// by, and below own in it.
func below(dir, own, path string) ([]string, bool) {
	dirs := []string{dir}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dirs = append(dirs, real)
	}
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return nil, false
	}
	for _, d := range dirs {
		if rest, ok := strings.CutPrefix(path, filepath.Join(d, own)+"/"); ok {
			return strings.Split(rest, "/"), true
		}
	}
	return nil, false
}

// openOutput opens the file that parts name below own in the directory temp. temp
// comes from the child's environment and is followed wherever it leads; below it
// every directory must be this user's, not everybody's to write to and no link, and
// the file a regular one of this user with one name only. Nothing else is opened.
func openOutput(temp, own string, parts []string) (*os.File, os.FileInfo, error) {
	const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Open(temp, dirFlags, 0)
	if err != nil {
		return nil, nil, openError(err)
	}
	defer func() { _ = unix.Close(fd) }()
	dirs, name := append([]string{own}, parts[:len(parts)-1]...), parts[len(parts)-1]
	for _, d := range dirs {
		next, err := unix.Openat(fd, d, dirFlags|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, nil, dirError(fd, d, err)
		}
		_ = unix.Close(fd)
		fd = next
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, nil, openError(err)
		}
		if int(st.Uid) != os.Geteuid() || st.Mode&0o002 != 0 {
			return nil, nil, &outputError{outputOwner, nil}
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil, openError(err)
	}
	if err := plainFile(&st); err != nil {
		return nil, nil, err // before it is opened: that has effects on some devices
	}
	file, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, openError(err)
	}
	f := os.NewFile(uintptr(file), name)
	var now unix.Stat_t
	if err := unix.Fstat(file, &now); err != nil {
		return nil, nil, errors.Join(openError(err), f.Close())
	}
	if err := plainFile(&now); err != nil {
		return nil, nil, errors.Join(err, f.Close()) // another one stands there meanwhile
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(openError(err), f.Close())
	}
	return f, info, nil
}

// dirError says why the directory d in fd could not be opened: a link is no
// directory for O_NOFOLLOW.
func dirError(fd int, d string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(fd, d, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return &outputError{outputLink, nil}
	}
	return openError(err)
}

func plainFile(st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK, st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1:
		return &outputError{outputLink, nil}
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return &outputError{outputKind, nil}
	case int(st.Uid) != os.Geteuid():
		return &outputError{outputOwner, nil}
	}
	return nil
}

func openError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return &outputError{outputGone, err}
	case errors.Is(err, unix.ELOOP):
		return &outputError{outputLink, err}
	}
	return &outputError{outputNoAccess, err}
}

// An outputPart is a piece of a file, with its place in it.
type outputPart struct {
	off  int64
	data []byte
}

// readOutput reads a file as it was when it was opened, size bytes: the whole of
// it, or its head and tail where it is larger than maxOutput. Both then end or
// begin at a line, where one is near.
func readOutput(f io.ReaderAt, size int64) ([]outputPart, error) {
	if size <= maxOutput {
		b, err := readAt(f, 0, size)
		return []outputPart{{0, b}}, err
	}
	const half = maxOutput / 2
	head, err := readAt(f, 0, half)
	if err != nil {
		return nil, err
	}
	tail, err := readAt(f, size-half, half)
	if err != nil {
		return nil, err
	}
	if i := bytes.LastIndexByte(head[len(head)-min(cutSearch, len(head)):], '\n'); i >= 0 {
		head = head[:len(head)-min(cutSearch, len(head))+i+1]
	} else {
		head = head[:len(head)-min(cutSearch, len(head))]
	}
	off := size - half
	skip := tailStart(tail)
	return []outputPart{{0, head}, {off + int64(skip), tail[skip:]}}, nil
}

// tailStart is where a tail may begin: at a line, and behind a private key whose
// beginning was left out.
func tailStart(tail []byte) int {
	skip := min(cutSearch, len(tail))
	if i := bytes.IndexByte(tail[:skip], '\n'); i >= 0 {
		skip = i + 1
	}
	rest := tail[skip:]
	end, begin := bytes.Index(rest, []byte("-----END ")), bytes.Index(rest, []byte("-----BEGIN "))
	if end < 0 || begin >= 0 && begin < end {
		return skip
	}
	if i := bytes.IndexByte(rest[end:], '\n'); i >= 0 {
		return skip + end + i + 1
	}
	return len(tail)
}

// readAt reads n bytes, fewer where the file has become shorter meanwhile.
func readAt(f io.ReaderAt, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	m, err := f.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &outputError{outputNoAccess, fmt.Errorf("read: %w", err)}
	}
	return b[:m], nil
}

// outputParts finds the file in the place where a child keeps its outputs.
func outputParts(d dialect.Name, p dialect.OutputPlace, path string, o dialect.OutputOwner) ([]string, error) {
	parts, ok := below(p.Temp, p.Own, path)
	if !ok || !dialect.OwnOutput(d, parts, o) {
		return nil, &outputError{outputOutside, nil}
	}
	for _, s := range parts {
		if s == "" || s == "." || s == ".." {
			return nil, &outputError{outputOutside, nil}
		}
	}
	return parts, nil
}
