package sink

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// A Log writes each notice as one line to the program's own log: what a fleet begins
// with, before its people have said where they want to be told.
type Log struct {
	name string
	log  *slog.Logger
}

// NewLog returns the destination called name. Without a log there is none: what it took
// would be told nobody.
func NewLog(name string, log *slog.Logger) (*Log, error) {
	if log == nil {
		return nil, fmt.Errorf("log %s: there is no log to write to", name)
	}
	return &Log{name, log}, nil
}

// Name implements [Sink].
func (l *Log) Name() string { return l.name }

// Capabilities implements [Sink].
func (l *Log) Capabilities() Capabilities { return Capabilities{} }

// Lane implements [Sink].
func (l *Log) Lane(*Notice) string { return "" }

// Close implements [Sink].
func (l *Log) Close() error { return nil }

// Send implements [Sink]. What the agent said is not in the line.
func (l *Log) Send(_ context.Context, n *Notice) Outcome {
	b := briefOf(n)
	args := []any{"destination", l.name, "id", n.ID, "kind", n.Kind, "headline", b.headline}
	if n.Run != "" {
		args = append(args, "tenant", n.Tenant, "run", n.Run, "name", b.name)
	}
	for _, f := range b.facts {
		args = append(args, slog.String(strings.ToLower(f.label), f.value))
	}
	l.log.Info("notice", args...)
	return Outcome{Verdict: Delivered}
}
