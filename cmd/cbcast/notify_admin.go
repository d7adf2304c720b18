package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/consume"
)

// adminPatience bounds how long a running notify is waited for.
const adminPatience = 15 * time.Second

// ask asks the notify that runs, or does it here where none does.
func (a *app) notifyAsk(ctx context.Context, r notify.Request) (notify.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	if a.cfg.Notify.Rules == "" {
		return notify.Answer{}, &exitError{exitUsage, errNoRules}
	}
	o := a.notifyOptions(consumerEnv{dir: a.notifyDir()})
	o.Idle = true
	n, err := notify.New(o)
	if errors.Is(err, notify.ErrBusy) {
		return notify.Ask(ctx, a.notifyDir(), r)
	}
	if err != nil {
		return notify.Answer{}, err
	}
	answer, err := n.Do(r)
	return answer, errors.Join(err, n.Close())
}

func newNotifyReplay(a *app) *cobra.Command {
	var r notify.Replay
	var since string
	c := &cobra.Command{
		Use:   "replay",
		Short: "Send notices again",
		Long: `replay sends notices again that were delivered, or with --dead those that were given
up. They keep their ids, so a receiver that has one can tell. What notify delivered is
kept for a while: 64 MiB.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if since != "" {
				t, err := moment(since, time.Now())
				if err != nil {
					return &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
				}
				r.Since = t
			}
			if !r.Dead && r.Since.IsZero() && r.Run == "" {
				return &exitError{exitUsage, errors.New("say what: --dead, --since TIME or --run RUN")}
			}
			answer, err := a.notifyAsk(c.Context(), notify.Request{Replay: &r})
			if err != nil {
				return err
			}
			if answer.Sent == 1 {
				fmt.Fprintln(a.io.out, "1 notice is sent again")
			} else {
				fmt.Fprintf(a.io.out, "%d notices are sent again\n", answer.Sent)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&since, "since", "", "from this time on: 2h ago as 2h, or 2027-01-31T00:00:00Z")
	f.StringVar(&r.Dest, "dest", "", "of this destination only")
	f.StringVar(&r.Run, "run", "", "of this run only: its id, the beginning or the end of it, or last")
	f.BoolVar(&r.Dead, "dead", false, "what was given up")
	f.IntVar(&r.Limit, "limit", 0, "at most so many (default 1000)")
	return c
}

func newNotifyForget(a *app) *cobra.Command {
	var q notify.Forget
	var asJSON bool
	c := &cobra.Command{
		Use:   "forget RUN",
		Short: "Erase what notify keeps of a run",
		Long: `forget erases a run from everything that notify keeps on this machine: notices that wait,
that were given up and that were delivered, what was told, the places of its messages, its
buttons, and events that could not be handled. It works while notify runs, and without it.
A mark without the run's name stays for CBCAST_NOTIFY_TOLD_AGE: nothing is told of the run
any more, also where it goes on. Who was told has the message: forget lists them, and says
until when there may be other copies.

RUN is an id, its beginning or end (4 characters or more), or "last": the run that was told
of last.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q.Run = args[0]
			f, err := a.notifyForget(c.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.io.out).Encode(f)
			}
			a.sayForgotten(f)
			return nil
		},
	}
	c.Flags().StringVar(&q.Tenant, "tenant", "", "its tenant, where several have such a run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// forgetPatience bounds how long a running notify may take: it waits for what it sends.
const forgetPatience = 3 * time.Minute

func (a *app) notifyForget(ctx context.Context, q notify.Forget) (*notify.Forgotten, error) {
	f, err := notify.ForgetHere(a.notifyDir(), a.cfg.Notify.ToldAge, q)
	if !errors.Is(err, notify.ErrBusy) {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, forgetPatience)
	defer cancel()
	answer, err := notify.Ask(ctx, a.notifyDir(), notify.Request{Forget: &q})
	return answer.Forgot, err
}

func (a *app) sayForgotten(f *notify.Forgotten) {
	w := a.io.out
	fmt.Fprintf(w, "forgotten: run %s of tenant %s in %s: %s waiting, %s given up, %s of what was delivered, %s\n", printable(f.Run), printable(f.Tenant),
		a.notifyDir(), counted(f.Waiting, "notice"), counted(f.Letters, "notice"), copies(f.Sent), counted(f.Events, "event"))
	if f.Sending > 0 {
		fmt.Fprintf(w, "%s of it is being sent at this moment and cannot be taken back\n", counted(f.Sending, "notice"))
	}
	if len(f.Told) == 0 {
		fmt.Fprintln(w, "it is not known that anybody was told, or that is more than 64 MiB of notices ago")
	}
	for _, t := range f.Told {
		fmt.Fprintf(w, "told and not taken back: %s; remove it there\n", printable(t))
	}
	if until := f.Last.Add(a.cfg.MaxAge); !f.Last.IsZero() && until.After(time.Now()) {
		fmt.Fprintf(w, "still on the bus until %v (CBCAST_MAX_AGE) after its last message, most likely %s\n", a.cfg.MaxAge, utc(until))
	} else {
		fmt.Fprintf(w, "still on the bus until %v (CBCAST_MAX_AGE) after its last message\n", a.cfg.MaxAge)
	}
	fmt.Fprintf(w, "still in the spool of the machine that ran it, until its run has ended and the bus has all of it and %v have passed\n", 2*a.syncInterval())
	fmt.Fprint(w, "still in the archive, where there is one: cbcast archive erase; in the traces and logs of cbcast; in backups of this directory; "+
		"and in the directory of every other machine that notify ran on\n")
}

func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

// moment is a time as people say it: so long ago, or a date.
func moment(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time; want 2h or 2027-01-31T00:00:00Z", s)
}

func newNotifyEnable(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "enable DESTINATION",
		Short: "Take a destination up again that said it is gone",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := a.notifyAsk(c.Context(), notify.Request{Enable: args[0]}); err != nil {
				return err
			}
			fmt.Fprintf(a.io.out, "%s is enabled; cbcast notify replay --dead --dest %s sends what it has missed\n", args[0], args[0])
			return nil
		},
	}
}

