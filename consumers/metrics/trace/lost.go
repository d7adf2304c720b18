package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/durable"
	"github.com/cbcast/cbcast/internal/event"
)

// lostRuns are the runs whose edge is gone, and that may still come back. They are found
// in the log of control facts, so that nothing of them needs to be kept; only up to when
// they were settled is. Where that is not known, they are settled again: with the same
// spans.
type lostRuns struct {
	m       map[string]lostRun
	file    string
	through time.Time // runs lost up to then are settled
	saved   time.Time
	seen    bus.Place // the log was looked through up to here
}

type lostRun struct {
	run, tenant string
	at          time.Time
	made        bool // its spans wait for the collector
}

// maxLost bounds the lost runs that are remembered. Past it the oldest is forgotten until
// the next start; it has no span of its own until then.
const maxLost = 65536

func newLostRuns(dir string) lostRuns {
	return lostRuns{m: map[string]lostRun{}, file: filepath.Join(dir, "lost.json")}
}

type lostFile struct {
	Through time.Time `json:"settled_through"`
}

func (l *lostRuns) load(log *slog.Logger) {
	data, err := os.ReadFile(l.file)
	var f lostFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("which lost runs were settled is not known; their traces are sent again", "error", err)
	}
	l.through, l.saved = f.Through, f.Through
}

func (l *lostRuns) save() error {
	if l.through.Equal(l.saved) {
		return nil
	}
	data, err := json.Marshal(lostFile{l.through})
	if err != nil {
		return err
	}
	if err := durable.WriteFile(l.file, data, 0o600); err != nil {
		return fmt.Errorf("keep which lost runs are settled: %w", err)
	}
	l.saved = l.through
	return nil
}

// look goes through what the log of facts has had since the last time. It does not
// depend on what the consumer was given: another instance may have taken over from it, or
// it from another.
func (l *lostRuns) look(ctx context.Context, b *bus.Bus) error {
	head, err := b.HeadLog(ctx, bus.ControlLog)
	if err != nil {
		return fmt.Errorf("look for lost runs: %w", err)
	}
	if head < l.seen.Seq { // the log is another one
		l.seen = bus.Place{}
	}
	for e, err := range b.ReadLog(ctx, bus.ControlLog, l.seen, bus.Place{Seq: head}, "", "") {
		if err != nil {
			return fmt.Errorf("look for lost runs: %w", err)
		}
		l.fact(e.Event)
	}
	l.seen = bus.Place{Seq: head}
	return nil
}

// fact takes a fact about a run.
func (l *lostRuns) fact(e *event.Event) {
	switch e.Type {
	case event.TypeLost:
		if !e.Time.After(l.through) {
			return
		}
		have, known := l.m[e.Run]
		if known && have.at.Equal(e.Time) {
			return // it came again
		}
		if !known && len(l.m) >= maxLost {
			delete(l.m, l.sorted()[0].run)
		}
		l.m[e.Run] = lostRun{run: e.Run, tenant: e.Tenant, at: e.Time}
	case event.TypeResumed:
		l.forget(e.Run)
	}
}

func (l *lostRuns) forget(run string) { delete(l.m, run) }

func (l *lostRuns) sorted() []lostRun {
	all := make([]lostRun, 0, len(l.m))
	for _, r := range l.m {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b lostRun) int { return a.at.Compare(b.at) })
	return all
}

// due lists the runs that were lost up to a time, the oldest first.
func (l *lostRuns) due(upTo time.Time) []lostRun {
	all := l.sorted()
	for i, r := range all {
		if r.at.After(upTo) {
			return all[:i]
		}
	}
	return all
}

// settled notes that a run is out.
func (l *lostRuns) settled(r lostRun) {
	l.forget(r.run)
	if r.at.After(l.through) {
		l.through = r.at
	}
}
