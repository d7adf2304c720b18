package bus

import (
	"context"
	"errors"
	"time"
)

// Behind says how many messages of a log a durable consumer has not acked, given or not,
// and when the oldest of them was stored; zero for none. It reads nothing from the consumer,
// and before there is one counts the whole log.
func (b *Bus) Behind(ctx context.Context, name string, l Log) (n uint64, oldest time.Time, err error) {
	lk, err := b.link(ctx)
	if err != nil {
		return 0, oldest, err
	}
	d := b.Durable(DurableConfig{Name: name, Log: l})
	c, err := d.info(ctx, lk)
	switch {
	case errors.Is(err, ErrNotFound):
		info, err := b.streamInfo(ctx, l.stream())
		if err != nil {
			return 0, oldest, err
		}
		c = &consumerState{NumPending: info.State.Msgs}
	case err != nil:
		return 0, oldest, err
	}
	if n = c.NumPending + uint64(c.NumAckPending); n == 0 {
		return 0, oldest, nil
	}
	s, err := b.get(ctx, l.stream(), getRequest{Seq: c.AckFloor.Stream + 1, NextFor: ">"})
	if errors.Is(err, ErrNotFound) {
		return n, oldest, nil
	}
	if err != nil {
		return n, oldest, err
	}
	return n, s.time, nil
}
