package archive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
)

// logs are what is read.
func (s *Service) logs() []bus.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append(consume.Logs(s.o.Partitions), bus.CommandLog), s.former...)
}

// formerLogs looks for partitions beyond those of the configuration that this instance has
// read and that are still there: what they have is archived, too. Those that are gone are
// waited for by nobody.
func (s *Service) formerLogs(ctx context.Context) error {
	var former []bus.Log
	for _, l := range consume.Read(s.o.Dir) {
		if int(l) < max(s.o.Partitions, 1) {
			continue
		}
		_, err := s.o.Bus.First(ctx, l)
		if isFormer(err) {
			s.o.Log.Warn("a partition that was read before is not read any more", "log", l, "reason", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("partition that was read before: %w", err)
		}
		s.o.Log.Warn("a partition beyond CBCAST_PARTITIONS is read as long as it is there", "log", l)
		former = append(former, l)
	}
	s.set(func() { s.former = former })
	return nil
}

// openArchive opens the archive to write, and looks after what others left.
func (s *Service) openArchive(ctx context.Context) (*segment.Archive, error) {
	if err := s.mounted(ctx); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.key(ctx); err != nil {
		return nil, err
	}
	out, err := s.loadAside(ctx)
	if err != nil {
		return nil, err
	}
	ar, err := segment.Open(ctx, segment.Options{
		Store: s.place.Store, Keys: s.place.Keys, Wrap: s.place.Wrap, Dir: s.openDir(), Aside: out,
		Signer: s.signer, Segment: int64(s.o.SealBytes), Open: s.o.OpenSegments, Memory: s.o.Memory, Log: s.o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	for t, why := range ar.Aside() {
		if s.isAside(t) {
			continue
		}
		if err := s.setAside(ctx, t, why); err != nil {
			return nil, errors.Join(err, ar.Close())
		}
	}
	for _, r := range ar.Recovered() {
		s.o.Log.Warn("segment of an earlier process", "tenant", r.Tenant, "day", r.Day, "sealed", r.Sealed,
			"records", r.Records, "cut_bytes", r.Cut, "cut_records", r.CutRecs, "reason", r.Reason)
		s.m.cut.Add(float64(r.Cut))
	}
	if err := s.reconcile(ctx); err != nil {
		return nil, errors.Join(err, ar.Close())
	}
	return ar, nil
}

// openDir is where segments are that are not sealed.
func (s *Service) openDir() string { return filepath.Join(s.o.Dir, "open") }

func (s *Service) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// isFormer reports whether the answer to a question about a log says that there is nothing to
// be read: it is gone, or not ours any more.
func isFormer(err error) bool { return errors.Is(err, bus.ErrNoLog) || errors.Is(err, bus.ErrDenied) }

// formerGone says which of the partitions beyond the configuration is gone, nil for none.
func (s *Service) formerGone(ctx context.Context) error {
	s.mu.Lock()
	former := s.former
	s.mu.Unlock()
	for _, l := range former {
		if _, err := s.o.Bus.First(ctx, l); isFormer(err) {
			return fmt.Errorf("partition that was read before: %w", err)
		}
	}
	return nil
}
