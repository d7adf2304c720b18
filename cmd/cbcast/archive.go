package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/segment"
)

// archiveKind is how cbcast starts the archive.
func archiveKind() consumerKind {
	return consumerKind{
		name:   "archive",
		addr:   func(c *config) string { return c.Archive.Addr },
		wanted: func(c *config) bool { return c.Archive.Dest != "" },
		check: func(a *app) error {
			if err := errors.Join(a.cfg.Archive.Check(), a.cfg.Archive.CheckPlaces()); err != nil {
				return err
			}
			_, err := a.cfg.Archive.Open() // asks no server
			return err
		},
		open: func(_ context.Context, a *app, e consumerEnv) (consumer, error) {
			return archive.New(archive.Options{
				Config: a.cfg.Archive, Bus: e.bus, Partitions: a.partitions(), Dir: e.dir, Log: e.log,
			})
		},
	}
}

// archiveDir is the archive's state directory.
func (a *app) archiveDir() string { return filepath.Join(a.cfg.StateDir, "archive") }

func newArchive(a *app) *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "archive",
		Short: "Keep every event, fact and command in an archive that can be proven",
		Long: `archive reads everything on the bus and keeps it in CBCAST_ARCHIVE_DEST, a directory or
s3://bucket/prefix: each message with its headers and exact bytes, sealed in segments
whose chain is signed. It works until it is stopped; a second one stands by. cbcast up
runs it, too, where CBCAST_ARCHIVE_DEST is set. The commands below it read, prove and
look after an archive; those that only read need no bus. See docs/archive.md.`,
		Example: `  CBCAST_ARCHIVE_DEST=/srv/archive cbcast archive
  cbcast archive --check                are the settings right, and can the place hold an archive
  cbcast archive ls --since 24h --actor alice
  cbcast archive verify --public-key archive.pub.pem --heads /mnt/elsewhere/heads.ndjson
  cbcast archive cat RUN > session.ndjson`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if check {
				return a.archiveCheck(c.Context())
			}
			if err := a.archiveFit(c.Context(), fitAtStart); errors.Is(err, segment.ErrUnfit) {
				return &exitError{exitUsage, err}
			} // what is away is waited for
			return a.runConsumer(c.Context(), archiveKind())
		},
	}
	c.Flags().BoolVar(&check, "check", false, "check the settings, and whether the place can hold an archive; nothing is archived")
	c.PersistentFlags().StringVar(&a.cfg.Archive.Dest, "dest", a.cfg.Archive.Dest, "the archive: a directory, or s3://bucket/prefix")
	c.PersistentFlags().StringVar(&a.cfg.Archive.Keys, "keys", a.cfg.Archive.Keys, "where the keys of its runs are, if not there")
	c.AddCommand(newArchiveKeygen(a), newArchiveRotate(a), newArchiveLs(a), newArchiveShow(a), newArchiveVerify(a),
		newArchiveCat(a), newArchiveExport(a), newArchiveErase(a), newArchiveHold(a), newArchiveRetention(a), newArchiveDead(a))
	tellDamage(c)
	return c
}

// tellDamage makes commands end with verify's exit status where an archive is damaged.
func tellDamage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		tellDamage(sub)
		run := sub.RunE
		if run == nil {
			continue
		}
		sub.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			if already := (*exitError)(nil); !errors.As(err, &already) && segment.Damaged(err) {
				err = &exitError{exitTampered, err}
			}
			return err
		}
	}
}

// How long the place of an archive is asked whether it can hold one: at the start of what waits
// for it anyway, and when that is the question.
const (
	fitAtStart = 5 * time.Second
	fitAsked   = 30 * time.Second
)

