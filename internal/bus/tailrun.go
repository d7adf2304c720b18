package bus

import (
	"context"

	"github.com/cbcast/cbcast/internal/event"
)

// TailRun is [Bus.Tail] for the events of one run. It costs the server a
// consumer of its own: for a person at a terminal, not for a relay's readers.
func (b *Bus) TailRun(ctx context.Context, r Ref, ready func(), fn func(e *event.Event, streamSeq uint64)) error {
	return b.tailEvents(ctx, r.stream(), r.filter(), ready, fn)
}
