package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// maxPending bounds the commands that await their effect. More are refused.
	maxPending = 64
	// maxKnown bounds the command ids remembered against being sent twice. A
	// command is delivered once for as long as the journal holds it.
	maxKnown = 4096
	// maxReason bounds the reason that goes to the child, in bytes. Escaped it
	// is at most six times as long, and so the whole line below what a pipe
	// takes in one piece (4096).
	maxReason = 512
	// maxArgument bounds names and ids of a command, in bytes.
	maxArgument = 256
	// deliverWait and effectWait are for commands that name no times. CodeBuddy
	// tells what an idle interrupt did up to 30 s later.
	deliverWait = 30 * time.Second
	effectWait  = time.Minute
)

// injector is the child's stdin, as the commander needs it.
type injector interface {
	Inject(ctx context.Context, line []byte) error
	Hide(id string)
	Unhide(id string)
}

// A commander writes commands from the bus to the child's stdin, at most once
// each, and records what became of them. Everything it remembers is guarded by
// the recorder's lock, because evidence arrives there.
type commander struct {
	log     *slog.Logger
	rec     *recorder
	proc    injector
	journal *spool.Journal // nil: commands are refused
	// channel reports whether the child takes control messages at all.
	channel func() bool
	// late answers a command that no event of the run can answer any more.
	late func(ctx context.Context, cmd bus.Command, reason string)

	flight sync.WaitGroup // calls of handle that may write
	wg     sync.WaitGroup // timers of pending commands

	// Guarded by rec.mu.
	known   map[string]bool
	open    []*pending
	ended   bool            // the child is gone
	running context.Context // ends when the run does
	stop    context.CancelFunc
}

// pending is a command that was written, or is being written.
type pending struct {
	cmd      bus.Command
	args     commandArgs
	requests []*request // on the child's stdin: one, and perhaps a second interrupt
	journal  bool       // the journal has the intent

	turn  bool     // a turn was open when the line passed
	turns int      // turns ended by then
	tasks []string // open by then, and to be ended by the command
	// left are those that had left Claude Code's list of running tasks when the
	// answer came. How one ended is told right after that, and what the command
	// ended before the answer; so there is no more to come.
	left   []string
	second bool // the second interrupt is due or out
	final  bool // a final fact is recorded
	ctx    context.Context
	cancel context.CancelFunc
}

// request is one control_request of a command. It is written when the pipe has
// it and it has its place among the recorded lines: what comes behind it there
// can be its effect.
type request struct {
	id     string
	reason string // of the fact that it was written

	sent, passed   bool // the pipe has it; it was recorded
	written, acked bool // facts
}

// commandArgs is the data of a command.
type commandArgs struct {
	Reason string `json:"reason,omitempty"`
	Task   string `json:"task,omitempty"`
	// Turn is "end" (default: the turn is to end, too) or "keep" (only the tasks
	// are).
	Turn string `json:"turn,omitempty"`
}

const keepTurn = "keep"

func newCommander(ctx context.Context, rec *recorder, proc injector, j *spool.Journal, channel func() bool, log *slog.Logger) *commander {
	c := &commander{log: log, rec: rec, proc: proc, journal: j, channel: channel, known: map[string]bool{}}
	c.running, c.stop = context.WithCancel(ctx)
	return c
}

// handle takes one command. It returns when the line is on the child's stdin or
// a final fact is recorded.
func (c *commander) handle(ctx context.Context, cmd bus.Command) {
	p, reason, closed := c.admit(cmd)
	switch {
	case p != nil:
		defer c.flight.Done()
		if !cmd.DeliverBy.IsZero() && time.Now().After(cmd.DeliverBy) {
			c.finish(p, event.Expired, "delivered too late")
			return
		}
		c.write(ctx, p)
	case closed && c.late != nil:
		c.late(ctx, cmd, reason)
	}
}

// admit decides whether a command is carried out; if not, it records why. A
// command that was seen before has neither a pending nor a reason.
func (c *commander) admit(cmd bus.Command) (p *pending, reason string, closed bool) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if c.known[cmd.ID] {
		return nil, "", false
	}
	p = &pending{cmd: cmd}
	if reason = c.refusal(p); reason == "" {
		effectBy := cmd.EffectBy
		if effectBy.IsZero() {
			effectBy = time.Now().Add(effectWait)
		}
		p.ctx, p.cancel = context.WithDeadline(c.running, effectBy)
		c.open = append(c.open, p)
		c.known[cmd.ID] = true
		c.flight.Add(1)
		return p, "", false
	}
	if len(c.known) < maxKnown {
		c.known[cmd.ID] = true
	}
	if c.rec.closed {
		return nil, reason, true
	}
	c.factLocked(p, event.Refused, reason, "", nil)
	return nil, reason, false
}

