package natsd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"
)

// tryLock takes the lock file without waiting. It returns nil and no error when
// another process holds it. The lock ends with the returned file, or with this
// process: the descriptor is closed on exec.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Somebody may have removed the file between open and lock. A lock on a
	// file without a name excludes nobody.
	held, err1 := f.Stat()
	named, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(held, named) {
		return nil, f.Close() // as if held by another: the caller comes back
	}
	return f, nil
}

// makeDir creates the hub's directory, for this user alone.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	return private(dir, fi, 0o022) // others may not write; the key has its own mode
}

// makeKey returns the public key of the nkey seed in path, and creates the seed
// first if there is none. Of several processes that create it, one wins.
func makeKey(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKey(path); err != nil {
			return "", err
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if err := private(path, fi, 0o077); err != nil {
		return "", err
	}
	kp, err := nkeys.FromSeed(bytes.TrimSpace(b))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return kp.PublicKey()
}

func createKey(path string) error {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	seed, err := kp.Seed()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(seed, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// Unlike a rename, a link never replaces the key of one who was faster.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// private refuses a file of another user, or one whose mode has a bit of open.
func private(path string, fi fs.FileInfo, open fs.FileMode) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d", ErrExposed, path, st.Uid)
	}
	if fi.Mode().Perm()&open != 0 {
		return fmt.Errorf("%w: %s has mode %04o", ErrExposed, path, fi.Mode().Perm())
	}
	return nil
}
