package bus

import (
	"context"
	"log/slog"

	"github.com/cbcast/cbcast/internal/event"
)

// A Source is where a [Publisher] takes a run's events from: the spool. Events
// are numbered 1, 2, 3 … and do not change. Its methods are called by one
// goroutine, Wait by another.
type Source interface {
	// Event returns event n. ok is false when it does not exist yet. An error
	// ends the publisher. The event is not used after the next call.
	Event(n uint64) (e *event.Event, ok bool, err error)

	// Wait returns nil when event n exists, [ErrDone] when the source ended
	// before it, or ctx's cause.
	Wait(ctx context.Context, n uint64) error

	// Acked says that every event up to n is on the bus. It may fall: when the
	// bus lost what it had acknowledged, those events are asked for again. So
	// they stay until the run ended and the server has synced its disk.
	Acked(n uint64)
}

// A Publisher ships one run's events to the bus, in order, each once.
type Publisher struct {
	Bus    *Bus
	Ref    Ref
	Source Source
	Log    *slog.Logger
}

// Run publishes until the source is done and everything is acknowledged, and
// returns nil then.
func (p *Publisher) Run(ctx context.Context) error { panic("not yet") }
