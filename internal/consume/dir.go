package consume

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/bus"
)

// ErrDirUsed is returned where another process holds a consumer's directory.
var ErrDirUsed = errors.New("another process uses the directory")

// lockDir makes a directory and holds it until unlock is called, or the process ends.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("consumer's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "consume.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("consumer's directory: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s", ErrDirUsed, dir)
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// markFile is where a log's mark is kept.
func markFile(dir string, l bus.Log) string {
	return filepath.Join(dir, "place-"+l.String()+".json")
}

// readMark returns the mark of a log, or none.
func readMark(dir string, l bus.Log) (m bus.Mark) {
	data, err := os.ReadFile(markFile(dir, l))
	if err != nil || json.Unmarshal(data, &m) != nil {
		return bus.Mark{}
	}
	return m
}

// writeMark keeps a mark. It is a hint, so nothing is synced.
func writeMark(dir string, l bus.Log, m bus.Mark) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := markFile(dir, l)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("keep the place in %s: %w", l, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep the place in %s: %w", l, err)
	}
	return nil
}
