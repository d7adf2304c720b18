package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	// historyBytes bounds one direct-get batch; a client holds one at a time.
	historyBytes = 4 << 20

	// Batches grow from the first to the last of these, so that a short page
	// does not load a long run.
	historyFirst, historyLast = 64, 1024

	// scanAhead is how many events may be read and dropped to reach the first
	// wanted one, before another question is cheaper.
	scanAhead = 256

	// historyTries bounds attempts in a row that brought nothing.
	historyTries = 5
)

func (b *Bus) history(ctx context.Context, r Ref, after uint64, yield func(*event.Event, error) bool) error {
	head, headSeq, err := b.Last(ctx, r)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if head.Seq <= after {
		return nil
	}
	start, err := b.seek(ctx, r, after, head.Seq, headSeq)
	if err != nil {
		return err
	}
	var d decoder
	return b.scan(ctx, r.stream(), r.filter(), start, headSeq, func(s *stored) error {
		e, err := d.decode(s.subject, s.header, s.data)
		if err != nil {
			b.log.Warn("event not readable, left out", "stream", r.stream(), "stream_seq", s.seq, "error", err)
			return nil
		}
		if e.Seq > after && !yield(e, nil) {
			return errStopped
		}
		return nil
	})
}

// seek returns a stream sequence that is not behind the run's event after+1 and
// at most about scanAhead of the run's events before it. Seq rises with the
// stream sequence, so the place is guessed by proportion and, where the run's
// events are spread unevenly, halved.
func (b *Bus) seek(ctx context.Context, r Ref, after, headNo, headSeq uint64) (uint64, error) {
	low, lowNo := max(r.First, 1), uint64(0)
	high, highNo := headSeq, headNo
	for n := 0; after > lowNo+scanAhead && high-low > scanAhead; n++ {
		mid := low + (high-low)/2
		if n%2 == 0 {
			mid = low + uint64(float64(high-low)*float64(after-lowNo)/float64(highNo-lowNo))
			mid -= min(mid-low, scanAhead/2) // better a little early
			mid = min(max(mid, low+1), high-1)
		}
		s, err := b.direct(ctx, r.stream(), getRequest{Seq: mid, NextFor: r.filter()})
		if errors.Is(err, ErrNotFound) { // purged meanwhile, or a replica behind
			return low, nil
		}
		if err != nil {
			return 0, err
		}
		e, err := decode(s.subject, s.header, s.data)
		if err != nil {
			return low, nil
		}
		if e.Seq > after {
			high, highNo = mid, e.Seq
		} else {
			low, lowNo = s.seq, e.Seq
		}
	}
	return low, nil
}

// scan calls fn for every message of stream that matches filter, from stream
// sequence start to last. A replica that is behind, a lost connection and a
// batch with a hole are dealt with here.
func (b *Bus) scan(ctx context.Context, stream, filter string, start, last uint64, fn func(*stored) error) error {
	next, batch := start, historyFirst
	take := func(s *stored) error {
		if s.seq > last {
			return errEnd
		}
		next = s.seq + 1
		return fn(s)
	}
	for failed := 0; next <= last; {
		from := next
		err := b.batch(ctx, stream, getRequest{Seq: next, NextFor: filter, Batch: batch, MaxBytes: historyBytes}, take)
		if errors.Is(err, ErrNotFound) {
			// Nothing more on this replica. The leader knows whether there is.
			var s *stored
			if s, err = b.get(ctx, stream, getRequest{Seq: next, NextFor: filter}); err == nil {
				err = take(s)
			}
			if errors.Is(err, ErrNotFound) {
				return nil // retention took the rest
			}
		}
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil && !errors.Is(err, ErrUnavailable):
			return err
		case next > from:
			failed, batch = 0, min(2*batch, historyLast)
			continue
		}
		if failed++; failed == historyTries {
			return fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
		if err := b.pause(ctx, failed); err != nil {
			return err
		}
	}
	return nil
}

// errEnd is returned inside this file at the end of the range asked for.
var errEnd = errors.New("end of range")

// pause waits for the nth time before something is tried again, and for a
// connection.
func (b *Bus) pause(ctx context.Context, n int) error {
	select {
	case <-time.After(backoff(n)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.WaitConnected(ctx)
}

// batch sends one direct-get batch request (ADR-31) and calls fn for each
// message. It returns nil at the end of the batch, and [ErrUnavailable] when
// messages of it are missing: those before the hole were given to fn.
func (b *Bus) batch(ctx context.Context, stream string, req getRequest, fn func(*stored) error) error {
	l, err := b.now()
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	// The whole answer fits, so the connection's reader never waits for fn.
	answers := make(chan *nats.Msg, req.Batch+1)
	inbox := l.nc.NewInbox()
	sub, err := l.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return asErr(ctx, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := l.nc.PublishRequest(apiRoot+"DIRECT.GET."+stream, inbox, body); err != nil {
		return asErr(ctx, err)
	}
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	before := "0" // stream sequence of the message before, which the server states
	for {
		select {
		case m := <-answers:
			if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
				return asErr(ctx, nats.ErrNoResponders)
			}
			prev := m.Header.Get("Nats-Last-Sequence")
			if status := m.Header.Get("Status"); prev != before && (status == "" || status == "204") {
				return fmt.Errorf("%w: a message of a batch is missing", ErrUnavailable)
			}
			if m.Header.Get("Status") == "204" {
				return nil
			}
			s, err := fromDirect(stream, m)
			if err != nil {
				return err
			}
			before = m.Header.Get(jetstream.SequenceHeader)
			if err := fn(s); err != nil {
				return err
			}
			timer.Reset(requestTimeout)
		case <-l.ctx.Done():
			return errBroken
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("%w: no answer for %v", ErrUnavailable, requestTimeout)
		}
	}
}
