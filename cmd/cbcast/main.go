// Command cbcast carries what headless coding agents say to everyone who must
// know, and carries people's decisions back. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/ingest/child"
)

func main() {
	code, sig := runMain(context.Background(), os.Args, os.Environ(), stdio{os.Stdin, os.Stdout, os.Stderr})
	if sig != 0 {
		code = child.Reraise(sig)
	}
	os.Exit(code)
}

// stdio is what the operating system gave the process to read and write.
type stdio struct {
	in       *os.File
	out, err io.Writer
}

// Exit codes. README.md documents them.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitDenied     = 3
	exitIncomplete = 4
	exitInterrupt  = 5
)

// exitError carries an exit code through cobra. Its message, if any, has not
// been printed yet.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// app is what every command gets: the process's world, read once.
type app struct {
	environ []string
	io      stdio
	cfg     config
	signal  signalNumber // set by run when the child died by one
}

// runMain is main without the process: it never exits and reads only what it gets.
func runMain(ctx context.Context, args, environ []string, s stdio) (int, signalNumber) {
	a := &app{environ: environ, io: s}
	var err error
	if a.cfg, err = loadConfig(environ); err != nil {
		fmt.Fprintln(s.err, "cbcast:", err)
		return exitUsage, 0
	}
	if name, ok := argv0Name(args[0]); ok {
		err = a.argv0(ctx, name, args)
	} else {
		root := newRoot(a, onlyCommand(args[1:]))
		root.SetArgs(args[1:])
		root.SetIn(s.in)
		root.SetOut(s.out)
		root.SetErr(s.err)
		err = root.ExecuteContext(ctx)
	}
	return a.exit(err), a.signal
}

// exit prints err unless it is a bare exit code, and returns the code.
func (a *app) exit(err error) int {
	var ee *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ee):
		if ee.err != nil {
			fmt.Fprintln(a.io.err, "cbcast:", ee.err)
		}
		return ee.code
	default:
		fmt.Fprintln(a.io.err, "cbcast:", err)
		return exitFailed
	}
}

// A subcommand is one of the program's.
type subcommand struct {
	name string
	make func(*app) *cobra.Command
}

// subcommands are all that there are. Making them all costs a tenth of a start.
var subcommands = []subcommand{
	{"run", newRun},
	{"tap", newTap},
	{"import", newImport},
	{"up", newUp},
	{"demo", newDemo},
	{"demo-agent", newPlay},
	{"ls", newLs},
	{"tail", newTail},
	{"interrupt", newInterrupt},
	{"asks", newAsks},
	{"allow", newAllow},
	{"deny", newDeny},
	{"answer", newAnswer},
	{"send", newSend},
	{"command", newCommand},
	{"flush", newFlush},
	{"token", newToken},
	{"login", newLogin},
	{"provision", newProvision},
	{"health", newHealth},
	{"version", newVersion},
	{"doctor", newDoctor},
	{"auth", newAuth},
	{"archive", func(a *app) *cobra.Command { return withExits(newArchive(a)) }},
	{"notify", func(a *app) *cobra.Command { return withExits(newNotify(a)) }},
	{"metrics", func(a *app) *cobra.Command { return withExits(newMetrics(a)) }},
	{"trace", func(a *app) *cobra.Command { return withExits(newTrace(a)) }},
}

// onlyCommand is the command that args ask for, "" where they ask for none or for several.
func onlyCommand(args []string) string {
	if len(args) > 0 && slices.ContainsFunc(subcommands, func(c subcommand) bool { return c.name == args[0] }) {
		return args[0]
	}
	return ""
}

// newRoot makes the program's commands, or only one of them.
func newRoot(a *app, only string) *cobra.Command {
	root := &cobra.Command{
		Use:     "cbcast",
		Version: version(),
		Short:   "See, replay and steer headless coding agents",
		Long: `cbcast wraps a headless coding agent (claude, cbc, codex app-server), passes its
stdin, stdout and stderr through untouched, and publishes every line as an event
to NATS JetStream. A relay serves the events over HTTP, live and replayed in
order, and carries answers and commands back to the agent.

Without configuration everything runs on this machine: the first command that
needs one starts a NATS server and a relay on the loopback interface.

  cbcast demo                      a recorded workflow, live and replayed
  cbcast run -- claude -p …        wrap an agent
  cbcast ls                        the runs this machine knows
  cbcast tail --follow RUN         read along
  cbcast interrupt --wait RUN      stop what it is doing
  cbcast asks                      what agents wait for a person to say`,
		SilenceUsage:     true,
		SilenceErrors:    true,
		PersistentPreRun: a.warnMisspelt,
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetVersionTemplate("cbcast {{.Version}}\n")
	usage := func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &exitError{exitUsage, fmt.Errorf("unknown command %q; cbcast --help lists them", args[0])}
		}
		return nil
	}
	root.Args = usage
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &exitError{exitUsage, fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	for _, c := range subcommands {
		if only == "" || c.name == only {
			root.AddCommand(c.make(a))
		}
	}
	for _, c := range root.Commands() {
		if check := c.Args; check != nil {
			c.Args = func(c *cobra.Command, args []string) error {
				var ee *exitError
				if err := check(c, args); err != nil && !errors.As(err, &ee) {
					return &exitError{exitUsage, fmt.Errorf("%w; see cbcast %s --help", err, c.Name())}
				} else if err != nil {
					return err
				}
				return nil
			}
		}
	}
	return root
}

// argv0Name reports whether the program was invoked through a link with the
// name of an agent, and under which.
func argv0Name(arg0 string) (string, bool) {
	base := filepath.Base(arg0)
	if ext := filepath.Ext(base); ext == ".exe" {
		base = base[:len(base)-len(ext)]
	}
	switch base {
	case "claude", "cbc", "codebuddy", "codex":
		return base, true
	}
	return "", false
}
