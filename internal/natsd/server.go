package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The limits a server has where [Options] names none.
const (
	// DefaultMaxStore bounds the store of a server in bytes. It fits a laptop
	// and a CI runner; what the streams keep of it is their own configuration.
	DefaultMaxStore = 1 << 30

	// DefaultSyncInterval is how long an acknowledged message may stay in the
	// page cache only. It survives the end of the process at once, the end of
	// the machine after this time (and before it on the other replicas of R3).
	DefaultSyncInterval = 5 * time.Second

	// DefaultMaxPayload is nats-server's own. Larger frames are split.
	DefaultMaxPayload = 1 << 20

	// maxMemory bounds memory streams and consumers. cbcast's streams are
	// files; only short-lived consumers count against this.
	maxMemory = 256 << 20

	// maxBatches is how many runs may publish at once with fast-ingest, in one
	// stream and in all. A publisher past it goes on one message at a time.
	maxBatches = 10_000

	// readyTimeout bounds the wait for the listeners after the store was
	// recovered. Recovery itself is not bounded: a large store takes its time.
	readyTimeout = 10 * time.Second
)

// ErrInUse is returned by [Start] when another program listens on the port.
var ErrInUse = errors.New("address in use")

// Options configure a server. The zero value listens on a free port of the
// loopback and keeps its store in a directory that must be named.
type Options struct {
	Dir  string // the store, created if missing; one server at a time
	Name string // server name; needed in a cluster, else made up

	Host       string // "" is 127.0.0.1
	Port       int    // 0 and -1 are any free port
	DontListen bool   // in-process connections only

	MaxStore     int64         // bytes; 0 is [DefaultMaxStore], -1 what the disk has
	MaxPayload   int32         // bytes of one message; 0 is [DefaultMaxPayload]
	SyncInterval time.Duration // 0 is [DefaultSyncInterval]
	SyncAlways   bool          // every message is on the disk before its ack

	// At most one way to authenticate. Without any, whoever reaches the
	// address is let in. In-process connections authenticate as well.
	Nkey     string // public user key
	Token    string
	User     string
	Password string

	Cluster *Cluster // nil runs alone

	Log *slog.Logger // nil discards
}

// A Cluster is what a server needs to replicate with others. Clients know the
// addresses they were given: the members do not tell them of each other, since
// there may be a proxy between.
type Cluster struct {
	Name   string
	Host   string   // "" is Options.Host
	Port   int      // for routes; must be known to the others
	Routes []string // "nats://host:port" of every member
}

// A Server is a running nats-server with JetStream.
type Server struct {
	ns   *server.Server
	log  *logger
	stop sync.Once
	done chan struct{} // closed when the server has ended
}

// Start recovers the store in o.Dir and returns a server that accepts
// connections. A member of a cluster is returned before the cluster has a
// leader. The server installs no signal handlers and writes to no output but
// o.Log: what it calls warnings and errors at Warn, the rest at Debug.
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("nats-server: no directory")
	}
	opts, err := o.options()
	if err != nil {
		return nil, fmt.Errorf("nats-server: %w", err)
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats-server: %w", err)
	}
	s := &Server{ns: ns, log: newLogger(o.Log), done: make(chan struct{})}
	ns.SetLoggerV2(s.log, s.log.debug, false, false)
	ns.Start()
	// Start returns when the listeners are open, or early after a fatal error.
	if err := s.log.fatal(); err != nil {
		_ = s.Shutdown(context.Background())
		return nil, fmt.Errorf("nats-server on %s: %w", o.Dir, err)
	}
	if !ns.ReadyForConnections(readyTimeout) {
		_ = s.Shutdown(context.Background())
		return nil, fmt.Errorf("nats-server: not ready after %v", readyTimeout)
	}
	return s, nil
}

func (o Options) options() (*server.Options, error) {
	host := o.Host
	if host == "" {
		host = "127.0.0.1"
	}
	port := o.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts := &server.Options{
		ServerName:             o.Name,
		Host:                   host,
		Port:                   port,
		DontListen:             o.DontListen,
		NoLog:                  true, // the logger is set by SetLoggerV2
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		StoreDir:               o.Dir,
		JetStreamMaxMemory:     maxMemory,
		JetStreamMaxStore:      orDefault(o.MaxStore, DefaultMaxStore),
		SyncInterval:           orDefault(o.SyncInterval, DefaultSyncInterval),
		SyncAlways:             o.SyncAlways,
		MaxPayload:             orDefault(o.MaxPayload, DefaultMaxPayload),
		JetStreamLimits: server.JSLimitOpts{
			MaxBatchInflightPerStream: maxBatches,
			MaxBatchInflightTotal:     maxBatches,
			DefaultMaxConsumers:       -1, // the relays bound their own
		},
		Authorization: o.Token,
		Username:      o.User,
		Password:      o.Password,
	}
	if o.Nkey != "" {
		opts.Nkeys = []*server.NkeyUser{{Nkey: o.Nkey}}
	}
	if c := o.Cluster; c != nil {
		opts.Cluster = server.ClusterOpts{Name: c.Name, Host: c.Host, Port: c.Port, NoAdvertise: true}
		if c.Host == "" {
			opts.Cluster.Host = host
		}
		for _, r := range c.Routes {
			u, err := url.Parse(r)
			if err != nil {
				return nil, fmt.Errorf("route: %w", err)
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	return opts, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// ClientURL is "nats://host:port" without credentials, "" for a server that
// does not listen.
func (s *Server) ClientURL() string {
	a, ok := s.ns.Addr().(*net.TCPAddr)
	if !ok || a == nil {
		return ""
	}
	return "nats://" + a.String()
}

// Name is the server's name, which it also tells every client before they
// authenticate.
func (s *Server) Name() string { return s.ns.Name() }

// InProcessConn returns a connection that does not cross the network. It
// authenticates like any other.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Shutdown closes every connection, writes the store's state and returns when
// the server has ended, or when ctx ends: then it goes on in the background.
// It may be called again, to wait.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		// Ends with the server; Shutdown of nats-server cannot be cancelled.
		go func() {
			defer close(s.done)
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
		}()
	})
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nats-server shutdown: %w", context.Cause(ctx))
	}
}
