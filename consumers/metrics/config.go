package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// Config is what the environment says about metrics.
type Config struct {
	// Addr is where cbcast metrics serves /metrics, /livez and /readyz.
	Addr string `env:"ADDR" envDefault:"127.0.0.1:8421"`
	// Repos and Workflows are the CI repositories and workflows that have series of
	// their own; all others are other.
	Repos     []string `env:"REPOS"`
	Workflows []string `env:"WORKFLOWS"`
	// MaxTenants and MaxModels bound the values of those labels; what comes later is
	// other.
	MaxTenants int `env:"MAX_TENANTS" envDefault:"50"`
	MaxModels  int `env:"MAX_MODELS" envDefault:"50"`
	// MaxRuns bounds the live runs that are remembered, Memory the bytes that their
	// states may take, by guess: a run whose state was let go is folded again from the
	// stream when something comes of it.
	MaxRuns int   `env:"MAX_RUNS" envDefault:"100000"`
	Memory  int64 `env:"MEMORY" envDefault:"268435456"`
}

// Check says what can never work, each by its variable.
func (c Config) Check() error {
	var errs []error
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"MAX_TENANTS", int64(c.MaxTenants)}, {"MAX_MODELS", int64(c.MaxModels)}, {"MAX_RUNS", int64(c.MaxRuns)}, {"MEMORY", c.Memory},
	} {
		if x.n < 1 {
			errs = append(errs, fmt.Errorf("CBCAST_METRICS_%s is %d; it must be 1 at least", x.name, x.n))
		}
	}
	return errors.Join(errs...)
}

// Past gives what the bus has of a run. [bus.Bus] does.
type Past interface {
	History(ctx context.Context, r bus.Ref, after uint64) iter.Seq2[*event.Event, error]
	Last(ctx context.Context, r bus.Ref) (*event.Event, uint64, error)
}

// Options are what a program gives.
type Options struct {
	Config
	// Dir is the program's own directory, with the snapshot. One process holds it.
	Dir string
	Bus *bus.Bus
	// Partitions of the events, 1 at least.
	Partitions int
	// LostFinal is after how long a lost run is counted as lost for good: 24 h.
	LostFinal time.Duration
	Version   string
	Revision  string
	Log       *slog.Logger

	past Past             // for tests; Bus where nil
	now  func() time.Time // for tests
}

func (o Options) defaults() Options {
	o.MaxTenants = cmp.Or(o.MaxTenants, 50)
	o.MaxModels = cmp.Or(o.MaxModels, 50)
	o.MaxRuns = cmp.Or(o.MaxRuns, 100_000)
	o.Memory = cmp.Or(o.Memory, 256<<20)
	o.LostFinal = cmp.Or(o.LostFinal, 24*time.Hour)
	o.Partitions = max(o.Partitions, 1)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.past == nil && o.Bus != nil {
		o.past = o.Bus
	}
	return o
}
