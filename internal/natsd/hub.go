package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// pollOwner is how often a participant looks whether the owner has ended.
	// With the start of the server after it, a quarter of a second keeps the
	// take-over well under two seconds, and costs one flock(2) a turn.
	pollOwner = 250 * time.Millisecond

	// pollJoin is the same while [Open] waits for an owner that is starting.
	pollJoin = 25 * time.Millisecond

	// joinTimeout bounds [Open] while another process holds the store and does
	// not answer: recovering a full store takes about a second.
	joinTimeout = 30 * time.Second

	// retryOwn bounds the pause after a take-over that failed.
	retryOwn = 5 * time.Second

	// waitPort is how long the recorded port may be busy before it counts as a
	// stranger's: a killed owner's socket may outlive its lock for a moment.
	waitPort = 500 * time.Millisecond
)

var (
	// ErrNoHub is returned when no process serves the local store, or the one
	// that holds it does not answer.
	ErrNoHub = errors.New("no hub")

	// ErrNewer is returned when the local store was written by a newer cbcast
	// whose store this one cannot serve.
	ErrNewer = errors.New("the local store is of a newer cbcast")

	// ErrNotOwner is returned by what only the owner of the store may do.
	ErrNotOwner = errors.New("not the owner of the local store")

	// ErrExposed is returned when the local store, or the key to it, belongs to
	// or is open to another user.
	ErrExposed = errors.New("open to other users")

	// ErrClosed is returned after [Hub.Close].
	ErrClosed = errors.New("hub closed")
)

// HubOptions configure the local store.
type HubOptions struct {
	StateDir string // the store is StateDir/hub, created if missing
	MaxStore int64  // bytes; 0 is [DefaultMaxStore]
	Log      *slog.Logger
}

// A Hub is one participant of the local store: the messages that all cbcast
// processes of a user on one machine share. Exactly one participant, the owner,
// holds the lock file and serves the store on the loopback; its address is in
// the address file. When the owner ends, however it ends, another participant
// takes the store over and serves it on the same address.
//
// A Hub is a connection source for NATS clients ([Hub.InProcessConn]): a client
// that reconnects through it follows the store from owner to owner, in-process
// once this participant owns it. Clients authenticate with [Hub.KeyFile].
type Hub struct {
	o    HubOptions
	log  *slog.Logger
	dir  string
	key  string // public key of the key file
	stop context.CancelFunc
	wg   sync.WaitGroup // the watch goroutine

	owned chan struct{} // closed once this participant serves the store

	mu     sync.Mutex
	lock   *os.File // guarded by mu, as the rest: held while owner
	server *Server
	info   Info // the owner's own address
	closed bool
}

// Open joins the local store, or serves it if nobody does, and returns when
// connections can be made. Until [Hub.Close] it takes the store over when its
// owner ends. Of several processes that open at once, one serves. Where the
// store cannot be served or reached the error says why; nothing is left behind.
func Open(ctx context.Context, o HubOptions) (*Hub, error) {
	h := &Hub{o: o, log: o.Log, dir: hubDir(o.StateDir), owned: make(chan struct{})}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if err := makeDir(h.dir); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var err error
	if h.key, err = makeKey(h.KeyFile()); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, joinTimeout, errors.New("its holder does not answer"))
	defer cancel()
	if err := h.join(ctx); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if !h.Owner() {
		var watch context.Context
		watch, h.stop = context.WithCancel(context.WithoutCancel(ctx))
		h.wg.Go(func() { h.watch(watch) }) // ends when the store is ours, or by Close
	}
	return h, nil
}

func hubDir(stateDir string) string { return filepath.Join(stateDir, "hub") }

// join returns when this participant owns the store or has reached its owner.
func (h *Hub) join(ctx context.Context) error {
	for {
		if owner, err := h.tryOwn(ctx); owner || err != nil {
			return err
		}
		c, err := dialOwner(ctx, h.dir)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: the local store is taken and %w (%w)", ErrNoHub, context.Cause(ctx), err)
		case <-time.After(pollJoin):
		}
	}
}

// watch takes the store over when it becomes free.
func (h *Hub) watch(ctx context.Context) {
	pause := pollOwner
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		owner, err := h.tryOwn(ctx)
		switch {
		case owner:
			h.log.Info("took over the local store", "url", h.URL())
			return
		case err == nil:
			pause = pollOwner
		default:
			if ctx.Err() == nil {
				h.log.Warn("take over the local store", "error", err)
			}
			pause = min(pause*2, retryOwn)
		}
	}
}

