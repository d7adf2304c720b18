package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func (l *logger) Noticef(format string, v ...any) { l.at(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.at(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.at(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.at(slog.LevelWarn, format, v) }
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
