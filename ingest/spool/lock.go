package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A probe (see held) takes the lock for a moment, so one refusal proves
// nothing. A writer keeps it for its life.
const (
	lockTries = 20
	lockPause = time.Millisecond
)

// acquire opens the lock file at path, making it if missing, and takes its
// lock. The kernel gives the lock up when the process dies. os.OpenFile sets
// close-on-exec, so the child of a run does not keep it.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		err = flock(f, syscall.LOCK_EX)
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == lockTries {
			break
		}
		time.Sleep(lockPause) //nolint:forbidigo // flock cannot wait for a bounded time
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err == nil {
		err = still(f, path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// still reports an error when path is no longer the file that f has open: its
// spool was removed between open and lock.
func still(f *os.File, path string) error {
	a, err := f.Stat()
	if err != nil {
		return err
	}
	b, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(a, b) {
		return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return nil
}

// held reports whether some process has the lock at path.
func held(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close() // gives the probe's lock up
	err = flock(f, syscall.LOCK_SH)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return err
		}
	}
}
