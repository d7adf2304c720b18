package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/consume"
	"github.com/cbcast/cbcast/internal/segment"
)

func newArchiveErase(a *app) *cobra.Command {
	var tenant, why, by string
	c := &cobra.Command{
		Use:   "erase RUN",
		Short: "Destroy the keys of a run, so that nobody reads it any more",
		Long: `erase destroys the keys of one run in every segment. Its bytes stay, so the chain still
verifies, but nothing opens them. That it happened, who did it and why is in the chain
for ever. A legal hold forbids it. Copies outside of the archive are not reached: it says
until when there may be some.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.archiveErase(c.Context(), tenant, args[0], by, why)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "its tenant, where several may have the run")
	c.Flags().StringVar(&why, "reason", "", "why, for the record; no personal data")
	c.Flags().StringVar(&by, "by", me(), "who does it, for the record")
	needReason(c, &why)
	return c
}

// needReason refuses to state something without a reason.
func needReason(c *cobra.Command, why *string) {
	_ = c.MarkFlagRequired("reason")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if strings.TrimSpace(*why) == "" {
			return &exitError{exitUsage, errors.New("--reason is empty: say why, it is part of the record")}
		}
		return run(c, args)
	}
}

func (a *app) archiveErase(ctx context.Context, tenant, run, by, why string) error {
	return a.writeArchive(ctx, func(p archive.Place, ar *segment.Archive) error {
		info, err := a.foundRun(ctx, p, tenant, run)
		if err != nil {
			return err
		}
		h, err := archive.Erase(ctx, p, ar, info.Tenant, info.Run, by, why)
		if errors.Is(err, segment.ErrHeld) {
			return fmt.Errorf("%w; cbcast archive hold ls --tenant %s shows which", err, printable(info.Tenant))
		}
		if err != nil {
			return err
		}
		a.copyHead(ctx, h)
		fmt.Fprintf(a.io.out, "erased: run %s of tenant %s, %s in %s", printable(info.Run), printable(info.Tenant),
			counted(info.Records, "record"), counted(len(info.Segments), "segment"))
		if h != nil {
			fmt.Fprintf(a.io.out, " (head %d)", h.Number)
		}
		fmt.Fprintf(a.io.out, "\n%s", a.copiesOf(info))
		return nil
	})
}

// copiesOf says where copies of a run may be, and until when.
func (a *app) copiesOf(info *segment.RunInfo) string {
	until := info.Last.Add(a.cfg.MaxAge)
	var b strings.Builder
	if until.After(time.Now()) {
		fmt.Fprintf(&b, "still on the bus until %s (its last message here was stored %s, streams keep %v: CBCAST_MAX_AGE); of a run that goes on, later messages longer\n",
			utc(until), utc(info.Last), a.cfg.MaxAge)
	} else {
		fmt.Fprintf(&b, "no longer on the bus since %s, if its streams keep %v (CBCAST_MAX_AGE)\n", utc(until), a.cfg.MaxAge)
	}
	fmt.Fprintf(&b, "still in the spool of the machine that ran it, until its run has ended and the bus has all of it and %v have passed; "+
		"cbcast flush there ships and sweeps\n", 2*a.syncInterval())
	fmt.Fprintf(&b, "still with cbcast notify, if it told of the run, in %s where it runs: cbcast notify forget %s erases it there\n", a.notifyDir(), printable(info.Run))
	fmt.Fprintf(&b, "still with who got notices of the run (chat, mail, webhooks), and in the backend of cbcast trace\n")
	fmt.Fprintf(&b, "copies that were made of the archive's keys (backups, old versions of %s) keep it readable\n", keysPlace(&a.cfg.Archive))
	return b.String()
}

func keysPlace(c *archive.Config) string {
	if c.Keys != "" {
		return c.Keys
	}
	return c.Dest
}

func newArchiveHold(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "hold",
		Short: "Legal holds: what is under one is neither erased nor deleted",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.holdAdd(), a.holdRm(), a.holdLs())
	return c
}

// tenantForm is what CBCAST_TENANT may be. It is made when first asked for: no other
// command waits for it at its start.
var tenantForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$`)
})

func (a *app) holdAdd() *cobra.Command {
	var tenant, id, why, by string
	var force bool
	c := &cobra.Command{
		Use:   "add [RUN]",
		Short: "Hold a run, or without one everything of a tenant",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			run := ""
			if len(args) == 1 {
				run = args[0]
			} else if tenant == "" {
				return &exitError{exitUsage, errors.New("name a run, or a tenant with --tenant")}
			}
			if tenant != "" && !tenantForm().MatchString(tenant) {
				return &exitError{exitUsage, fmt.Errorf("--tenant %s: a tenant is 1 to 64 of letters, digits, '.', '_', '/', '-', beginning with a letter or digit", printable(tenant))}
			}
			if id == "" {
				id = uuid.NewString()
			}
			return a.writeArchive(c.Context(), func(p archive.Place, ar *segment.Archive) error {
				if run != "" {
					info, err := a.foundRun(c.Context(), p, tenant, run)
					if err != nil {
						return err
					}
					tenant = info.Tenant
				} else if !force {
					if err := a.knownTenant(c.Context(), p, tenant); err != nil {
						return fmt.Errorf("%w; --force holds what it will have", err)
					}
				}
				h, err := ar.Hold(c.Context(), tenant, run, id, by, why)
				if err != nil {
					return err
				}
				a.copyHead(c.Context(), h)
				fmt.Fprintf(a.io.out, "hold %s\n", id)
				return nil
			})
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "the tenant")
	c.Flags().BoolVar(&force, "force", false, "also a tenant of which the archive has nothing yet")
	c.Flags().StringVar(&id, "id", "", "the hold's name (default: a new one)")
	c.Flags().StringVar(&why, "reason", "", "why, for the record")
	c.Flags().StringVar(&by, "by", me(), "who does it, for the record")
	needReason(c, &why)
	return c
}

