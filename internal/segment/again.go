package segment

import (
	"slices"
	"time"
)

// A segment that was recovered has some of the records up to its last ones: blocks are
// written run by run, and what was in memory is gone. That comes again, since nothing of it
// was acknowledged. So nothing is concluded from the last places of such a segment before
// its logs were read again up to there, or cannot be.

// againSlack is how much later a record must have been stored than a place to be behind
// it whatever its sequence: servers of a cluster have clocks of their own.
const againSlack = time.Minute

// reach notes that the records of a buffer go from one place to another.
func (s *open) reach(b *buffer, from, to Place) {
	if b.last == (Place{}) {
		b.from = from
	}
	b.last = later(b.last, to)
	s.upTo[b.log] = later(s.upTo[b.log], to)
	if f, ok := s.first[b.log]; !ok || from.Seq < f.Seq && !from.Time.After(f.Time) {
		s.first[b.log] = from
	}
}

// readAgain notes that a log was read up to a place, or has nothing more before it.
func (a *Archive) readAgain(log Log, at Place) {
	if !a.again {
		return
	}
	a.again = false
	for _, s := range a.segs {
		if p, ok := s.again[log]; ok && (p.Seq <= at.Seq || at.Time.After(p.Time.Add(againSlack))) {
			delete(s.again, log)
		}
		a.again = a.again || len(s.again) > 0
	}
}

// Awaited says for each log up to where it has to be read again before what an earlier
// process left is sealed.
func (a *Archive) Awaited() map[Log]Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[Log]Place{}
	for _, s := range a.segs {
		for log, p := range s.again {
			out[log] = later(out[log], p)
		}
	}
	return out
}

// Gone notes that a log has nothing any more up to a place: all of it is acknowledged, or
// retention took it. What of it an earlier process left is the only copy.
func (a *Archive) Gone(log Log, upTo uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readAgain(log, Place{Seq: upTo})
}

// Rebuilt notes that a log was made anew, or is no more since there are fewer partitions:
// places of the earlier one say nothing of it, and nothing waits for it.
func (a *Archive) Rebuilt(log Log) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, log)
	for _, s := range a.segs {
		delete(s.before, log)
		delete(s.again, log)
	}
}

// sealable lists the segments that may be sealed: of each tenant those before the first one
// that waits for its logs.
func (a *Archive) sealable() []*open {
	if !a.again {
		return a.segs
	}
	waits := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(a.segs), func(s *open) bool {
		waits[s.tenant] = waits[s.tenant] || len(s.again) > 0
		return waits[s.tenant]
	})
}

// through says for each log up to where all of a tenant is in segments that are done, s the
// last of them. A segment behind it that was recovered may begin before s ends.
func (a *Archive) through(t *tenant, s *open) map[string]Place {
	out := map[string]Place{}
	behind := a.byTenant[s.tenant]
	behind = behind[slices.Index(behind, s)+1:]
	for log, p := range t.reached {
		for _, o := range behind {
			if f, ok := o.first[log]; ok && f.Seq <= p.Seq && !f.Time.After(p.Time) {
				p = Place{f.Seq - 1, f.Time}
			}
		}
		if p.Seq > 0 {
			out[log.String()] = p
		}
	}
	return out
}

// insert begins a segment before another one of its tenant.
func (a *Archive) insert(tenant string, day int32, behind *open) (*open, error) {
	at, begun := len(a.segs), time.Now()
	if behind != nil {
		at = slices.Index(a.segs, behind)
		prev := behind.begun.Add(-time.Second)
		if at > 0 && a.segs[at-1].begun.Before(behind.begun) {
			prev = a.segs[at-1].begun
		}
		begun = prev.Add(behind.begun.Sub(prev) / 2)
	}
	s, err := a.begin(tenant, day, begun)
	if err != nil {
		return nil, err
	}
	a.setSegs(slices.Insert(slices.Clone(a.segs), at, s))
	return s, nil
}
