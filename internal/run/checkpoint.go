package run

// ChildVersion is the child's version, "" while it is not known.
func (s *State) ChildVersion() string { return s.childVer }

// TaskSilent reports whether waiting for a task's end is no use between turns: a
// background Agent of CodeBuddy tells none before the next one.
func (s *State) TaskSilent(id string) bool {
	t := s.tasks[id]
	return t != nil && s.neverReports(t)
}
