package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
)

// flushEvery is how often up looks for spools whose edge is gone.
const flushEvery = 30 * time.Second

func newUp(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Serve this machine's runs until stopped",
		Long: `up runs the relay, and the NATS server of this machine unless CBCAST_NATS_URL names
another one. It ships what earlier runs left in the spool, and says where it listens.
Without it the hub lives only as long as some run or command of cbcast does.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.up(ctx)
		},
	}
	c.Flags().StringVar(&a.cfg.Relay.Addr, "listen", a.cfg.Relay.Addr, "address of the relay")
	return c
}

func (a *app) up(ctx context.Context) error {
	a.cfg.Hub = orHub(a.cfg.Hub)
	log, closeLog, err := a.serviceLogger()
	if err != nil {
		return err
	}
	defer closeLog()
	st := a.newStation(log)
	st.serve = true
	st.others = a.newConsumers(st, log)
	if err := st.others.check(); err != nil {
		return err
	}
	defer st.close()
	if err := st.open(ctx); err != nil {
		return err
	}
	if err := st.openRelay(); err != nil {
		return err
	}
	b, err := st.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	url, err := st.relayURL(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "relay  %s\nnats   %s\nparts  %s\nwrites need the token in %s\n", url, st.natsURL(), st.others.names(), a.tokenFile())
	if login := st.loginURL(); login != "" && terminal(a.io.out) {
		fmt.Fprintf(a.io.out, "page   %s\n       logs a browser in, once, within 10 minutes; cbcast login makes another\n", login)
	}
	hangupIgnored(log)
	defer a.onHangup(ctx, st.reload)()
	defer a.supervised(ctx, log, "relay "+url, st.alive)()
	var wg sync.WaitGroup
	wg.Go(func() { st.others.run(ctx) }) // ends with ctx
	a.flushLoop(ctx, b, log)
	wg.Wait()
	return st.relayErr()
}

// onHangup calls fn at each SIGHUP, until the returned function is called. On a
// terminal the signal means that it was closed, and ends the program as before.
func (a *app) onHangup(ctx context.Context, fn func()) (stop func()) {
	if a.io.in != nil && terminal(a.io.in) || signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-hup:
				fn()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(hup)
		cancel()
		wg.Wait()
	}
}

// hangupIgnored says that SIGHUP does nothing here: under nohup a program begins with the
// signal ignored, and that stays so.
func hangupIgnored(log *slog.Logger) {
	if signal.Ignored(syscall.SIGHUP) {
		log.Warn("SIGHUP is ignored, as it was when cbcast was started (nohup): tokens, certificates and rules are read at the start only")
	}
}

// flushLoop ships what is left behind until ctx ends.
func (a *app) flushLoop(ctx context.Context, b *bus.Bus, log *slog.Logger) {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		err := ingest.Flush(ctx, a.spoolRoot(), b, a.syncInterval(), log, func(f ingest.Flushed) {
			if f.Err != nil {
				log.Warn("spool not shipped", "run", f.Run, "error", f.Err)
			} else {
				log.Info("spool shipped", "run", f.Run, "events", f.Events)
			}
		})
		if err == nil {
			_, err = spool.Sweep(a.spoolRoot(), 2*a.syncInterval(), time.Now())
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("flush", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// serviceLogger is the log of a service: CBCAST_LOG, else stderr wherever that
// leads, from info on unless CBCAST_LOG_LEVEL says otherwise.
func (a *app) serviceLogger() (*slog.Logger, func(), error) {
	if a.cfg.LogFile != "" {
		return a.logger()
	}
	level := slog.LevelInfo
	_, set := environMap(a.environ)[envPrefix+"LOG_LEVEL"]
	if set || a.cfg.LogLevel != defaultLogLevel { // a config file's
		if err := level.UnmarshalText([]byte(a.cfg.LogLevel)); err != nil {
			return nil, nil, &exitError{exitUsage, fmt.Errorf("CBCAST_LOG_LEVEL is %q; it must be debug, info, warn or error", a.cfg.LogLevel)}
		}
	}
	return slog.New(slog.NewTextHandler(a.io.err, &slog.HandlerOptions{Level: level})), func() {}, nil
}
