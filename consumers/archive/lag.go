package archive

import (
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A lag knows when the oldest message of a log was stored that is not sealed: to a
// second, or less exactly where very many wait.
type lag struct {
	marks []bus.Place // one a second, the oldest first
	last  bus.Place
}

// maxMarks bounds a lag's memory; then every second mark goes.
const maxMarks = 4096

func (l *lag) add(at bus.Place) {
	l.last = at
	if n := len(l.marks); n > 0 && at.Time.Sub(l.marks[n-1].Time) < time.Second {
		return
	}
	if len(l.marks) == maxMarks {
		for i := range maxMarks / 2 {
			l.marks[i] = l.marks[2*i]
		}
		l.marks = l.marks[:maxMarks/2]
	}
	l.marks = append(l.marks, at)
}

// sealed takes away what is sealed up to a place and returns when the oldest message
// was stored that is not, zero for none.
func (l *lag) sealed(upTo bus.Place) time.Time {
	if upTo.Seq >= l.last.Seq {
		l.marks = l.marks[:0]
		return time.Time{}
	}
	n := 0
	for n+1 < len(l.marks) && l.marks[n+1].Seq <= upTo.Seq {
		n++
	}
	l.marks = append(l.marks[:0], l.marks[n:]...)
	if len(l.marks) == 0 {
		return l.last.Time
	}
	return l.marks[0].Time
}
