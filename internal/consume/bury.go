package consume

// Bury makes a dead letter of an entry at once, for a [Handler] that knows that no
// further try can help, and that must not see later entries of the log before the
// entry is dealt with. The handler then returns nil for it.
func (l *Letters) Bury(consumer string, e *Entry, reason error, tries int) error {
	return l.put(letterOf(consumer, e, reason, tries, now()))
}
