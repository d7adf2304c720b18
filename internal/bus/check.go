package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// checkTimeout bounds one question of [Bus.Check]. A server does not answer a
// publisher without the right to publish: it complains beside the request.
const checkTimeout = 2 * time.Second

// A Finding is one thing that an edge or a relay needs to do on the bus.
type Finding struct {
	What string
	// Edge says that a wrapped agent needs it; without the others nobody commands
	// or reads from here.
	Edge bool
	// Optional says that an edge does without it: nothing is lost, something is not
	// checked.
	Optional bool
	Err      error // nil: it can be done
}

// Check tries everything that an edge or a relay of the tenant does, for run, or if
// that is "" for one that does not exist, and leaves nothing behind: each message that would be stored
// names a stream that it cannot be for, so that the stream refuses it. (A consumer
// for commands is made, and deleted, or ends by itself after 5 s.) partition is that
// of the events.
func (b *Bus) Check(ctx context.Context, tenant, run string, partition int) []Finding {
	if run == "" {
		run = "check-" + nuid.Next()
	}
	ref := Ref{Tenant: tenant, Run: run, Partition: partition}
	ev := subject.Event{Partition: partition, Tenant: tenant, Run: run, Kind: string(event.Life)}
	lease := subject.Conversation{Tenant: tenant, Dialect: "check", Session: run, Host: "check"}
	return []Finding{
		{"publish events", true, false, b.mayPublish(ctx, ev.String())},
		{"ask for the last event", true, false, b.try(ctx, func(ctx context.Context) error {
			_, _, err := b.LastOwn(ctx, ref)
			if errors.Is(err, ErrForeign) {
				return nil
			}
			return err
		})},
		{"take commands", true, false, b.mayTake(ctx, ref)},
		{"write the registry", true, false, b.mayPublish(ctx, kvRoot(subject.RunsBucket)+subject.Key(run))},
		{"show presence", true, false, b.mayPublish(ctx, kvRoot(subject.PresenceBucket)+subject.Key(run))},
		{"hold any session's lease", true, true, b.mayPublish(ctx, kvRoot(subject.SessionsBucket)+lease.Key())},
		{"say that it is back", true, false, b.mayPublish(ctx, subject.Control(tenant, run, subject.Liveness))},
		{"read events", false, false, b.try(ctx, func(ctx context.Context) error {
			_, err := b.direct(ctx, ref.stream(), getRequest{LastFor: ref.filter()})
			return err
		})},
		{"read the registry", false, false, b.try(ctx, func(ctx context.Context) error {
			_, err := b.Run(ctx, run)
			return err
		})},
		{"send commands", false, false, b.mayPublish(ctx, subject.Command(tenant, run, "check"))},
	}
}

// mayPublish sends a message that its stream refuses.
func (b *Bus) mayPublish(ctx context.Context, subj string) error {
	const notThisStream = 10060
	return b.try(ctx, func(ctx context.Context) error {
		_, err := b.publish(ctx, &nats.Msg{Subject: subj, Header: nats.Header{nats.ExpectedStreamHdr: {"none-" + nuid.Next()}}})
		var api *apiError
		switch {
		case errors.As(err, &api) && api.ErrCode == notThisStream:
			return nil
		case err == nil:
			return errors.New("the message was stored")
		}
		return err
	})
}

// mayTake makes a consumer for the commands of a run, and listens for hints.
func (b *Bus) mayTake(ctx context.Context, ref Ref) error {
	return b.try(ctx, func(ctx context.Context) error {
		l, err := b.link(ctx)
		if err != nil {
			return err
		}
		sub, err := l.nc.ChanSubscribe(subject.Hint(ref.Tenant, ref.Run), make(chan *nats.Msg, 1))
		if err != nil {
			return asErr(ctx, err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		// What the server thinks of the subscription comes before its answer here.
		if err := l.nc.FlushWithContext(ctx); err != nil {
			return asErr(ctx, err)
		}
		if err := b.denials.of(subject.Hint(ref.Tenant, ref.Run)); err != nil {
			return err
		}
		w := commandReader{b: b, tenant: ref.Tenant, run: ref.Run, fn: func(Command) {}}
		return w.catchUp(ctx, l)
	})
}

// try runs fn for at most checkTimeout. That there is no such thing is an answer.
func (b *Bus) try(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := fn(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Clock returns how far the server's clock is ahead of this machine's, give or take
// half of the round trip that it returns, too.
func (b *Bus) Clock(ctx context.Context, partition int) (ahead, trip time.Duration, err error) {
	var info struct {
		Time time.Time `json:"ts"`
	}
	sent := time.Now()
	if err := b.ask(ctx, "STREAM.INFO."+subject.EventStream(partition), nil, &info); err != nil {
		return 0, 0, fmt.Errorf("ask for the time: %w", err)
	}
	trip = time.Since(sent)
	if info.Time.IsZero() {
		return 0, trip, fmt.Errorf("ask for the time: %w: the server does not say it", ErrUnavailable)
	}
	return info.Time.Sub(sent.Add(trip / 2)), trip, nil
}

// Server describes the server of the connection: its name, version and address
// without a password.
func (b *Bus) Server() string {
	l, err := b.now()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s at %s", l.nc.ConnectedServerName(), l.nc.ConnectedServerVersion(), connectedTo(l.nc))
}
