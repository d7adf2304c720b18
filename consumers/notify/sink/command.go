package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	quiet *Hidden
}

// NewCommand checks the configuration.
func NewCommand(cfg CommandConfig) (*Command, error) {
	var bad settingErrors
	switch {
	case len(cfg.Argv) == 0 || cfg.Argv[0] == "":
		bad.say("argv", "argv names no program")
	case slices.ContainsFunc(cfg.Argv, func(a string) bool { return strings.Contains(a, "\x00") }):
		bad.say("argv", "argv has a NUL character, which no program can be given")
	case cfg.Exec == nil:
		bad.say("type", "nothing can run programs here")
	}
	var values []string
	for _, e := range cfg.Env {
		name, v, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.HasPrefix(name, "CBCAST_") {
			bad.add("env/"+name, fmt.Errorf("env: %q is no variable for it", short(name, 40)))
			continue
		}
		if strings.Contains(v, "\x00") {
			bad.add("env/"+name, fmt.Errorf("env: the value of %s has a NUL character", short(name, 40)))
		}
		if SecretVariable(name) {
			values = append(values, v)
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	return &Command{cfg, NewHidden(nil, values...)}, nil
}

// SecretVariable reports whether a variable's value may be a secret: all are hidden but
// what programs need everywhere.
func SecretVariable(name string) bool {
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
	said := short(c.quiet.Clean(string(stderr)), maxQuoted)
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
		return Outcome{Verdict: Refused, Err: errors.New("the command did not run: " + short(c.quiet.Clean(err.Error()), maxQuoted))}
	case code == exitTempFail:
		return Outcome{Verdict: Retry, Err: fmt.Errorf("the command asks to be tried again (exit code %d)%s", code, said)}
	case code < 0:
		return Outcome{Verdict: Unknown, Err: fmt.Errorf("the command was ended by a signal%s", said)}
	}
	return Outcome{Verdict: Refused, Err: fmt.Errorf("the command ended with exit code %d%s", code, said)}
}
