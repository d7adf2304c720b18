package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

func newInterrupt(a *app) *cobra.Command {
	o := giving{deliver: 30 * time.Second, effect: time.Minute}
	var args event.CommandArgs
	var keepTurn bool
	c := &cobra.Command{
		Use:   "interrupt [flags] RUN",
		Short: "Stop what an agent is doing",
		Long: `interrupt asks the agent of RUN to stop its turn and its tasks. RUN is an id of
cbcast ls, an unambiguous part of one (its beginning or end, 4 characters or more),
or "last". With --task only that task is stopped (Claude Code). With --escalate
what survives is stopped task by task, and then the agent is ended by signals.

` + waitHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, words []string) error {
			name := "interrupt"
			if args.Task != "" {
				if name = "stop_task"; keepTurn || args.Escalate {
					return &exitError{exitUsage, errors.New("--task stops one task; it goes with neither --keep-turn nor --escalate")}
				}
			}
			if keepTurn {
				args.Turn = "keep"
			}
			return a.give(c, words[0], o, relay.Order{Name: name, Args: args})
		},
	}
	o.orderFlags(c)
	f := c.Flags()
	f.StringVar(&args.Reason, "reason", "", "why, for the agent and the audit")
	f.StringVar(&args.Task, "task", "", "stop this task only")
	f.BoolVar(&keepTurn, "keep-turn", false, "stop the tasks and let the turn go on, where the agent does that (cbc)")
	f.BoolVar(&args.Escalate, "escalate", false, "go on to SIGTERM and SIGKILL of everything the agent started, each after its time")
	return c
}
