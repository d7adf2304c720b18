package relay

import "time"

// A rider is one client's place in a line.
type rider struct {
	line  *line
	wakes chan struct{} // capacity 1
	*pen

	// Guarded by line.mu.
	next     int64 // index of the entry to take next
	attached bool
}

func (l *line) enter(p *pen) *rider {
	s := &rider{line: l, wakes: make(chan struct{}, 1), pen: p}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[s] = struct{}{}
	return s
}

func (l *line) quit(s *rider) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subs, s)
}

func (s *rider) poke() {
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}

// attach places s behind position pos, if the ring goes on from there.
func (s *rider) attach(pos uint64) bool {
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if pos < l.evicted {
		return false
	}
	s.attached, s.next = true, l.base+int64(l.search(pos))
	return true
}

// A load is what a client finds in its line.
type load struct {
	entries []entry
	lag     bool      // it fell behind what the line holds
	due     time.Time // when what is being joined goes out
	standing
}

// take returns what comes next: entries of about limit bytes, at least one if there
// is any. now says that nothing is to be joined any further.
func (s *rider) take(limit int, now bool) load {
	l := s.line
	p := load{standing: l.standing()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.next < l.base {
		p.lag = true
		return p
	}
	if !l.due.IsZero() && (now || !time.Now().Before(l.due)) {
		l.close()
	}
	p.due = l.due
	size := 0
	for i := int(s.next - l.base); i < len(l.ring); i++ {
		if size += len(l.ring[i].sse); size > limit && len(p.entries) > 0 {
			break
		}
		s.next++
		p.entries = append(p.entries, l.ring[i])
	}
	return p
}
