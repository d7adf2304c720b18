package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/durable"
)

type syncState struct {
	mu   sync.Mutex // one Sync at a time; guards meta
	meta bool       // meta.json and the directory's own entry are not synced yet
}

// Sync makes every record appended before the call, and the end mark, survive a
// power loss. Appends go on meanwhile. After an error it is unknown what a power
// loss would leave; the next Sync tries all of it again.
func (s *Spool) Sync() error {
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	type part struct {
		g    *segment
		path string
		size int64
	}
	var parts []part
	s.mu.Lock()
	for _, g := range s.segs {
		if g.size > g.synced {
			parts = append(parts, part{g, g.path, g.size})
		}
	}
	s.mu.Unlock()
	for _, p := range parts {
		// fsync acts on the file, not on the descriptor that wrote it.
		if err := syncFile(p.path); err != nil {
			return fmt.Errorf("sync spool: %w", err)
		}
	}
	if s.unsynced.meta {
		if err := syncFile(filepath.Join(s.dir, metaName)); err != nil {
			return fmt.Errorf("sync spool: %w", err)
		}
		if err := durable.SyncDir(filepath.Dir(s.dir)); err != nil {
			return fmt.Errorf("sync spool: %w", err)
		}
	}
	if err := durable.SyncDir(s.dir); err != nil {
		return fmt.Errorf("sync spool: %w", err)
	}
	s.unsynced.meta = false
	s.mu.Lock()
	for _, p := range parts {
		p.g.synced = max(p.g.synced, p.size)
	}
	s.mu.Unlock()
	return nil
}

// syncFile syncs the file at path; one that was dropped meanwhile needs none.
func syncFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncLoop calls Sync while there is something to sync. Ended by Close.
func (s *Spool) syncLoop() {
	t := time.NewTicker(s.opt.SyncEvery)
	defer t.Stop()
	synced := uint64(0)
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		s.mu.Lock()
		last := s.next - 1
		s.mu.Unlock()
		if last == synced {
			continue
		}
		err := s.Sync()
		s.mu.Lock()
		s.stats.syncErr = err
		s.mu.Unlock()
		if err == nil {
			synced = last
		}
	}
}
