package spool

import "time"

type counters struct {
	refused uint64
	dropped uint64
	syncErr error
}

// Stats is what a spool holds and what it had to do.
type Stats struct {
	First, Last uint64 // numbers of the oldest and newest record kept; First is Last+1 when there is none
	Acked       uint64
	Read        uint64 // the highest that was borrowed
	Segments    int
	Bytes       int64  // of the segments
	Refused     uint64 // records that an append returned an error for
	Dropped     uint64 // acknowledged segments removed to make room
	SyncErr     error  // of the last Sync by SyncEvery
}

// Stats tells the present state.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		First: s.next, Last: s.next - 1, Acked: s.acked, Read: s.tail.read, Segments: len(s.segs),
		Refused: s.stats.refused, Dropped: s.stats.dropped, SyncErr: s.stats.syncErr,
	}
	for _, g := range s.segs {
		st.Bytes += g.size
	}
	for _, g := range s.segs {
		if g.last >= g.first {
			st.First = g.first
			break
		}
	}
	return st
}

// Last is the number of the newest record, 0 before the first.
func (s *Spool) Last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next - 1
}

// Ended reports whether End was called, by this or an earlier process.
func (s *Spool) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Shipped reports whether the run has ended and everything is acknowledged.
func (s *Spool) Shipped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && s.acked >= s.next-1
}

// Removable reports whether the spool has served: it is shipped, and
// Options.Retain has passed since the last acknowledgement. Until then its
// caller closes it and leaves it to a later Sweep.
func (s *Spool) Removable(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && s.acked >= s.next-1 && now.Sub(s.ackedAt) >= s.opt.Retain
}
