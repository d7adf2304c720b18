package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/ingest/spool"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// maxPending bounds the commands that wait to be written or await their
	// effect. More are refused. Answers that are not written yet and escalations
	// have room of their own: what hangs keeps nobody from ending it.
	maxPending = 64
	maxClimbs  = 8
	// maxKnown bounds the command ids remembered against being sent twice. Behind
	// it stands the journal: a command is written once for as long as that holds it.
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
	Exited() <-chan struct{}
	SignalFrom(sig syscall.Signal, from string) error
	Tree() *child.Tree
}

// gated is that stdin behind its gate.
type gated interface {
	injector
	OpenGate()
}

// A commander writes commands from the bus to the child's stdin, at most once
// each, and records what became of them. Everything it remembers is guarded by
// the recorder's lock, because evidence arrives there. What one command does is
// its [action].
type commander struct {
	log     *slog.Logger
	rec     *recorder
	proc    injector
	journal *spool.Journal // nil: commands are refused
	queue   queue          // for the child's stdin
	asks    *asks
	// channel reports whether the child takes control messages at all.
	channel func() bool
	// late answers a command that no event of the run can answer any more.
	late func(ctx context.Context, cmd bus.Command, reason string)
	// hosted says that a parent writes to the child, too.
	hosted bool
	// rungs are the times of an escalation; none are those of the dialect.
	rungs []time.Duration

	flight sync.WaitGroup // commands that may be written yet
	wg     sync.WaitGroup // timers of pending commands

	// Guarded by rec.mu.
	known   map[string]bool
	order   []string // the keys of known, a ring
	oldest  int      // in order, when that is full
	open    []*pending
	ended   bool            // the child is gone
	running context.Context // ends when the run does
	stop    context.CancelFunc
}

