package main

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/metrics/trace"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/health"
)

const traceName = "trace"

func traceKind() consumerKind {
	return consumerKind{
		name:   traceName,
		addr:   func(c *config) string { return c.Trace.Addr },
		wanted: func(c *config) bool { return c.Trace.Endpoint != "" },
		check: func(a *app) error {
			c, _, err := a.collector()
			if err != nil {
				return err
			}
			return c.Check()
		},
		open: func(_ context.Context, a *app, e consumerEnv) (consumer, error) {
			return a.newTracer(e.bus, e.dir, e.log)
		},
	}
}

// newTracer takes the collector from our own settings, else from the standard variables of
// OpenTelemetry. Nothing of the latter is read anywhere else.
func (a *app) newTracer(b *bus.Bus, dir string, log *slog.Logger) (*trace.Tracer, error) {
	c, sample, err := a.collector()
	if err != nil {
		return nil, err
	}
	c.Proxy = http.ProxyFromEnvironment
	return trace.New(trace.Options{
		Config: a.cfg.Trace, Collector: c, Sample: sample, Dir: dir, Bus: b, Partitions: a.partitions(),
		LostFinal: a.cfg.Relay.LostFinal, Log: log,
	})
}

func (a *app) collector() (trace.Collector, func(trace.Context) bool, error) {
	return trace.FromEnv(environMap(a.environ), a.cfg.Trace.Endpoint, version())
}

func newTrace(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   traceName,
		Short: "Send a trace of each run to an OpenTelemetry collector",
		Long: `trace reads the bus and sends one trace of each run by OTLP over HTTP: CI job, run, turn,
workflow, phase, agent, tool. The collector is CBCAST_TRACE_ENDPOINT, or what the standard
OTEL_EXPORTER_OTLP_… variables say. A run in a CI job that has a span of its own (TRACEPARENT)
is below that span. docs/traces.md lists spans and attributes.

It has a place of its own in the logs: what the collector has not taken is sent later. Also
cbcast metrics --otlp, and a part of cbcast up where CBCAST_TRACE_ENDPOINT is set.`,
		Example: `  OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 cbcast trace
  cbcast trace dead                      what the collector refuses, and why`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.runConsumer(c.Context(), traceKind()) },
	}
	a.traceFlags(c)
	c.Flags().StringVar(&a.cfg.Trace.Addr, "listen", a.cfg.Trace.Addr, "address of /metrics, /livez and /readyz")
	c.AddCommand(newDead(a, traceName, "Spans that the collector refuses, and why",
		`dead lists the spans that the collector refused for good. A letter holds the request as it was
refused: --json prints it, data in base64 (OTLP, protobuf).`))
	return c
}

// traceFlags are those of trace, and of metrics --otlp.
func (a *app) traceFlags(c *cobra.Command) {
	c.Flags().BoolVar(&a.cfg.Trace.Content, "otlp-content", a.cfg.Trace.Content,
		"put arguments and results of tools, questions and descriptions on the spans, masked as they are on the bus")
}

// withTraces is a program that sends traces beside what it does. Each has its own place in
// the logs and its own directory: a collector that is away, and whatever else is wrong with
// the traces, changes nothing for the program; it is logged, and seen in its metrics.
func withTraces(k consumerKind) consumerKind {
	open, check := k.open, k.check
	k.check = func(a *app) error {
		if check != nil {
			if err := check(a); err != nil {
				return err
			}
		}
		return traceKind().check(a)
	}
	k.open = func(ctx context.Context, a *app, e consumerEnv) (consumer, error) {
		first, err := open(ctx, a, e)
		if err != nil {
			return nil, err
		}
		p := &traced{consumer: first, log: e.log.With("part", traceName)}
		p.open = func() (*trace.Tracer, error) {
			return a.newTracer(e.bus, filepath.Join(a.cfg.StateDir, traceName), p.log)
		}
		p.t, err = p.open() // what is set wrongly ends the command
		return p, err
	}
	if add := k.add; add != nil {
		k.add = func(c consumer, mux *http.ServeMux) { add(c.(*traced).consumer, mux) }
	}
	return k
}

// traced is a program with traces beside it.
type traced struct {
	consumer
	log  *slog.Logger
	open func() (*trace.Tracer, error)

	mu sync.Mutex // guards t
	t  *trace.Tracer
}

// Run runs both until ctx ends, or the program itself fails. Traces that fail are begun
// again.
func (p *traced) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.traces(ctx) }) // ends with ctx
	defer wg.Wait()
	defer cancel()
	return p.consumer.Run(ctx)
}

func (p *traced) traces(ctx context.Context) {
	for pause := consumerPause; ; pause = min(2*pause, consumerMaxPause) {
		err := p.tracer().Run(ctx)
		if ctx.Err() != nil {
			if err != nil {
				p.log.Error("ended", "error", err)
			}
			return
		}
		p.log.Error("ended, starting it again", "after", pause, "error", brief(err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if t, err := p.open(); err != nil {
			p.log.Error("not started", "error", err)
		} else {
			p.mu.Lock()
			p.t = t
			p.mu.Unlock()
		}
	}
}

func (p *traced) tracer() *trace.Tracer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.t
}

func (p *traced) Metrics() health.Gatherer {
	return health.Gatherers{p.consumer.Metrics(), tracesNow{p}}
}

// tracesNow gathers from the traces that run now.
type tracesNow struct{ p *traced }

func (n tracesNow) Gather() ([]*dto.MetricFamily, error) { return n.p.tracer().Metrics().Gather() }
