package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// tailMessages and tailBytes bound what a tail holds that its function has
	// not taken yet.
	tailMessages = 1000
	tailBytes    = 8 << 20

	// tailHeartbeat is how soon a consumer that vanished is noticed: after two
	// of these without a word.
	tailHeartbeat = 2 * time.Second

	// tailForget is when the server drops a consumer that nobody pulls from.
	tailForget = 30 * time.Second
)

// Tail calls fn for each event of a partition stored from now on, in stream
// order, until ctx ends, and returns its cause. ready (may be nil) is called
// once, when no event stored afterwards can be missed. Lost connections, leader
// changes and a server that forgot the consumer leave no hole and no double. When
// the stream is not the one it was it returns [ErrEpoch]; the caller begins
// again from its cursors. Before ready, [ErrUnavailable] means there is nothing
// to read from; after it, Tail waits for the bus. fn runs on the caller's
// goroutine; while it does not return, nothing more is read.
func (b *Bus) Tail(ctx context.Context, partition int, ready func(), fn func(e *event.Event, streamSeq uint64)) error {
	return b.tailEvents(ctx, subject.EventStream(partition), subject.EventStreamSubjects(partition), ready, fn)
}

func (b *Bus) tailEvents(ctx context.Context, stream, filter string, ready func(), fn func(e *event.Event, streamSeq uint64)) error {
	t := tail{b: b, stream: stream, filter: filter, ready: ready}
	return t.events(ctx, func(e *event.Event, s *stored) { fn(e, s.seq) })
}

// events is run for a stream of events.
func (t *tail) events(ctx context.Context, fn func(*event.Event, *stored)) error {
	var d decoder
	return t.run(ctx, func(s *stored) error {
		e, err := d.stored(s)
		if err != nil {
			t.b.log.Warn("event not readable, left out", "stream", t.stream, "stream_seq", s.seq, "error", err)
			return nil
		}
		fn(e, s)
		return nil
	})
}

// A tail reads a stream from a place on, through consumers that it makes anew
// whenever one fails: ordered, without holes or doubles.
type tail struct {
	b      *Bus
	stream string
	filter string
	ready  func()
	// snapshot begins with the last message of each subject instead of the next
	// message stored; ready then comes after those.
	snapshot bool

	created  time.Time // of the stream
	last     uint64    // stream sequence of the message given last, or the head at the start
	stamp    time.Time // when that one was stored; zero at the start
	lastTime time.Time // of the head at the start
	started  bool
	pending  uint64 // of the snapshot, before ready
}

// run calls fn for each message until ctx ends or fn returns an error.
func (t *tail) run(ctx context.Context, fn func(*stored) error) error {
	for failed := 0; ; {
		given := t.last
		l, err := t.b.link(ctx)
		if err == nil {
			err = t.consume(ctx, l, fn)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNotFound):
			return err
		case errors.Is(err, ErrUnavailable) && !t.started:
			return err
		}
		t.b.log.Debug("tail goes on", "stream", t.stream, "after", t.last, "error", err)
		if t.last > given {
			failed = 0
		}
		failed++
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// consume reads through one consumer until it fails.
func (t *tail) consume(ctx context.Context, l *link, fn func(*stored) error) error {
	cfg := jetstream.ConsumerConfig{
		Name:              nuid.Next(),
		FilterSubject:     t.filter,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: tailForget,
		MemoryStorage:     true,
		Replicas:          1,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
	}
	if err := t.check(ctx); err != nil {
		return err
	}
	cfg.OptStartSeq = t.last + 1
	if t.snapshot && !t.started {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
	}
	pending, err := t.b.consumer(ctx, l, t.stream, cfg)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.stream, err)
	}
	p, err := t.b.newPull(l, t.stream, cfg.Name, pullRequest{
		Batch: tailMessages, MaxBytes: tailBytes, Expires: tailForget / 2, Heartbeat: tailHeartbeat,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", t.stream, err)
	}
	defer p.stop()
	if !t.started {
		t.pending = 0
		if t.snapshot {
			t.pending = pending
		}
		t.maybeReady()
	}
	return t.read(ctx, l, p, fn)
}

func (t *tail) maybeReady() {
	if t.pending > 0 || t.started {
		return
	}
	t.started = true
	if t.ready != nil {
		t.ready()
	}
}

func (t *tail) read(ctx context.Context, l *link, p *pull, fn func(*stored) error) error {
	ctx, cancel := l.with(ctx)
	defer cancel()
	for want := uint64(1); ; want++ {
		m, meta, err := p.take(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", t.stream, err)
		}
		if meta.Sequence.Consumer != want {
			return fmt.Errorf("%w: read %s: message %d of the consumer is missing", ErrUnavailable, t.stream, want)
		}
		s := stored{m.Subject, meta.Sequence.Stream, meta.Timestamp, m.Header, m.Data, isCopy(m.Header)}
		t.last, t.stamp = s.seq, s.time
		if err := fn(&s); err != nil {
			return err
		}
		if !t.started {
			t.pending = min(t.pending-1, meta.NumPending)
			t.maybeReady()
		}
	}
}

// check compares the stream with the one that was read before.
func (t *tail) check(ctx context.Context) error {
	info, err := t.b.streamInfo(ctx, t.stream)
	if err != nil {
		return err
	}
	if t.created.IsZero() {
		t.created = info.Created
		if !t.snapshot {
			t.last, t.lastTime = info.State.LastSeq, info.State.LastTime
		}
		return nil
	}
	if !info.Created.Equal(t.created) {
		return fmt.Errorf("%w: %s was made at %v, not %v", ErrEpoch, t.stream, info.Created, t.created)
	}
	if info.State.LastSeq < t.last {
		return fmt.Errorf("%w: %s ends at %d, not %d", ErrEpoch, t.stream, info.State.LastSeq, t.last)
	}
	if t.stamp.IsZero() {
		return nil
	}
	// The end may have been lost and written again past the old one.
	s, err := t.b.get(ctx, t.stream, getRequest{Seq: t.last})
	if errors.Is(err, ErrNotFound) {
		return nil // retention
	}
	if err == nil && !s.time.Equal(t.stamp) {
		err = fmt.Errorf("%w: %s has another message at %d", ErrEpoch, t.stream, t.last)
	}
	return err
}
