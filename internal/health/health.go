// Package health is the small HTTP server of a program that has no other: whether it
// lives, whether it is ready, and its metrics.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// maxConns bounds connections; more wait.
	maxConns = 64
	// timeout bounds a request and its answer.
	timeout = 10 * time.Second
	// stopWait bounds the end of requests that are under way.
	stopWait = 5 * time.Second
)

// Options of a [Server].
type Options struct {
	// Addr is where it listens: host:port, port 0 for any.
	Addr string
	// Ready says why the program is not ready, nil when it is. It answers at once.
	Ready func() error
	// Status, if set, is asked for the text of /readyz when the program is ready.
	Status func() string
	// Metrics are served at /metrics.
	Metrics Gatherers
	// Add registers further handlers; may be nil.
	Add func(*http.ServeMux)
	Log *slog.Logger // nil discards
}

// A Server serves /livez, /readyz and /metrics.
type Server struct {
	o  Options
	ln net.Listener
	hs *http.Server
}

// New takes the address; nothing is served before Run.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for health: %w", err)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		o.Log.Warn("health and metrics are served beyond this machine, without a token and without TLS", "addr", a.String())
	}
	s := &Server{o: o, ln: limit(ln, maxConns)}
	s.hs = &http.Server{
		Handler: s.mux(), ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: 3 * timeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close gives the address up, where Run was not called.
func (s *Server) Close() error { return s.ln.Close() }

// Run serves until ctx ends. It returns nil then, when every request has ended.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() { // ends with ctx, or with Serve
		select {
		case <-ctx.Done():
		case <-ended:
		}
		sctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		if s.hs.Shutdown(sctx) != nil {
			_ = s.hs.Close()
		}
	})
	err := s.hs.Serve(s.ln)
	close(ended)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve health: %w", err)
}

func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.o.Ready != nil {
			if err := s.o.Ready(); err != nil {
				say(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		text := "ok"
		if s.o.Status != nil {
			text = s.o.Status()
		}
		say(w, http.StatusOK, text)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Metrics, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 2 * timeout,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}))
	if s.o.Add != nil {
		s.o.Add(mux)
	}
	return mux
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// limit is a listener that holds at most n connections open.
func limit(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotted{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotted struct {
	net.Conn
	free func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
