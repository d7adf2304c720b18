package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/consumers/archive"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/segment"
)

func newArchiveLs(a *app) *cobra.Command {
	var f archive.Filter
	var since, until string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the runs of an archive: who decided what, and what was masked",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if f.Since, err = past(since, time.Now()); err == nil {
				f.Until, err = past(until, time.Now())
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.archiveLs(c.Context(), f, asJSON)
		},
	}
	c.Flags().StringVar(&since, "since", "", "only runs with something stored since: 24h, 2026-03-01 or a time")
	c.Flags().StringVar(&until, "until", "", "only runs with something stored before")
	c.Flags().StringVar(&f.Tenant, "tenant", "", "only of this tenant")
	c.Flags().StringVar(&f.Repo, "repo", "", "only of this repository, as the CI names it")
	c.Flags().StringVar(&f.Actor, "actor", "", "only those for which this token, person or \"policy\" decided something")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

func (a *app) archiveLs(ctx context.Context, f archive.Filter, asJSON bool) error {
	p, err := a.openArchive(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(a.io.out)
		return archive.List(ctx, p, f, func(l archive.Listed) error { return enc.Encode(listedJSON(l)) })
	}
	if err := a.knownTenant(ctx, p, f.Tenant); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(a.io.out, 0, 8, 2, ' ', 0)
	n := 0
	err = archive.List(ctx, p, f, func(l archive.Listed) error {
		if n++; n == 1 {
			fmt.Fprintln(tw, "RUN\tTENANT\tRECORDS\tFIRST\tLAST\tREPO\tDECIDED BY\tMASKED\tSTATE")
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(l.Run), dash(l.Tenant), l.Records, utc(l.First), utc(l.Last),
			dash(l.Note.Repo), dash(strings.Join(actors(&l.Note), ",")), dash(masked(l.Note.Masked)), keepState(l.RunInfo))
		if n%500 == 0 { // widths are those of a page
			return tw.Flush()
		}
		return nil
	})
	if err == nil && n == 0 {
		fmt.Fprintf(a.io.err, "cbcast: no such runs in %s; %s\n", a.cfg.Archive.Dest, notSealed)
	}
	return errors.Join(err, tw.Flush())
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// actors are those who decided something, each once.
func actors(n *archive.Note) []string {
	var all []string
	for _, d := range n.Decisions {
		who := d.Actor
		if d.For != "" {
			who += " for " + d.For
		}
		if !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all
}

// masked is rule:count, by rule.
func masked(m map[string]int64) string {
	var all []string
	for _, rule := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s:%d", rule, m[rule]))
	}
	return strings.Join(all, ",")
}

func keepState(i *segment.RunInfo) string {
	switch {
	case i.Erased != nil:
		return "erased"
	case i.Held:
		return "held"
	case len(i.Gone) > 0 && len(i.Gone) == len(i.Segments):
		return "deleted"
	case len(i.Gone) > 0:
		return "partly deleted"
	}
	return "-"
}

// listedJSON is the form of ls --json.
func listedJSON(l archive.Listed) any {
	return struct {
		Run       string             `json:"run"`
		Tenant    string             `json:"tenant"`
		FirstSeq  uint64             `json:"first_seq,omitempty"`
		LastSeq   uint64             `json:"last_seq,omitempty"`
		Records   int64              `json:"records"`
		Bytes     int64              `json:"bytes"`
		First     time.Time          `json:"first"`
		Last      time.Time          `json:"last"`
		Segments  []uint64           `json:"segments"`
		State     string             `json:"state,omitempty"`
		Repo      string             `json:"repo,omitempty"`
		Workflow  string             `json:"workflow,omitempty"`
		Dialect   string             `json:"dialect,omitempty"`
		Decisions []archive.Decision `json:"decisions,omitempty"`
		More      int                `json:"more_decisions,omitempty"`
		Masked    map[string]int64   `json:"masked,omitempty"`
	}{
		l.Run, l.Tenant, l.FirstSeq, l.LastSeq, l.Records, l.Bytes, l.First, l.Last, l.Segments,
		strings.Trim(keepState(l.RunInfo), "-"), l.Note.Repo, l.Note.Workflow, l.Note.Dialect, l.Note.Decisions,
		l.Note.MoreDecisions, l.Note.Masked,
	}
}

func newArchiveShow(a *app) *cobra.Command {
	var tenant string
	var asJSON bool
	c := &cobra.Command{
		Use:   "show RUN",
		Short: "Show what an archive has of one run, from its records",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.archiveShow(c.Context(), tenant, args[0], asJSON)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "its tenant, where several may have the run")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) archiveShow(ctx context.Context, tenant, run string, asJSON bool) error {
	p, err := a.openArchive(ctx)
	if err != nil {
		return err
	}
	info, err := a.namedRun(ctx, p, tenant, run)
	if err != nil {
		return err
	}
	l := archive.Listed{RunInfo: info}
	if info.Erased == nil {
		if l.Note, err = archive.NoteOf(ctx, p, info.Tenant, info.Run); err != nil && !segment.Damaged(err) {
			return err
		}
	}
	if asJSON {
		return errors.Join(err, json.NewEncoder(a.io.out).Encode(listedJSON(l)))
	}
	a.showRun(info, &l.Note)
	return err
}

// showRun prints what is known of a run.
func (a *app) showRun(info *segment.RunInfo, n *archive.Note) {
	say := func(name, value string) { fmt.Fprintf(a.io.out, "%-9s %s\n", name, value) }
	say("run", printable(info.Run))
	say("tenant", printable(info.Tenant))
	say("records", fmt.Sprintf("%d, %d bytes as stored, events %d to %d", info.Records, info.Bytes, info.FirstSeq, info.LastSeq))
	say("stored", utc(info.First)+" to "+utc(info.Last))
	say("segments", strings.Trim(fmt.Sprint(info.Segments), "[]"))
	say("state", keepState(info))
	if e := info.Erased; e != nil && e.Statement != nil {
		say("erased", fmt.Sprintf("%s by %s: %s (head %d)", utc(e.Time), printable(e.Statement.By), printable(e.Statement.Why), e.Number))
		return
	}
	say("repo", dash(n.Repo))
	say("dialect", dash(n.Dialect))
	say("masked", dash(masked(n.Masked)))
	for _, d := range n.Decisions {
		say("decision", decisionLine(d))
	}
	if n.MoreDecisions > 0 {
		say("decision", fmt.Sprintf("… and %d more", n.MoreDecisions))
	}
}

func decisionLine(d archive.Decision) string {
	text := utc(d.Time) + " " + d.Name
	if d.Decision != "" {
		text += " " + d.Decision
	}
	if d.Ask != "" {
		text += " to " + d.Ask
	}
	text += " by " + d.Actor
	if d.For != "" {
		text += " for " + d.For
	}
	if d.From != "" {
		text += " from " + d.From
	}
	if d.Refused != "" {
		text += ", not counted: " + d.Refused
	}
	return printable(text)
}

func newArchiveCat(a *app) *cobra.Command {
	var tenant string
	var streams []string
	c := &cobra.Command{
		Use:   "cat RUN",
		Short: "Print what a run's agent wrote, byte for byte",
		Long: `cat prints the agent's stdout as it was on the wire: each line with its LF. With
--stream err or in it is stderr, or what was recorded of stdin. What redaction masked
before anything was stored stays masked; show says how much that is.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.archiveCat(c.Context(), tenant, args[0], streams)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "its tenant, where several may have the run")
	c.Flags().StringSliceVar(&streams, "stream", []string{string(event.Out)}, "out, err, in; several are in the order they were read")
	return c
}

func (a *app) archiveCat(ctx context.Context, tenant, run string, streams []string) error {
	p, err := a.openArchive(ctx)
	if err != nil {
		return err
	}
	var want []event.Stream
	for _, s := range streams {
		if s != string(event.Out) && s != string(event.Err) && s != string(event.In) {
			return &exitError{exitUsage, fmt.Errorf("--stream %s: there are out, err and in", s)}
		}
		want = append(want, event.Stream(s))
	}
	info, err := a.namedRun(ctx, p, tenant, run)
	if err != nil {
		return err
	}
	var w io.Writer = a.io.out
	if terminal(w) {
		w = safeWriter{w}
	}
	x, err := archive.Cat(ctx, p, info.Tenant, info.Run, want, w)
	a.sayLeftOut(x, "")
	return errors.Join(err, notWhole(info.Run, x))
}

// safeWriter keeps an agent's bytes from steering a terminal.
type safeWriter struct{ w io.Writer }

func (s safeWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(s.w, printableLines(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func newArchiveExport(a *app) *cobra.Command {
	var tenant, format, out string
	c := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run as ndjson, CloudEvents or Parquet",
		Long: `export writes a run to a file, or to stdout.

  ndjson       the agent's own lines of JSON, byte for byte, and nothing else
  cloudevents  everything of the run in the CloudEvents JSON format, one event a line
  parquet      everything of the run, one row an event; docs/archive.md has the columns`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(archive.Formats, format) {
				return &exitError{exitUsage, fmt.Errorf("--format %s: there are %s", format, strings.Join(archive.Formats, ", "))}
			}
			return a.archiveExport(c.Context(), tenant, args[0], format, out)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "its tenant, where several may have the run")
	c.Flags().StringVar(&format, "format", archive.NDJSON, strings.Join(archive.Formats, ", "))
	c.Flags().StringVarP(&out, "output", "o", "", "the file to write; stdout without")
	return c
}

func (a *app) archiveExport(ctx context.Context, tenant, run, format, out string) error {
	p, err := a.openArchive(ctx)
	if err != nil {
		return err
	}
	info, err := a.namedRun(ctx, p, tenant, run)
	if err != nil {
		return err
	}
	w := io.Writer(a.io.out)
	if out == "" && terminal(w) {
		if format == archive.Parquet {
			return &exitError{exitUsage, errors.New("a terminal shows no Parquet: name a file with -o")}
		}
		w = safeWriter{w}
	}
	if out == "" {
		x, err := archive.Export(ctx, p, info.Tenant, info.Run, format, w)
		a.sayLeftOut(x, format)
		return errors.Join(err, notWhole(info.Run, x))
	}
	f, err := os.CreateTemp(filepath.Dir(out), filepath.Base(out)+".tmp*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	x, err := archive.Export(ctx, p, info.Tenant, info.Run, format, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	a.sayLeftOut(x, format)
	return errors.Join(os.Rename(f.Name(), out), notWhole(info.Run, x))
}

// notWhole says what of a run could not be read, where the rest was written; nil for nothing.
func notWhole(run string, x archive.Exported) error {
	if len(x.Damaged) == 0 {
		return nil
	}
	return fmt.Errorf("run %s is not whole: %w", printable(run), errors.Join(x.Damaged...))
}

// sayLeftOut says on stderr what of a run is not in the output.
func (a *app) sayLeftOut(x archive.Exported, format string) {
	if x.Foreign > 0 {
		fmt.Fprintf(a.io.err, "cbcast: %d messages of the run are no events and left out\n", x.Foreign)
	}
	if x.Gone > 0 {
		fmt.Fprintf(a.io.err, "cbcast: %d segments of the run were deleted when their time was over\n", x.Gone)
	}
	if format == archive.NDJSON && x.NotJSON > 0 {
		fmt.Fprintf(a.io.err, "cbcast: %d lines of stdout are no JSON and left out; archive cat prints them\n", x.NotJSON)
	}
}
