package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// exitTimeout is the exit code of a run that a limit ended.
const exitTimeout = 124

// What --output may say: where the agent's own lines go in driver mode.
const (
	outputAuto   = "auto"
	outputStream = "stream"
	outputText   = "text"
	outputNone   = "none"
)

// maxPrompt bounds one prompt in bytes. No model takes as much.
const maxPrompt = 16 << 20

// lookPatience is how long --resume waits for the registry.
const lookPatience = 5 * time.Second

// driveOptions are the flags of driver mode.
type driveOptions struct {
	prompts []string
	resume  string
	timeout time.Duration
	maxIdle time.Duration
	dryRun  bool
	quiet   bool
	output  string
}

// wanted reports whether the agent is to be driven, and what is wrong with flags
// that have a meaning only then.
func (o *driveOptions) wanted() (bool, error) {
	if len(o.prompts) > 0 {
		switch {
		case o.timeout < 0 || o.maxIdle < 0:
			return true, errors.New("--timeout and --max-idle are 0 or more")
		case o.output != outputAuto && o.output != outputStream && o.output != outputText && o.output != outputNone:
			return true, fmt.Errorf("--output=%s; it must be auto, stream, text or none", o.output)
		}
		return true, nil
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"--resume", o.resume != ""},
		{"--timeout", o.timeout != 0},
		{"--max-idle", o.maxIdle != 0},
		{"--dry-run", o.dryRun},
		{"--quiet", o.quiet},
		{"--output", o.output != outputAuto},
	} {
		if flag.set {
			return false, fmt.Errorf("%s needs --prompt: without one a host drives the agent", flag.name)
		}
	}
	return false, nil
}

// prompts reads those that are in files.
func (a *app) prompts(list []string) ([]string, error) {
	var out []string
	for _, p := range list {
		if strings.HasPrefix(p, "@") {
			text, err := a.text(p, maxPrompt)
			if err != nil {
				return nil, fmt.Errorf("--prompt %s: %w; @ names a file, @@ begins a text with @", p, err)
			}
			p = strings.TrimRight(text, "\r\n")
		}
		switch {
		case strings.TrimSpace(p) == "":
			return nil, errors.New("a prompt is empty")
		case len(p) > maxPrompt:
			return nil, fmt.Errorf("a prompt has more than %d bytes", maxPrompt)
		}
		out = append(out, strings.ToValidUTF8(p, "\ufffd"))
	}
	return out, nil
}

