package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// An Info is what can be told about a run's spool without taking its lock.
type Info struct {
	Meta    Meta
	Path    string
	Live    bool // some process has it open
	Ended   bool
	First   uint64 // oldest and newest record kept; 0, 0 when there is none
	Last    uint64
	Acked   uint64
	AckedAt time.Time
	Bytes   int64 // of the segments
	// Err says why the rest of Info is not complete: no readable meta.json (a
	// crash in Create or a power loss), a segment that cannot be read.
	Err error
}

// Shipped reports whether nothing is left to send.
func (i Info) Shipped() bool { return i.Err == nil && i.Ended && i.Acked >= i.Last }

// List describes every run that has a spool under root, in the order of their
// directories. A root that does not exist has none. Only the last segment of
// each run is read, so damage in others is found by Open, not here.
func List(root string) ([]Info, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spools: %w", err)
	}
	var out []Info
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() {
			continue
		}
		live, err := held(filepath.Join(dir, lockName))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no spool, or one that is being made or removed
		}
		info := Info{Path: dir, Live: live, Err: err}
		if err == nil {
			info.read()
		}
		out = append(out, info)
	}
	return out, nil
}

func (i *Info) read() {
	b, err := os.ReadFile(filepath.Join(i.Path, metaName))
	if err == nil {
		err = json.Unmarshal(b, &i.Meta)
	}
	if err != nil {
		i.Err = fmt.Errorf("read %s: %w", metaName, err)
	}
	if _, err := os.Stat(filepath.Join(i.Path, endedName)); err == nil {
		i.Ended = true
	}
	segs, err := segmentFiles(i.Path)
	if err != nil {
		i.Err = errors.Join(i.Err, err)
		return
	}
	i.Bytes = segmentBytes(i.Path)
	if n := len(segs); n > 0 {
		last := segs[n-1]
		// What is torn at the end is not a record yet, or never will be.
		if _, bad := last.load(nil); bad != nil && bad.fatal {
			i.Err = errors.Join(i.Err, bad.err)
		}
		i.First, i.Last = segs[0].first, last.last
	}
	if i.Acked, i.AckedAt = readCursor(filepath.Join(i.Path, cursorName)); i.Acked > i.Last {
		i.Acked, i.AckedAt = 0, time.Time{}
	}
}

// Sweep removes the spools under root that have served: shipped, without a live
// process, and last acknowledged at least retain before now. It also removes
// what a crash in Create left. It returns the runs removed.
func Sweep(root string, retain time.Duration, now time.Time) (runs []string, err error) {
	infos, err := List(root)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, i := range infos {
		if i.Live {
			continue
		}
		if i.Err != nil && i.Bytes == 0 && i.Meta.Run == "" && now.Sub(modified(i.Path)) > retain {
			errs = append(errs, removeStillborn(i.Path))
			continue
		}
		if !i.Shipped() || now.Sub(i.AckedAt) < retain {
			continue
		}
		s, err := openDir(i.Path, Options{})
		if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue // somebody else was faster
		}
		if err == nil && !s.Shipped() {
			err = s.Close()
		} else if err == nil {
			err = s.Remove()
			runs = append(runs, i.Meta.Run)
		}
		errs = append(errs, err)
	}
	return runs, errors.Join(errs...)
}

func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// removeStillborn removes a directory in which Create died: it has a lock and
// perhaps an unfinished meta.json, and no record.
func removeStillborn(dir string) error {
	lock, err := acquire(filepath.Join(dir, lockName))
	if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, n := range []string{metaName + ".tmp", reserveName, metaName, lockName} {
		if err := os.Remove(filepath.Join(dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(dir) // fails when something else is in it
}
