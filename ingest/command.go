package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// secondAfter is how long a turn may go on after an interrupt killed its
	// tasks before the second interrupt is sent: cbc feeds the stop notice into
	// the same turn and calls the model again. The late frames of the killed
	// tasks come within 0.1 s (measured with 2.163.0).
	secondAfter = 500 * time.Millisecond
	// maxPending bounds the commands that await their effect. More are refused.
	maxPending = 64
	// maxKnown bounds the command ids remembered against being sent twice. A
	// command is delivered once for as long as the journal holds it.
	maxKnown = 4096
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
	journal *spool.Journal
	// channel reports whether the child takes control messages at all.
	channel func() bool

	wg sync.WaitGroup // the timers of pending commands

	// Guarded by rec.mu.
	known   map[string]bool
	open    []*pending
	ended   bool
	running context.Context // ends when the run does
	stop    context.CancelFunc
}

// pending is a command that was written, or is being written.
type pending struct {
	cmd     bus.Command
	args    commandArgs
	stage   event.Fact // the last one recorded, "" before written
	request string     // id of the control_request that is out
	acked   bool

	turn   bool     // a turn was open when it was written
	turns  int      // turns ended by then
	tasks  []string // open by then
	second bool     // the second interrupt is due or out
	final  bool     // a final fact is recorded
	cancel context.CancelFunc
}

// commandArgs is the data of a command.
type commandArgs struct {
	Reason string `json:"reason,omitempty"`
	Task   string `json:"task,omitempty"`
	// Turn is "end" (default: the turn is to end, too) or "keep".
	Turn string `json:"turn,omitempty"`
}

func newCommander(ctx context.Context, rec *recorder, proc injector, j *spool.Journal, channel func() bool, log *slog.Logger) *commander {
	c := &commander{log: log, rec: rec, proc: proc, journal: j, channel: channel, known: map[string]bool{}}
	c.running, c.stop = context.WithCancel(ctx)
	return c
}

// handle takes one command. It returns when the line is on the child's stdin or
// a final fact is recorded.
func (c *commander) handle(ctx context.Context, cmd bus.Command) {
	p, reason := c.admit(cmd)
	if p == nil {
		if reason != "" {
			c.record(cmd, event.Refused, reason)
		}
		return
	}
	if !cmd.DeliverBy.IsZero() && time.Now().After(cmd.DeliverBy) {
		c.finish(p, event.Expired, "delivered too late")
		return
	}
	c.write(ctx, p)
}

// admit decides whether a command is carried out. A nil pending with an empty
// reason is a command that was seen before.
func (c *commander) admit(cmd bus.Command) (*pending, string) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if c.known[cmd.ID] {
		return nil, ""
	}
	if len(c.known) >= maxKnown {
		return nil, "too_many_commands"
	}
	c.known[cmd.ID] = true
	p := &pending{cmd: cmd}
	if len(cmd.Data) > 0 {
		if err := json.Unmarshal(cmd.Data, &p.args); err != nil {
			return nil, "bad_arguments: " + err.Error()
		}
	}
	if reason := c.refusal(p); reason != "" {
		return nil, reason
	}
	c.open = append(c.open, p)
	return p, ""
}

// refusal says why a command cannot be carried out, "" when it can.
func (c *commander) refusal(p *pending) string {
	st := c.rec.state
	switch p.cmd.Name {
	case "interrupt":
	case "stop_task":
		if p.args.Task == "" {
			return "bad_arguments: stop_task needs a task"
		}
		if known, ended := st.TaskEnded(p.args.Task); known && ended {
			return "already_ended"
		}
	default:
		return "unknown_command: " + p.cmd.Name
	}
	switch {
	case c.ended:
		return "already_ended"
	case !c.channel():
		return "no_control_channel"
	case !dialect.Supports(c.rec.track.Dialect(), "", p.cmd.Name):
		return fmt.Sprintf("unsupported: a %s child has no %s", c.rec.track.Dialect(), p.cmd.Name)
	case len(c.open) >= maxPending:
		return "too_many_commands"
	}
	return ""
}