func newNotifyLs(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "What waits to be told, by destination",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := notify.Look(a.notifyDir())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.io.out).Encode(s)
			}
			w := tabwriter.NewWriter(a.io.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "DESTINATION\tKIND\tRUN\tMADE\tTRIES\tNEXT")
			for _, it := range s.Items {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", printable(it.Destination), it.Kind, printable(it.Run), shortTime(it.Made), it.Tries, shortTime(it.Next))
			}
			for _, d := range s.Disabled {
				fmt.Fprintf(w, "%s\tdisabled\t\t%s\t\t%s\n", printable(d.Name), shortTime(d.At), printable(d.Why))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(a.io.out, "%d waiting, %d open asks and lost runs, %d given up\n", len(s.Items), s.Watches, s.Letters)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func shortTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func newNotifyDead(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "dead",
		Short: "What was given up, and why",
		Long: `dead lists the notices that were given up, and the events that could not be handled.
cbcast notify replay --dead sends the notices again.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := notify.Dead(a.notifyDir())
			if err != nil {
				return err
			}
			enc := json.NewEncoder(a.io.out)
			w := tabwriter.NewWriter(a.io.out, 0, 0, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(w, "AT\tDESTINATION\tKIND\tRUN\tHOW\tWHY")
			}
			for _, l := range list {
				if asJSON {
					if err := enc.Encode(l); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", shortTime(l.At), printable(l.Destination), l.Kind, printable(l.Run), l.How, printable(l.Why))
			}
			err = a.eachLetter(consume.OpenLetters(a.notifyDir()), asJSON, func(d *consume.Dead) {
				fmt.Fprintf(w, "%s\t-\tevent\t%s\tdead\t%s\n", shortTime(d.Time), printable(d.Run), printable(d.Reason))
			})
			return errors.Join(err, w.Flush())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}