// refusal says why a command cannot be carried out, "" when it can.
func (c *commander) refusal(p *pending) string {
	d := c.rec.track.Dialect()
	if c.ended {
		return "already_ended"
	}
	if len(p.cmd.Data) > 0 {
		if err := json.Unmarshal(p.cmd.Data, &p.args); err != nil {
			return bound("bad_arguments: "+err.Error(), maxReason)
		}
	}
	switch p.cmd.Name {
	case "interrupt":
		switch {
		case p.args.Turn != "" && p.args.Turn != "end" && p.args.Turn != keepTurn:
			return "bad_arguments: turn is end or keep"
		case p.args.Turn == keepTurn && d == dialect.Claude:
			return "unsupported: an interrupt ends the turn of a claude child; stop_task ends a task"
		}
	case "stop_task":
		switch known, ended := c.rec.state.TaskEnded(p.args.Task); {
		case p.args.Task == "":
			return "bad_arguments: stop_task needs a task"
		case ended:
			return "already_ended"
		case !known:
			return "unknown_task"
		}
	default:
		return "unknown_command: " + bound(p.cmd.Name, maxArgument)
	}
	switch {
	case !c.channel():
		return "no_control_channel"
	case !dialect.Supports(d, "", p.cmd.Name):
		return fmt.Sprintf("unsupported: a %s child has no %s", d, p.cmd.Name)
	case c.waiting() >= maxPending, len(c.known) >= maxKnown:
		return "too_many_commands"
	case c.journal == nil:
		return "no_journal"
	}
	return ""
}

// waiting counts the commands that await their effect, and forgets those that
// await only an answer when there are as many of them.
func (c *commander) waiting() (n int) {
	for _, p := range c.open {
		if !p.final {
			n++
		}
	}
	for len(c.open)-n > maxPending {
		i := slices.IndexFunc(c.open, func(p *pending) bool { return p.final })
		c.forget(c.open[i])
	}
	return n
}

// journalled is what the journal keeps of a command, for a flush that has to
// say what became of it.
type journalled struct {
	Name    string `json:"name"`
	Request string `json:"request_id"`
	Task    string `json:"task,omitempty"`
}

// write journals the intent, writes the line and records it. The entry is closed
// by the command's final fact: after a crash before that nobody knows what
// became of it, and whoever flushes the spool says so.
func (c *commander) write(ctx context.Context, p *pending) {
	c.rec.mu.Lock()
	line, err := c.prepare(p)
	if err == nil && p.args.Turn == keepTurn && len(p.tasks) == 0 {
		c.finishLocked(p, event.NoEffect, "no task is open, and the turn is to go on", nil)
		c.rec.mu.Unlock()
		return
	}
	c.rec.mu.Unlock()
	if err != nil {
		c.finish(p, event.Refused, err.Error())
		return
	}
	r := p.requests[0]
	if err := c.journal.Intent(p.cmd.ID, mustJSON(journalled{p.cmd.Name, r.id, p.args.Task})); err != nil {
		c.finish(p, event.Refused, "journal: "+err.Error())
		return
	}
	deadline := p.cmd.DeliverBy
	if deadline.IsZero() {
		deadline = time.Now().Add(deliverWait)
	}
	wctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c.rec.mu.Lock()
	p.journal = true
	c.rec.mu.Unlock()
	c.proc.Hide(r.id)
	if err := c.proc.Inject(wctx, line); err != nil {
		c.notWritten(p, r, err)
		return
	}
	c.sent(p, r)
	c.await(p)
}

// prepare notes what is open and makes the line.
func (c *commander) prepare(p *pending) ([]byte, error) {
	c.lookAt(p)
	return c.line(p)
}

// lookAt notes what is open for p to end.
func (c *commander) lookAt(p *pending) {
	if p.cmd.Name == "stop_task" {
		p.tasks = []string{p.args.Task}
		return
	}
	st := c.rec.state
	p.turn, p.turns, p.tasks = st.TurnOpen(), st.TurnsEnded(), st.InterruptibleTasks()
}

// line makes the next request of p.
func (c *commander) line(p *pending) ([]byte, error) {
	r := &request{id: "cbcast-" + uuid.NewString()}
	p.requests = append(p.requests, r)
	d := c.rec.track.Dialect()
	if p.cmd.Name == "stop_task" {
		return dialect.StopTask(d, r.id, p.args.Task)
	}
	return dialect.Interrupt(d, r.id, c.rec.track.Main(), bound(p.args.Reason, maxReason)), nil
}

// notWritten ends a command whose line did not reach the child.
func (c *commander) notWritten(p *pending, r *request, err error) {
	if !errors.Is(err, child.ErrPartial) {
		c.proc.Unhide(r.id)
	}
	switch {
	case errors.Is(err, child.ErrPartial):
		// The rest follows if the child reads on, and then it has its effect.
		c.finish(p, event.UnknownF, "the child did not read the whole line in time")
	case errors.Is(err, child.ErrStdinClosed):
		c.finish(p, event.Refused, "stdin_closed")
	case errors.Is(err, child.ErrNoStdin):
		c.finish(p, event.Refused, "no_control_channel")
	case errors.Is(err, child.ErrExited):
		c.finish(p, event.Refused, "already_ended")
	default:
		c.finish(p, event.Expired, "not written: "+err.Error())
	}
}
