package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/natsd"
	"github.com/cbcast/cbcast/relay"
)

const (
	// hubPatience is how long a command waits for the hub or the server.
	hubPatience = 15 * time.Second
	// defaultRelayAddr is relay.Config's default.
	defaultRelayAddr = "127.0.0.1:8420"
	// leaveTime bounds how long the end of this process may take to close the
	// local store. quickLeave is that of a wrapper, whose host waits for its exit:
	// a server takes 50 ms to end in order. A store that is left without is
	// recovered by its next owner, and what that could not find is still in the
	// spools: they outlive their runs for that.
	leaveTime  = 2 * time.Second
	quickLeave = 5 * time.Millisecond
)

// A station is this process's place on the bus: a client of the configured NATS
// server, or a participant of the hub of this machine. As owner of the hub, or
// when it serves, it runs the relay.
type station struct {
	a     *app
	log   *slog.Logger
	serve bool // run the relay whatever the bus is
	quick bool // leave without waiting for the server
	own   bool // the relay is this process's, whoever owns the hub

	others *consumers // of up, shown by the relay; may be nil

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the relay

	once    sync.Once
	openErr error
	hub     *natsd.Hub

	relayUp  chan struct{} // closed when the relay listens, or failed to
	mu       sync.Mutex    // guards the rest
	relay    *relay.Relay  // served by this process, nil until it is
	relayAt  string
	relayBad error
}

func (a *app) newStation(log *slog.Logger) *station {
	s := &station{a: a, log: log, relayUp: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// external reports whether a NATS server is configured.
func (s *station) external() bool { return s.a.cfg.Bus.URL != "" }

// open joins the hub or starts it, and starts the relay where this process is
// to run one. It may be called again.
func (s *station) open(ctx context.Context) error {
	s.once.Do(func() { s.openErr = s.start(ctx) })
	return s.openErr
}

func (s *station) start(ctx context.Context) error {
	if err := s.a.stateDir(); err != nil {
		return err
	}
	if s.external() {
		if s.serve {
			s.wg.Go(func() { s.runRelay(nil) })
		}
		return nil
	}
	if s.a.cfg.Hub == hubNever {
		return errors.New("no bus: CBCAST_HUB is never (the default where CI is set) and CBCAST_NATS_URL is empty; set one of them")
	}
	ctx, cancel := context.WithTimeout(ctx, hubPatience)
	defer cancel()
	// The streams' own bounds add up to MaxBytes. The server's is wider: of two
	// processes that create the same stream at once the second reserves its bytes
	// again, and they are not given back until the server restarts.
	const racers = 4
	hub, err := natsd.Open(ctx, natsd.HubOptions{StateDir: s.a.cfg.StateDir, MaxStore: racers * s.a.cfg.MaxBytes, Log: s.log})
	if err != nil {
		return fmt.Errorf("open the hub of this machine: %w", err)
	}
	s.hub = hub
	s.own = s.serve && s.a.cfg.Relay.Addr != defaultRelayAddr
	s.wg.Go(func() { // ends with s.ctx
		if !s.own { // an address that was asked for is served, whoever owns the hub
			select {
			case <-hub.Owned():
			case <-s.ctx.Done():
				return
			}
		}
		s.runRelay(hub)
	})
	return nil
}

// connect returns a bus with its streams checked. The caller closes it.
func (s *station) connect(ctx context.Context) (*bus.Bus, error) { return s.connectFor(ctx, s.ctx) }

// connectFor waits as long as ctx; while life lasts the connection comes back.
func (s *station) connectFor(ctx, life context.Context) (*bus.Bus, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	cfg := s.a.cfg.Bus
	cfg.Name = "cbcast"
	if cfg.InboxPrefix != "" {
		cfg.MaxAge = s.a.cfg.MaxAge // with narrow permissions it may not ask
	}
	if s.hub != nil {
		cfg = bus.Config{Name: "cbcast", InProcess: lifetime{s.hub, life}, Nkey: s.hub.KeyFile()}
	}
	b, err := bus.Connect(ctx, cfg, s.log)
	if err != nil && s.external() {
		return nil, fmt.Errorf("reach the NATS server at %s: %w; check CBCAST_NATS_URL", bus.RedactURL(cfg.URL), err)
	} else if err != nil {
		return nil, fmt.Errorf("reach the hub of this machine: %w", err)
	}
	if s.hub == nil {
		return b, nil // an external server is provisioned, not changed by whoever connects
	}
	if _, err := b.Ensure(ctx, s.topology()); err != nil {
		b.Close()
		return nil, fmt.Errorf("make the streams of the hub: %w", err)
	}
	return b, nil
}

func (s *station) topology() bus.Topology {
	t := bus.Local(s.a.cfg.MaxBytes)
	t.MaxAge = s.a.cfg.MaxAge
	return t
}

// edgeDial is connect for an edge: it waits as long as its context.
func (s *station) edgeDial(ctx context.Context) (*bus.Bus, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		b, err := s.connectFor(ctx, ctx)
		if err == nil || ctx.Err() != nil || s.openErr != nil {
			return b, err
		}
		s.log.Debug("connect", "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// edgeDialer is nil where an edge is to leave everything in the spool.
func (s *station) edgeDialer() ingest.Dialer {
	if !s.external() && s.a.cfg.Hub == hubNever {
		return nil
	}
	return s.edgeDial
}

// announce says on a terminal which run this is, and where it can be followed as
// soon as that is known.
func (s *station) announce(w io.Writer, id string) {
	fmt.Fprintf(w, "cbcast: run %s\n", id)
	s.wg.Go(func() { // ends with s.ctx
		if s.external() || s.openedHub() == nil {
			return
		}
		if at, err := s.relayURL(s.ctx); err == nil {
			fmt.Fprintf(w, "cbcast: follow it: curl -N %s/v1/runs/%s/stream\n", at, id)
		}
	})
}

// openedHub waits until the hub is open and returns it, nil if there is none.
func (s *station) openedHub() *natsd.Hub {
	if s.a.cfg.Hub == hubNever || s.open(s.ctx) != nil {
		return nil
	}
	return s.hub
}

// close leaves the bus: readers are told goodbye, and another participant takes
// the hub over.
func (s *station) close() {
	s.cancel()
	s.wg.Wait()
	if s.hub != nil {
		bound := leaveTime
		if s.quick {
			bound = quickLeave
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		if err := s.hub.Close(ctx); err != nil {
			s.log.Debug("leave the hub", "error", err)
		}
	}
}

// withBus runs fn with a connected bus and the hub behind it.
func (a *app) withBus(ctx context.Context, fn func(context.Context, *bus.Bus) error) error {
	log, closeLog, err := a.logger()
	if err != nil {
		return err
	}
	defer closeLog()
	a.cfg.Hub = orHub(a.cfg.Hub)
	s := a.newStation(log)
	defer s.close()
	cctx, cancel := context.WithTimeout(ctx, hubPatience)
	defer cancel()
	b, err := s.connect(cctx)
	if err != nil {
		return err
	}
	defer b.Close()
	return fn(ctx, b)
}
