package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A Log is one of the streams that hold what happened: a partition of the events
// by its number, [ControlLog] or [CommandLog].
type Log int

// The logs beside the events.
const (
	ControlLog Log = -1 // facts about runs that their edges did not write
	CommandLog Log = -2 // commands to runs
)

// String is the name of the stream.
func (l Log) String() string { return l.stream() }

func (l Log) stream() string {
	switch l {
	case ControlLog:
		return subject.ControlStream
	case CommandLog:
		return subject.CommandStream
	}
	return subject.EventStream(int(l))
}

// filter is what of the log is of a tenant and a kind, "" for any. The log of
// commands is read as a whole.
func (l Log) filter(tenant, kind string) string {
	switch {
	case l == CommandLog:
		return subject.CommandStreamSubjects
	case l != ControlLog:
		return subject.EventsFilter(int(l), tenant, kind)
	case tenant != "":
		return subject.ControlsFilter(tenant)
	}
	return subject.ControlStreamSubjects
}

// A Place is where a reader of a log is: behind a message. The time is when that
// message was stored; it tells whether the message is still the one that was read.
// The zero place is the log's beginning.
type Place struct {
	Seq  uint64    // of the stream
	Time time.Time // zero where it is not known
}

func placeOf(s *stored) Place { return Place{s.seq, s.time} }

// TailLog is [Bus.Tail] for any log. ready gets the place behind which fn begins,
// and fn that of each event.
func (b *Bus) TailLog(ctx context.Context, l Log, ready func(Place), fn func(*event.Event, Place)) error {
	t := tail{b: b, stream: l.stream(), filter: l.filter("", "")}
	t.ready = func() {
		if ready != nil {
			ready(Place{t.last, t.lastTime})
		}
	}
	return t.events(ctx, func(e *event.Event, s *stored) { fn(e, placeOf(s)) })
}

// A Turn is what became of a place in a log.
type Turn int

// The turns.
const (
	Kept    Turn = iota // what follows on the place is there
	NotKept             // retention took some of it
	Rebuilt             // the log does not have what was read: it was made anew, or its end was lost
)

// rebuiltSlack is how much earlier than a place's time reading begins again in a
// log that was rebuilt: servers of a cluster have clocks of their own.
const rebuiltSlack = 5 * time.Second

// Locate says whether a reader can go on from a place, and from where it goes on.
// After [Rebuilt] that is a little before the place's time: what was stored since
// is given again, some of it perhaps for the second time. The leader answers.
func (b *Bus) Locate(ctx context.Context, l Log, at Place) (Place, Turn, error) {
	if at.Seq == 0 {
		return Place{}, Kept, nil
	}
	s, err := b.get(ctx, l.stream(), getRequest{Seq: at.Seq})
	switch {
	case err == nil && (at.Time.IsZero() || s.time.Equal(at.Time)):
		return placeOf(s), Kept, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return at, Kept, fmt.Errorf("place in %s: %w", l.stream(), err)
	}
	info, ierr := b.streamInfo(ctx, l.stream())
	if ierr != nil {
		return at, Kept, ierr
	}
	switch {
	case err == nil || info.State.LastSeq < at.Seq:
		from, err := b.since(ctx, l, at.Time.Add(-rebuiltSlack), info.State.LastSeq)
		return from, Rebuilt, err
	case info.State.FirstSeq > at.Seq+1:
		return Place{Seq: info.State.FirstSeq - 1}, NotKept, nil
	}
	return at, Kept, nil
}

// since is the place behind which everything was stored at t or later. last is the
// end of the log as known before.
func (b *Bus) since(ctx context.Context, l Log, t time.Time, last uint64) (Place, error) {
	s, err := b.direct(ctx, l.stream(), getRequest{StartTime: &t, NextFor: l.filter("", "")})
	switch {
	case errors.Is(err, ErrNotFound):
		return Place{Seq: last}, nil
	case err != nil:
		return Place{}, fmt.Errorf("find the time in %s: %w", l.stream(), err)
	}
	return Place{Seq: s.seq - 1}, nil
}

// ReadLog yields what a log has behind a place, up to a place, in the order it was
// stored; tenant and kind choose, "" is all. An error ends it.
func (b *Bus) ReadLog(ctx context.Context, l Log, after, to Place, tenant, kind string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if after.Seq >= to.Seq {
			return
		}
		var d decoder
		err := b.scan(ctx, l.stream(), l.filter(tenant, kind), after.Seq+1, to.Seq, func(s *stored) error {
			e, err := d.decode(s.subject, s.header, s.data)
			if err != nil {
				b.log.Warn("event not readable, left out", "stream", l.stream(), "stream_seq", s.seq, "error", err)
				return nil
			}
			if s.time.IsZero() {
				s.time, _ = time.Parse(time.RFC3339Nano, s.header.Get(hdrTimeStamp))
			}
			if !yield(Entry{e, placeOf(s)}, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(Entry{}, fmt.Errorf("read %s: %w", l.stream(), err))
		}
	}
}

// An Entry is one event in a log.
type Entry struct {
	Event *event.Event
	At    Place
}
