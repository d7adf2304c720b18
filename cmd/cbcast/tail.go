package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

func newTail(a *app) *cobra.Command {
	var o tailOptions
	var w wanted
	var all bool
	c := &cobra.Command{
		Use:   "tail [flags] RUN",
		Short: "Print the events of a run, or of all",
		Long: `tail prints what a run's events say, one line each. RUN is an id of cbcast ls, an
unambiguous part of one, or "last". With --follow it goes on until the run ends.
--json prints CloudEvents, one a line, data byte for byte as the agent wrote it;
--raw prints the agent's stdout itself.

With --all there is no RUN: the events of all runs are printed from now on, until
tail is ended, each line with the end of its run's id. --tenant, --dialect,
--session and --state choose, several words separated by commas; state and dialect
are those of the list at the time of the event. --kind chooses with a RUN, too:
life, msg, task, end, ask, cmd, raw.
The list is written after the event, so that --state waiting misses asks: to see
them, leave --state out.`,
		Args: func(c *cobra.Command, args []string) error {
			if all {
				return cobra.NoArgs(c, args)
			}
			return cobra.ExactArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(all); err != nil {
				return &exitError{exitUsage, err}
			}
			if all {
				return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error { return a.tailAll(ctx, b, o, w) })
			}
			return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
				r, err := resolve(ctx, b, args[0])
				if err != nil {
					return err
				}
				o.kinds = w.kinds
				return a.tail(ctx, b, r, o)
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with new events until the run ends")
	f.BoolVar(&o.json, "json", false, "print CloudEvents in JSON, one a line")
	f.BoolVar(&o.raw, "raw", false, "print the agent's stdout as it was (masked spans excepted)")
	f.Uint64Var(&o.after, "after", 0, "begin behind this event number")
	f.BoolVar(&all, "all", false, "the events of all runs, from now on")
	for name, words := range map[string]*[]string{
		"tenant": &w.tenants, "dialect": &w.dialects, "session": &w.sessions, "state": &w.states,
	} {
		f.StringSliceVar(words, name, nil, "with --all: only this "+name)
	}
	f.StringSliceVar(&w.kinds, "kind", nil, "only this kind of event")
	c.MarkFlagsMutuallyExclusive("json", "raw")
	c.MarkFlagsMutuallyExclusive("all", "after")
	c.MarkFlagsMutuallyExclusive("all", "raw")
	return c
}

type tailOptions struct {
	follow, json, raw bool
	after             uint64
	kinds             []string // none is all
}

func (a *app) tail(ctx context.Context, b *bus.Bus, r bus.RunInfo, o tailOptions) error {
	ref := bus.Ref{Tenant: r.Tenant, Run: r.Run, Partition: r.Partition, First: r.First}
	p := printer{a: a, o: o}
	if o.follow {
		err := follow(ctx, b, ref, o.after, p.print)
		if p.err != nil {
			return p.err
		}
		return err
	}
	after, seen := o.after, map[string]bool{}
	if _, err := pass(ctx, b, ref, &after, seen, p.print); err != nil {
		return err
	}
	return p.err
}

// printer prints events one after the other, split frames joined.
type printer struct {
	a      *app
	o      tailOptions
	prefix string // of each line for people
	join   event.Joiner
	err    error // of writing; nothing follows it
}

func (p *printer) print(e *event.Event) bool {
	whole, _, broken := p.join.Add(e)
	for _, f := range []*event.Event{broken, whole} {
		if f != nil && p.err == nil && among(p.o.kinds, string(f.Kind)) {
			p.err = p.one(f)
		}
	}
	return p.err == nil
}

func (p *printer) one(e *event.Event) error {
	var err error
	switch {
	case p.o.raw:
		if e.Stream != event.Out {
			return nil
		}
		line := e.Data
		if !e.Cut {
			line = append(line[:len(line):len(line)], '\n')
		}
		_, err = p.a.io.out.Write(line)
	case p.o.json:
		_, err = p.a.io.out.Write(append(e.AppendJSON(nil), '\n'))
	default:
		_, err = fmt.Fprintf(p.a.io.out, "%s%s %6s %-4s %s\n", p.prefix, e.Time.Local().Format("15:04:05.000"), number(e), e.Kind, summary(e))
	}
	return err
}

// number is an event's number, "·" for a fact beside the run's own.
func number(e *event.Event) string {
	if e.Seq == 0 {
		return "·"
	}
	return strconv.FormatUint(e.Seq, 10)
}
