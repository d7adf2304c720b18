package archive

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cbcast/cbcast/internal/segment"
)

// LoadHeads reads the heads of a second place: a file with one a line, a directory of
// such files, or s3://bucket/prefix. A last line that is cut is left out.
func (c *Config) LoadHeads(ctx context.Context, from string) ([]*segment.Head, error) {
	if !strings.HasPrefix(from, "s3://") {
		return loadHeadFiles(from)
	}
	st, err := c.openStore(from)
	if err != nil {
		return nil, err
	}
	var all []*segment.Head
	for info, err := range st.List(ctx, headCopies) {
		if err != nil {
			return nil, fmt.Errorf("load heads: %w", err)
		}
		b, err := readAll(ctx, st, info.Key)
		if err != nil {
			return nil, fmt.Errorf("load heads: %w", err)
		}
		h, err := segment.ParseHead(b)
		if err != nil {
			return nil, fmt.Errorf("load heads: %s: %w", info.Key, err)
		}
		all = append(all, h)
	}
	return all, nil
}

func loadHeadFiles(path string) ([]*segment.Head, error) {
	var all []*segment.Head
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lines := bytes.Split(b, []byte("\n"))
		for i, line := range lines {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			h, err := segment.ParseHead(line)
			if err != nil {
				if i == len(lines)-1 && i > 0 {
					break // cut by a crash
				}
				return fmt.Errorf("%s, line %d: %w", name, i+1, err)
			}
			all = append(all, h)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load heads: %w", err)
	}
	return all, nil
}
