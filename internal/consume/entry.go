package consume

import (
	"context"
	"errors"
	"math"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// An Entry is one message of a log.
type Entry struct {
	Log bus.Log
	At  bus.Place
	// Raw is the message as stored. Its header is there with [Config.Headers], or where
	// Bad is set.
	Raw bus.Raw
	// Event is nil where the message could not be read as one of ours; Bad says why. An
	// event may be a chunk or a part of a frame (see [event.Joiner]).
	Event *event.Event
	Bad   error

	wire        bus.Wire
	reads       func(bus.Log) uint64 // how far the consumer has read a log; nil: as far as it goes
	tenant, run string               // of the subject, where there is no event
	parsed      bool
}

// Run is whom the entry is about: by its event, else by its subject, else "" and "".
func (e *Entry) Run() (tenant, run string) {
	if e.Event != nil {
		return e.Event.Tenant, e.Event.Run
	}
	if !e.parsed {
		e.parsed = true
		e.tenant, e.run = runOf(e.Raw.Subject)
	}
	return e.tenant, e.run
}

func runOf(subj string) (tenant, run string) {
	if s, err := subject.ParseEvent(subj); err == nil {
		return s.Tenant, s.Run
	}
	if tenant, run, _, err := subject.ParseControl(subj); err == nil {
		return tenant, run
	}
	if tenant, run, _, err := subject.ParseCommand(subj); err == nil {
		return tenant, run
	}
	return "", ""
}

// readOf is how far the consumer has read a log, by stream sequence.
func (e *Entry) readOf(l bus.Log) uint64 {
	if e.reads == nil {
		return math.MaxUint64
	}
	return e.reads(l)
}

func (e *Entry) header() [][2]string {
	if e.Raw.Header != nil {
		return e.Raw.Header
	}
	return e.wire.Pairs()
}

// size is what an entry counts while it is held.
func (e *Entry) size() int64 {
	const frame = 1024 // attributes and what holds them
	return int64(len(e.Raw.Data)+len(e.Raw.Subject)) + frame
}

// A Handler is what a consumer program does with entries. Its methods are called one at
// a time, from one goroutine.
type Handler interface {
	// Handle takes the next entry. Entries of one run come in the order of their log. An
	// error, or a panic, holds the entry's run up: the same entry comes again, until it
	// is a dead letter; other runs go on. An error that is [ErrAgain] or
	// [bus.ErrUnavailable] is not the entry's fault: it comes again however often. The
	// entry is valid until Commit has returned.
	//
	// After a restart, a lost connection or a take-over entries come again that were
	// handled before; e.At tells only as long as the log is the one that it was
	// (see [Rebuilder]), the number of an event within its run always.
	Handle(ctx context.Context, e *Entry) error

	// Commit makes durable what was handled since the last one. pressed says that the
	// server holds nearly as much back as it may: hand everything in. upTo nil: all that
	// was handled may be acked; else for each log how far, and nothing of a log that is
	// missing. After an error nothing is acked, and Commit is called again, later. It is
	// called again and again while something handled is not acked.
	Commit(ctx context.Context, pressed bool) (upTo map[bus.Log]bus.Place, err error)
}

// A Beginner is a [Handler] that wants to know from where a log is given: at the start,
// and after each lost connection or take-over. What lies before it was acked, by this
// instance or by another one.
type Beginner interface {
	Begun(log bus.Log, after bus.Place)
}

// A Waiter is a [Handler] that may have work for Commit although all that was handled is
// acked: while Waiting says so, Commit is called again and again.
type Waiter interface {
	Waiting() bool
}

// A Rebuilder is a [Handler] that wants to know when a log is not the one that it was:
// made anew, or with another end. What it knows by places of the log behind after is void;
// the log is given again from there.
type Rebuilder interface {
	Rebuilt(log bus.Log, after bus.Place)
}

// ErrAgain is for a [Handler]: the entry is all right, something else is not, and the
// entry comes again.
var ErrAgain = errors.New("not possible now")
