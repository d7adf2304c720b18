package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxBackoff bounds the pause between attempts to reach a bus that is away.
	maxBackoff = 5 * time.Second

	// pingEvery times 3 is how long a dead peer can go unnoticed.
	pingEvery = 10 * time.Second

	// dialTimeout bounds one attempt to connect to one server.
	dialTimeout = 2 * time.Second

	// requestTimeout bounds one question to JetStream. A leader election takes
	// less; a question that was lost with a connection is asked again by whoever
	// needs the answer.
	requestTimeout = 5 * time.Second
)

// A Bus is one program's connection to NATS. It reconnects without limit, with
// jitter, and builds a new connection when the client library has given one up.
// Nothing is buffered while it is away: a message is either handed to a live
// connection or refused, so no old message is sent late behind a new one. Its
// methods are safe for concurrent use.
type Bus struct {
	cfg  Config
	log  *slog.Logger
	opts []nats.Option

	stop context.CancelFunc
	wg   sync.WaitGroup // the keeper

	denials denials
	tries   tries

	mu     sync.Mutex // guards the rest
	cur    *link      // nil while there is no connection
	gens   uint64
	came   chan struct{} // closed and replaced whenever a connection is won
	err    error         // why there is no connection, or the last thing the server refused
	closed bool
	maxAge time.Duration // of the events, once known
	sock   net.Conn      // under the connection
}

// Open starts to connect and returns at once: whether and when the bus can be
// reached changes nothing for the caller but what the methods return. The error
// is about the configuration.
func Open(cfg Config, log *slog.Logger) (*Bus, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	b := &Bus{cfg: cfg, log: log, opts: opts, came: make(chan struct{})}
	b.denials.prefix = cmp.Or(cfg.InboxPrefix, "_INBOX")
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.wg.Go(func() { b.keep(ctx) }) // ends by Close
	return b, nil
}

// Connect is [Open] and [Bus.WaitConnected]. When ctx ends first, the error
// names the cause and nothing is left running.
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Bus, error) {
	b, err := Open(cfg, log)
	if err != nil {
		return nil, err
	}
	if err := b.WaitConnected(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the connection. Messages not acknowledged may or may not have been
// stored.
func (b *Bus) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.came)
	}
	sock := b.sock
	b.mu.Unlock()
	b.stop()
	if sock != nil {
		// A write to a server that takes nothing would hold the client library up.
		_ = sock.Close()
	}
	b.wg.Wait()
}

// Connected reports whether there is a connection now.
func (b *Bus) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cur != nil
}

// Err says why there is no connection, or what the server complained about
// last, nil when all is well. It is for people.
func (b *Bus) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// WaitConnected returns nil once there is a connection. When ctx ends first the
// error wraps [ErrUnavailable] and says what was in the way.
func (b *Bus) WaitConnected(ctx context.Context) error {
	_, err := b.link(ctx)
	return err
}

// Generation counts the connections won so far. It rises with every reconnect;
// what was sent under an older generation may be lost or still arrive.
func (b *Bus) Generation() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gens
}

// MaxPayload is the largest message, headers and data, that the server takes:
// what it told this connection, or NATS's default while there is none.
func (b *Bus) MaxPayload() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cur != nil {
		return int(b.cur.nc.MaxPayload())
	}
	return 1 << 20
}

// link returns the connection, waiting for one until ctx ends.
func (b *Bus) link(ctx context.Context) (*link, error) {
	for {
		b.mu.Lock()
		l, won, closed := b.cur, b.came, b.closed
		b.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case l != nil:
			return l, nil
		}
		select {
		case <-won:
		case <-ctx.Done():
			if _, err := b.now(); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%w: %v", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// now returns the connection or [ErrUnavailable], without waiting.
func (b *Bus) now() (*link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.cur == nil && b.err != nil:
		return nil, fmt.Errorf("%w: no connection: %v", ErrUnavailable, b.err)
	case b.cur == nil:
		return nil, fmt.Errorf("%w: no connection", ErrUnavailable)
	}
	return b.cur, nil
}

// keep holds one connection after the other until ctx ends.
func (b *Bus) keep(ctx context.Context) {
	for failed := 0; ; {
		gone := make(chan struct{})
		nc, err := b.dial(ctx, gone)
		if err == nil {
			failed = 0
			b.won(nc)
			select {
			case <-gone: // given up by the client library
				b.broke(nc, nc.LastError())
				b.log.Warn("bus connection closed, building a new one", "error", nc.LastError())
			case <-ctx.Done():
				b.broke(nc, ErrClosed)
				nc.Close()
				<-gone
				return
			}
			continue
		}
		b.broke(nil, err)
		if failed == 0 && ctx.Err() == nil {
			b.log.Info("bus not reached, trying on", "error", err)
		}
		failed++
		select {
		case <-time.After(backoff(failed)):
		case <-ctx.Done():
			return
		}
	}
}

// won records that nc is usable, under a new generation.
func (b *Bus) won(nc *nats.Conn) {
	js, err := jetstream.New(nc)
	if err != nil { // only for bad options, and there are none
		b.complain(err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Callbacks come late. If nc broke again by now, its next one is on the way.
	if b.closed || !nc.IsConnected() {
		return
	}
	if b.cur != nil {
		b.cur.end()
	}
	b.gens++
	b.err = nil
	b.denials.clear() // another connection may do more
	b.cur = &link{nc: nc, js: js, gen: b.gens}
	b.cur.ctx, b.cur.end = context.WithCancel(context.Background())
	close(b.came)
	b.came = make(chan struct{})
	b.log.Debug("bus connected", "server", connectedTo(nc), "generation", b.gens)
}

func (b *Bus) broke(nc *nats.Conn, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		err = errors.New("connection lost")
	}
	b.err = err
	if b.cur != nil && b.cur.nc == nc {
		b.cur.end()
		b.cur = nil
		b.log.Debug("bus connection lost", "error", err)
	}
}

// complain keeps what the server said outside any request: a permission that
// is missing shows only here.
func (b *Bus) complain(err error) {
	b.mu.Lock()
	b.err = err
	closed := b.closed
	b.mu.Unlock()
	level := slog.LevelWarn
	if closed || errors.Is(err, io.ErrClosedPipe) {
		level = slog.LevelDebug // the end of a connection, ours or an in-process one
	}
	b.log.Log(context.Background(), level, "bus complains", "error", err)
}

// backoff is the pause after the nth failure in a row: it doubles from 100 ms
// to [maxBackoff], and half of it is chance.
func backoff(n int) time.Duration {
	d := min(maxBackoff, 50*time.Millisecond<<min(n, 10))
	return d/2 + rand.N(d/2)
}