// write journals the intent, writes the line and records it. A crash between
// intent and done leaves the fact unknown to whoever flushes the spool.
func (c *commander) write(ctx context.Context, p *pending) {
	c.rec.mu.Lock()
	st := c.rec.state
	p.turn, p.turns = st.TurnOpen(), st.TurnsEnded()
	p.tasks = c.affected(p)
	line, err := c.line(p)
	c.rec.mu.Unlock()
	if err != nil {
		c.finish(p, event.Refused, err.Error())
		return
	}
	if err := c.journal.Intent(p.cmd.ID, mustJSON(journalled{p.cmd.Name, p.request, p.args.Task})); err != nil {
		c.finish(p, event.Refused, "journal: "+err.Error())
		return
	}
	c.inject(ctx, p, line)
	if err := c.journal.Done(p.cmd.ID); err != nil {
		c.log.Error("journal a command", "run", c.rec.run, "command", p.cmd.ID, "error", err)
	}
}

// journalled is what the journal keeps of a command, for a flush that has to
// say what became of it.
type journalled struct {
	Name    string `json:"name"`
	Request string `json:"request_id"`
	Task    string `json:"task,omitempty"`
}

// affected lists the open tasks whose end is this command's effect.
func (c *commander) affected(p *pending) []string {
	if p.cmd.Name == "stop_task" {
		return []string{p.args.Task}
	}
	return c.rec.state.InterruptibleTasks()
}

func (c *commander) line(p *pending) ([]byte, error) {
	p.request = "cbcast-" + uuid.NewString()
	d := c.rec.track.Dialect()
	if p.cmd.Name == "stop_task" {
		return dialect.StopTask(d, p.request, p.args.Task)
	}
	return dialect.Interrupt(d, p.request, c.rec.track.Main(), p.args.Reason), nil
}

func (c *commander) inject(ctx context.Context, p *pending, line []byte) {
	deadline := p.cmd.DeliverBy
	if deadline.IsZero() {
		deadline = time.Now().Add(time.Minute)
	}
	wctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c.proc.Hide(p.request)
	err := c.proc.Inject(wctx, line)
	switch {
	case err == nil:
		c.rec.mu.Lock()
		defer c.rec.mu.Unlock()
		c.written(p)
		c.await(p)
		return
	case errors.Is(err, child.ErrPartial):
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
	c.proc.Unhide(p.request)
}

// written records the fact once. The child's answer may be recorded before
// Inject has returned; it proves that the line was written.
func (c *commander) written(p *pending) {
	if p.stage == "" {
		p.stage = event.Written
		detail := map[string]string{}
		if p.turn {
			detail["turn"] = "open"
		}
		for _, t := range p.tasks {
			detail["task "+t] = "open"
		}
		c.factLocked(p, event.Written, "", detail)
	}
}

// await starts the timer that ends the wait for p's effect.
func (c *commander) await(p *pending) {
	if p.final || p.cmd.EffectBy.IsZero() {
		return
	}
	ctx, cancel := context.WithDeadline(c.running, p.cmd.EffectBy)
	p.cancel = cancel
	c.wg.Go(func() {
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.finish(p, event.UnknownF, "no effect seen in time")
		}
	})
}

// watch is told of every recorded line, under the recorder's lock.
func (c *commander) watch(l line) {
	if len(c.open) == 0 {
		return
	}
	if l.stream == event.Out && l.class.Frame {
		if resp, ok := dialect.ResponseOf(l.data); ok {
			c.answered(resp)
		}
	}
	for _, p := range slices.Clone(c.open) {
		c.judge(p)
	}
}

func (c *commander) answered(resp dialect.Response) {
	for _, p := range c.open {
		if string(resp.ID) != string(dialect.RequestID(p.request)) {
			continue
		}
		c.written(p)
		if p.final {
			c.open = slices.DeleteFunc(c.open, func(q *pending) bool { return q == p })
		}
		if resp.Error != "" {
			c.finishLocked(p, event.Refused, "the child said: "+bound(resp.Error, 512))
			return
		}
		if !p.acked {
			p.acked, p.stage = true, event.Acked
			c.factLocked(p, event.Acked, "", nil)
		}
		if !p.turn && len(p.tasks) == 0 {
			c.finishLocked(p, event.NoEffect, "nothing was open")
		}
		return
	}
}

