package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cbcast/cbcast/internal/bus"
)

// Config is what the environment may say, each name with the prefix CBCAST_RELAY_.
// Zero values mean the defaults named here.
type Config struct {
	// Addr is where the relay listens. On any but a loopback address every
	// request needs the token, reads too.
	Addr string `env:"ADDR" envDefault:"127.0.0.1:8420"`
	// Hosts are further names by which the relay may be called, without port.
	// Loopback names and the address that a connection came in on always are.
	Hosts []string `env:"HOSTS"`
	// Origins are web origins ("https://ci.example.com") whose pages may call
	// the relay, beside its own.
	Origins []string `env:"ORIGINS"`
	// Proxies are addresses, or ranges of them, of reverse proxies in front of the
	// relay: what they say of whom they pass on (X-Forwarded-For, -Proto) is
	// believed, and nobody reads through them without a token.
	Proxies []string `env:"PROXIES"`
	// Closed asks for a token on the loopback, too.
	Closed bool `env:"CLOSED"`

	// TokensFile and Tokens are lists of [Token], in a file or as they are; both
	// count. The file is read again when it changes.
	TokensFile string `env:"TOKENS_FILE"`
	Tokens     string `env:"TOKENS"`

	// TLSCert and TLSKey are PEM files; with them the relay speaks TLS only. They
	// are read again when they change.
	TLSCert string `env:"TLS_CERT"`
	TLSKey  string `env:"TLS_KEY"`

	// MaxConns bounds open connections, MaxPerToken the requests and streams that
	// one token may have open, MaxPerAddr the connections and requests that one
	// address may have without a token. The loopback and Proxies are not counted
	// by address, this machine's own token is not counted.
	MaxConns    int `env:"MAX_CONNS" envDefault:"12000"`
	MaxPerToken int `env:"MAX_PER_TOKEN" envDefault:"2000"`
	MaxPerAddr  int `env:"MAX_PER_ADDR" envDefault:"100"`

	// Heartbeat is how often a silent stream sends a comment; at most 15 s.
	Heartbeat time.Duration `env:"HEARTBEAT" envDefault:"12s"`
	// WriteTimeout bounds one write to a stream's client.
	WriteTimeout time.Duration `env:"WRITE_TIMEOUT" envDefault:"15s"`
	// QueueBytes is what each watched run keeps of its newest events, once for
	// all its clients. One that falls further behind is cut when it takes nothing
	// for a second; while it takes, however slowly, it reads from the bus.
	QueueBytes int `env:"QUEUE_BYTES" envDefault:"4194304"`
	// MaxStreams bounds open streams; more get 503.
	MaxStreams int `env:"MAX_STREAMS" envDefault:"10000"`

	// Unmerged sends each delta of a workflow stream by itself. Without it those that
	// come within 50 ms, or make up 1 KiB, are one event.
	Unmerged bool `env:"UNMERGED" envDefault:"false"`

	// LostGrace is how long after its presence expired an edge may still come
	// back before its run is called lost.
	LostGrace time.Duration `env:"LOST_GRACE" envDefault:"15s"`
	// LostFinal is how long a lost run is waited for; after it a stream of it
	// ends for good.
	LostFinal time.Duration `env:"LOST_FINAL" envDefault:"24h"`

	// DeliverWithin and EffectWithin are the times of a command that names none.
	DeliverWithin time.Duration `env:"DELIVER_WITHIN" envDefault:"30s"`
	EffectWithin  time.Duration `env:"EFFECT_WITHIN" envDefault:"1m"`

	// HotFor is how long a run that nobody watches any more is kept in memory for
	// who comes back; all such runs together have at most HotBytes.
	HotFor   time.Duration `env:"HOT_FOR" envDefault:"30s"`
	HotBytes int           `env:"HOT_BYTES" envDefault:"67108864"`

	// DrainDelay is how long readyz says at the end that the relay is not to be
	// asked any more, before it lets its clients go.
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`
	// Drain bounds the end: what is on the bus by then still goes to streams.
	Drain time.Duration `env:"DRAIN" envDefault:"1s"`
}

// Guarded reports whether c asks for more than the rule of a loopback address, which
// is that everybody on the machine may read: tokens, TLS, or another interface.
func (c Config) Guarded() bool {
	return c.Closed || c.TokensFile != "" || c.Tokens != "" || c.TLSCert != "" || c.TLSKey != "" || !loopbackAddr(c.defaults().Addr)
}

// maxHeartbeat is what proxies that cut silent connections still let pass.
const maxHeartbeat = 15 * time.Second

func (c Config) defaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:8420")
	c.Heartbeat = min(cmp.Or(c.Heartbeat, 12*time.Second), maxHeartbeat)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 15*time.Second)
	c.QueueBytes = cmp.Or(c.QueueBytes, 4<<20)
	c.MaxStreams = cmp.Or(c.MaxStreams, 10_000)
	c.MaxConns = cmp.Or(c.MaxConns, 12_000)
	c.MaxPerToken = cmp.Or(c.MaxPerToken, 2000)
	c.MaxPerAddr = cmp.Or(c.MaxPerAddr, 100)
	c.LostGrace = cmp.Or(c.LostGrace, 15*time.Second)
	c.LostFinal = cmp.Or(c.LostFinal, 24*time.Hour)
	c.DeliverWithin = cmp.Or(c.DeliverWithin, 30*time.Second)
	c.EffectWithin = cmp.Or(c.EffectWithin, time.Minute)
	c.HotFor = cmp.Or(c.HotFor, 30*time.Second)
	c.HotBytes = cmp.Or(c.HotBytes, 64<<20)
	c.Drain = cmp.Or(c.Drain, time.Second)
	return c
}

// Options are what a relay works with.
type Options struct {
	Config
	Bus *bus.Bus // stays the caller's; it must outlive Run
	// Token is the secret that writes need, and reads on any but a loopback
	// address. Empty refuses them all.
	Token string
	// Secret signs sessions and resume tokens: relays with the same one take each
	// other's. At least [MinSecret] bytes; empty follows from Token.
	Secret []byte
	// Partitions is the number of event streams; 0 is 1.
	Partitions int
	// Others are programs that run beside the relay: for each why it is not ready, nil
	// where it is: a line without secrets, which everybody may read. They stand on /readyz
	// and do not decide it. May be nil.
	Others func() map[string]error
	// Also are handlers of theirs, by method and path ("POST /slack"): they check for
	// themselves who asks. May be nil.
	Also map[string]http.Handler
	// Archive has what the bus has let go; nil without one.
	Archive Archive
	// Gather are metrics of theirs, which stand among the relay's own. May be nil.
	Gather func() prometheus.Gatherers
	Log    *slog.Logger // nil discards
}

// A Relay serves one bus. Its handler answers 503 unless Run is running.
type Relay struct {
	cfg        Config
	bus        *bus.Bus
	past       *past // the same, with what the archive has
	token      string
	secret     []byte
	partitions int
	log        *slog.Logger
	public     bool // bound to more than the loopback
	gate       *gate
	met        *metrics
	others     func() map[string]error
	also       map[string]http.Handler
	refusals   refusals

	hub     *hub
	reg     *registry
	keeper  *keeper
	clerk   *clerk
	lines   *lines         // mapped workflow streams
	streams sync.WaitGroup // open SSE subscriptions

	mu      sync.Mutex      // guards the rest
	open    int             // how many of them
	ctx     context.Context // of the background work; nil before Run and after its end
	closing chan struct{}   // closed when streams must end
	closed  bool            // closing is closed
	leaving bool            // the end has begun: not ready any more
}

// New returns a relay. Nothing runs yet.
func New(o Options) *Relay {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{
		cfg: o.Config.defaults(), bus: o.Bus, token: o.Token, secret: secretOf(o), partitions: max(o.Partitions, 1), log: log,
		closing: make(chan struct{}),
	}
	r.past = newPast(o.Bus, o.Archive, r.log)
	r.public = !loopbackAddr(r.cfg.Addr)
	r.others, r.also = o.Others, o.Also
	r.met = newMetrics(r, o.Gather)
	r.gate = newGate(r)
	r.hub = newHub(r)
	r.reg = newRegistry(r)
	r.keeper = newKeeper(r)
	r.clerk = newClerk(r)
	r.lines = newLines(r)
	return r
}

// Run does the relay's background work until ctx ends. Then it is not ready any
// more, and after Config.DrainDelay it gives open
// streams what is on the bus by now, for at most Config.Drain, ends them, and
// returns when all of its goroutines have. The error is ctx's cause.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.gate.bad; err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.mu.Lock()
	if r.ctx != nil || r.closed {
		r.mu.Unlock()
		return errors.New("relay: Run is called once")
	}
	r.ctx = inner
	r.mu.Unlock()

	var wg sync.WaitGroup
	wg.Go(func() { r.gate.run(inner) })
	wg.Go(func() { r.hub.run(inner) })
	wg.Go(func() { r.hub.beat(inner) })
	wg.Go(func() { r.reg.run(inner) })
	wg.Go(func() { r.keeper.run(inner) })
	wg.Go(func() { r.clerk.run(inner) })
	<-ctx.Done()
	r.mu.Lock()
	r.leaving = true
	r.mu.Unlock()
	if r.cfg.DrainDelay > 0 {
		<-time.After(r.cfg.DrainDelay) // who spreads requests looks at readyz meanwhile
	}
	r.drain()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	stop()
	wg.Wait()
	r.hub.wait()
	return context.Cause(ctx)
}

// drain ends the open streams.
func (r *Relay) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Drain)
	defer cancel()
	r.hub.sync(ctx)
	r.lines.sync(ctx)
	r.mu.Lock()
	r.closed = true
	close(r.closing)
	r.mu.Unlock()
	r.hub.unparkAll()
	done := make(chan struct{})
	go func() { // ends with the last stream, whose writes have a deadline
		r.streams.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	r.hub.kick()
	r.lines.kick()
	<-done
}

// admit counts a stream in; release counts it out.
func (r *Relay) admit() (ctx context.Context, closing <-chan struct{}, err *apiErr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ctx == nil || r.closed:
		return nil, nil, fail(CodeUnavailable, "the relay is starting or ending")
	case r.open >= r.cfg.MaxStreams:
		return nil, nil, fail(CodeTooMany, "too many open streams")
	}
	r.open++
	r.streams.Add(1)
	return r.ctx, r.closing, nil
}

func (r *Relay) release() {
	r.mu.Lock()
	r.open--
	r.mu.Unlock()
	r.streams.Done()
}

// background is the context of the background work, nil when there is none.
func (r *Relay) background() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx
}

// staying reports whether the background work runs and its end has not begun.
func (r *Relay) staying() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx != nil && !r.leaving
}

// Listen opens the configured address.
func (r *Relay) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", r.cfg.Addr)
}

// Serve is [Relay.Run] together with an HTTP server on ln, which it closes. When
// ln is on more than the loopback, every request needs a token.
func (r *Relay) Serve(ctx context.Context, ln net.Listener) error {
	r.public = !loopbackAddr(ln.Addr().String())
	srv := &http.Server{
		Handler: r.Handler(), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withConn(r.gate.guests.enter(ctx, c), c) },
		ConnState:   r.gate.guests.state,
		ErrorLog:    slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	serve := srv.Serve
	if cert := r.gate.cert; cert != nil {
		srv.TLSConfig = cert.config()
		serve = func(ln net.Listener) error { return srv.ServeTLS(ln, "", "") }
	} else if r.public {
		r.log.Warn("the relay listens beyond this machine without TLS: tokens and events can be read on the way, unless a proxy in front encrypts",
			"addr", ln.Addr().String())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	served := make(chan struct{})
	go func() { // ends with the server, below
		defer close(served)
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			cancel(err)
		}
	}()
	err := r.Run(ctx)
	sctx, stop := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Drain)
	defer stop()
	if srv.Shutdown(sctx) != nil {
		_ = srv.Close()
	}
	<-served
	cancel(nil)
	return err
}
