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
	drive           driveOptions
}

func newRun(a *app) *cobra.Command {
	o := runOptions{exit: exitChild}
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGS…]",
		Short: "Run an agent and publish what it says",
		Long: `run starts COMMAND and passes stdin, stdout, stderr, signals and the exit code
through untouched. Beside that it publishes every line to NATS and takes commands
such as interrupt for it, if COMMAND reads them: claude and cbc do with
--input-format stream-json, codex as codex app-server. Nothing of cbcast's is
written to stdout, and to stderr only when that is a terminal, or when COMMAND
cannot be run at all.

Where no NATS is reachable the lines stay in the spool on this machine; a later
run, flush or up ships them. The agent never waits for any of it.

With --prompt there is no host: cbcast itself drives claude, cbc or codex. It adds
the flags that this needs (none that lets the agent do more), writes the prompts,
lets asks wait for a person or the policy, closes stdin when no turn, task or ask
has been open for 5 s, and exits with the verdict's code. Several prompts: cbc and
codex get each when the turn before has ended, claude all at once. Progress goes to
stderr, and in GitHub and GitLab in parts that fold; stdout is the agent's last
answer on a terminal and in a CI's log, the agent's own lines elsewhere (--output).
--resume, --timeout, --max-idle, --dry-run, --quiet and --output are for this only.

Exit codes: those of COMMAND; a death by signal is repeated. With --exit=verdict,
and with --prompt:
  0 success   1 failed   2 usage   3 denied, or nothing done   4 incomplete or lost
  5 interrupted by a command   130, 143, … ended by a signal that was passed on
  124 ended by --timeout or --max-idle
With --require-delivery, 4 when the run's events are not all on the bus at the end.
126 and 127: COMMAND cannot be run, or is not found.`,
		Example: `  cbcast run -- claude -p --output-format stream-json --verbose "fix the tests"
  cbcast run --prompt "fix the tests" --timeout 30m -- claude --permission-mode acceptEdits
  cbcast run --prompt @task.md --dry-run -- codex --sandbox workspace-write
  cbcast run --prompt "go on" --resume last -- cbc
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
			driven, err := o.drive.wanted()
			switch {
			case err != nil:
				return &exitError{exitUsage, err}
			case !driven:
				return a.wrap(c.Context(), o)
			case c.Flags().Changed("exit") && o.exit != exitVerdict, o.hold:
				return &exitError{exitUsage, errors.New("--prompt exits with the verdict and closes stdin by itself: --exit=child and --hold-stdin are not for it")}
			}
			return a.drive(c.Context(), o)
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
	d := &o.drive
	f.StringArrayVar(&d.prompts, "prompt", nil, "drive COMMAND: a message for it, or @FILE (@- is stdin, @@… a text that\nbegins with @); may be repeated")
	f.StringVar(&d.resume, "resume", "", "go on with a session: its id, or a run of it (or last)")
	f.DurationVar(&d.timeout, "timeout", 0, "end the run after so long: interrupt, SIGTERM, SIGKILL; exit code 124")
	f.DurationVar(&d.maxIdle, "max-idle", 0, "end it when nothing came from it for so long, unless an ask is open; exit code 124")
	f.BoolVar(&d.dryRun, "dry-run", false, "print the command and what would be written to it, and start nothing")
	f.BoolVar(&d.quiet, "quiet", false, "no progress on stderr")
	f.StringVar(&d.output, "output", outputAuto, "stdout of a driven run: stream (the agent's lines), text (its last answer), none,\nor auto: text on a terminal and where a CI provider is known, else stream")
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
	if err := a.wantHub(ctx, st); err != nil {
		return err
	}
	out, err := ingest.Run(ctx, opt)
	if err != nil {
		return execError(err)
	}
	return a.runExit(o, out)
}

// wantHub opens the hub first where it is required.
func (a *app) wantHub(ctx context.Context, st *station) error {
	if a.cfg.Hub == hubRequire && a.cfg.Bus.URL == "" {
		if err := st.open(ctx); err != nil {
			return fmt.Errorf("CBCAST_HUB=require: %w", err)
		}
	}
	return nil
}

// execError gives a command that cannot be run the exit code of a shell.
func execError(err error) error {
	var ee *child.ExecError
	if errors.As(err, &ee) {
		return &exitError{ee.Code, err}
	}
	return err
}

// usedErr says that CBCAST_RUN_ID is no id for a new run.
func usedErr(id string) error {
	return fmt.Errorf("run id %s (CBCAST_RUN_ID) is in use: it is that of another run; give each run one of its own, or none", id)
}

// runExit turns an outcome into this process's end.
func (a *app) runExit(o runOptions, out ingest.Outcome) error {
	if o.requireDelivery && errors.Is(out.Why, ingest.ErrRunUsed) {
		return &exitError{exitIncomplete, usedErr(out.Run)}
	}
	if o.requireDelivery && !out.Shipped {
		return &exitError{exitIncomplete, fmt.Errorf("run %s: not all events are on the bus; run cbcast flush", out.Run)}
	}
	if o.exit == exitVerdict && out.State != nil {
		// A signal that was passed on is repeated, whatever it interrupted.
		code, ok := verdictCode(out.State.View(), dialect.OutputOf(o.argv))
		if ok && (code != exitInterrupt || !passedOn(out.Result)) {
			return bare(code)
		}
	}
	if out.Result.Signal != 0 {
		a.signal = out.Result.Signal
		return nil
	}
	return bare(out.Result.Code)
}

// passedOn reports whether the child died by a signal that came from outside.
func passedOn(r child.Result) bool {
	for _, s := range r.Signals {
		if s.From == child.FromParent && s.Signal == r.Signal {
			return true
		}
	}
	return false
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
