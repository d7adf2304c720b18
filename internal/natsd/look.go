package natsd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// KeyFile is the file with the key that clients of the local store need.
func KeyFile(stateDir string) string { return filepath.Join(hubDir(stateDir), "key") }

// Held reports whether some process has the local store, and what the address file
// says of it: without taking part, and without making anything.
func Held(stateDir string) (Info, bool, error) {
	info, err := readInfo(hubDir(stateDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Info{}, false, err
	}
	f, err := os.Open(filepath.Join(hubDir(stateDir), "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return info, false, nil
	}
	if err != nil {
		return info, false, err
	}
	defer func() { _ = f.Close() }()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) // given up by Close
	if errors.Is(err, unix.EWOULDBLOCK) {
		return info, true, nil
	}
	return info, false, err
}
