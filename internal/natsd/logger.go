package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// logger passes nats-server's log to slog and keeps its first fatal error,
// with which nats-server would end the process.
type logger struct {
	log   *slog.Logger
	debug bool

	mu    sync.Mutex
	first string // the first fatal line; guarded by mu
}

func newLogger(l *slog.Logger) *logger {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &logger{log: l, debug: l.Enabled(context.Background(), slog.LevelDebug)}
}

func (l *logger) at(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "nats-server", "line", fmt.Sprintf(format, v...))
	}
}

// stale are the warnings of a store whose last owner ended without closing it, as a
// wrapper does whose host waits for its exit. nats-server then makes its index anew
// from the messages themselves, and nothing is lost. Damage has other words, and
// stays a warning.
var stale = []string{
	"Stream state outdated, last block has additional entries, will rebuild",
	"Stream state outdated, found extra blocks, will rebuild",
	"Recovering stream state from index errored: prior state file", // follows either
	"TTL state is outdated; attempting to recover",
	"Message scheduling state is outdated; attempting to recover",
	"Sourcing state is outdated; attempting to recover",
}

func (l *logger) Warnf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	level := slog.LevelWarn
	if rest, ok := strings.CutPrefix(line, "Filestore ["); ok {
		_, text, _ := strings.Cut(rest, "] ")
		if slices.ContainsFunc(stale, func(s string) bool { return strings.HasPrefix(text, s) }) {
			level = slog.LevelDebug
		}
	}
	l.at(level, "%s", []any{line})
}

func (l *logger) Noticef(format string, v ...any) { l.at(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.at(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.at(slog.LevelDebug, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.at(slog.LevelWarn, format, v) }

func (l *logger) Fatalf(format string, v ...any) {
	l.at(slog.LevelWarn, format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = fmt.Sprintf(format, v...)
	}
}

// fatal is the first fatal error, nil if there was none.
func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.first == "":
		return nil
	case strings.Contains(l.first, "address already in use"):
		return fmt.Errorf("%w: %s", ErrInUse, l.first)
	}
	return errors.New(l.first)
}
