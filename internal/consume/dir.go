package consume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/bus"
)

// ErrDirUsed is returned where another process holds a consumer's directory.
var ErrDirUsed = errors.New("another process uses the directory")

// A DirUsedError is an [ErrDirUsed] that says who.
type DirUsedError struct {
	Dir string
	PID int // of who has it, 0 where that is not known
}

func (e *DirUsedError) Error() string {
	who := ""
	if e.PID > 0 {
		who = fmt.Sprintf(" (process %d)", e.PID)
	}
	return fmt.Sprintf("%v: %s%s", ErrDirUsed, e.Dir, who)
}

func (e *DirUsedError) Unwrap() error { return ErrDirUsed }

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
		defer f.Close()
		return nil, &DirUsedError{dir, holder(f)}
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err == nil { // who has it is for people
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { _ = f.Close() }, nil
}

// holder is the process that a lock's file names, 0 where it names none.
func holder(f *os.File) int {
	b := make([]byte, 20)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// Free says whether a consumer may use dir: a [*DirUsedError] where another process does.
// It may change in the next moment.
func Free(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lockDir(dir)
	if err == nil {
		unlock()
	}
	return err
}

// markFile is where a log's mark is kept.
func markFile(dir string, l bus.Log) string {
	return filepath.Join(dir, "place-"+l.String()+".json")
}

// Read are the partitions of events that a consumer with this directory has read.
func Read(dir string) []bus.Log {
	files, err := filepath.Glob(filepath.Join(dir, "place-EV_*.json"))
	if err != nil {
		return nil
	}
	var all []bus.Log
	for _, f := range files {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(f), "place-EV_%d.json", &n); err == nil && f == markFile(dir, bus.Log(n)) {
			all = append(all, bus.Log(n))
		}
	}
	slices.Sort(all)
	return all
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
