package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/health"
)

// A consumer is one of the programs notify, metrics and archive, at work.
type consumer interface {
	// Run works until ctx ends, and returns nil then.
	Run(ctx context.Context) error
	// Ready says why it is not ready, nil when it is.
	Ready() error
	// Metrics are its own, without those of the process.
	Metrics() health.Gatherer
}

// A consumerKind is how cbcast starts one of the programs.
type consumerKind struct {
	name string // notify; its directory is that in the state directory
	// addr is where it serves its health when it runs on its own.
	addr func(*config) string
	// wanted says that it is a part of up.
	wanted func(*config) bool
	// check says what is set so that the program can never work. It asks no server; nil
	// checks nothing.
	check func(*app) error
	open  func(context.Context, *app, consumerEnv) (consumer, error)
	// hangup says that it does something at SIGHUP.
	hangup bool
	// add registers more handlers; may be nil. paths are theirs, by method, for up.
	add   func(consumer, *http.ServeMux)
	paths []string
}

// A consumerEnv is what a program works with.
type consumerEnv struct {
	dir string
	bus *bus.Bus
	log *slog.Logger
}

// consumerExits are the exit codes of all programs.
const consumerExits = `

Exit codes: 0 it was stopped   1 it failed, or something that was checked is wrong
            2 usage, or a setting with which it can never work`

// withExits says them in a program's help.
func withExits(c *cobra.Command) *cobra.Command {
	c.Long += consumerExits
	return c
}

// runConsumer is the command of one program: until a signal ends it.
func (a *app) runConsumer(ctx context.Context, k consumerKind) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := a.checkKinds(k); err != nil {
		return err
	}
	a.cfg.Hub = orHub(a.cfg.Hub)
	if err := consume.Free(filepath.Join(a.cfg.StateDir, k.name)); err != nil {
		return dirUsed(k.name, err)
	}
	log, closeLog, err := a.serviceLogger()
	if err != nil {
		return err
	}
	defer closeLog()
	if k.hangup {
		hangupIgnored(log)
	}
	st := a.newStation(log)
	defer st.close()
	c, b, err := a.openConsumer(ctx, st, k, log)
	if err != nil {
		return dirUsed(k.name, err)
	}
	defer b.Close()
	srv, err := health.New(health.Options{
		Addr: k.addr(&a.cfg), Ready: c.Ready, Metrics: health.Gatherers{c.Metrics(), health.Process()}, Log: log,
		Add: func(mux *http.ServeMux) {
			if k.add != nil {
				k.add(c, mux)
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "%s  http://%s\n", k.name, srv.Addr())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hctx, hstop := context.WithCancel(context.WithoutCancel(ctx)) // it is served until the last commit
	var wg sync.WaitGroup
	defer wg.Wait()
	defer hstop()
	wg.Go(func() { // ends with hctx
		if err := srv.Run(hctx); err != nil {
			cancel(err)
		}
	})
	at := "http://" + srv.Addr()
	defer a.supervised(ctx, log, k.name+" "+at, func(ctx context.Context) error { return answers(ctx, at) })()
	err = c.Run(ctx)
	switch cause := context.Cause(ctx); {
	case err == nil && cause != nil && !errors.Is(cause, context.Canceled):
		return cause
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil // it was stopped before it had begun
	}
	return dirUsed(k.name, err)
}

// openConsumer connects and starts a program. The caller closes the bus.
func (a *app) openConsumer(ctx context.Context, st *station, k consumerKind, log *slog.Logger) (consumer, *bus.Bus, error) {
	b, err := st.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := k.open(ctx, a, consumerEnv{dir: filepath.Join(a.cfg.StateDir, k.name), bus: b, log: log})
	if err != nil {
		b.Close()
		return nil, nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return c, b, nil
}

const (
	// A program of up that ended is started again, after a pause that doubles from the
	// first to the second of these.
	consumerPause, consumerMaxPause = time.Second, time.Minute
	// consumerSteady is how long one runs that did not fail at its start.
	consumerSteady = 5 * time.Minute
)

// consumers are the programs that up runs. One that fails changes nothing for the
// others: it is logged, shown and started again.
type consumers struct {
	a   *app
	st  *station
	log *slog.Logger
	all []*upConsumer
}

// An upConsumer is one of them.
type upConsumer struct {
	kind consumerKind

	mu  sync.Mutex // guards the rest
	c   consumer   // nil while it does not run
	err error      // why not
}

func (a *app) newConsumers(st *station, log *slog.Logger) *consumers {
	cs := &consumers{a: a, st: st, log: log}
	for _, k := range consumerKinds() {
		if a.upWith(k) {
			cs.all = append(cs.all, &upConsumer{kind: k, err: errors.New("not started")})
		}
	}
	return cs
}

// upWith reports whether up runs a program.
func (a *app) upWith(k consumerKind) bool {
	return slices.Contains(a.cfg.With, k.name) || slices.Contains(a.cfg.With, withAuto) && k.wanted(&a.cfg)
}

// What CBCAST_UP_WITH may say beside the names of programs.
const (
	withAuto = "auto"
	withNone = "none"
)

func checkWith(with []string) error {
	names := []string{withAuto, withNone}
	for _, k := range consumerKinds() {
		names = append(names, k.name)
	}
	for _, w := range with {
		if !slices.Contains(names, w) || w == withNone && len(with) > 1 {
			return fmt.Errorf("CBCAST_UP_WITH is %q; it must be auto, none, or some of %s", strings.Join(with, ","), strings.Join(names[2:], ","))
		}
	}
	return nil
}

// run runs them until ctx ends.
func (cs *consumers) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, u := range cs.all {
		wg.Go(func() { cs.keep(ctx, u) }) // ends with ctx
	}
	wg.Wait()
}

// keep runs one, again and again.
func (cs *consumers) keep(ctx context.Context, u *upConsumer) {
	log := cs.log.With("part", u.kind.name)
	for pause := consumerPause; ; {
		began := time.Now()
		err := cs.once(ctx, u, log)
		u.set(nil, err)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Error("ended", "error", brief(err))
			}
			return
		}
		if time.Since(began) > consumerSteady {
			pause = consumerPause
		}
		log.Error("ended, starting it again", "after", pause, "error", brief(err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, consumerMaxPause)
	}
}

func (cs *consumers) once(ctx context.Context, u *upConsumer, log *slog.Logger) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	c, b, err := cs.a.openConsumer(ctx, cs.st, u.kind, log)
	if err != nil {
		return err
	}
	defer b.Close()
	u.set(c, nil)
	if err := c.Run(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (u *upConsumer) set(c consumer, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.c, u.err = c, err
}

// get returns the program, or why it does not run.
func (u *upConsumer) get() (consumer, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.c == nil && u.err == nil {
		return nil, errors.New("not running")
	}
	return u.c, u.err
}
