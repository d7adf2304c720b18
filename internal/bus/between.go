package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cbcast/cbcast/internal/subject"
)

// Between yields what a log has of a tenant behind one stream sequence, up to another, in
// its order and as a [Durable] with headers gives it. Nothing is acked by it. An error ends
// it.
func (b *Bus) Between(ctx context.Context, l Log, tenant string, after, to uint64) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		if after >= to {
			return
		}
		var dec decoder
		give := func(s *stored) error {
			if l == CommandLog {
				if of, _, _, err := subject.ParseCommand(s.subject); err != nil || of != tenant {
					return nil
				}
			}
			if s.time.IsZero() { // of a direct get: the server has added to the headers
				s.time, _ = time.Parse(time.RFC3339Nano, said(s.header, hdrTimeStamp))
				s.header = own(s.header)
			}
			e, err := dec.stored(s)
			v := Delivery{Log: l, At: placeOf(s), Event: e, Bad: err, Wire: Wire{s.header}}
			v.Raw = Raw{Subject: s.subject, Header: rawHeader(s.header), Data: s.data}
			if !yield(v, nil) {
				return errStopped
			}
			return nil
		}
		var err error
		if l == CommandLog { // its few messages may be asked for one by one only
			err = b.each(ctx, l, after, to, give)
		} else {
			err = b.scan(ctx, l.stream(), l.filter(tenant, ""), after+1, to, give)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Delivery{}, fmt.Errorf("read %s of tenant %q: %w", l.stream(), tenant, err))
		}
	}
}

// each asks the leader for one message after the other.
func (b *Bus) each(ctx context.Context, l Log, after, to uint64, fn func(*stored) error) error {
	for after < to {
		s, err := b.get(ctx, l.stream(), getRequest{Seq: after + 1, NextFor: l.filter("", "")})
		if errors.Is(err, ErrNotFound) || err == nil && s.seq > to {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(s); err != nil {
			return err
		}
		after = s.seq
	}
	return nil
}

// own are the headers that a message had before the server answered with it.
func own(h nats.Header) nats.Header {
	for _, name := range []string{
		jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, hdrTimeStamp, "Nats-Num-Pending", "Nats-Last-Sequence",
	} {
		if v := h[name]; len(v) > 1 {
			h[name] = v[:len(v)-1]
		} else {
			delete(h, name)
		}
	}
	return h
}
