package trace

import "container/list"

// A shelf holds the builders of the runs that were seen last, in bounds. What a builder
// takes is guessed from its events; all of it is bounded.
type shelf struct {
	runs   int
	memory int64

	m     map[string]*list.Element // of *onShelf
	used  list.List                // the one used last first
	bytes int64
}

type onShelf struct {
	run  string
	b    *Builder
	size int64
}

// What a builder takes: so much to begin with, and for each event, up to a bound.
const builderBytes, builderEventBytes, builderMost = 24 << 10, 160, 6 << 20

func (s *shelf) get(run string) *Builder {
	el := s.m[run]
	if el == nil {
		return nil
	}
	s.used.MoveToFront(el)
	return el.Value.(*onShelf).b
}

func (s *shelf) put(run string, b *Builder) {
	if s.m == nil {
		s.m = map[string]*list.Element{}
	}
	s.drop(run)
	s.m[run] = s.used.PushFront(&onShelf{run: run, b: b})
	s.grown(run)
}

// grown weighs a builder anew, and lets go what is past the bounds.
func (s *shelf) grown(run string) {
	el := s.m[run]
	if el == nil {
		return
	}
	h := el.Value.(*onShelf)
	size := min(builderBytes+builderEventBytes*int64(min(h.b.LastSeq(), builderMost)), builderMost) //nolint:gosec // bounded
	s.bytes += size - h.size
	h.size = size
	for len(s.m) > 1 && (len(s.m) > s.runs || s.bytes > s.memory) {
		s.drop(s.used.Back().Value.(*onShelf).run)
	}
}

func (s *shelf) drop(run string) {
	if el := s.m[run]; el != nil {
		s.bytes -= s.used.Remove(el).(*onShelf).size
		delete(s.m, run)
	}
}
