package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// Any as a fence is none.
const Any = math.MaxUint64

// PutControl stores a fact about a run that its edge did not write, on the
// subject that what names (see package subject), and returns its stream
// sequence. expectLast is the sequence of the last fact on that subject as the
// caller knows it, 0 for none: if another was first, nothing is stored and the
// error is [ErrConflict]. So each happens once among many writers. With [Any]
// there is no fence. After [ErrUnavailable] the fact may be stored or not; the
// caller asks [Bus.Control].
func (b *Bus) PutControl(ctx context.Context, e *event.Event, what string, expectLast uint64) (uint64, error) {
	m := encode(e, subject.Control(e.Tenant, e.Run, what))
	if expectLast == Any {
		m.Header.Set(hdrMsgID, e.ID())
	} else {
		m.Header.Set(hdrExpect, strconv.FormatUint(expectLast, 10))
	}
	a, err := b.publish(ctx, m)
	if err == nil && a.Duplicate {
		// The server may have been made to note the id of what it does not have.
		if _, _, gerr := b.Control(ctx, e.Tenant, e.Run, what); errors.Is(gerr, ErrNotFound) || errors.Is(gerr, ErrForeign) {
			m.Header.Del(hdrMsgID)
			a, err = b.publish(ctx, m)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("put %s of %s: %w", what, e.Run, err)
	}
	return a.Seq, nil
}

// Decide stores e under what unless there is a fact already, and returns the one
// that stands: e, or that of whoever was first. mine says that it is e. Many
// writers may call it at once and at any distance in time, for as long as control
// facts are kept; all are told the same fact. After [ErrUnavailable] e may stand or
// not; calling again tells.
func (b *Bus) Decide(ctx context.Context, e *event.Event, what string) (stands *event.Event, mine bool, err error) {
	for expect := uint64(0); ; {
		_, err = b.PutControl(ctx, e, what, expect)
		if err == nil {
			return e, true, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, false, err
		}
		var seq uint64
		stands, seq, err = b.Control(ctx, e.Tenant, e.Run, what)
		if errors.Is(err, ErrForeign) && seq > expect { // it says nothing, so it does not stand
			expect = seq
			continue
		}
		break
	}
	if errors.Is(err, ErrNotFound) { // another's write is under way
		return nil, false, fmt.Errorf("%w: %s of %s is being decided", ErrUnavailable, what, e.Run)
	}
	return stands, false, err
}

// Control returns the last fact on a subject and its stream sequence, from the
// leader, or [ErrNotFound].
func (b *Bus) Control(ctx context.Context, tenant, run, what string) (*event.Event, uint64, error) {
	s, err := b.get(ctx, subject.ControlStream, getRequest{LastFor: subject.Control(tenant, run, what)})
	if err != nil {
		return nil, 0, fmt.Errorf("%s of %s: %w", what, run, err)
	}
	e, err := decodeStored(s)
	return e, s.seq, err
}

// LastLiveness returns the last word on whether the run's edge lives, and its stream
// sequence, or [ErrNotFound]: for the edge itself, which may be permitted to ask this
// alone. Any replica answers, so a fence must follow.
func (b *Bus) LastLiveness(ctx context.Context, tenant, run string) (*event.Event, uint64, error) {
	s, err := b.lastOf(ctx, subject.ControlStream, subject.Control(tenant, run, subject.Liveness))
	if err != nil {
		return nil, 0, fmt.Errorf("liveness of %s: %w", run, err)
	}
	e, err := decodeStored(s)
	return e, s.seq, err
}

// Controls yields the facts about a run in the order they were stored.
func (b *Bus) Controls(ctx context.Context, tenant, run string) iter.Seq2[*event.Event, error] {
	return b.ControlsTo(ctx, tenant, run, math.MaxUint64)
}

// ControlsTo is [Bus.Controls] up to a stream sequence.
func (b *Bus) ControlsTo(ctx context.Context, tenant, run string, to uint64) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		filter := subject.ControlFilter(tenant, run)
		last, err := b.get(ctx, subject.ControlStream, getRequest{LastFor: filter})
		if err == nil {
			err = b.scan(ctx, subject.ControlStream, filter, 1, min(last.seq, to), func(s *stored) error {
				e, err := decodeStored(s)
				if err != nil {
					b.log.Warn("control fact not readable, left out", "stream_seq", s.seq, "error", err)
					return nil
				}
				if !yield(e, nil) {
					return errStopped
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errStopped) && !errors.Is(err, ErrNotFound) {
			yield(nil, fmt.Errorf("control facts of %s: %w", run, err))
		}
	}
}

// TailControl is [Bus.Tail] for the control facts of all runs.
func (b *Bus) TailControl(ctx context.Context, ready func(), fn func(e *event.Event, streamSeq uint64)) error {
	return b.tailEvents(ctx, subject.ControlStream, subject.ControlStreamSubjects, ready, fn)
}
