package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

func newInterrupt(a *app) *cobra.Command {
	o := interruptOptions{deliver: 30 * time.Second, effect: time.Minute}
	c := &cobra.Command{
		Use:   "interrupt [flags] RUN",
		Short: "Stop what an agent is doing",
		Long: `interrupt asks the agent of RUN to stop its turn and its tasks. RUN is an id of
cbcast ls, an unambiguous part of one (its beginning or end, 4 characters or more),
or "last". With --task only that task is stopped (Claude Code).

Without --wait it returns when the bus has the command. With --wait it prints each
fact as it comes (accepted, written, acked, settled …) and returns at the last one.

Exit codes with --wait: 0 settled, or nothing was open   1 refused
  4 expired, or nobody knows what became of it   2 usage
Without --wait: 0 the bus has the command   1 the run has ended`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return &exitError{exitUsage, err}
			}
			return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
				r, err := resolve(ctx, b, args[0])
				if err != nil {
					return err
				}
				return a.interrupt(ctx, b, r, o)
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&o.wait, "wait", false, "wait for the effect and print each fact")
	f.StringVar(&o.reason, "reason", "", "why, for the agent and the audit")
	f.StringVar(&o.task, "task", "", "stop this task only")
	f.BoolVar(&o.keepTurn, "keep-turn", false, "stop the tasks and let the turn go on, where the agent does that (cbc)")
	f.StringVar(&o.id, "id", "", "id of the command: the same id again has no second effect (default: a new one)")
	f.DurationVar(&o.deliver, "deliver-within", o.deliver, "expire when the agent cannot be reached in this time")
	f.DurationVar(&o.effect, "effect-within", o.effect, "how long the effect is awaited; an agent that cannot be reached in\nthis time is not told either")
	return c
}

type interruptOptions struct {
	wait, keepTurn   bool
	reason, task, id string
	deliver, effect  time.Duration
}

func (o *interruptOptions) check() error {
	switch {
	case o.id != "" && !relay.ValidCommandID(o.id):
		return fmt.Errorf("--id %q: use 1 to 64 of letters, digits, '.', '_', ':', '-'", o.id)
	case o.deliver <= 0 || o.effect <= 0:
		return errors.New("--deliver-within and --effect-within must be above 0")
	}
	return nil
}

func (a *app) interrupt(ctx context.Context, b *bus.Bus, r bus.RunInfo, o interruptOptions) error {
	cmd := bus.Command{ID: o.id, Tenant: r.Tenant, Run: r.Run, Name: "interrupt", Time: time.Now()}
	if cmd.ID == "" {
		cmd.ID = uuid.NewString()
	}
	args := map[string]string{}
	if o.reason != "" {
		args["reason"] = o.reason
	}
	if o.task != "" {
		cmd.Name, args["task"] = "stop_task", o.task
	}
	if o.keepTurn {
		args["turn"] = "keep"
	}
	cmd.Data, _ = json.Marshal(args) // a map of strings always marshals
	cmd.DeliverBy = cmd.Time.Add(min(o.deliver, o.effect))
	cmd.EffectBy = cmd.Time.Add(o.effect)
	cmd.Actor, cmd.From = actor(), "cli"

	ref := bus.Ref{Tenant: r.Tenant, Run: r.Run, Partition: r.Partition, First: r.First}
	last, _, err := b.Last(ctx, ref)
	if err != nil {
		return fmt.Errorf("read the run: %w", err)
	}
	if last.Type == event.TypeExited {
		return &exitError{exitFailed, fmt.Errorf("run %s has ended; there is nothing to interrupt", r.Run)}
	}
	// First, so that no command is without its audit.
	if err := audit(ctx, b, cmd, o); err != nil {
		return err
	}
	dup, err := b.SendCommand(ctx, cmd)
	if err != nil {
		return fmt.Errorf("send the command: %w", err)
	}
	word := event.Accepted
	if dup {
		word = "accepted before"
	}
	fmt.Fprintf(a.io.out, "%-9s command %s to run %s\n", word, cmd.ID, r.Run)
	if !o.wait {
		return nil
	}
	return a.awaitFacts(ctx, b, ref, last.Seq, cmd)
}

// awaitFacts prints the facts of a command as they come.
func (a *app) awaitFacts(ctx context.Context, b *bus.Bus, ref bus.Ref, after uint64, cmd bus.Command) error {
	// The edge says "unknown" at the deadline, a relay "expired" where there is
	// no edge; this is for the case that nobody is left to say anything.
	ctx, cancel := context.WithDeadline(ctx, cmd.EffectBy.Add(15*time.Second))
	defer cancel()
	var final event.CommandFact
	err := follow(ctx, b, ref, after, func(e *event.Event) bool {
		if e.Type != event.TypeCommand && e.Type != event.TypeCommandFact {
			return true
		}
		var f event.CommandFact
		if json.Unmarshal(e.Data, &f) != nil || f.Command != cmd.ID {
			return true
		}
		fmt.Fprintf(a.io.out, "%-9s %s%s\n", f.Fact, explain(f.Reason), details(f))
		if f.Fact.Final() {
			final = f
		}
		return !f.Fact.Final()
	})
	switch {
	case final.Fact == event.Settled || final.Fact == event.NoEffect:
		return nil
	case final.Fact == event.Refused:
		return &exitError{code: exitFailed}
	case final.Fact != "":
		return &exitError{code: exitIncomplete}
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{exitIncomplete, errors.New("no fact came in time; the run's edge may be gone")}
	case err == nil:
		return &exitError{exitIncomplete, errors.New("the run ended without a word about the command")}
	}
	return err
}

// explain adds to a reason what can be done about it.
func explain(reason string) string {
	switch reason {
	case "no_control_channel":
		return reason + ": the agent takes messages only with --input-format stream-json"
	case "stdin_closed":
		return reason + ": its host has ended its stdin; run --hold-stdin keeps it open while something is open"
	}
	return printable(reason)
}

func details(f event.CommandFact) string {
	var s string
	for _, k := range slices.Sorted(maps.Keys(f.Detail)) {
		s += "  " + printable(k) + ": " + printable(f.Detail[k])
	}
	return s
}

// actor names who gives a command from this terminal.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// audit records who gave a command. It is written once, whoever repeats it.
func audit(ctx context.Context, b *bus.Bus, c bus.Command, o interruptOptions) error {
	alive, err := b.Alive(ctx, c.Run)
	if err != nil {
		return fmt.Errorf("look for the edge: %w", err)
	}
	data, err := json.Marshal(relay.Audit{
		Command: c.ID, Name: c.Name, Task: o.task, Reason: o.reason, Actor: c.Actor, From: c.From,
		DeliverBy: c.DeliverBy, EffectBy: c.EffectBy, EdgeAlive: alive,
	})
	if err != nil {
		return err
	}
	_, err = b.PutControl(ctx, &event.Event{
		Tenant: c.Tenant, Run: c.Run, Ref: subject.Audit(c.ID), Time: c.Time, Type: event.TypeAudit, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON, Data: data,
	}, subject.Audit(c.ID), 0)
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		return fmt.Errorf("write the audit fact: %w", err)
	}
	return nil
}
