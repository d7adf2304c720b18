package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/subject"
)

// A Holder is the live run that uses a conversation.
type Holder struct {
	Run   string    `json:"run"`
	Host  string    `json:"host,omitempty"`
	Since time.Time `json:"since"`
}

// A HeldError is returned when another live run has the lease. It is an
// [ErrConflict].
type HeldError struct{ Holder Holder }

func (e *HeldError) Error() string {
	at := ""
	if e.Holder.Host != "" {
		at = " on " + e.Holder.Host
	}
	return fmt.Sprintf("in use by run %s%s since %s", e.Holder.Run, at, e.Holder.Since.UTC().Format(time.RFC3339))
}

// Is makes it an [ErrConflict].
func (e *HeldError) Is(target error) bool { return target == ErrConflict }

// A Lease says that one run uses a conversation: agents do not keep two
// processes out of one themselves. It ends by itself when it is not renewed.
type Lease struct {
	b   *Bus
	key subject.Conversation
	h   Holder
	ttl time.Duration
	seq uint64 // of the last write
}

// leaseTries is how often a lease is tried for that changes meanwhile.
const leaseTries = 4

// Lease takes the lease on a conversation for ttl (whole seconds, at least one),
// or returns a [*HeldError]. A run that has it already gets it again. Whoever is
// first on the bus has it: a fence on the key's last sequence decides.
func (b *Bus) Lease(ctx context.Context, key subject.Conversation, h Holder, ttl time.Duration) (*Lease, error) {
	l := &Lease{b: b, key: key, h: h, ttl: ttl}
	for range leaseTries {
		last, held, err := b.holder(ctx, key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("lease of session %s: %w", key.Session, err)
		case held != nil && held.Run != h.Run:
			return nil, fmt.Errorf("session %s: %w", key.Session, &HeldError{*held})
		}
		l.seq = last
		err = l.put(ctx)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, ErrConflict):
			return nil, fmt.Errorf("lease of session %s: %w", key.Session, err)
		}
	}
	return nil, fmt.Errorf("lease of session %s: %w: it changes all the time", key.Session, ErrConflict)
}

// LeaseHolder returns who uses a conversation, or [ErrNotFound]. Any replica answers.
func (b *Bus) LeaseHolder(ctx context.Context, key subject.Conversation) (Holder, error) {
	_, h, err := b.holder(ctx, key)
	if err == nil && h == nil {
		err = ErrNotFound
	}
	if err != nil {
		return Holder{}, fmt.Errorf("lease of session %s: %w", key.Session, err)
	}
	return *h, nil
}

// holder returns the last sequence on a lease's key, and who holds it, nil for nobody.
// An answer that is behind is caught by the fence on the key.
func (b *Bus) holder(ctx context.Context, key subject.Conversation) (uint64, *Holder, error) {
	s, err := b.lastOf(ctx, kvStream(subject.SessionsBucket), kvRoot(subject.SessionsBucket)+key.Key())
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	case gone(s), s.copied:
		return s.seq, nil, nil
	}
	var h Holder
	if err := json.Unmarshal(s.data, &h); err != nil {
		return 0, nil, fmt.Errorf("key %s: %w", s.subject, err)
	}
	return s.seq, &h, nil
}

// Renew holds the lease for another ttl. [ErrConflict] says that it is lost:
// it expired, or another run took it after that. After [ErrUnavailable] it may
// be renewed or not; the next call finds out.
func (l *Lease) Renew(ctx context.Context) error {
	err := l.put(ctx)
	if errors.Is(err, ErrConflict) {
		// Our own write of a moment ago, whose answer was lost, counts as ours.
		last, h, herr := l.b.holder(ctx, l.key)
		if herr == nil && h != nil && h.Run == l.h.Run {
			l.seq = last
			return nil
		}
		if herr == nil && h != nil {
			err = &HeldError{*h}
		}
	}
	if err != nil {
		return fmt.Errorf("renew the lease of session %s: %w", l.key.Session, err)
	}
	return nil
}

// Release gives the lease back. One that is lost already stays as it is.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.b.publish(ctx, &nats.Msg{
		Subject: kvRoot(subject.SessionsBucket) + l.key.Key(),
		Header: nats.Header{
			hdrKVOperation: {"PURGE"}, hdrTTL: {ttl(markerTTL)},
			hdrExpect: {strconv.FormatUint(l.seq, 10)},
		},
	})
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("release session %s: %w", l.key.Session, err)
	}
	return nil
}

func (l *Lease) put(ctx context.Context) error {
	data, err := json.Marshal(l.h)
	if err != nil {
		return err
	}
	a, err := l.b.publish(ctx, &nats.Msg{
		Subject: kvRoot(subject.SessionsBucket) + l.key.Key(),
		Header:  nats.Header{hdrTTL: {ttl(l.ttl)}, hdrExpect: {strconv.FormatUint(l.seq, 10)}},
		Data:    data,
	})
	if err != nil {
		return err
	}
	l.seq = a.Seq
	return nil
}
