package segment_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/segment"
)

// mem is a store in memory, for tests that are about other things than the disk, and for
// changing what an archive has.
type mem struct {
	mu   sync.Mutex
	m    map[string][]byte
	fail func(op, key string) error // before an operation
	lost func(op, key string) error // behind it: it happened, the answer was lost
	at   time.Time                  // when all was stored
}

func newMem() *mem { return &mem{m: map[string][]byte{}} }

func (s *mem) do(op, key string, fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(op, key); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	if s.lost != nil {
		return s.lost(op, key)
	}
	return nil
}

func (s *mem) Create(_ context.Context, key string, body *io.SectionReader) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return s.do("create", key, func() error {
		if _, ok := s.m[key]; ok {
			return fmt.Errorf("create %s: %w", key, fs.ErrExist)
		}
		s.m[key] = b
		return nil
	})
}

func (s *mem) Replace(_ context.Context, key string, data []byte) error {
	return s.do("replace", key, func() error { s.m[key] = bytes.Clone(data); return nil })
}

func (s *mem) Delete(_ context.Context, key string) error {
	return s.do("delete", key, func() error { delete(s.m, key); return nil })
}

type memObject struct{ *bytes.Reader }

func (memObject) Close() error { return nil }

func (s *mem) Open(_ context.Context, key string) (o segment.Object, err error) {
	err = s.do("open", key, func() error {
		b, ok := s.m[key]
		if !ok {
			return fmt.Errorf("open %s: %w", key, fs.ErrNotExist)
		}
		o = memObject{bytes.NewReader(b)}
		return nil
	})
	return o, err
}

func (s *mem) List(_ context.Context, prefix string) iter.Seq2[segment.Info, error] {
	return func(yield func(segment.Info, error) bool) {
		s.mu.Lock()
		keys := slices.Sorted(maps.Keys(s.m))
		sizes := map[string]int{}
		for _, k := range keys {
			sizes[k] = len(s.m[k])
		}
		s.mu.Unlock()
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) && !yield(segment.Info{Key: k, Size: int64(sizes[k]), Time: s.at}, nil) {
				return
			}
		}
	}
}

// clone is a store with the same objects.
func (s *mem) clone() *mem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &mem{m: maps.Clone(s.m)}
}

// keys lists the keys that begin with prefix.
func (s *mem) keys(prefix string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(s.m)) {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	return out
}

// tempDir is a directory for files that are synced often: in memory where there is such a place.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cbcast-segment-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