func (a *app) holdRm() *cobra.Command {
	var tenant, why, by string
	c := &cobra.Command{
		Use:   "rm HOLD",
		Short: "End a hold",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.writeArchive(c.Context(), func(p archive.Place, ar *segment.Archive) error {
				holds, bad := archive.Holds(c.Context(), p, tenant)
				for _, o := range holds {
					if o.ID != args[0] {
						continue
					}
					h, err := ar.Release(c.Context(), o.Tenant, o.ID, by, why)
					if err != nil {
						return err
					}
					a.copyHead(c.Context(), h)
					return nil
				}
				if bad != nil {
					return bad
				}
				return fmt.Errorf("there is no hold %s; cbcast archive hold ls lists them", printable(args[0]))
			})
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "its tenant, where several may have the name")
	c.Flags().StringVar(&why, "reason", "", "why, for the record")
	c.Flags().StringVar(&by, "by", me(), "who does it, for the record")
	needReason(c, &why)
	return c
}

func (a *app) holdLs() *cobra.Command {
	var tenant string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the holds that stand",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := a.openArchive(c.Context())
			if err != nil {
				return err
			}
			holds, bad := archive.Holds(c.Context(), p, tenant)
			if asJSON {
				err = printJSON(a.io.out, holds)
			} else {
				err = printHolds(a.io.out, holds)
			}
			return errors.Join(bad, err)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "only of this tenant")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

func printHolds(w io.Writer, holds []archive.Hold) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "HOLD\tTENANT\tRUN\tSINCE\tBY\tREASON")
	for _, o := range holds {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(o.ID), dash(o.Tenant), dash(o.Run), utc(o.Time), printable(o.By), printable(o.Why))
	}
	return tw.Flush()
}

func newArchiveRetention(a *app) *cobra.Command {
	var by string
	c := &cobra.Command{
		Use:   "retention",
		Short: "Delete the segments whose time is over, as the archive does each hour",
		Long: `retention deletes segments whose last message is older than CBCAST_ARCHIVE_RETENTION says for
their tenant, with the keys in them. What is under a legal hold stays. That they were
deleted is in the chain, so verify does not miss them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if a.cfg.Archive.Retention == "" {
				return &exitError{exitUsage, errors.New("CBCAST_ARCHIVE_RETENTION is not set: everything is kept; it may be TENANT=AGE,*=AGE")}
			}
			return a.writeArchive(c.Context(), func(p archive.Place, ar *segment.Archive) error {
				holds, _ := archive.Holds(c.Context(), p, "") // of whom it says nothing, retention does
				done, err := archive.Retain(c.Context(), &a.cfg.Archive, p, ar, by)
				for _, r := range done {
					for _, h := range r.Heads {
						a.copyHead(c.Context(), h)
					}
					fmt.Fprintln(a.io.out, retained(&r, holds))
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&by, "by", me(), "who does it, for the record")
	return c
}

// retained says what retention did for a tenant, and what a hold kept.
func retained(r *archive.Retained, holds []archive.Hold) string {
	if r.Held != nil {
		return fmt.Sprintf("tenant %s: nothing deleted, it is under a legal hold; cbcast archive hold ls shows it", printable(r.Tenant))
	}
	n := 0
	for i := range holds {
		if holds[i].Tenant == r.Tenant {
			n++
		}
	}
	text := fmt.Sprintf("tenant %s: %s deleted, all before %s", printable(r.Tenant), counted(r.Segments, "segment"), utc(r.Before))
	if n > 0 {
		text += fmt.Sprintf("; segments with a run under a hold stay (%s)", counted(n, "hold"))
	}
	return text
}

// counted is a number of things.
func counted[N int | int64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func newArchiveDead(a *app) *cobra.Command {
	var asJSON bool
	var rm bool
	c := &cobra.Command{
		Use:   "dead [LETTER]",
		Short: "List what could not be archived, or print one with its message",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			letters := consume.OpenLetters(a.archiveDir())
			switch {
			case len(args) == 0 && rm:
				return &exitError{exitUsage, errors.New("name the letter to remove")}
			case len(args) == 0:
				return a.showLetters(letters, asJSON)
			case rm:
				return letters.Remove(args[0])
			}
			d, err := letters.Read(args[0])
			if err != nil {
				return err
			}
			enc := json.NewEncoder(a.io.out)
			enc.SetIndent("", "  ")
			return enc.Encode(d)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	c.Flags().BoolVar(&rm, "rm", false, "remove the letter")
	return c
}
