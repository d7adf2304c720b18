package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/health"
)

// Name is that of the consumers on the server: a cursor of its own, so that a collector
// that is away holds up no count.
const Name = "cbcast-trace"

// Config is what the environment says about traces, beside the standard variables of
// OpenTelemetry.
type Config struct {
	// Endpoint is the collector's URL for traces, before what the standard variables say.
	// Where it is set, up sends traces, too.
	Endpoint string `env:"ENDPOINT"`
	// Addr is where cbcast trace serves /metrics, /livez and /readyz.
	Addr string `env:"ADDR" envDefault:"127.0.0.1:8424"`
	// Content puts texts of the conversation on the spans (see [BuilderOptions]).
	Content bool `env:"CONTENT"`
	// MaxSpans bounds the spans of one run.
	MaxSpans int `env:"MAX_SPANS" envDefault:"10000"`
	// MaxRuns and Memory bound what is held of runs that go on, by number and by guessed
	// bytes. What is let go is read again from the bus.
	MaxRuns int   `env:"MAX_RUNS" envDefault:"2000"`
	Memory  int64 `env:"MEMORY" envDefault:"134217728"`
}

// Options are what a program gives.
type Options struct {
	Config
	Collector Collector
	Sample    func(Context) bool // nil is [Recorded]
	// Dir is the program's own directory. One process holds it.
	Dir string
	Bus *bus.Bus
	// Partitions of the events, 1 at least.
	Partitions int
	// LostFinal is after how long a lost run is no longer waited for: 24 h.
	LostFinal time.Duration
	Log       *slog.Logger

	now   func() time.Time // for tests
	every time.Duration    // commits; for tests
}

// Commits: a request to the collector each, where there is anything to tell.
const (
	commitEvery  = 2 * time.Second
	commitEvents = 2000
	commitBytes  = 4 << 20
	tickEvery    = 30 * time.Second
)

// A Tracer sends the traces of the runs that the bus has. Its methods may be called at
// any time.
type Tracer struct {
	o        Options
	n        *counts
	x        *exporter
	reg      *prometheus.Registry
	consumer *consume.Consumer

	mu    sync.Mutex // guards the rest: Handle, Commit and the tick
	held  shelf
	ended table[uint64] // last seq of runs whose trace is complete
	out   []outgoing    // made, and not with the collector yet
	chunk int           // spans of the next request
	until time.Time     // the collector takes nothing before
	why   error         // the last failure
	lost  lostRuns
}

// outgoing is a span on its way, and the entry that it came of.
type outgoing struct {
	span Span
	of   *consume.Entry // nil of a run that is lost for good
}

// New prepares the program. Nothing is read or sent before Run.
func New(o Options) (*Tracer, error) {
	if err := o.Collector.Check(); err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	if o.Dir == "" {
		return nil, errors.New("traces: no directory")
	}
	o.MaxRuns, o.Memory = cmp.Or(o.MaxRuns, 2000), cmp.Or(o.Memory, 128<<20)
	o.LostFinal, o.Partitions = cmp.Or(o.LostFinal, 24*time.Hour), max(o.Partitions, 1)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.Sample == nil {
		o.Sample = Recorded
	}
	t := &Tracer{o: o, n: newCounts(), reg: prometheus.NewRegistry(), ended: table[uint64]{max: 4096}, chunk: requestSpans, lost: newLostRuns(o.Dir)}
	t.held = shelf{runs: o.MaxRuns, memory: o.Memory}
	t.x = newExporter(o.Collector, o.Log, t.n)
	var err error
	t.consumer, err = consume.New(consume.Config{
		Name: Name, Bus: o.Bus, Logs: consume.Logs(o.Partitions), Dir: o.Dir,
		Every: cmp.Or(o.every, commitEvery), Events: commitEvents, Bytes: commitBytes, Log: o.Log,
	}, handler{t})
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	for _, c := range append(t.n.all(), t.consumer) {
		if err := t.reg.Register(c); err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
	}
	return t, nil
}

// Metrics are the program's own.
func (t *Tracer) Metrics() health.Gatherer { return t.reg }

// Consumer reads the logs.
func (t *Tracer) Consumer() *consume.Consumer { return t.consumer }

// Ready says why traces do not get to the collector, nil when they do, or while another
// instance sends them.
func (t *Tracer) Ready() error { return t.consumer.Status().Err }

// Run sends traces until ctx ends. What was acknowledged on the bus is with the collector
// then.
func (t *Tracer) Run(ctx context.Context) error {
	defer t.x.close()
	t.mu.Lock()
	t.lost.load(t.o.Log)
	t.mu.Unlock()
	tctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.tick(tctx) }) // ends with tctx
	defer wg.Wait()
	defer stop()
	return t.consumer.Run(ctx)
}

// tick sends off what only time settles: runs that are lost for good.
func (t *Tracer) tick(ctx context.Context) {
	every := time.NewTicker(tickEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if st := t.consumer.Status(); st.Standby || !st.Ready || st.Lag > 0 {
			continue // what makes them live again may still be to come
		}
		if err := t.settleLost(ctx); err != nil && ctx.Err() == nil {
			t.o.Log.Warn("lost runs are not sent off yet", "error", err)
		}
	}
}
