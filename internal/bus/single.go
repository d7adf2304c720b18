package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// one publishes the next message by itself and waits for its PubAck.
func (r *shipper) one(ctx context.Context) error {
	m, at := r.feed.take()
	return r.sendOne(ctx, m, at)
}

// sendOne publishes m, an ordinary message with a fence.
func (r *shipper) sendOne(ctx context.Context, m *nats.Msg, at pos) error {
	r.p.stats.singles.Add(1)
	m.Reply = r.prefix + "." + r.newID()
	r.feed.fenceOn(r.sseq)
	if err := r.hand(m, at); err != nil {
		return err
	}
	answer, err := r.answer(ctx, m.Reply)
	if denied := r.p.Bus.denials.of(m.Subject); err != nil && denied != nil {
		return denied
	}
	if err != nil {
		return err
	}
	a, err := parseAck(answer)
	switch {
	case err != nil:
		return err
	case a.Error != nil:
		return r.refused(a.Error, at)
	case a.Duplicate:
		r.p.stats.duplicates.Add(1)
		return r.duplicate(ctx, at)
	}
	r.sseq = a.Seq
	if at.seq == 1 && at.part <= 1 {
		r.p.first.Store(a.Seq)
	}
	if r.unsure > 0 {
		r.unsure--
	}
	r.advance(at)
	return nil
}

// answer waits for the message on subject.
func (r *shipper) answer(ctx context.Context, subject string) (*nats.Msg, error) {
	timer := time.NewTimer(loneWait)
	defer timer.Stop()
	for {
		select {
		case m := <-r.acks:
			if m.Subject == subject {
				return m, nil
			}
		case <-r.link.ctx.Done():
			return nil, errBroken
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
			r.p.stats.timeouts.Add(1)
			return nil, fmt.Errorf("%w: no acknowledgement for %v", ErrUnavailable, loneWait)
		}
	}
}

// duplicate asks the stream whether it has the message at at, which it says to
// have. A server may remember the id of a message that it never stored (one
// refused after the id was noted, or lost with a leader): then the message goes
// out again under another id.
func (r *shipper) duplicate(ctx context.Context, at pos) error {
	for n := range 2 {
		if n > 0 { // the store may be behind its own word for a moment
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := r.recover(ctx); err != nil {
			return err
		}
		if !r.at.less(at) {
			if r.unsure > 0 {
				r.unsure--
			}
			return nil
		}
	}
	r.p.stats.falseDuplicates.Add(1)
	r.log.Warn("the server takes an event for a duplicate that the stream does not have, sending it under another id",
		"run", r.p.Ref.Run, "seq", at.seq)
	r.feed.again(at)
	return nil
}

// refused says what the server's refusal of the message at at means for what
// comes next. Recovery follows in any case.
func (r *shipper) refused(e *apiError, at pos) error {
	switch e.ErrCode {
	case codeWrongLast, codeWrongLastConst:
		r.p.stats.fenceMisses.Add(1)
	case codeDupConflict, codeBatchUnknown:
	case codeTooManyBatches:
		r.single = time.Now().Add(retryBatch/2 + rand.N(retryBatch/2))
	case codeBatchDisabled:
		r.noBatches(errors.New("the stream does not allow batches"))
	case codeHeaderTooBig:
		r.feed.giveUp = at.seq
	case codeTooBig:
		r.shrink(at)
	default:
		if errors.Is(e, ErrUnavailable) {
			return e
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, e)
	}
	return fmt.Errorf("%w: %w", errAgain, e)
}

// noBatches goes on one message at a time, for as long as this connection lasts.
func (r *shipper) noBatches(why error) {
	r.oneByOne = true
	r.notice(fmt.Errorf("%w: %w", ErrOneByOne, why))
}

// shrink lowers the limit of a message below that of the server: the stream
// has one of its own.
func (r *shipper) shrink(at pos) {
	if r.feed.limit <= minLimit {
		r.feed.giveUp = at.seq
		return
	}
	r.limit = max(r.feed.limit/2, minLimit)
}