// drive runs an agent that has no host.
func (a *app) drive(ctx context.Context, o runOptions) error {
	prompts, err := a.prompts(o.drive.prompts)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	opt, st, end, err := a.newEdge()
	if err != nil {
		return err
	}
	defer end()
	st.quick = true
	d := &ingest.Drive{Prompts: prompts, Timeout: o.drive.timeout, MaxIdle: o.drive.maxIdle}
	name := dialect.Name(o.dialect)
	if name == "" {
		name = dialect.FromArgv0(o.argv[0])
	}
	pr := a.newProgress(o)
	if o.drive.resume != "" {
		if err := a.lookUp(ctx, st, o.drive.resume, name, d, pr.say); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if opt.Argv, err = d.Plan(o.argv, name); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.drive.dryRun {
		return a.showPlan(opt.Argv, d)
	}
	if err := a.wantHub(ctx, st); err != nil {
		return err
	}
	opt.Dialect, opt.Drive, opt.Say = name, d, pr.say
	opt.Stdin, opt.Stdout, opt.Stderr = nil, file(a.io.out), file(a.io.err)
	opt.Terminal = terminal(a.io.in)
	if pr.output != outputStream {
		opt.Stdout = nil
	}
	opt.OnStart = func(id string) {
		announced := terminal(a.io.err) && !o.drive.quiet
		if announced {
			st.announce(a.io.err, id)
		}
		pr.begin(id, name, announced)
	}
	opt.Progress = pr.show
	stderr, wait := pr.guard(opt.Stderr)
	opt.Stderr = stderr
	out, err := ingest.Run(ctx, opt)
	wait()
	if err != nil {
		return a.notDriven(err)
	}
	code := driveCode(out)
	pr.end(out, endCode(o, out, code))
	return a.driveExit(o, out, code)
}

// notDriven says why no agent was started.
func (a *app) notDriven(err error) error {
	if errors.Is(err, ingest.ErrRunUsed) {
		return &exitError{exitUsage, usedErr(a.cfg.Edge.RunID)}
	}
	var held *bus.HeldError
	if errors.As(err, &held) {
		return &exitError{exitUsage, fmt.Errorf(
			"%w; end it first (cbcast interrupt %s), or wait: the session is free again soon after its run has ended", err, held.Holder.Run)}
	}
	return execError(err)
}

// driveCode is the exit code of a driven run: its verdict's, or that of what kept
// the driver from its work.
func driveCode(out ingest.Outcome) int {
	code, ok := verdictCode(out.State.View(), dialect.OutputStream)
	switch {
	case out.Ended == ingest.EndedTimeout || out.Ended == ingest.EndedIdle:
		return exitTimeout
	case !ok, out.Problem != "" && code != exitInterrupt:
		return exitFailed
	}
	return code
}

// undelivered reports whether a run of this code fails because not all is on the bus.
func undelivered(o runOptions, out ingest.Outcome, code int) bool {
	return o.requireDelivery && !out.Shipped && (code == exitOK || code == exitInterrupt)
}

// endCode is how driveExit ends, as a shell shows it.
func endCode(o runOptions, out ingest.Outcome, code int) int {
	switch {
	case undelivered(o, out, code):
		return exitIncomplete
	case code == exitInterrupt && out.Result.Signal != 0 && passedOn(out.Result):
		return out.Result.Code
	}
	return code
}

func (a *app) driveExit(o runOptions, out ingest.Outcome, code int) error {
	switch {
	case undelivered(o, out, code):
		return a.runExit(o, out)
	case code == exitInterrupt && out.Result.Signal != 0 && passedOn(out.Result):
		a.signal = out.Result.Signal
		return nil
	case out.Problem != "":
		return &exitError{code, errors.New(out.Problem)}
	case out.Ended == ingest.EndedTimeout:
		return &exitError{code, fmt.Errorf("the run was ended after --timeout %s", o.drive.timeout)}
	case out.Ended == ingest.EndedIdle:
		return &exitError{code, fmt.Errorf("the run was ended: nothing came from it for --max-idle %s", o.drive.maxIdle)}
	}
	return bare(code)
}

// lookUp finds the conversation that --resume means: a run of the registry, or
// else a session.
func (a *app) lookUp(ctx context.Context, st *station, id string, name dialect.Name, d *ingest.Drive, say func(string)) error {
	d.Resume = event.Resume{Session: id}
	if st.edgeDialer() == nil {
		if id == "last" {
			return errors.New("--resume last: there is no bus that knows the runs; give the session's id")
		}
		say("no bus: " + id + " is taken as a session; of a codex session the sandbox is not known")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	b, err := st.connect(ctx)
	if err != nil {
		if id == "last" {
			return fmt.Errorf("--resume last: %w", err)
		}
		say("the bus is away: " + id + " is taken as a session")
		return nil
	}
	defer b.Close()
	var of *exitError
	info, err := resolve(ctx, b, id)
	switch {
	case errors.As(err, &of) && id == "last":
		return errors.New("--resume last: there is no run")
	case errors.As(err, &of):
		if info, err = lastOf(ctx, b, id, name); errors.Is(err, bus.ErrNotFound) {
			return nil // a session of before, or of elsewhere
		}
	case err == nil:
		if d.Resume.Session = sessionOf(ctx, b, info); d.Resume.Session == "" {
			return fmt.Errorf("--resume: run %s has had no session so far", info.Run)
		}
	}
	if err != nil {
		say("the registry could not be asked: " + id + " is taken as a session")
		return nil
	}
	if info.Dialect != string(name) && info.Dialect != string(dialect.Unknown) && info.Dialect != "" {
		return fmt.Errorf("--resume: %s is of %s, not of %s", id, info.Dialect, name)
	}
	d.Resume.Run = info.Run
	if name == dialect.Codex {
		sandboxOf(ctx, b, info, d, say)
	}
	return nil
}

// lastOf is the last run of a session.
func lastOf(ctx context.Context, b *bus.Bus, session string, name dialect.Name) (last bus.RunInfo, err error) {
	runs, err := b.Runs(ctx)
	if err != nil {
		return last, err
	}
	err = bus.ErrNotFound
	for _, r := range runs {
		if r.Dialect != string(name) || r.Started.Before(last.Started) {
			continue
		}
		for _, s := range r.Sessions {
			if s == session {
				last, err = r, nil
			}
		}
	}
	return last, err
}

// sessionOf is the main session of a run, or the one that it was to go on with.
// The registry learns of it some time after the bus has it.
func sessionOf(ctx context.Context, b *bus.Bus, info bus.RunInfo) string {
	if len(info.Sessions) > 0 {
		return info.Sessions[0]
	}
	v := opening(ctx, b, info)
	if v.Session == "" && v.Resume != nil {
		return v.Resume.Session
	}
	return v.Session
}

// maxFolded bounds the events that are read to learn what is said when a run or a
// thread begins.
const maxFolded = 2000

// opening is what the first events of a run say.
func opening(ctx context.Context, b *bus.Bus, info bus.RunInfo) run.View {
	st := run.New(info.Run)
	for e, err := range b.History(ctx, info.Ref(), 0) {
		if err != nil || e.Seq > maxFolded {
			break
		}
		st.Apply(e)
	}
	return st.View()
}

// sandboxOf takes the sandbox of a thread from an earlier run of it: codex keeps
// its model and approval policy, and forgets that.
func sandboxOf(ctx context.Context, b *bus.Bus, info bus.RunInfo, d *ingest.Drive, say func(string)) {
	if d.Sandbox = opening(ctx, b, info).Sandbox; d.Sandbox == "" {
		say("the sandbox of run " + info.Run + " is not known; without --sandbox codex takes its default")
		return
	}
	say("sandbox " + d.Sandbox + ", as in run " + info.Run)
}

// showPlan prints what would be started and written.
func (a *app) showPlan(argv []string, d *ingest.Drive) error {
	var quoted []string
	for _, arg := range argv {
		quoted = append(quoted, shellQuote(arg))
	}
	fmt.Fprintln(a.io.out, "command:", strings.Join(quoted, " "))
	fmt.Fprintln(a.io.out, "stdin:")
	lines, err := d.Lines(version())
	if err != nil {
		return err
	}
	for _, l := range lines {
		fmt.Fprintf(a.io.out, "  %s", l)
	}
	return nil
}

// shellQuote is an argument as a shell reads it.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:@,+%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
