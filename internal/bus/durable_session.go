package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// durableMessages and durableBytes bound what one request asks for. Up to three
	// are under way.
	durableMessages = 1000
	durableBytes    = 8 << 20

	// claimWait is how often a reader without the pin looks what is in the way.
	claimWait = 2 * tailHeartbeat

	hdrPin = "Nats-Pin-Id"
)

// errWrongPin says that the server gives to another reader.
var errWrongPin = fmt.Errorf("%w: another instance reads", ErrUnavailable)

// session reads through one unbroken stretch of a connection and of the pin.
func (d *Durable) session(ctx context.Context, fn func(context.Context, Delivery) error) error {
	l, err := d.b.link(ctx)
	if err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := l.with(ctx)
	defer cancel()
	c, err := d.ensure(ctx, l)
	if err != nil {
		return err
	}
	pin, err := d.claim(ctx, l, c)
	if err != nil {
		return err
	}
	defer func() {
		if caller.Err() != nil && l.ctx.Err() == nil {
			d.letGo(l)
		}
	}()
	after, turn, err := d.locate(ctx, l)
	if err != nil {
		return err
	}
	if err := d.reset(ctx, l, after.Seq); err != nil {
		return err
	}
	d.begin(after, turn)
	p, err := d.b.newPull(l, d.cfg.Log.stream(), d.cfg.Name, pullRequest{
		Batch: min(durableMessages, d.cfg.Window), MaxBytes: durableBytes, Expires: tailForget / 2, Heartbeat: tailHeartbeat,
		Group: pinGroup, ID: pin,
	})
	if err != nil {
		return err
	}
	defer p.stop()
	ctx, fail := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer fail(nil)
	wg.Go(func() { fail(d.hold(ctx, l, pin)) }) // ends with ctx
	wg.Go(func() { fail(d.ackLoop(ctx, l)) })   // ends with ctx
	err = d.read(ctx, p, fn)
	if cause := context.Cause(ctx); cause != nil && !isStopped(err) {
		err = cause
	}
	return err
}

func isStopped(err error) bool {
	var stop *stopped
	return errors.As(err, &stop)
}

// claim returns the pin, once the server gives to this reader. While it does not, c is
// looked at again and again.
func (d *Durable) claim(ctx context.Context, l *link, c *consumerState) (string, error) {
	for {
		d.mu.Lock()
		ours := d.mark.Pin
		d.mu.Unlock()
		switch {
		case c.pinned() != "" && c.pinned() == ours:
			return ours, nil
		case c.pinned() == "" && c.NumAckPending > 0:
			// Whoever was given them is gone. The server keeps them back, and with a full
			// window gives nothing else.
			if err := d.reset(ctx, l, c.AckFloor.Stream); err != nil {
				return "", err
			}
		}
		d.set(func(st *DurableStatus) { st.Standby, st.Reading, st.Err = c.pinned() != "", c.pinned() == "", nil })
		pin, err := d.waitPin(ctx, l)
		if err != nil || pin != "" {
			return pin, err
		}
		if c, err = d.info(ctx, l); err != nil {
			return "", err
		}
	}
}

