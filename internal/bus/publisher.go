package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	// flow is how many messages the server may take before it acknowledges,
	// window how many may be under way. A connection that breaks leaves at most
	// a window of messages whose fate is unknown; more gain nothing measurable.
	flow   = 64
	window = 256

	// windowBytes bounds the same in bytes: far below what makes a server
	// refuse (128 MiB waiting for one stream) and what a slow link clears in time.
	windowBytes = 8 << 20

	// ackWait is how long a batch may stay without any news, loneWait a lone
	// message. Then the stream is asked what it has. A batch is pinged before
	// that, every pingAfter: its last acknowledgement may have got lost.
	ackWait   = 5 * time.Second
	loneWait  = 2 * time.Second
	pingAfter = 500 * time.Millisecond

	// acksHeld bounds answers not looked at: with a window of messages and one
	// answer each at worst, twice that. More are dropped, and ackWait helps.
	acksHeld = 1024

	// retryBatch is how long events go out singly after the server refused a
	// batch because too many are open.
	retryBatch = time.Second
)

// A Source is where a [Publisher] takes a run's events from: the spool. Events
// are numbered 1, 2, 3 … and do not change. One goroutine calls its methods.
type Source interface {
	// Event returns event n. ok is false when it does not exist yet. An error
	// ends the publisher. What it returned stays as it is until the second call
	// after.
	Event(n uint64) (e *event.Event, ok bool, err error)

	// Wait returns nil when event n exists, [ErrDone] when the source ended
	// before it, or ctx's cause.
	Wait(ctx context.Context, n uint64) error

	// Acked says that every event up to n is on the bus. It may fall: when the
	// bus lost what it had acknowledged, those events are asked for again. So
	// they stay until the run ended and the server has synced its disk.
	Acked(n uint64)
}

// A Publisher ships one run's events to the bus: in order, none missing, none
// twice, whatever the bus does meanwhile.
//
// Many events under way form a fast-ingest batch (ADR-50) in which the server
// ends at the first message that is missing or out of order; a lone event is an
// ordinary message. The first message of each batch is fenced: it is stored only
// if the run's last message is the one the publisher thinks. On every
// connection, and after anything unexpected, the leader is asked for the run's
// last event and believed. Events that may have been sent before go out one at
// a time then, because only there a server says that it took one for a
// duplicate, and a duplicate is believed only if the stream has the event.
//
// Its fields must not change once Run was called.
type Publisher struct {
	Bus    *Bus
	Ref    Ref
	Source Source
	Log    *slog.Logger

	// Resumed says that another publisher may have sent events of this run
	// before, as for a spool that an edge left behind.
	Resumed bool

	// Notice, if set, is called with the cause when publishing stops or slows,
	// when the cause changes, and with nil when it goes on. It must not block.
	Notice func(cause error)

	// Flow and Window replace the defaults where they are not 0.
	Flow, Window int

	stats stats
	first atomic.Uint64
}

// First is the stream sequence of the run's first event, 0 while this publisher does
// not know it. It may be called at any time.
func (p *Publisher) First() uint64 { return p.first.Load() }

// Stats are the publisher's counters so far. Its methods may be called while
// Run runs.
type Stats struct {
	Events   uint64 // acknowledged, the last one's number
	Messages uint64 // handed to a connection, resent ones included
	Batches  uint64
	Singles  uint64 // messages outside batches
	Recovers uint64 // times the stream was asked for the run's last event

	Resent          uint64 // messages sent again
	FenceMisses     uint64 // the stream had moved on
	Gaps            uint64 // batches the server ended at a missing message
	Duplicates      uint64 // messages the server had already
	FalseDuplicates uint64 // messages it only thought to have
	Timeouts        uint64 // no news for too long
	Regressions     uint64 // the stream had lost what it had acknowledged
	Split           uint64 // events sent in parts
	Replaced        uint64 // events that fit no message, sent as a gap
}

type stats struct {
	events, messages, batches, singles, recovers, resent, fenceMisses, gaps, duplicates, falseDuplicates,
	timeouts, regressions, split, replaced atomic.Uint64
}

// Stats returns the counters. It may be called at any time.
func (p *Publisher) Stats() Stats {
	s := &p.stats
	return Stats{
		s.events.Load(), s.messages.Load(), s.batches.Load(), s.singles.Load(), s.recovers.Load(), s.resent.Load(),
		s.fenceMisses.Load(), s.gaps.Load(), s.duplicates.Load(), s.falseDuplicates.Load(), s.timeouts.Load(),
		s.regressions.Load(), s.split.Load(), s.replaced.Load(),
	}
}

// Run publishes until the source is done and everything is acknowledged, and
// returns nil then. It waits for a bus that is away, for as long as ctx allows,
// and keeps trying with growing pauses while the bus refuses. It returns ctx's
// cause, [ErrClosed], [ErrRunUsed], an error of the source, or, if Resumed, [ErrDenied].
func (p *Publisher) Run(ctx context.Context) error {
	r := newShipper(p)
	defer r.close()
	for failed := 0; ; {
		before := r.at
		err := r.ship(ctx)
		var fatal *sourceError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrClosed):
			return err
		case errors.Is(err, ErrRunUsed), p.Resumed && errors.Is(err, ErrDenied):
			return fmt.Errorf("publish %s: %w", p.Ref.Run, err)
		case errors.As(err, &fatal):
			return fmt.Errorf("publish %s: %w", p.Ref.Run, fatal.err)
		}
		if before.less(r.at) {
			failed = 0
		}
		if failed > 0 {
			r.notice(err)
		}
		r.log.Debug("publisher recovers", "run", p.Ref.Run, "acked", r.at.seq, "error", err)
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		failed++
	}
}