// judge looks for the effect of p in the fold: the tasks that were open have
// ended, and so has the turn that was.
func (c *commander) judge(p *pending) {
	if p.stage == "" || p.final || !p.turn && len(p.tasks) == 0 {
		return
	}
	st := c.rec.state
	detail, stopped := map[string]string{}, false
	for _, t := range p.tasks {
		known, ended := st.TaskEnded(t)
		if !known || !ended {
			return
		}
		status := st.TaskStatus(t)
		if status == "ended" {
			return // it left the list of running tasks; how it ended comes next
		}
		detail["task "+t] = status
		stopped = stopped || status == "killed" || status == "stopped" || status == "cancelled"
	}
	if p.turn && p.cmd.Name == "interrupt" && p.args.Turn != "keep" {
		if st.TurnsEnded() == p.turns {
			if stopped {
				c.sendSecond(p)
			}
			return
		}
		aborted := st.LastTurnAborted()
		stopped = stopped || aborted
		detail["turn"] = "ended"
		if aborted {
			detail["turn"] = "aborted"
		}
	}
	if stopped {
		c.finishDetail(p, event.Settled, "", detail)
	} else {
		c.finishDetail(p, event.NoEffect, "it ended by itself", detail)
	}
}

// sendSecond interrupts the turn that goes on after its tasks were killed: cbc
// does that (reference: measured with 2.163.0, a mid-turn interrupt with a live
// workflow writes no result).
func (c *commander) sendSecond(p *pending) {
	if p.second || c.rec.track.Dialect() != dialect.CBC {
		return
	}
	p.second = true
	ctx, cancel := context.WithTimeout(c.running, secondAfter)
	c.wg.Go(func() {
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return
		}
		c.rec.mu.Lock()
		if p.final || c.rec.state.TurnsEnded() != p.turns {
			c.rec.mu.Unlock()
			return
		}
		line, err := c.line(p)
		if err == nil {
			c.factLocked(p, event.Written, "the tasks were stopped and the turn went on: second interrupt", nil)
		}
		c.rec.mu.Unlock()
		if err == nil {
			c.proc.Hide(p.request)
			if err := c.proc.Inject(c.running, line); err != nil {
				c.log.Warn("second interrupt", "run", c.rec.run, "command", p.cmd.ID, "error", err)
			}
		}
	})
}

func (c *commander) record(cmd bus.Command, f event.Fact, reason string) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	c.factLocked(&pending{cmd: cmd}, f, reason, nil)
}

func (c *commander) finish(p *pending, f event.Fact, reason string) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	c.finishDetail(p, f, reason, nil)
}

func (c *commander) finishLocked(p *pending, f event.Fact, reason string) {
	c.finishDetail(p, f, reason, nil)
}

func (c *commander) finishDetail(p *pending, f event.Fact, reason string, detail map[string]string) {
	if p.final {
		return
	}
	p.final = true
	c.factLocked(p, f, reason, detail)
	if p.cancel != nil {
		p.cancel()
	}
	// An answer that is still out is waited for: it is a fact of its own, and
	// the parent must not get it.
	if p.acked || p.stage == "" || f == event.UnknownF {
		c.open = slices.DeleteFunc(c.open, func(q *pending) bool { return q == p })
	}
}

func (c *commander) factLocked(p *pending, f event.Fact, reason string, detail map[string]string) {
	if len(detail) == 0 {
		detail = nil
	}
	c.rec.factLocked(time.Now(), event.TypeCommand, event.Cmd, event.CommandFact{
		Command: p.cmd.ID, Name: p.cmd.Name, Fact: f, Reason: reason, RequestID: p.request,
		Task: p.args.Task, Detail: maps.Clone(detail),
	}, true)
}

// end gives every open command its last fact and refuses those that come later.
func (c *commander) end() {
	c.rec.mu.Lock()
	c.ended = true
	for _, p := range slices.Clone(c.open) {
		c.finishLocked(p, event.UnknownF, "the run ended first")
	}
	c.open = nil
	c.stop()
	c.rec.mu.Unlock()
	c.wg.Wait()
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // our own structs always marshal
		panic(err)
	}
	return b
}