// archiveFit asks the place, where the settings are right.
func (a *app) archiveFit(ctx context.Context, patience time.Duration) error {
	if err := a.checkKinds(archiveKind()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.cfg.Archive.Fit(ctx)
}

// archiveCheck says whether an archive can be kept with these settings.
func (a *app) archiveCheck(ctx context.Context) error {
	if err := a.archiveFit(ctx, fitAsked); err != nil {
		if errors.Is(err, segment.ErrUnfit) {
			err = &exitError{exitUsage, err}
		}
		return err
	}
	c := &a.cfg.Archive
	if err := c.Writable(); err != nil {
		return err
	}
	say := func(what, where, none string) {
		if where == "" {
			where = none
		}
		fmt.Fprintf(a.io.out, "%-10s %s\n", what, printable(where))
	}
	say("archive", c.Dest, "")
	say("keys", c.Keys, "there, too: whoever keeps old versions of it keeps what was erased")
	say("heads", c.HeadsPlace(), "no second place: who can write to the archive can cut its end off unseen (CBCAST_ARCHIVE_HEADS)")
	say("retention", c.Retention, "everything is kept for ever")
	switch _, err := c.OpenExisting(ctx); {
	case errors.Is(err, segment.ErrNoArchive):
		say("state", "", "no archive yet: one is begun")
	case err != nil:
		return err
	default:
		say("state", "", "there is an archive: it is gone on with")
	}
	fmt.Fprintln(a.io.out, "ok")
	return nil
}

// openArchive opens an archive to read. It creates nothing.
func (a *app) openArchive(ctx context.Context) (archive.Place, error) {
	if err := a.cfg.Archive.Check(); err != nil {
		return archive.Place{}, &exitError{exitUsage, err}
	}
	return a.cfg.Archive.OpenExisting(ctx)
}

// knownTenant says that a tenant is not in the archive, where that is so; "" is all.
func (a *app) knownTenant(ctx context.Context, p archive.Place, tenant string) error {
	if tenant == "" {
		return nil
	}
	all, err := p.Reader().Tenants(ctx)
	if slices.Contains(all, tenant) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("no such tenant: %s is not in the archive %s", printable(tenant), a.cfg.Archive.Dest)
	}
	return err
}

// writeArchive opens an archive to state something. The signing key is needed.
func (a *app) writeArchive(ctx context.Context, fn func(archive.Place, *segment.Archive) error) error {
	if err := a.cfg.Archive.Check(); err != nil {
		return &exitError{exitUsage, err}
	}
	return archive.Write(ctx, &a.cfg.Archive, a.archiveDir(), fn)
}

// copyHead sends what was stated to the second place of heads.
func (a *app) copyHead(ctx context.Context, h *segment.Head) {
	if err := a.cfg.Archive.CopyHead(ctx, h); err != nil {
		fmt.Fprintln(a.io.err, "cbcast: the head is not copied yet; the archive will do it:", err)
	}
}

// me is who uses this machine.
func me() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// notSealed is why a run may be missing.
const notSealed = "what came in the last CBCAST_ARCHIVE_SEAL_AGE may not be sealed yet"

// foundRun is a run of the archive, by its whole id.
func (a *app) foundRun(ctx context.Context, p archive.Place, tenant, run string) (*segment.RunInfo, error) {
	info, err := p.Reader().Run(ctx, tenant, run)
	if errors.Is(err, segment.ErrNotFound) {
		return nil, fmt.Errorf("run %s is not in the archive %s: cbcast archive ls lists those that are; %s", printable(run), a.cfg.Archive.Dest, notSealed)
	}
	return info, err
}

// namedRun is a run of the archive to read: by its id, the beginning of it, or "last". What
// changes something takes the whole id only. What cannot be read is named, and not searched.
func (a *app) namedRun(ctx context.Context, p archive.Place, tenant, run string) (*segment.RunInfo, error) {
	r := p.Reader()
	info, err := r.Run(ctx, tenant, run)
	if err == nil || !errors.Is(err, segment.ErrNotFound) && !segment.Damaged(err) {
		return info, err
	}
	var found *segment.RunInfo
	var bad []error
	for i, err := range r.Runs(ctx, tenant, time.Time{}, time.Time{}) {
		switch {
		case segment.Damaged(err):
			bad = append(bad, err)
		case err != nil:
			return nil, err
		case run == "last":
			if found == nil || i.Last.After(found.Last) {
				found = i
			}
		case !strings.HasPrefix(i.Run, run):
		case found != nil:
			return nil, &exitError{exitUsage, fmt.Errorf("%s is the beginning of several runs: %s and %s among them",
				printable(run), printable(found.Run), printable(i.Run))}
		default:
			found = i
		}
	}
	if found == nil {
		return a.foundRun(ctx, p, tenant, run)
	}
	for _, err := range bad {
		fmt.Fprintln(a.io.err, "cbcast: not searched for the run:", err)
	}
	return found, nil
}

// past reads a time that lies behind: a duration before now, a date, or a time.
func past(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: want one before now (24h), a day of UTC (2026-03-01) or RFC 3339", s)
}
