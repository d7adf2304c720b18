package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/dialect"
)

// importFlush is how long import waits for the bus: it has nothing else to do.
const importFlush = 5 * time.Minute

func newTap(a *app) *cobra.Command {
	var d string
	c := &cobra.Command{
		Use:   "tap",
		Short: "Publish what passes through a pipe",
		Long: `tap copies stdin to stdout and publishes every line as a run of its own. Nothing can
be commanded, and the exit code of the program before it in the pipe is not seen: use
run where the agent can be wrapped.`,
		Example: `  cbc -p --output-format stream-json "fix the tests" | cbcast tap | jq .type`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkDialect(d); err != nil {
				return err
			}
			opt, st, end, err := a.newEdge()
			if err != nil {
				return err
			}
			defer end()
			st.quick = true
			opt.Dialect, opt.Source, opt.Stdin, opt.Stdout = dialect.Name(d), "tap", a.io.in, file(a.io.out)
			_, err = ingest.Tap(c.Context(), opt)
			return err
		},
	}
	c.Flags().StringVar(&d, "dialect", "", "how the lines are written: claude, cbc, codex or unknown (default: by what they say)")
	return c
}

func newImport(a *app) *cobra.Command {
	var d string
	c := &cobra.Command{
		Use:   "import [flags] FILE",
		Short: "Publish a recorded stream as a run",
		Long: `import publishes the lines of FILE ("-" is stdin), a recorded stdout of an agent, as a
run of its own, and prints the run's id. Times are those of the import.

Exit codes: 0 everything is on the bus   4 the rest is in the spool (cbcast flush)`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkDialect(d); err != nil {
				return err
			}
			var r io.Reader = a.io.in
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				r = f
			}
			a.cfg.Hub = orHub(a.cfg.Hub)
			opt, st, end, err := a.newEdge()
			if err != nil {
				return err
			}
			defer end()
			opt.Dialect, opt.Source, opt.ExitFlush = dialect.Name(d), "import", max(opt.ExitFlush, importFlush)
			if err := a.reachable(c.Context(), st); err != nil {
				return err
			}
			out, err := ingest.Import(c.Context(), opt, r)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.io.out, out.Run)
			if !out.Shipped {
				return &exitError{exitIncomplete, errors.New("the rest is in the spool; cbcast flush ships it")}
			}
			return nil
		},
	}
	c.Flags().StringVar(&d, "dialect", "", "how the lines are written: claude, cbc, codex or unknown (default: by what they say)")
	return c
}

// reachable fails when the bus is not there: a command that has nothing else to do
// says so at once.
func (a *app) reachable(ctx context.Context, st *station) error {
	ctx, cancel := context.WithTimeout(ctx, hubPatience)
	defer cancel()
	b, err := st.connect(ctx)
	if err == nil {
		b.Close()
	}
	return err
}
