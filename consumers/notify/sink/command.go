package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// commandTimeout is how long a command may take.
	commandTimeout = 30 * time.Second

	// maxCommandBody bounds what a command reads.
	maxCommandBody = 256 << 10

	// exitTempFail is the exit code that asks for another attempt (EX_TEMPFAIL of
	// sysexits.h).
	exitTempFail = 75
)

// CommandConfig is a command that reads notices.
type CommandConfig struct {
	Name string
	Argv []string // the program and its arguments; no shell
	// Env is its whole environment, "NAME=value": what the rules let through.
	Env     []string
	Timeout time.Duration // 0 is 30 s; then it is killed
	Exec    Exec
}

// A Command hands each notice to a program, as JSON on its stdin. Exit code 0 is
// delivered, 75 asks for another attempt, another one is a refusal.
type Command struct {
	cfg   CommandConfig
	quiet *secrets
}

// NewCommand checks the configuration.
func NewCommand(cfg CommandConfig) (*Command, error) {
	switch {
	case len(cfg.Argv) == 0 || cfg.Argv[0] == "":
		return nil, fmt.Errorf("command %s: it names no program", cfg.Name)
	case cfg.Exec == nil:
		return nil, fmt.Errorf("command %s: nothing can run programs here", cfg.Name)
	}
	var values []string
	for _, e := range cfg.Env {
		name, v, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.HasPrefix(name, "CBCAST_") {
			return nil, fmt.Errorf("command %s: %q is no variable for it", cfg.Name, short(name, 40))
		}
		if secretName(name) {
			values = append(values, v)
		}
	}
	return &Command{cfg, newSecrets(nil, values...)}, nil
}

// secretName reports whether a variable's value may be a secret: all are hidden but
// what programs need everywhere.
func secretName(name string) bool {
	switch name {
	case "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL", "PWD", "TERM":
		return false
	}
	return !strings.HasPrefix(name, "LC_")
}

// Name implements [Sink].
func (c *Command) Name() string { return c.cfg.Name }

// Capabilities implements [Sink].
func (c *Command) Capabilities() Capabilities { return Capabilities{} }

// Lane implements [Sink].
func (c *Command) Lane(*Notice) string { return "" }

// Close implements [Sink].
func (c *Command) Close() error { return nil }

// Send implements [Sink]. A program that was killed may have done its work: that is
// Unknown.
func (c *Command) Send(ctx context.Context, n *Notice) Outcome {
	if n.Unsure {
		return Outcome{Verdict: Unknown, Err: errors.New("nobody knows what the command has done; it is not run again")}
	}
	body, err := payload(n, maxCommandBody)
	if err != nil {
		return Outcome{Verdict: Refused, Permanent: true, Err: err}
	}
	inner, cancel := context.WithTimeout(ctx, cmp.Or(c.cfg.Timeout, commandTimeout))
	defer cancel()
	code, stderr, err := c.cfg.Exec(inner, c.cfg.Argv, c.cfg.Env, append(body, '\n'))
	said := short(c.quiet.clean(string(stderr)), maxQuoted)
	if said != "" {
		said = fmt.Sprintf(": %q", said)
	}
	switch {
	case err == nil && code == 0:
		return Outcome{Verdict: Delivered}
	case code < 0 && inner.Err() != nil && ctx.Err() == nil:
		return Outcome{Verdict: Unknown, Err: fmt.Errorf("the command was killed after %s%s", cmp.Or(c.cfg.Timeout, commandTimeout), said)}
	case code < 0 && inner.Err() != nil:
		return Outcome{Verdict: Unknown, Err: errors.New("the command was killed: given up")}
	case err != nil:
		return Outcome{Verdict: Refused, Err: errors.New("the command did not run: " + short(c.quiet.clean(err.Error()), maxQuoted))}
	case code == exitTempFail:
		return Outcome{Verdict: Retry, Err: fmt.Errorf("the command asks to be tried again (exit code %d)%s", code, said)}
	case code < 0:
		return Outcome{Verdict: Unknown, Err: fmt.Errorf("the command was ended by a signal%s", said)}
	}
	return Outcome{Verdict: Refused, Err: fmt.Errorf("the command ended with exit code %d%s", code, said)}
}
