package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cbcast/cbcast/internal/segment"
)

// stores are the different places in which an archive and its copies of heads are.
func stores(p Place, to headPlace) []segment.Store {
	all := []segment.Store{p.Store}
	if p.Keys != p.Store {
		all = append(all, p.Keys)
	}
	if to, ok := to.(storePlace); ok {
		all = append(all, to.st)
	}
	return all
}

func (s *Service) stores() []segment.Store {
	if s.copies == nil {
		return stores(s.place, nil)
	}
	return stores(s.place, s.copies.to)
}

// Fit asks the stores of an archive, and of its heads, whether they can hold one. The error
// wraps segment.ErrUnfit where one cannot; another says that it could not be asked. A directory
// is not asked.
func (c *Config) Fit(ctx context.Context) error {
	p, err := c.Open()
	if err != nil {
		return err
	}
	to, err := c.headPlace()
	if err != nil {
		return err
	}
	return fit(ctx, stores(p, to))
}

func fit(ctx context.Context, all []segment.Store) error {
	for _, st := range all {
		if c, ok := st.(segment.Checker); ok {
			if err := c.Check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckPlaces says what of the places on this machine cannot be: each head would wait for it for
// ever.
func (c *Config) CheckPlaces() error {
	if c.Heads == "" || isHook(c.Heads) || strings.Contains(c.Heads, "://") {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("CBCAST_ARCHIVE_HEADS is %s: %s", c.Heads, fmt.Sprintf(format, args...))
	}
	dir := filepath.Dir(c.Heads)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return wrong("there is no directory %s; make it, or mount it: it is not made for you", dir)
	case err != nil:
		return wrong("%v", err)
	case !info.IsDir():
		return wrong("%s is no directory", dir)
	}
	switch info, err := os.Stat(c.Heads); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return wrong("%v", err)
	case info.IsDir():
		return wrong("it is a directory; name a file in it, like %s", filepath.Join(c.Heads, "heads.ndjson"))
	case !info.Mode().IsRegular():
		return wrong("it is no regular file")
	}
	return nil
}

// Writable says which directory of an archive on this machine cannot be written, or made.
func (c *Config) Writable() error {
	var errs []error
	for _, p := range []struct{ name, path string }{{"DEST", c.Dest}, {"KEYS", c.Keys}, {"HEADS", c.Heads}} {
		if p.path == "" || isHook(p.path) || strings.Contains(p.path, "://") {
			continue
		}
		at := filepath.Clean(p.path)
		for {
			_, err := os.Stat(at)
			if errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
				at = filepath.Dir(at)
				continue
			}
			if err == nil {
				err = unix.Access(at, unix.W_OK)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("CBCAST_ARCHIVE_%s: %s cannot be written: %w", p.name, at, err))
			}
			break
		}
	}
	return errors.Join(errs...)
}

// HeadsPlace is the second place for heads, without secrets; "" for none.
func (c *Config) HeadsPlace() string {
	to, err := c.headPlace()
	if err != nil || to == nil {
		return ""
	}
	return to.String()
}
