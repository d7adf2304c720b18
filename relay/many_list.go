package relay

import (
	"github.com/cbcast/cbcast/internal/bus"
)

const (
	// maxShown bounds the runs that a client is known to hold for matching. Past
	// it the list is told again from its beginning.
	maxShown = 50_000

	// listTurn is how many changes are told between events.
	listTurn = 64
)

// A ManyRun is the data of the event run in the stream of many runs.
type ManyRun struct {
	RunEntry
	Matches bool `json:"matches"` // what the parameters ask for; else the client lets go of it
}

// A ManyGone is that data where the entry is no longer on the bus.
type ManyGone struct {
	Run     string `json:"run"`
	Gone    bool   `json:"gone"`
	Matches bool   `json:"matches"` // false
}

// A ManyReady is the data of the event ready: the list is told.
type ManyReady struct {
	Runs int  `json:"runs"` // in the list
	More bool `json:"more"` // older ones match, too
}

// tellList tells the list, or some of what has changed in it since.
func (s *many) tellList() (busy bool, err error) {
	if s.watch == nil {
		if s.ready {
			return false, nil
		}
		return true, s.tellReady(ManyReady{})
	}
	changes, again := s.r.reg.take(s.watch, listTurn)
	if again {
		return true, s.tellAll()
	}
	if !s.ready {
		return false, nil // the mirror is not whole
	}
	for _, c := range changes {
		if err := s.tellChange(c); err != nil {
			return false, err
		}
	}
	return len(changes) == listTurn, nil
}

// tellAll tells the runs that wait for a person, then the newest.
func (s *many) tellAll() error {
	clear(s.shown)
	waiting := func(i *bus.RunInfo) bool { return i.State == stateWaiting }
	first, more := s.r.reg.list(nil, s.filter.limit, func(i *bus.RunInfo) bool { return waiting(i) && s.filter.entry(i, nil) && s.among(i) })
	rest, others := s.r.reg.list(nil, s.filter.limit-len(first), func(i *bus.RunInfo) bool {
		return !waiting(i) && s.filter.entry(i, nil) && s.among(i)
	})
	for _, i := range append(first, rest...) {
		if err := s.tellRun(&i, s.r.reg.alive(i.Run)); err != nil {
			return err
		}
	}
	return s.tellReady(ManyReady{Runs: len(first) + len(rest), More: more || others})
}

// among is [conversation.has] for use under the registry's lock.
func (s *many) among(i *bus.RunInfo) bool {
	return s.conv == nil || s.conv.in[node{i.Tenant, "run", i.Run}]
}

func (s *many) tellReady(r ManyReady) error {
	s.ready = true
	if err := s.tell("ready", mustJSON(r), len(s.logs) > 0); err != nil {
		return err
	}
	return s.out.flush()
}

func (s *many) tellChange(c change) error {
	_, shown := s.shown[c.run]
	switch {
	case c.info == nil && !shown:
		return nil
	case c.info == nil:
		delete(s.shown, c.run)
		return s.tell("run", mustJSON(ManyGone{Run: c.run, Gone: true}), false)
	case s.filter.entry(c.info, s.conv):
		if len(s.shown) >= maxShown && !shown {
			s.r.reg.again(s.watch)
			return nil
		}
		return s.tellRun(c.info, c.alive)
	case shown:
		delete(s.shown, c.run)
		return s.tell("run", mustJSON(ManyRun{RunEntry{*c.info, c.alive}, false}), false)
	}
	return nil
}

func (s *many) tellRun(i *bus.RunInfo, alive bool) error {
	s.shown[i.Run] = struct{}{}
	return s.tell("run", mustJSON(ManyRun{RunEntry{*i, alive}, true}), false)
}
