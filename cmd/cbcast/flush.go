package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
)

func newFlush(a *app) *cobra.Command {
	var list bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "flush",
		Short: "Ship what earlier runs left in the spool",
		Long: `flush sends the events of runs whose wrapper is gone to the bus: those that were
left when a run ended without one, and those of a wrapper that was killed. A run
that was shown as lost gets its true verdict then. With --timeout it gives up after
so long; what is not shipped by then stays.

Exit codes: 0 everything is on the bus   1 the bus cannot be reached   4 something is left`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if list {
				return a.listSpool()
			}
			if a.cfg.Bus.URL == "" && a.cfg.Hub == hubNever {
				return &exitError{exitUsage, errors.New("nowhere to ship to; set CBCAST_NATS_URL, or CBCAST_HUB=auto for the store of this machine")}
			}
			ctx := c.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, &exitError{exitIncomplete, fmt.Errorf("not shipped within %s; the rest stays in the spool", timeout)})
				defer cancel()
			}
			return a.withBus(ctx, func(ctx context.Context, b *bus.Bus) error {
				log, closeLog, err := a.logger()
				if err != nil {
					return err
				}
				defer closeLog()
				return a.flush(ctx, b, log)
			})
		},
	}
	c.Flags().BoolVar(&list, "list", false, "only say what is in the spool")
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after so long (default: never, once the bus was reached)")
	return c
}

func (a *app) flush(ctx context.Context, b *bus.Bus, log *slog.Logger) error {
	left, done := 0, 0
	err := ingest.Flush(ctx, a.spoolRoot(), b, a.syncInterval(), log, func(f ingest.Flushed) {
		if f.Err != nil {
			left++
			fmt.Fprintf(a.io.out, "%s  left in the spool: %v\n", f.Run, f.Err)
			return
		}
		done++
		fmt.Fprintf(a.io.out, "%s  %d events on the bus\n", f.Run, f.Events)
	})
	if err == nil && left+done == 0 {
		fmt.Fprintln(a.io.out, "nothing was left in the spool")
	}
	if err == nil && left > 0 {
		err = &exitError{code: exitIncomplete}
	}
	return err
}

func (a *app) listSpool() error {
	infos, err := spool.List(a.spoolRoot())
	if err != nil {
		return err
	}
	for _, i := range infos {
		state := "left behind"
		switch {
		case i.Err != nil:
			state = i.Err.Error()
		case i.Live:
			state = "live"
		case i.Shipped():
			state = "shipped"
		}
		fmt.Fprintf(a.io.out, "%s  %d events, %d acknowledged, %d bytes  %s\n", dash(i.Meta.Run), i.Last, i.Acked, i.Bytes, state)
	}
	return nil
}

// orHub replaces never: a command that asks for the bus by itself may start the
// hub also where runs must not.
func orHub(h string) string {
	if h == hubNever {
		return hubAuto
	}
	return h
}
