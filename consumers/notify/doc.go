// Package notify tells people what happens to runs: that one ended, failed, was lost,
// waits for somebody. A rules file says who is told what, when, and how hard it is
// tried.
//
// # Once
//
// What an event makes worth telling is decided once. The decision, with the notices,
// is one line of a journal, and is on the disk before the bus is told that the event
// is dealt with. Delivery works from the journal: an attempt is noted before it
// begins, its outcome after it. What was told of a run is a log of its own, with its
// own retention, so that neither a restart nor a stream that is read again repeats a
// notice. An id follows from the event, so that a receiver knows what it has when an
// attempt comes twice; a destination that cannot know is asked, or left alone.
//
// # Time
//
// Reminders, escalations, groups, quiet hours and retries are times in the journal.
// Nothing is lost with the memory.
package notify
