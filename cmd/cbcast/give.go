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

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/relay"
)

// waitHelp is what the help of every command to an agent says of --wait.
const waitHelp = `Without --wait it returns when the bus has the command. With --wait it prints each
fact as it comes (accepted, written, acked, settled …) and returns at the last one.

Exit codes with --wait: 0 settled, or nothing was open   1 refused
  4 expired, or nobody knows what became of it   2 usage
Without --wait: 0 the bus has the command   1 the run has ended`

// giving is how a command to an agent is given from a terminal.
type giving struct {
	wait, json      bool
	id              string
	deliver, effect time.Duration
}

// flags adds the flags that all commands to an agent share.
func (o *giving) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.wait, "wait", false, "wait for the effect and print each fact")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	f.DurationVar(&o.deliver, "deliver-within", o.deliver, "expire when the agent cannot be reached in this time")
}

// orderFlags adds those of a command that has an id of its own.
func (o *giving) orderFlags(c *cobra.Command) {
	o.flags(c)
	f := c.Flags()
	f.StringVar(&o.id, "id", "", "id of the command: the same id again has no second effect (default: a new one)")
	f.DurationVar(&o.effect, "effect-within", o.effect, "how long the effect is awaited; an agent that cannot be reached in\nthis time is not told either")
}

func (o *giving) check(c *cobra.Command) error {
	switch {
	case o.id != "" && !relay.ValidCommandID(o.id):
		return fmt.Errorf("--id %q: use 1 to 64 of letters, digits, '.', '_', ':', '-'; answer-…, late-… and policy-… are taken", o.id)
	case c.Flags().Changed("deliver-within") && o.deliver <= 0, c.Flags().Changed("effect-within") && o.effect <= 0:
		return errors.New("--deliver-within and --effect-within must be above 0")
	}
	return nil
}

// giver gives commands in the name of whoever sits at this terminal.
func giver(b *bus.Bus) *relay.Giver { return &relay.Giver{Bus: b, Actor: actor(), From: "cli"} }

// give gives a command to the run that word means.
func (a *app) give(c *cobra.Command, word string, o giving, order relay.Order) error {
	if err := o.check(c); err != nil {
		return &exitError{exitUsage, err}
	}
	order.ID, order.DeliverWithin, order.EffectWithin = o.id, o.deliver, o.effect
	return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
		r, err := resolve(ctx, b, word)
		if err != nil {
			return err
		}
		after, err := lastSeq(ctx, b, r)
		if err != nil {
			return err
		}
		g, err := giver(b).Give(ctx, r, order)
		if err != nil {
			return refusedErr(r.Run, err)
		}
		return a.given(ctx, b, r, after, g, o)
	})
}

func lastSeq(ctx context.Context, b *bus.Bus, r bus.RunInfo) (uint64, error) {
	last, _, err := b.Last(ctx, r.Ref())
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the run: %w", err)
	}
	return last.Seq, nil
}

// refusedErr says why the bus did not get a command, with the exit code of that.
func refusedErr(run string, err error) error {
	switch relay.CodeOf(err) {
	case "":
		return fmt.Errorf("give the command: %w", err)
	case relay.CodeEnded:
		return &exitError{exitFailed, fmt.Errorf("run %s has ended; there is nothing to command", run)}
	case relay.CodeBadRequest, relay.CodeNotFound, relay.CodeTooLarge:
		return &exitError{exitUsage, err}
	case relay.CodeAnswered:
		d := relay.DetailsOf(err)
		return &exitError{exitFailed, fmt.Errorf("%w: %s by %s", err, printable(fmt.Sprint(d["decision"])), printable(fmt.Sprint(d["actor"])))}
	default:
		if reason, ok := relay.DetailsOf(err)["reason"].(string); ok && reason != "" {
			err = fmt.Errorf("%w: %s", err, printable(reason))
		}
		return &exitError{exitFailed, err}
	}
}

// given says that the bus has the command, and waits for what becomes of it.
func (a *app) given(ctx context.Context, b *bus.Bus, r bus.RunInfo, after uint64, g relay.Given, o giving) error {
	c := g.Command
	if o.json {
		err := printJSON(a.io.out, []relay.CommandAccepted{{
			Command: c.ID, Run: c.Run, Name: c.Name, State: string(event.Accepted), Duplicate: g.Duplicate, Facts: "/v1/commands/" + c.ID,
		}})
		if err != nil {
			return err
		}
	} else {
		word := string(event.Accepted)
		if g.Duplicate {
			word = "accepted before"
		}
		fmt.Fprintf(a.io.out, "%-9s command %s to run %s\n", word, c.ID, r.Run)
		if alive, err := b.Alive(ctx, r.Run); err == nil && !alive && !(g.Duplicate && isOver(ctx, b, r, c.ID)) {
			fmt.Fprintln(a.io.err, "cbcast: the run's edge is not there now; the command waits for it until", c.DeliverBy.Local().Format(time.DateTime))
		}
	}
	if !o.wait {
		return nil
	}
	if g.Duplicate {
		after = 0 // its facts may be there already
	}
	return a.awaitFacts(ctx, b, r.Ref(), after, c, o.json)
}

// isOver reports whether a command that was given before waits for nothing any more.
func isOver(ctx context.Context, b *bus.Bus, r bus.RunInfo, id string) bool {
	if !r.Ended.IsZero() {
		return true
	}
	reading, err := relay.Read(ctx, b, r)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(reading.View().Commands, func(c run.CommandView) bool { return c.ID == id && event.Fact(c.State).Final() })
}

// A factLine is one fact of a command in JSON.
type factLine struct {
	event.CommandFact
	Seq uint64    `json:"seq,omitempty"` // 0 where no edge wrote it
	At  time.Time `json:"at"`
}

// awaitFacts prints the facts of a command as they come.
func (a *app) awaitFacts(ctx context.Context, b *bus.Bus, ref bus.Ref, after uint64, cmd bus.Command, asJSON bool) error {
	// The edge says "unknown" at the deadline, a relay "expired" where there is
	// no edge; this is for the case that nobody is left to say anything.
	if !cmd.EffectBy.IsZero() { // else it has until the run ends
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, cmd.EffectBy.Add(15*time.Second))
		defer cancel()
	}
	var final event.CommandFact
	err := follow(ctx, b, ref, after, func(e *event.Event) bool {
		if e.Type != event.TypeCommand && e.Type != event.TypeCommandFact {
			return true
		}
		var f event.CommandFact
		if json.Unmarshal(e.Data, &f) != nil || f.Command != cmd.ID {
			return true
		}
		if asJSON {
			_ = printJSON(a.io.out, []factLine{{f, e.Seq, e.Time}}) // the exit code says the same
		} else {
			fmt.Fprintf(a.io.out, "%-9s %s%s\n", f.Fact, explain(f.Reason), details(f))
		}
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