// pending is a command that was written, or is to be.
type pending struct {
	c        *commander
	cmd      bus.Command
	args     event.CommandArgs
	act      action
	requests []*request // on the child's stdin: one, and perhaps a second
	journal  bool       // the journal has the intent

	free   chan struct{}            // closed when the action holds it back no more
	place  *place                   // in the queue, from then on
	final  bool                     // a final fact is recorded
	then   func(event.Fact, string) // is told of it, with its reason: the policy; or nil
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// request is one line of a command. It is written when the pipe has it and it
// has its place among the recorded lines: what comes behind it there can be its
// effect.
type request struct {
	id      string // of a control_request, "" for other lines
	line    []byte
	reason  string // of the fact that it was written
	replies bool   // the child answers it, and its parent does not see that

	sent, passed   bool // the pipe has it; it was recorded
	written, acked bool // facts
}

// newRequestID makes an id that is nobody else's.
func newRequestID() string { return "cbcast-" + uuid.NewString() }

// request makes r the next request of p.
func (p *pending) request(r *request) *request {
	p.requests = append(p.requests, r)
	return r
}

func newCommander(ctx context.Context, rec *recorder, proc injector, j *spool.Journal, channel func() bool, log *slog.Logger) *commander {
	c := &commander{log: log, rec: rec, proc: proc, journal: j, channel: channel, known: map[string]bool{}}
	c.running, c.stop = context.WithCancel(ctx)
	c.asks = newAsks(c, nil)
	return c
}

// handle takes one command and returns at once: commands do not wait for each
// other, but those that wait for the child's stdin are written in their order.
func (c *commander) handle(ctx context.Context, cmd bus.Command) {
	c.rec.mu.Lock()
	p, reason, closed := c.admitLocked(cmd, nil)
	c.rec.mu.Unlock()
	switch {
	case p != nil:
		c.start(ctx, p)
	case closed && c.late != nil:
		c.late(ctx, cmd, reason)
	}
}

// start carries out a command that was admitted.
func (c *commander) start(ctx context.Context, p *pending) {
	go func() { // ends when the line is written or a final fact is recorded; see end
		defer c.flight.Done()
		if a, ok := p.act.(climber); ok {
			a.climb(ctx)
			return
		}
		c.carryOut(ctx, p)
	}()
}

// admitLocked decides whether a command is carried out; if not, it records why. A
// command that was seen before has neither a pending nor a reason. then is that of
// the policy, whose commands come once and not from the bus.
func (c *commander) admitLocked(cmd bus.Command, then func(event.Fact, string)) (p *pending, reason string, closed bool) {
	if then == nil && c.seen(cmd.ID) {
		return nil, "", false
	}
	p = &pending{c: c, cmd: cmd, free: make(chan struct{}), then: then}
	if reason = c.refusal(p); reason == "" {
		p.ctx, p.cancel = context.WithCancelCause(c.running)
		c.open = append(c.open, p)
		c.know(p)
		c.flight.Add(1)
		c.release(p)
		return p, "", false
	}
	c.know(p)
	if c.rec.closed {
		return nil, reason, true
	}
	c.factLocked(p, event.Refused, reason, "", nil)
	return nil, reason, false
}

// seen reports whether a command came before.
func (c *commander) seen(id string) bool {
	if c.known[id] || c.journal == nil || len(c.order) < maxKnown {
		return c.known[id]
	}
	known, _ := c.journal.Known(id)
	return known
}

// know remembers a command from the bus, and forgets the oldest one.
func (c *commander) know(p *pending) {
	id := p.cmd.ID
	switch {
	case p.then != nil || c.known[id]:
		return
	case len(c.order) < maxKnown:
		c.order = append(c.order, id)
	default:
		delete(c.known, c.order[c.oldest])
		c.order[c.oldest] = id
		c.oldest = (c.oldest + 1) % maxKnown
	}
	c.known[id] = true
}

// refusal says why a command cannot be carried out, "" when it can.
func (c *commander) refusal(p *pending) string {
	if c.ended {
		return "already_ended"
	}
	if len(p.cmd.Data) > 0 {
		if err := json.Unmarshal(p.cmd.Data, &p.args); err != nil {
			return bound("bad_arguments: "+err.Error(), maxReason)
		}
	}
	p.act = unknown{plain{p}}
	if mk, ok := actions[p.cmd.Name]; ok {
		p.act = mk(plain{p})
	}
	if reason := p.act.refuse(); reason != "" {
		return bound(reason, maxReason)
	}
	_, climbs := p.act.(climber)
	switch d := p.dialect(); {
	case !climbs && !c.channel():
		return "no_control_channel"
	case p.cmd.Name != "answer" && !dialect.Supports(d, p.state().ChildVersion(), p.cmd.Name):
		return fmt.Sprintf("unsupported: a %s child has no %s", d, p.cmd.Name)
	case p.state().Lacks(p.cmd.Name) != "":
		return "unsupported: the child said: " + p.state().Lacks(p.cmd.Name)
	case c.waiting() >= c.room(p):
		return "too_many_commands"
	case c.journal == nil:
		return "no_journal"
	}
	return ""
}

// room is how many commands may wait beside p.
func (c *commander) room(p *pending) int {
	_, climbs := p.act.(climber)
	switch {
	case climbs:
		return maxPending + maxOpenAsks + maxClimbs
	case p.cmd.Name == "answer":
		return maxPending + maxOpenAsks
	}
	return maxPending
}

// waiting counts the commands that await their effect, and forgets those that
// await only an answer when there are as many of them. Of the answers to asks it
// counts those that are not written yet: the asks bound the others.
func (c *commander) waiting() (n int) {
	final := 0
	for _, p := range c.open {
		_, unhurried := p.act.(unhurried)
		switch {
		case p.final:
			final++
		case !unhurried || len(p.requests) == 0 || !p.requests[0].passed:
			n++
		}
	}
	for ; final > maxPending; final-- {
		i := slices.IndexFunc(c.open, func(p *pending) bool { return p.final })
		c.forget(c.open[i])
	}
	return n
}

// journalled is what the journal keeps of a command, for a flush that has to
// say what became of it.
type journalled struct {
	Name    string `json:"name"`
	Request string `json:"request_id,omitempty"`
	Task    string `json:"task,omitempty"`
	// Of an answer.
	Ask      string `json:"ask,omitempty"`
	Decision string `json:"decision,omitempty"`
}

// noted is what the journal keeps of p.
func noted(p *pending, r *request) journalled {
	j := journalled{Name: p.cmd.Name, Request: r.id, Task: p.args.Task}
	if a := p.args.Answer; a != nil {
		j.Ask, j.Decision = a.Ask, a.Decision
	}
	return j
}
