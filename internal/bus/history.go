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
	// historyBytes bounds one direct-get batch; a reader holds two at a time.
	historyBytes = 4 << 20

	// Batches grow from the first to the last of these, so that a short page
	// does not load a long run, and the first event does not wait for many.
	historyFirst, historyLast = 16, 1024

	// scanAhead is how many events may be read and dropped to reach the first
	// wanted one, before another question is cheaper.
	scanAhead = 256

	// historyTries bounds attempts in a row that brought nothing.
	historyTries = 5
)

// history is [Bus.History] up to stream sequence to.
func (b *Bus) history(ctx context.Context, r Ref, after, to uint64, yield func(*event.Event, error) bool) error {
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
	// A run that is read from its beginning on is asked for from the stream's: the
	// server knows where a subject begins, and how many follow, without looking
	// through what lies between only there.
	if start <= max(r.First, 1) {
		start = 1
	}
	var d decoder
	return b.scan(ctx, r.stream(), r.filter(), start, min(headSeq, to), func(s *stored) error {
		e, err := d.stored(s)
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
		e, err := decodeStored(s)
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
// batch with a hole are dealt with here. The next batch is on its way while fn
// works on one.
func (b *Bus) scan(ctx context.Context, stream, filter string, start, last uint64, fn func(*stored) error) error {
	ctx, cancel := context.WithCancel(ctx)
	size := historyFirst
	fetched := b.fetch(ctx, stream, getRequest{Seq: start, NextFor: filter, Batch: size, MaxBytes: historyBytes})
	defer func() {
		cancel()
		if fetched != nil {
			<-fetched
		}
	}()
	next := start
	for failed := 0; ; {
		got := <-fetched
		fetched = nil
		if n := len(got.msgs); n > 0 {
			failed, size = 0, min(16*size, historyLast)
			next = got.msgs[n-1].seq + 1
		}
		end := errors.Is(got.err, ErrNotFound) || next > last // the leader was asked
		switch {
		case end:
		case got.err != nil && !errors.Is(got.err, ErrUnavailable):
			return got.err
		case got.err != nil:
			if failed++; failed == historyTries {
				return got.err
			}
			if err := b.pause(ctx, failed); err != nil {
				return err
			}
		}
		if !end {
			fetched = b.fetch(ctx, stream, getRequest{Seq: next, NextFor: filter, Batch: size, MaxBytes: historyBytes})
		}
		for _, s := range got.msgs {
			if s.seq > last {
				break
			}
			if err := fn(s); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

type fetched struct {
	msgs []*stored
	err  error // what came before it is in msgs
}

// fetch gets one batch in the background. The goroutine ends with its answer or
// with ctx.
func (b *Bus) fetch(ctx context.Context, stream string, req getRequest) chan fetched {
	out := make(chan fetched, 1)
	go func() {
		var f fetched
		f.err = b.batch(ctx, stream, req, func(s *stored) { f.msgs = append(f.msgs, s) })
		if errors.Is(f.err, ErrNotFound) {
			// Nothing on this replica. The leader knows whether there is.
			var s *stored
			if s, f.err = b.get(ctx, stream, getRequest{Seq: req.Seq, NextFor: req.NextFor}); f.err == nil {
				f.msgs = append(f.msgs, s)
			}
		}
		out <- f
	}()
	return out
}

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
func (b *Bus) batch(ctx context.Context, stream string, req getRequest, fn func(*stored)) error {
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
			if len(m.Data) == 0 && statusOf(m) == "503" {
				return asErr(ctx, nats.ErrNoResponders)
			}
			prev, status := said(m.Header, "Nats-Last-Sequence"), statusOf(m)
			if prev != before && (status == "" || status == "204") {
				return fmt.Errorf("%w: a message of a batch is missing", ErrUnavailable)
			}
			if status == "204" {
				return nil
			}
			s, err := fromDirect(stream, m)
			if err != nil {
				return err
			}
			before = said(m.Header, jetstream.SequenceHeader)
			fn(s)
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
