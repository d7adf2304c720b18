package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A Ref says where the events of a run are.
type Ref struct {
	Tenant    string
	Run       string
	Partition int

	// First is the stream sequence of the run's first event, 0 if unknown. It
	// is a hint that saves a search; a wrong one below the first event costs
	// time only. It must not be above.
	First uint64
}

func (r Ref) stream() string { return subject.EventStream(r.Partition) }
func (r Ref) filter() string { return subject.RunFilter(r.Partition, r.Tenant, r.Run) }

// Last returns the run's last event and its stream sequence. The leader
// answers, so everything acknowledged before the call is seen.
func (b *Bus) Last(ctx context.Context, r Ref) (*event.Event, uint64, error) {
	s, err := b.get(ctx, r.stream(), getRequest{LastFor: r.filter()})
	if err != nil {
		return nil, 0, err
	}
	e, err := decodeStored(s)
	if err != nil {
		return b.lastReadable(ctx, r, s.seq, err)
	}
	return e, s.seq, nil
}

// lastReadable returns the last event up to stream sequence head, where the message
// there is none. It reads the whole run.
func (b *Bus) lastReadable(ctx context.Context, r Ref, head uint64, cause error) (last *event.Event, seq uint64, err error) {
	b.log.Warn("a message that is no event is under a run", "run", r.Run, "stream_seq", head, "error", cause)
	err = b.scan(ctx, r.stream(), r.filter(), max(r.First, 1), head, func(s *stored) error {
		if e, err := decodeStored(s); err == nil {
			last, seq = e, s.seq
		}
		return nil
	})
	if err == nil && last == nil {
		err = fmt.Errorf("%s: %w", r.Run, ErrNotFound)
	}
	return last, seq, err
}

// LastOwn is [Bus.Last] for the run's own edge, in the one form of the question that
// a server can permit for one run. Any replica answers, so the event may be an older
// one: who goes on behind it needs a fence. Where the stream's last message on the
// run's subjects is no event of ours, the error is [ErrForeign], and the sequence is
// that of the message.
func (b *Bus) LastOwn(ctx context.Context, r Ref) (*event.Event, uint64, error) {
	s, err := b.lastOf(ctx, r.stream(), r.filter())
	if err != nil {
		return nil, 0, err
	}
	e, err := decodeStored(s)
	if err != nil {
		return nil, s.seq, err
	}
	return e, s.seq, nil
}

// FirstKept returns the run's first event that retention has left, and its
// stream sequence. The leader answers.
func (b *Bus) FirstKept(ctx context.Context, r Ref) (*event.Event, uint64, error) {
	s, err := b.get(ctx, r.stream(), getRequest{Seq: max(r.First, 1), NextFor: r.filter()})
	if err != nil {
		return nil, 0, err
	}
	e, err := decodeStored(s)
	return e, s.seq, err
}

// Epoch is when the stream of a partition was made. Where it differs from what
// it was, stream sequences from before mean nothing.
func (b *Bus) Epoch(ctx context.Context, partition int) (time.Time, error) {
	info, err := b.streamInfo(ctx, subject.EventStream(partition))
	if err != nil {
		return time.Time{}, err
	}
	return info.Created, nil
}

// History yields the run's events with Seq > after, in order, up to the head at
// the time of the call. It does not judge gaps: retention may have taken the
// beginning, and the caller sees Seq jump. A run without events yields nothing.
// It holds about twice [historyBytes] at a time, whatever the run's length. An error
// ends it: [ErrUnavailable] when the bus went away and did not come back in time.
func (b *Bus) History(ctx context.Context, r Ref, after uint64) iter.Seq2[*event.Event, error] {
	return b.HistoryTo(ctx, r, after, math.MaxUint64)
}

// HistoryTo is [Bus.History] up to a stream sequence of the partition.
func (b *Bus) HistoryTo(ctx context.Context, r Ref, after, to uint64) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		err := b.history(ctx, r, after, to, yield)
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, fmt.Errorf("history of %s: %w", r.Run, err))
		}
	}
}

// errStopped is returned inside this package when an iterator's caller has had
// enough.
var errStopped = errors.New("stopped")