// waitPin asks for one message, which brings the pin with it, for a while. The message
// comes again after the reset.
func (d *Durable) waitPin(ctx context.Context, l *link) (pin string, err error) {
	req := pullRequest{Batch: 1, Expires: min(claimWait, d.ttl), Group: pinGroup}
	if req.Expires == claimWait {
		req.Heartbeat = tailHeartbeat // the server takes none that is longer than half
	}
	p, err := d.b.newPull(l, d.cfg.Log.stream(), d.cfg.Name, req)
	if err != nil {
		return "", err
	}
	defer p.stop()
	p.once = true
	m, _, err := p.take(ctx)
	if errors.Is(err, ErrNotFound) { // the request ended
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if pin = said(m.Header, hdrPin); pin == "" {
		return "", fmt.Errorf("%w: %s of %s serves every reader", ErrDrift, d.cfg.Name, d.cfg.Log)
	}
	d.save(func(m *Mark) { m.Pin = pin })
	return pin, nil
}

// begin takes note of a reset.
func (d *Durable) begin(after Place, turn Turn) {
	d.mu.Lock()
	d.given, d.prefix = nil, ""
	d.st.Reading, d.st.Standby, d.st.Err = true, false, nil
	if turn == Rebuilt {
		d.st.Rebuilt++
		d.last = after
	}
	d.want, d.short = after, time.Time{}
	if after.Seq > d.last.Seq {
		d.last = after
	}
	d.rose(after)
	d.mu.Unlock()
	d.save(func(*Mark) {})
	if d.cfg.Begin != nil {
		d.cfg.Begin(after, turn)
	}
}

// hold keeps the pin and asks how much is left until ctx ends. The request that it
// sends is too small for any message: the server takes it as a word of the reader
// and gives nothing.
func (d *Durable) hold(ctx context.Context, l *link, pin string) error {
	t := time.NewTicker(d.ttl / 4)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c, err := d.info(ctx, l)
		if err != nil {
			return err
		}
		if c.pinned() != pin {
			return errWrongPin
		}
		p, err := d.b.newPull(l, d.cfg.Log.stream(), d.cfg.Name, pullRequest{
			Batch: 1, MaxBytes: 1, Expires: min(d.ttl/4, time.Second), Group: pinGroup, ID: pin,
		})
		if err != nil {
			return err
		}
		p.once = true
		_, _, err = p.take(ctx)
		p.stop()
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

// read gives messages to fn until the session fails.
func (d *Durable) read(ctx context.Context, p *pull, fn func(context.Context, Delivery) error) error {
	var dec decoder
	for want := uint64(1); ; want++ {
		m, meta, err := p.take(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", d.cfg.Log, err)
		}
		if meta.Sequence.Consumer != want {
			return fmt.Errorf("%w: read %s: message %d of the consumer is missing", ErrUnavailable, d.cfg.Log, want)
		}
		at := Place{meta.Sequence.Stream, meta.Timestamp}
		last, ok := d.took(m.Reply, at, want, meta.NumPending)
		if !ok {
			continue // given again by the server itself, after giveAgain
		}
		if last.Seq > 0 && at.Seq > last.Seq+1 && d.cfg.Log != CommandLog { // commands expire
			d.miss(last.Seq, at.Seq)
		}
		if err := fn(ctx, d.delivery(&dec, m, at)); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &stopped{err}
		}
	}
}

// took takes note of a message that was given, and returns the last one before.
func (d *Durable) took(reply string, at Place, seq, pending uint64) (last Place, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prefix == "" {
		d.prefix = ackPrefix(reply)
	}
	d.st.Pending, d.st.Asked = pending, time.Now()
	if at.Seq <= d.last.Seq {
		d.st.Redelivered++
	}
	if n := len(d.given); n > 0 && d.given[n-1].at.Seq >= at.Seq {
		return last, false
	}
	d.given = append(d.given, given{at, seq})
	last = d.last
	if at.Seq > d.last.Seq {
		d.last = at
	}
	return last, true
}

// ackPrefix is what an ack subject begins with before its five numbers.
func ackPrefix(reply string) string {
	for range 5 {
		i := strings.LastIndexByte(reply, '.')
		if i < 0 {
			return ""
		}
		reply = reply[:i]
	}
	return reply
}

func (d *Durable) delivery(dec *decoder, m *nats.Msg, at Place) Delivery {
	if pins := m.Header[hdrPin]; len(pins) > 1 {
		m.Header[hdrPin] = pins[:len(pins)-1] // the last is the server's
	} else {
		delete(m.Header, hdrPin)
	}
	s := stored{m.Subject, at.Seq, at.Time, m.Header, m.Data, isCopy(m.Header)}
	e, err := dec.stored(&s)
	v := Delivery{Log: d.cfg.Log, At: at, Event: e, Bad: err, Wire: Wire{m.Header}, Raw: Raw{Subject: m.Subject, Data: m.Data}}
	if d.cfg.Headers || err != nil {
		v.Raw.Header = rawHeader(m.Header)
	}
	return v
}
