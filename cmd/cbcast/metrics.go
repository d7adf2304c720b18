package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/metrics"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
)

const metricsName = "metrics"

func metricsKind() consumerKind {
	return consumerKind{
		name:   metricsName,
		addr:   func(c *config) string { return c.Metrics.Addr },
		wanted: func(*config) bool { return true },
		open: func(_ context.Context, a *app, e consumerEnv) (consumer, error) {
			o := a.metricsOptions(e.bus)
			o.Dir, o.Log = e.dir, e.log
			return metrics.New(o)
		},
	}
}

func (a *app) metricsOptions(b *bus.Bus) metrics.Options {
	return metrics.Options{
		Config: a.cfg.Metrics, Bus: b, Partitions: a.partitions(), LostFinal: a.cfg.Relay.LostFinal,
		Version: version(), Revision: revision(),
	}
}

func newMetrics(a *app) *cobra.Command {
	var once bool
	var from, otlp string
	c := &cobra.Command{
		Use:   metricsName,
		Short: "Count what happens to runs, for Prometheus",
		Long: `metrics reads the bus and serves counts of runs, tasks, asks, commands, tokens and cost
at CBCAST_METRICS_ADDR: /metrics, /livez and /readyz. It is a part of cbcast up, where the
relay's /metrics has them. docs/metrics.md lists them; labels never name a run.

With --otlp it sends a trace of each run, too: to the URL, or where the standard variables
OTEL_EXPORTER_OTLP_… say (see cbcast trace).

With --once it counts everything that the bus has from the beginning, prints that, and
ends: what a running one shows must be the same, as long as the bus has kept all of it.`,
		Example: `  cbcast metrics --once | grep runs_finished
  cbcast archive export --format cloudevents RUN | cbcast metrics --once --from -
  cbcast metrics --otlp http://localhost:4318
  cbcast metrics dead                    what could not be counted, and why`,
		Args: cobra.MaximumNArgs(1), // --otlp takes its URL with = or without
		RunE: func(c *cobra.Command, args []string) error {
			kind := metricsKind()
			switch {
			case len(args) > 0 && otlp != otlpStandard:
				return &exitError{exitUsage, fmt.Errorf("%q: metrics takes no argument", args[0])}
			case from != "" && !once:
				return &exitError{exitUsage, errors.New("--from is for --once")}
			case once:
				return a.metricsOnce(c.Context(), from)
			case len(args) > 0:
				a.cfg.Trace.Endpoint = args[0]
			case otlp != "" && otlp != otlpStandard:
				a.cfg.Trace.Endpoint = otlp
			}
			if otlp != "" {
				kind = withTraces(kind)
			}
			return a.runConsumer(c.Context(), kind)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "count all that the bus has, print it, and end")
	c.Flags().StringVar(&from, "from", "", "with --once: a file of exported events, CloudEvents JSON one a line, - for stdin; not the bus")
	c.Flags().StringVar(&a.cfg.Metrics.Addr, "listen", a.cfg.Metrics.Addr, "address of /metrics, /livez and /readyz")
	c.Flags().StringVar(&otlp, "otlp", "", "send a trace of each run to this collector, too; without a URL the standard OTEL_ variables say where")
	c.Flags().Lookup("otlp").NoOptDefVal = otlpStandard
	a.traceFlags(c)
	c.AddCommand(newDead(a, metricsName, "What could not be counted, and why", ""))
	return c
}

// otlpStandard is the value of --otlp without one.
const otlpStandard = "OTEL_EXPORTER_OTLP_ENDPOINT"

// metricsOnce prints a count from the beginning.
func (a *app) metricsOnce(ctx context.Context, from string) error {
	var text []byte
	if from != "" {
		in := io.Reader(a.io.in)
		if from != "-" {
			f, err := os.Open(from)
			if err != nil {
				return fmt.Errorf("count exported events: %w", err)
			}
			defer f.Close()
			in = f
		}
		var err error
		if text, err = metrics.OnceFrom(ctx, a.metricsOptions(nil), in); err != nil {
			return err
		}
	} else {
		log, closeLog, err := a.logger()
		if err != nil {
			return err
		}
		defer closeLog()
		a.cfg.Hub = orHub(a.cfg.Hub)
		st := a.newStation(log)
		defer st.close()
		b, err := st.connect(ctx)
		if err != nil {
			return err
		}
		defer b.Close()
		o := a.metricsOptions(b)
		o.Log = log
		if text, err = metrics.Once(ctx, o); err != nil {
			return err
		}
	}
	_, err := a.io.out.Write(text)
	return err
}

// newDead is the command that lists what a consumer has given up.
func newDead(a *app, consumer, short, long string) *cobra.Command {
	var asJSON bool
	var remove string
	c := &cobra.Command{
		Use:   "dead",
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			letters := consume.OpenLetters(filepath.Join(a.cfg.StateDir, consumer))
			if remove != "" {
				return letters.Remove(remove)
			}
			return a.showLetters(letters, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	c.Flags().StringVar(&remove, "rm", "", "forget the letter with this id")
	return c
}

// revision is the commit that the program was built from, "" where the build did not record it.
func revision() string {
	i, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range i.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
