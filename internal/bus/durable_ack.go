package bus

import (
	"context"
	"fmt"
	"slices"
)

// Ack says that everything up to a place is done and need not be given again. It returns at once; [Durable.Settle] waits for the server's answer. Acks that
// come quickly one after the other may become one.
func (d *Durable) Ack(at Place) {
	d.mu.Lock()
	rebuilt := d.st.Rebuilt
	d.mu.Unlock()
	d.AckOf(rebuilt, at)
}

// AckOf is [Durable.Ack] for a place of the log as it was when [DurableStatus.Rebuilt]
// was rebuilt, which does not change while Begin is called. A place of an earlier log is
// void: it acks nothing.
func (d *Durable) AckOf(rebuilt uint64, at Place) {
	d.mu.Lock()
	if rebuilt == d.st.Rebuilt && at.Seq > d.want.Seq && at.Seq <= d.last.Seq {
		d.want = at
	}
	d.mu.Unlock()
	select {
	case d.wanted <- struct{}{}:
	default:
	}
}

// Settle waits until the server has answered every ack. It needs a running
// [Durable.Run].
func (d *Durable) Settle(ctx context.Context) error {
	for {
		d.mu.Lock()
		done, rose, err := d.mark.At.Seq >= d.want.Seq, d.acked, d.st.Err
		d.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-rose:
		case <-ctx.Done():
			return fmt.Errorf("ack %s of %s: %w (%v)", d.cfg.Name, d.cfg.Log, context.Cause(ctx), err)
		}
	}
}

// ackLoop sends acks until ctx ends.
func (d *Durable) ackLoop(ctx context.Context, l *link) error {
	for {
		if g, subj := d.toAck(); subj != "" {
			if err := d.ack(ctx, l, g, subj); err != nil {
				return err
			}
			continue
		}
		select {
		case <-d.wanted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// toAck is the last message given in this session that may be acked.
func (d *Durable) toAck() (g given, subj string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.upTo(d.want.Seq)
	if n == 0 {
		return g, ""
	}
	g = d.given[n-1]
	// delivered, stream sequence, consumer sequence, time, pending (ADR-15)
	return g, fmt.Sprintf("%s.1.%d.%d.%d.0", d.prefix, g.at.Seq, g.seq, g.at.Time.UnixNano())
}

// upTo is how many of given are not behind seq. mu is held.
func (d *Durable) upTo(seq uint64) int {
	n, found := slices.BinarySearchFunc(d.given, seq, func(g given, seq uint64) int {
		switch {
		case g.at.Seq < seq:
			return -1
		case g.at.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		n++
	}
	return n
}

// ack asks the server to note that everything up to g is done, and waits until it has.
func (d *Durable) ack(ctx context.Context, l *link, g given, subj string) error {
	qctx, cancel, fault := d.b.call(ctx, l, subj)
	defer cancel()
	if _, err := l.nc.RequestWithContext(qctx, subj, []byte("+ACK")); err != nil {
		return fmt.Errorf("ack %d of %s: %w", g.at.Seq, d.cfg.Log, fault(err))
	}
	d.save(func(*Mark) {
		n := d.upTo(g.at.Seq)
		d.given = append(d.given[:0], d.given[n:]...)
		d.rose(g.at)
	})
	return nil
}

// rose says that the server holds everything up to at for done. mu is held.
func (d *Durable) rose(at Place) {
	d.mark.At = at
	close(d.acked)
	d.acked = make(chan struct{})
}
