package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
)

func newProvision(a *app) *cobra.Command {
	var plan bool
	c := &cobra.Command{
		Use:   "provision",
		Short: "Create the streams and buckets on a NATS server",
		Long: `provision creates what is missing of the streams and buckets that cbcast needs on
the server of CBCAST_NATS_URL. What exists is compared and never altered: where it
differs from what this configuration wants, the difference is printed.

Exit codes: 0 everything is as wanted (or was created)   4 something differs`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if a.cfg.Bus.URL == "" {
				return &exitError{exitUsage, errors.New("no server; set CBCAST_NATS_URL (the hub of this machine makes its own streams)")}
			}
			return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
				changes, err := b.Plan(ctx, a.topology())
				if err != nil {
					return fmt.Errorf("compare streams: %w", err)
				}
				if !plan {
					if _, err := b.Ensure(ctx, a.topology()); err != nil {
						return fmt.Errorf("create streams: %w", err)
					}
				}
				drift := false
				for _, ch := range changes {
					if ch.Field == "" && !plan {
						fmt.Fprintln(a.io.out, ch.Stream+": created")
						continue
					}
					fmt.Fprintln(a.io.out, ch)
					drift = drift || ch.Field != ""
				}
				if len(changes) == 0 {
					fmt.Fprintln(a.io.out, "everything is there")
				}
				if drift {
					return &exitError{code: exitIncomplete}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&plan, "plan", false, "only print what would be created and what differs")
	return c
}

func (a *app) topology() bus.Topology {
	return bus.Topology{
		Partitions: a.cfg.Partitions, Replicas: a.cfg.Replicas, MaxAge: a.cfg.MaxAge, MaxBytes: a.cfg.MaxBytes,
	}
}
