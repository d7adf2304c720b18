package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/relay"
)

func newLs(a *app) *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List runs, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withBus(c.Context(), func(ctx context.Context, b *bus.Bus) error {
				runs, err := b.Runs(ctx)
				if err != nil {
					return fmt.Errorf("list runs: %w", err)
				}
				slices.SortFunc(runs, func(x, y bus.RunInfo) int { return cmp.Compare(y.Run, x.Run) })
				const few = 30
				if !all && !asJSON && len(runs) > few {
					defer fmt.Fprintf(a.io.out, "… and %d older; cbcast ls --all\n", len(runs)-few)
					runs = runs[:few]
				}
				for i := range runs {
					if runs[i], err = relay.Settle(ctx, b, runs[i]); err != nil {
						return fmt.Errorf("look at run %s: %w", runs[i].Run, err)
					}
				}
				if asJSON {
					return printJSON(a.io.out, runs)
				}
				if len(runs) == 0 {
					return a.noRuns()
				}
				return printRuns(a.io.out, runs)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	c.Flags().BoolVar(&all, "all", false, "print every run, not only the newest 30")
	return c
}

func printJSON[T any](w io.Writer, list []T) error {
	enc := json.NewEncoder(w)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// noRuns says why there are none: the bus is empty, and the spool perhaps not.
func (a *app) noRuns() error {
	text := "no runs yet; try cbcast demo, or cbcast run -- claude -p …"
	infos, err := spool.List(a.spoolRoot())
	if err != nil {
		return err
	}
	left := len(slices.DeleteFunc(infos, func(i spool.Info) bool { return i.Err != nil || i.Live || i.Shipped() }))
	if left > 0 {
		text = fmt.Sprintf("no runs on the bus yet; runs that wait for it in the spool: %d (cbcast flush)", left)
	}
	_, err = fmt.Fprintln(a.io.out, text)
	return err
}

func printRuns(w io.Writer, runs []bus.RunInfo) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "RUN\tSTATE\tVERDICT\tDIALECT\tEVENTS\tSTARTED\tFOR\tWHERE")
	for _, r := range runs {
		end := r.Ended
		if end.IsZero() {
			end = time.Now()
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", printable(r.Run), state(r), dash(r.Verdict), dash(r.Dialect), r.LastSeq,
			r.Started.Local().Format("2006-01-02 15:04:05"), end.Sub(r.Started).Round(time.Second), where(r))
	}
	return tw.Flush()
}

// state says also for what a run waits.
func state(r bus.RunInfo) string {
	switch {
	case r.WaitingFor == "":
		return printable(r.State)
	case r.State == "waiting":
		return printable(r.State + " for " + r.WaitingFor)
	}
	return printable(r.State + ", waits for " + r.WaitingFor)
}

func where(r bus.RunInfo) string {
	if repo := r.Labels["cirepo"]; repo != "" {
		return printable(repo + " " + r.Labels["cijob"])
	}
	return dash(r.Host)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable keeps what a child or a host made up from steering the terminal:
// every control character is shown instead of obeyed, and so is what has no width.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ':
			return '\u2400' + r
		case r == 0x7f:
			return '\u2421'
		case r >= 0x80 && r < 0xa0, r == 0x2028, r == 0x2029, unicode.Is(unicode.Cf, r):
			return '\ufffd' // also what turns the order of letters, or is not seen
		}
		return r
	}, s)
}

// resolve finds the run that is meant: a whole id, an unambiguous beginning or
// end of one, or "last".
func resolve(ctx context.Context, b *bus.Bus, word string) (bus.RunInfo, error) {
	if r, err := b.Run(ctx, word); err == nil {
		return r, nil
	}
	runs, err := b.Runs(ctx)
	if err != nil {
		return bus.RunInfo{}, fmt.Errorf("list runs: %w", err)
	}
	slices.SortFunc(runs, func(x, y bus.RunInfo) int { return cmp.Compare(y.Run, x.Run) })
	if word == "last" && len(runs) > 0 {
		return runs[0], nil
	}
	var found []bus.RunInfo
	for _, r := range runs {
		if len(word) >= 4 && (strings.HasPrefix(r.Run, word) || strings.HasSuffix(r.Run, word)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return bus.RunInfo{}, &exitError{exitUsage, fmt.Errorf("no run %q; cbcast ls lists them", word)}
	}
	return bus.RunInfo{}, &exitError{exitUsage, fmt.Errorf("%q fits %d runs; write more of it, the ids differ at the end", word, len(found))}
}
