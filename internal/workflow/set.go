package workflow

// A set remembers the latest keys, the oldest goes first.
type set struct {
	max   int
	m     map[string]struct{}
	order []string
}

func (s *set) has(k string) bool { _, ok := s.m[k]; return ok }

func (s *set) add(k string) {
	if k == "" || s.has(k) {
		return
	}
	if s.m == nil {
		s.m = map[string]struct{}{}
	}
	if len(s.order) >= s.max {
		delete(s.m, s.order[0])
		s.order = s.order[1:]
	}
	s.m[k] = struct{}{}
	s.order = append(s.order, k)
}
