package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cbcast/cbcast/internal/event"
)

// doctorTime bounds all checks together.
const doctorTime = 45 * time.Second

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	var name string
	c := &cobra.Command{
		Use:   "doctor [flags] [-- COMMAND [ARGS…]]",
		Short: "Say what will work here, and what will not",
		Long: `doctor checks the state directory, the bus with its streams, permissions and clock, the
relay, and the settings of notify, metrics, archive and trace. With COMMAND, as it would stand behind cbcast run --, it says which
agent that is, what it can do with these arguments, and what is missing for level A:

  A  events, commands, questions and approvals
  B  events and commands; questions cannot be asked, or nobody is asked for approval
  C  events one way: a question ends the run, its answer continues the session
  D  text only

Of an agent it runs nothing but COMMAND --version. On the bus it leaves nothing
behind. It prints no secrets.

Exit codes: 0 nothing fails   1 something does   2 usage`,
		Example: `  cbcast doctor
  cbcast doctor -- claude -p --input-format stream-json --output-format stream-json --verbose`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkDialect(name); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), doctorTime)
			defer cancel()
			d := &doctor{a: a, dialect: name}
			d.examine(ctx, args)
			return d.report(a.io.out, asJSON)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().StringVar(&name, "dialect", "", "how COMMAND speaks: claude, cbc, codex or unknown (default: by its name)")
	return c
}

// States of a check.
const (
	isOK   = "ok"
	isWarn = "warn" // it works, but not all of it, or not for long
	isFail = "fail"
)

// check is one line of a doctor's report.
type check struct {
	Name  string `json:"check"`
	State string `json:"state"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// agentDoc is what a doctor says of the command that it was given.
type agentDoc struct {
	Path         string              `json:"path"`
	Dialect      string              `json:"dialect"`
	Version      string              `json:"version,omitempty"`
	Capabilities *event.Capabilities `json:"capabilities,omitempty"`
}

type doctor struct {
	a       *app
	dialect string
	checks  []check
	agent   *agentDoc
}

func (d *doctor) ok(name, format string, args ...any) {
	d.checks = append(d.checks, check{Name: name, State: isOK, Text: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(name, do, format string, args ...any) {
	d.checks = append(d.checks, check{Name: name, State: isWarn, Text: fmt.Sprintf(format, args...), Do: do})
}

func (d *doctor) fail(name, do, format string, args ...any) {
	d.checks = append(d.checks, check{Name: name, State: isFail, Text: fmt.Sprintf(format, args...), Do: do})
}

// examine makes all checks.
func (d *doctor) examine(ctx context.Context, argv []string) {
	d.ok("cbcast", "%s, %s, %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	d.config()
	d.stateDir()
	d.spool()
	d.bus(ctx)
	d.relay(ctx)
	d.consumers()
	if len(argv) > 0 {
		d.command(ctx, argv)
	} else {
		d.agents()
	}
}

// failed reports whether any check did.
func (d *doctor) failed() bool {
	for _, c := range d.checks {
		if c.State == isFail {
			return true
		}
	}
	return false
}

func (d *doctor) report(w io.Writer, asJSON bool) error {
	var err error
	if !asJSON {
		err = d.print(w)
	} else {
		err = json.NewEncoder(w).Encode(struct {
			OK     bool      `json:"ok"`
			Checks []check   `json:"checks"`
			Agent  *agentDoc `json:"agent,omitempty"`
		}{!d.failed(), d.checks, d.agent})
	}
	if err == nil && d.failed() {
		err = &exitError{code: exitFailed}
	}
	return err
}

func (d *doctor) print(w io.Writer) error {
	width := 0
	for _, c := range d.checks {
		width = max(width, len(c.Name))
	}
	var b strings.Builder
	for _, c := range d.checks {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", c.State, width, c.Name, printable(c.Text))
		if c.Do != "" {
			fmt.Fprintf(&b, "%*s→ %s\n", width+8, "", printable(c.Do))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
