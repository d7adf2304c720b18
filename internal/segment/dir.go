package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/durable"
)

// A Dir is a [Store] in a directory of this machine: a key is a path below it, and the
// directory .tmp has what is being written. Whoever only reads creates nothing.
type Dir struct {
	root string

	mu    sync.Mutex // guards ready
	ready bool       // .tmp was made: where it is gone later, so is the directory that was written to
}

// staleTemp is the age at which what a crash left in .tmp is removed: no write takes so long.
const staleTemp = 24 * time.Hour

// OpenDir makes a store of the directory at path. Where it is missing, the first write
// creates it; one that is gone after that is not made anew.
func OpenDir(path string) (*Dir, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open archive directory: %w", err)
	}
	return &Dir{root: path}, nil
}

// prepare makes the directory ready for the first write.
func (d *Dir) prepare() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return nil
	}
	at := filepath.Join(d.root, tempDir)
	if err := mkdirs(at); err != nil {
		return err
	}
	if err := sweepTemp(at, time.Now().Add(-staleTemp)); err != nil {
		return err
	}
	d.ready = true
	return nil
}

const tempDir = ".tmp"

// sweepTemp removes the files of a directory that were written last before a time.
func sweepTemp(at string, before time.Time) error {
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.ModTime().Before(before) {
			continue // it is there no more, or being written
		}
		if err := os.Remove(filepath.Join(at, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Sweep implements [Sweeper]: it removes what is being written since before a time. A write that
// is still going on then fails.
func (d *Dir) Sweep(_ context.Context, before time.Time) error {
	if err := sweepTemp(filepath.Join(d.root, tempDir), before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep %s: %w", tempDir, cause(err))
	}
	return nil
}

// mkdirs is os.MkdirAll whose directories survive a power loss.
func mkdirs(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := mkdirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(parent)
}

// validKey reports whether key may name an object; see [Store].
func validKey(key string) bool {
	if key == "" || len(key) > 1000 {
		return false
	}
	start := true
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '/' && !start:
			start = true
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '=', c == '-', c == '.' && !start:
		default:
			return false
		}
		start = false
	}
	return !start
}

func (d *Dir) path(key string) (string, error) {
	if !validKey(key) {
		return "", fmt.Errorf("object key %q is not valid", key)
	}
	return filepath.Join(d.root, filepath.FromSlash(key)), nil
}

// Create implements [Store]: the bytes get a temporary name and are synced; the link under
// the key is what is refused if there is one.
func (d *Dir) Create(_ context.Context, key string, body *io.SectionReader) (err error) {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("create %s: %w", key, fs.ErrExist)
	}
	temp, err := d.temp(body)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	defer os.Remove(temp) // a later process removes it
	if err := mkdirs(filepath.Dir(path)); err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	if err := os.Link(temp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create %s: %w", key, fs.ErrExist)
		}
		return fmt.Errorf("create %s: %w", key, err)
	}
	return durable.SyncDir(filepath.Dir(path))
}

// temp writes a synced file that no key names.
func (d *Dir) temp(body *io.SectionReader) (path string, err error) {
	if err := d.prepare(); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Join(d.root, tempDir), "obj*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, io.NewSectionReader(body, 0, body.Size()))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name()) // a later process removes it
		return "", err
	}
	return f.Name(), nil
}

// Replace implements [Store].
func (d *Dir) Replace(_ context.Context, key string, data []byte) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	temp, err := d.temp(io.NewSectionReader(strings.NewReader(string(data)), 0, int64(len(data))))
	if err != nil {
		return fmt.Errorf("replace %s: %w", key, err)
	}
	if err := mkdirs(filepath.Dir(path)); err != nil {
		os.Remove(temp) // the first write of a later process removes it
		return fmt.Errorf("replace %s: %w", key, err)
	}
	if err := durable.Rename(temp, path); err != nil {
		return fmt.Errorf("replace %s: %w", key, err)
	}
	return nil
}

type dirObject struct {
	*os.File
	size int64
}

func (o *dirObject) Size() int64 { return o.size }

// Open implements [Store].
func (d *Dir) Open(_ context.Context, key string) (Object, error) {
	path, err := d.path(key)
	if err != nil {
		return nil, err
	}
	// A pipe in the place of an object must not hold the reader up.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", key, cause(err))
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", key, cause(err))
	}
	return &dirObject{f, info.Size()}, nil
}

// cause takes the path off an error: the key says it already.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Delete implements [Store].
func (d *Dir) Delete(_ context.Context, key string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("delete %s: %w", key, cause(err))
	}
	return durable.SyncDir(filepath.Dir(path))
}

// List implements [Store].
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		at := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			at = prefix[:i]
		}
		if at != "" && !validKey(at) {
			return
		}
		d.list(ctx, at, prefix, yield)
	}
}

// list yields what is below the directory at; it returns false when it was told to stop.
func (d *Dir) list(ctx context.Context, at, prefix string, yield func(Info, error) bool) bool {
	if err := ctx.Err(); err != nil {
		yield(Info{}, err)
		return false
	}
	entries, err := os.ReadDir(filepath.Join(d.root, filepath.FromSlash(at)))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		yield(Info{}, fmt.Errorf("list %s: %w", prefix, cause(err)))
		return false
	}
	// In the order of keys a directory comes where its name and "/" belong.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		key := e.Name()
		if at != "" {
			key = at + "/" + key
		}
		if e.Name()[0] == '.' {
			continue
		}
		if e.IsDir() {
			if n := min(len(key)+1, len(prefix)); (key + "/")[:n] != prefix[:n] {
				continue
			}
			if !d.list(ctx, key, prefix, yield) {
				return false
			}
			continue
		}
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			yield(Info{}, fmt.Errorf("list %s: %w", prefix, cause(err)))
			return false
		}
		if !yield(Info{key, info.Size(), info.ModTime()}, nil) {
			return false
		}
	}
	return true
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

var (
	_ Store   = (*Dir)(nil)
	_ Sweeper = (*Dir)(nil)
)
