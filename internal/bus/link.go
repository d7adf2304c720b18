package bus

import (
	"context"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A link is one unbroken stretch of a connection.
type link struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	gen uint64

	// ctx ends when the connection breaks.
	ctx context.Context
	end context.CancelFunc
}

// with returns a context that ends with ctx and with the link.
func (l *link) with(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errBroken) })
	return ctx, func() { stop(); cancel(nil) }
}

// call returns the context of one question, and a function that gives an error
// of it its place: the caller's end, the connection's, or no answer in time.
func (l *link) call(ctx context.Context) (context.Context, context.CancelFunc, func(error) error) {
	lctx, end := l.with(ctx)
	qctx, cancel := context.WithTimeout(lctx, requestTimeout)
	fault := func(err error) error {
		switch {
		case err != nil && ctx.Err() == nil && l.ctx.Err() != nil:
			return errBroken
		case err != nil && ctx.Err() == nil && qctx.Err() != nil:
			return fmt.Errorf("%w: no answer for %v", ErrUnavailable, requestTimeout)
		}
		return asErr(ctx, err)
	}
	return qctx, func() { cancel(); end() }, fault
}

// call is [link.call] for a question on subject: it ends early when the server
// says that this client may not ask it, with an error that is [ErrDenied].
func (b *Bus) call(ctx context.Context, l *link, subject string) (context.Context, context.CancelFunc, func(error) error) {
	dctx, forget := b.denials.watch(ctx, subject)
	qctx, end, fault := l.call(dctx)
	return qctx, func() { end(); forget() }, func(err error) error {
		if err != nil && ctx.Err() == nil {
			if denied := b.denials.of(subject); denied != nil {
				return denied
			}
		}
		return fault(err)
	}
}

// errBroken is the cause of a context that ended with its connection.
var errBroken = fmt.Errorf("%w: connection lost", ErrUnavailable)

func (b *Bus) dial(ctx context.Context, gone chan struct{}) (*nats.Conn, error) {
	opts := append([]nats.Option{
		nats.SetCustomDialer(dialer{ctx, b}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) { b.broke(nc, err) }),
		nats.ReconnectHandler(b.won),
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.denials.heard(err)
			b.complain(err)
		}),
	}, b.opts...)
	if b.cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(dialer{ctx, b}))
	}
	url := b.cfg.URL
	if url == "" {
		url = nats.DefaultURL
	}
	b.tries.reset()
	nc, err := nats.Connect(url, opts...)
	return nc, b.tries.explain(withoutURL(err))
}

// A dialer makes the sockets, so that Close can end a dial and a write.
type dialer struct {
	ctx context.Context
	b   *Bus
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	nd := net.Dialer{Timeout: dialTimeout}
	c, err := nd.DialContext(d.ctx, network, address)
	if err != nil {
		d.b.tries.add(err)
	}
	return d.keep(c, err)
}

func (d dialer) InProcessConn() (net.Conn, error) {
	c, err := d.b.cfg.InProcess.InProcessConn()
	return d.keep(c, err)
}

func (d dialer) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.b.closed {
		_ = c.Close()
		return nil, ErrClosed
	}
	d.b.sock = c
	return c, nil
}
