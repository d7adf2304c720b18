package segment

import (
	"errors"
	"time"
)

// Day is the name of the UTC day of a time, as [Sealed.Day] has it.
func Day(t time.Time) string { return dayName(dayOf(t.UnixNano())) }

// ErrAnother is returned by [Archive.Seal] when another archiver has sealed records of
// the tenant that this one holds unsealed: those were dropped here. The caller opens the
// archive anew and appends again from what it has acknowledged.
var ErrAnother = errors.New("another archiver has written to the chain")

// ErrDamaged is wrapped by errors about what is not in the form in which it was written, or not
// what the chain says of it.
var ErrDamaged = errDamaged