// tryOwn serves the store if no other process does. false and no error: one does.
func (h *Hub) tryOwn(ctx context.Context) (bool, error) {
	lock, err := tryLock(filepath.Join(h.dir, "lock"))
	if lock == nil {
		return false, err
	}
	srv, info, err := h.serve(ctx)
	if err != nil {
		_ = lock.Close()
		return false, err
	}
	h.mu.Lock()
	h.lock, h.server, h.info = lock, srv, info
	h.mu.Unlock()
	close(h.owned)
	return true, nil
}

// serve starts the server, on the recorded address where that is possible, and
// records where it is. The caller holds the lock.
func (h *Hub) serve(ctx context.Context) (*Server, Info, error) {
	old, err := readInfo(h.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		// It is written whole or not at all, so it was damaged from outside.
		h.log.Warn("address of the local store", "error", err)
	}
	if old.Format > hubFormat {
		return nil, Info{}, fmt.Errorf("%w (format %d, this one knows %d)", ErrNewer, old.Format, hubFormat)
	}
	srv, err := h.listen(ctx, old.port())
	if err != nil {
		return nil, Info{}, err
	}
	info := Info{
		Format: hubFormat, URL: srv.ClientURL(), Server: srv.Name(),
		PID: os.Getpid(), Started: time.Now().UTC(), Relay: old.Relay, Guarded: old.Guarded,
	}
	if err := info.write(h.dir); err != nil {
		_ = srv.Shutdown(context.WithoutCancel(ctx))
		return nil, Info{}, err
	}
	return srv, info, nil
}

// listen starts the server on port, or on another where that one is a
// stranger's or 0.
func (h *Hub) listen(ctx context.Context, port int) (*Server, error) {
	o := Options{
		Dir: filepath.Join(h.dir, "store"), Name: serverName(), Nkey: h.key,
		MaxStore: h.o.MaxStore, Log: h.o.Log, Port: port,
	}
	for deadline := time.Now().Add(waitPort); port != 0; {
		s, err := Start(o)
		if err == nil || !errors.Is(err, ErrInUse) {
			return s, err
		}
		if time.Now().After(deadline) {
			h.log.Warn("the address of the local store is taken, it moves", "port", port)
			break
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollJoin):
		}
	}
	for range 16 {
		o.Port = somePort()
		if s, err := Start(o); err == nil || !errors.Is(err, ErrInUse) {
			return s, err
		}
	}
	o.Port = 0
	return Start(o)
}

// KeyFile holds the nkey seed that a client of the store authenticates with. It
// is readable by this user only.
func (h *Hub) KeyFile() string { return filepath.Join(h.dir, "key") }

// URL is where the store is served now, without credentials, as clients outside
// this process need it. It is "" when the address file is gone.
func (h *Hub) URL() string { return h.Info().URL }

// Info says where the store is served now and by whom.
func (h *Hub) Info() Info {
	h.mu.Lock()
	owner, info := h.server != nil, h.info
	h.mu.Unlock()
	if owner {
		return info
	}
	info, _ = readInfo(h.dir)
	return info
}

// Owner reports whether this participant serves the store. It stays true until
// [Hub.Close].
func (h *Hub) Owner() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server != nil
}

// Owned is closed when this participant serves the store.
func (h *Hub) Owned() <-chan struct{} { return h.owned }

// SetRelay records where the owner's relay listens, for participants and for
// the next owner, whose relay should listen there as well, and whether it is
// guarded: see [Info].
func (h *Hub) SetRelay(url string, guarded bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server == nil {
		return ErrNotOwner
	}
	info := h.info
	info.Relay, info.Guarded = url, guarded
	if err := info.write(h.dir); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	h.info = info
	return nil
}

// InProcessConn returns a new connection to the store, wherever it is served
// now: in-process for the owner, else over the loopback, to a server that is
// known to be the owner's by its name. nats.InProcessServer accepts a Hub, and
// asks anew whenever the client reconnects.
func (h *Hub) InProcessConn() (net.Conn, error) {
	h.mu.Lock()
	srv, closed := h.server, h.closed
	h.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if srv != nil {
		return srv.InProcessConn()
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return dialOwner(ctx, h.dir)
}

// Close leaves the store. An owner shuts the server down first, and another
// participant takes over. When ctx ends first Close returns its cause, and the
// store stays taken until Close is called again or this process ends.
func (h *Hub) Close(ctx context.Context) error {
	if h.stop != nil {
		h.stop()
	}
	h.wg.Wait() // bounded: at most one start of the server
	h.mu.Lock()
	srv, lock := h.server, h.lock
	h.closed = true
	h.mu.Unlock()
	if srv == nil {
		return nil
	}
	if err := srv.Shutdown(ctx); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}
