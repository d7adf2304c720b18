package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// locate says behind what to read on, and whether the log is still the one that was
// read before.
func (d *Durable) locate(ctx context.Context, l *link) (Place, Turn, error) {
	c, err := d.info(ctx, l)
	if err != nil {
		return Place{}, Kept, err
	}
	info, err := d.b.streamInfo(ctx, d.cfg.Log.stream())
	if err != nil {
		return Place{}, Kept, err
	}
	d.mu.Lock()
	mark, last, at := d.mark, d.last, d.want
	d.mu.Unlock()
	why, err := d.other(ctx, info, mark, max(mark.At.Seq, last.Seq, c.AckFloor.Stream), mark.At, at, last)
	if err != nil {
		return Place{}, Kept, err
	}
	if why != "" {
		d.b.log.Error("the log is not the one that was read before: places in it are void, reading begins anew",
			"consumer", d.cfg.Name, "log", d.cfg.Log, "why", why)
		at, c.AckFloor.Stream = Place{}, 0
	}
	turn := Kept
	switch first := info.State.FirstSeq; {
	case why != "":
		turn = Rebuilt
	case at.Seq > 0 && first > at.Seq+1 && first > c.AckFloor.Stream:
		turn = NotKept
		d.miss(at.Seq, first)
		at = Place{Seq: first - 1}
	}
	if c.AckFloor.Stream > at.Seq { // another instance has read on
		at = Place{Seq: c.AckFloor.Stream}
	}
	d.save(func(m *Mark) { m.Stream = info.Created })
	return at, turn, nil
}

// miss takes note of messages that the log let go before they were read.
func (d *Durable) miss(last, next uint64) {
	d.set(func(st *DurableStatus) { st.Missed += next - last - 1 })
	d.b.log.Error("retention has taken messages that were not read", "consumer", d.cfg.Name, "log", d.cfg.Log,
		"from", last+1, "to", next-1)
}

// shortWait is how long a replicated log may look shorter than it was: a new leader
// may not have caught up yet.
const shortWait = 5 * time.Second

// other says why the log is not the one that was read, "" if it is. end is where it
// cannot end before, read are places that were seen.
func (d *Durable) other(ctx context.Context, info *jetstream.StreamInfo, mark Mark, end uint64, read ...Place) (string, error) {
	if !mark.Stream.IsZero() && !mark.Stream.Equal(info.Created) {
		return fmt.Sprintf("made at %v, not %v", info.Created, mark.Stream), nil
	}
	if end > info.State.LastSeq {
		why := fmt.Sprintf("ends at %d, not %d", info.State.LastSeq, end)
		if d.short.IsZero() {
			d.short = time.Now()
		}
		if info.Config.Replicas > 1 && time.Since(d.short) < shortWait {
			return "", fmt.Errorf("%w: %s %s", ErrUnavailable, d.cfg.Log, why)
		}
		return why, nil
	}
	d.short = time.Time{}
	for _, at := range read {
		same, err := d.same(ctx, at)
		if err != nil {
			return "", err
		}
		if !same {
			return fmt.Sprintf("has another message at %d", at.Seq), nil
		}
	}
	return "", nil
}

// same reports whether the log has at a place what was read there, or nothing now.
func (d *Durable) same(ctx context.Context, at Place) (bool, error) {
	if at.Seq == 0 || at.Time.IsZero() {
		return true, nil
	}
	s, err := d.b.get(ctx, d.cfg.Log.stream(), getRequest{Seq: at.Seq})
	if errors.Is(err, ErrNotFound) { // retention
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return s.time.Equal(at.Time), nil
}
