package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cbcast/cbcast/internal/segment"
)

// mounted refuses to begin an archive where there was one: the directory of a disk that is
// not mounted is empty, too, and what would be written there is in the way of the disk.
func (s *Service) mounted(ctx context.Context) error {
	err := segment.Exists(ctx, s.place.Store)
	if !errors.Is(err, segment.ErrNoArchive) {
		return err
	}
	trace, err := s.trace(ctx)
	if err != nil || trace == "" {
		return err
	}
	return fmt.Errorf("%w, but %s says that there was one: is the place mounted? "+
		"To begin a new archive, move %s away and set another CBCAST_ARCHIVE_HEADS", s.o.noArchive(), trace, s.o.Dir)
}

// trace names what says that the archive was begun already, "" for nothing.
func (s *Service) trace(ctx context.Context) (string, error) {
	for _, pattern := range []string{"known.json", "open/*", "heads/*" + copySuffix} {
		names, err := filepath.Glob(filepath.Join(s.o.Dir, pattern))
		if err != nil {
			return "", err
		}
		if len(names) > 0 && !s.fresh(names[0]) {
			return names[0], nil
		}
	}
	if s.o.Keys != "" && s.o.Keys != s.o.Dest {
		for _, prefix := range []string{"keys/", catalogPrefix} {
			if has, err := hasAny(ctx, s.place.Keys, prefix); err != nil || has {
				return s.o.Keys, err
			}
		}
	}
	switch {
	case s.o.Heads == "" || isHook(s.o.Heads):
	case strings.HasPrefix(s.o.Heads, "s3://"):
		st, err := s.o.openStore(s.o.Heads)
		if err != nil {
			return "", err
		}
		if has, err := hasAny(ctx, st, headCopies); err != nil || has {
			return s.o.Heads, err
		}
	default:
		if info, err := os.Stat(s.o.Heads); err == nil && info.Size() > 0 {
			return s.o.Heads, nil
		}
	}
	return "", nil
}

// fresh reports whether a known.json knows of no head: the archive was never begun, or had
// nothing in it.
func (s *Service) fresh(name string) bool {
	if filepath.Base(name) != "known.json" {
		return false
	}
	k, err := openKnown(s.o.Dir, "")
	return err == nil && len(k.Listed) == 0
}

func hasAny(ctx context.Context, st segment.Store, prefix string) (bool, error) {
	for _, err := range st.List(ctx, prefix) {
		return err == nil, err
	}
	return false, nil
}
