package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/run"
)

type signalNumber = syscall.Signal

// What --exit may say.
const (
	exitChild   = "child"
	exitVerdict = "verdict"
)

type runOptions struct {
	argv            []string
	dialect         string
	hold            bool
	exit            string
	requireDelivery bool
}

func newRun(a *app) *cobra.Command {
	o := runOptions{exit: exitChild}
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGS…]",
		Short: "Run an agent and publish what it says",
		Long: `run starts COMMAND and passes stdin, stdout, stderr, signals and the exit code
through untouched. Beside that it publishes every line to NATS and takes commands
such as interrupt for it, if COMMAND reads them: claude and cbc do with
--input-format stream-json. Nothing of cbcast's is written to stdout, and to stderr
only when that is a terminal, or when COMMAND cannot be run at all.

Where no NATS is reachable the lines stay in the spool on this machine; a later
run, flush or up ships them. The agent never waits for any of it.

Exit codes: those of COMMAND; a death by signal is repeated. With --exit=verdict:
  0 success   1 failed   2 usage   3 denied, or nothing done   4 incomplete or lost
  5 interrupted by a command   130, 143, … ended by a signal that was passed on
With --require-delivery, 4 when the run's events are not all on the bus at the end.
126 and 127: COMMAND cannot be run, or is not found.`,
		Example: `  cbcast run -- claude -p --output-format stream-json --verbose "fix the tests"
  cbcast run --hold-stdin -- cbc --input-format stream-json --output-format stream-json < prompts.ndjson`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exitError{exitUsage, errors.New("no command; write it behind --, e.g. cbcast run -- claude -p …")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.argv = args
			switch o.exit {
			case exitChild, exitVerdict:
			default:
				return &exitError{exitUsage, fmt.Errorf("--exit=%s; it must be child or verdict", o.exit)}
			}
			if err := checkDialect(o.dialect); err != nil {
				return err
			}
			return a.wrap(c.Context(), o)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.dialect, "dialect", "", "how COMMAND speaks: claude, cbc, codex or unknown (default: by its name)")
	f.BoolVar(&o.hold, "hold-stdin", false, "keep the end of stdin from COMMAND until no turn, task or ask is open,\nso that commands still reach it")
	f.StringVar(&o.exit, "exit", o.exit, "exit code: child (COMMAND's own) or verdict")
	f.BoolVar(&o.requireDelivery, "require-delivery", false, "fail when events are left in the spool at the end")
	f.StringVar(&a.cfg.Edge.Tenant, "tenant", a.cfg.Edge.Tenant, "tenant that the run belongs to")
	f.StringVar(&a.cfg.Hub, "hub", a.cfg.Hub, "hub of this machine: auto, never or require")
	return c
}

func checkDialect(name string) error {
	switch dialect.Name(name) {
	case "", dialect.Claude, dialect.CBC, dialect.Codex, dialect.Unknown:
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("--dialect=%s; it must be claude, cbc, codex or unknown", name)}
}

// wrap runs one child as an edge.
func (a *app) wrap(ctx context.Context, o runOptions) error {
	opt, st, end, err := a.newEdge()
	if err != nil {
		return err
	}
	defer end()
	st.quick = true
	opt.Argv, opt.Dialect, opt.HoldStdin = o.argv, dialect.Name(o.dialect), o.hold
	opt.Stdin, opt.Stdout, opt.Stderr = a.io.in, file(a.io.out), file(a.io.err)
	opt.Terminal = terminal(a.io.in)
	if terminal(a.io.err) {
		opt.OnStart = func(id string) { st.announce(a.io.err, id) }
	}
	if a.cfg.Hub == hubRequire && a.cfg.Bus.URL == "" {
		if err := st.open(ctx); err != nil {
			return fmt.Errorf("CBCAST_HUB=require: %w", err)
		}
	}
	out, err := ingest.Run(ctx, opt)
	if err != nil {
		var ee *child.ExecError
		if errors.As(err, &ee) {
			return &exitError{ee.Code, err}
		}
		return err
	}
	return a.runExit(o, out)
}

// runExit turns an outcome into this process's end.
func (a *app) runExit(o runOptions, out ingest.Outcome) error {
	if o.requireDelivery && !out.Shipped {
		return &exitError{exitIncomplete, fmt.Errorf("run %s: not all events are on the bus; run cbcast flush", out.Run)}
	}
	if o.exit == exitVerdict && out.State != nil {
		// A signal that was passed on is repeated, whatever it interrupted.
		code, ok := verdictCode(out.State.View(), dialect.OutputOf(o.argv))
		if ok && (code != exitInterrupt || out.Result.Signal == 0) {
			return bare(code)
		}
	}
	if out.Result.Signal != 0 {
		a.signal = out.Result.Signal
		return nil
	}
	return bare(out.Result.Code)
}

// bare is an exit code without a message.
func bare(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// verdictCode is the exit code of a run's verdict; false where there is none. An
// agent that was started and did not do anything has not succeeded.
func verdictCode(v run.View, out dialect.Output) (int, bool) {
	if v.Verdict == nil {
		return 0, false
	}
	switch v.Verdict.Verdict {
	case run.Success:
		if len(v.Turns) == 0 && out == dialect.OutputStream {
			return exitDenied, true
		}
		return exitOK, true
	case run.Failed:
		return exitFailed, true
	case run.Denied:
		return exitDenied, true
	case run.Incomplete, run.Lost:
		return exitIncomplete, true
	case run.Interrupted:
		return exitInterrupt, true
	}
	return 0, false
}

// file is the *os.File behind a writer, nil when it is none.
func file(w any) *os.File {
	f, _ := w.(*os.File)
	return f
}
