package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/subject"
)

// Presence is what is known of a run's edge.
type Presence int

// Absent edges ended by themselves, or stopped renewing some time ago; Expired ones
// were seen to stop, whatever the reason: the machine, the network, the edge.
const (
	Absent Presence = iota
	Alive
	Expired
)

func (p Presence) String() string { return [...]string{"absent", "alive", "expired"}[p] }

// RenewPresence says that the run's edge lives. Unless it is renewed or cleared
// within ttl (whole seconds, at least one), the bus says that it expired.
func (b *Bus) RenewPresence(ctx context.Context, run string, ttl time.Duration) error {
	if _, err := b.putKey(ctx, subject.PresenceBucket, run, nil, ttl); err != nil {
		return fmt.Errorf("renew presence of %s: %w", run, err)
	}
	return nil
}

// ClearPresence says that the run's edge ended by itself.
func (b *Bus) ClearPresence(ctx context.Context, run string) error {
	m := &nats.Msg{
		Subject: kvRoot(subject.PresenceBucket) + subject.Key(run),
		Header:  nats.Header{hdrKVOperation: {"PURGE"}, hdrTTL: {ttl(markerTTL)}},
	}
	if _, err := b.publish(ctx, m); err != nil {
		return fmt.Errorf("clear presence of %s: %w", run, err)
	}
	return nil
}

// Presence returns what is known of the run's edge, from the leader. A run that
// was never present is absent, and so is one that expired: who must tell them apart
// watches.
func (b *Bus) Presence(ctx context.Context, run string) (Presence, error) {
	s, err := b.get(ctx, kvStream(subject.PresenceBucket), getRequest{LastFor: kvRoot(subject.PresenceBucket) + subject.Key(run)})
	if errors.Is(err, ErrNotFound) {
		return Absent, nil
	}
	if err != nil {
		return Absent, fmt.Errorf("presence of %s: %w", run, err)
	}
	return presenceOf(s), nil
}

// Alive reports whether the run's edge lives.
func (b *Bus) Alive(ctx context.Context, run string) (bool, error) {
	p, err := b.Presence(ctx, run)
	return p == Alive, err
}

func presenceOf(s *stored) Presence {
	switch {
	case expired(s):
		return Expired
	case gone(s), foreign(subject.PresenceBucket, s):
		return Absent
	}
	return Alive
}

// WatchPresence calls fn for every run the bucket knows and for each change
// from then on (a renewal is none), until ctx ends; it returns its cause, or
// [ErrEpoch] when the bucket was made anew: the runs known to be alive are then
// unknown. ready (may be nil) comes after the runs the bucket knows. One call of
// either is made at a time.
//
// A server that was away longer than a run's ttl says that it expired when it is
// back, although the edge lives and could not say so; it renews soon after.
func (b *Bus) WatchPresence(ctx context.Context, ready func(), fn func(run string, p Presence)) error {
	alive := map[string]bool{} // as large as the number of living edges
	return b.watchKeys(ctx, subject.PresenceBucket, ready, func(key string, s *stored) {
		run, ok := subject.Untoken(key)
		if !ok {
			return
		}
		p := presenceOf(s)
		if p == Alive && alive[run] {
			return
		}
		if alive[run] = p == Alive; p != Alive {
			delete(alive, run)
		}
		fn(run, p)
	}, func(key string) {
		run := runOfKey(key)
		delete(alive, run)
		fn(run, Expired)
	})
}
