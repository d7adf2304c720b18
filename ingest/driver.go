package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// helloWait is how long initialize may go without an answer before the first
// message is written all the same: an agent may not know it. Codex must answer.
var helloWait = 30 * time.Second // shortened by tests

// A Drive says what is told to a child that has no host. [Drive.Plan] goes before
// [Run].
type Drive struct {
	Prompts []string // the messages, in their order
	// Resume is the conversation to go on with; without a session a new one begins.
	Resume event.Resume
	// Sandbox and Approval are for a codex thread, in its words; "" is its default.
	Sandbox, Approval string

	Timeout time.Duration // the run is ended after it, whatever it does; 0 is never
	// MaxIdle ends a run that is at work and from which nothing came for so long.
	// It does not count while an ask is open. 0 is never.
	MaxIdle time.Duration

	dialect    dialect.Name // set by Plan
	model, cwd string       // for a codex thread
}

// What of a driver ended the child; see [event.Exited].
const (
	EndedTimeout = "timeout"
	EndedIdle    = "max_idle"
	EndedNoExit  = "no_exit_after_eof"
)

var (
	// grace is how long nothing must be open before the stdin of a driven child is
	// closed. Claude Code gives a background shell as long after an EOF.
	grace = 5 * time.Second // shortened by tests
	// leaveStep is how long a child may take to leave after that. Without anything
	// open all of them leave within a second, or never.
	leaveStep = 10 * time.Second // shortened by tests
	// silentStep is that of a child with agents in the background that will not
	// tell their end: so long nothing must come from it.
	silentStep = 10 * time.Minute // shortened by tests
)

// maxUtterances bounds the lines that wait for the child to read.
const maxUtterances = 64

// driven is the child, as a driver needs it.
type driven interface {
	injector
	endable
}

// A driver is the host of a child that has none. It sees every recorded line, and
// decides what is said next and when nothing more is. Its fields are guarded by
// the recorder's lock but where something else is said.
type driver struct {
	o     *Drive
	rec   *recorder
	p     driven
	start time.Time
	wg    sync.WaitGroup
	stop  context.CancelFunc

	speaker speaker
	queue   []utterance
	more    chan struct{} // told of each utterance
	wake    chan struct{} // told of each line
	begun   chan struct{} // closed when commands may be written
	open    bool          // it is

	sent    int       // messages given to the writer
	passed  int       // messages that stand among the recorded lines
	out     []string  // the ids of those that do not yet
	last    time.Time // of the last line
	problem string

	stage   stage
	due     time.Time // of the next step of the end
	calm    time.Time // since when nothing is open; zero while something is
	quiet   bool      // the end waits for nothing: a limit was passed
	hurried bool      // it came when all was done: no grace
	ended   string    // what of ours ended the child
	refused int       // requests of the child that found the queue full
}

// A stage of a drive.
type stage int

const (
	working  stage = iota
	stopping       // an interrupt was sent
	leaving        // stdin is closed
	asked          // SIGTERM was sent
	killed         // SIGKILL was
)

func newDriver(e *edge, p driven) *driver {
	d := &driver{
		o: e.o.Drive, rec: e.rec, p: p, start: e.start, last: time.Now(),
		more: make(chan struct{}, 1), wake: make(chan struct{}, 1), begun: make(chan struct{}),
	}
	if d.o.dialect == dialect.Codex {
		d.speaker = &codexSpeaker{o: d.o, newID: newRequestID, version: e.o.Version}
	} else {
		d.speaker = &stream{d: d.o.dialect, newID: newRequestID}
	}
	return d
}

// run begins to speak. Both goroutines end with the child, or with end.
func (d *driver) run(ctx context.Context) {
	ctx, d.stop = context.WithCancel(ctx)
	d.rec.mu.Lock()
	d.say(d.speaker.open()...)
	d.rec.mu.Unlock()
	d.wg.Go(func() { d.write(ctx) })
	d.wg.Go(func() { d.lead(ctx) })
}

// end waits for both, and returns what became of the drive.
func (d *driver) end() Driven {
	d.stop()
	d.wg.Wait()
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()
	if d.problem == "" && d.passed < len(d.o.Prompts) && d.ended == "" {
		d.problem = "the agent ended before every prompt was written"
	}
	return Driven{Ended: d.ended, Problem: d.problem, Answer: d.speaker.answer()}
}

// say gives lines to the writer.
func (d *driver) say(us ...utterance) {
	for _, u := range us {
		if len(d.queue) >= maxUtterances {
			d.refused++
			u.line, u.why = nil, "too many requests wait"
		}
		if u.line == nil {
			d.incompatible(u)
			continue
		}
		d.queue = append(d.queue, u)
	}
	nudge(d.more)
}

func (d *driver) incompatible(u utterance) {
	d.rec.factLocked(time.Now(), event.TypeIncompatible, event.Life, event.Incompatible{
		Request: bound(u.request, maxArgument), ID: bound(u.id, maxRequestID), Answered: u.why == "", Why: u.why,
	}, false)
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watch is told of every recorded line, under the recorder's lock.
func (d *driver) watch(l line) {
	d.last = time.Now()
	switch {
	case l.eof:
	case l.injected:
		if i := slices.IndexFunc(d.out, func(id string) bool { return bytes.Contains(l.data, []byte(id)) }); i >= 0 {
			d.out = slices.Delete(d.out, i, i+1)
			d.passed++
		}
	case l.stream == event.Out && l.class.Frame:
		if f, ok := dialect.Parse(l.data); ok {
			d.say(d.speaker.hear(&f)...)
		}
		d.opened()
	}
	nudge(d.wake)
}

// opened lets commands pass once the child is ready.
func (d *driver) opened() {
	if d.speaker.ready() && !d.open {
		d.open = true
		close(d.begun)
	}
}

// write writes what is said. A child that does not read holds it up, and nothing
// else.
func (d *driver) write(ctx context.Context) {
	for {
		d.rec.mu.Lock()
		var u utterance
		if len(d.queue) > 0 {
			u, d.queue = d.queue[0], d.queue[1:]
		}
		d.rec.mu.Unlock()
		if u.line == nil {
			select {
			case <-d.more:
				continue
			case <-d.p.Exited():
			case <-ctx.Done():
			}
			return
		}
		if u.hide != "" {
			d.p.Hide(u.hide)
		}
		err := d.p.Inject(ctx, u.line)
		d.rec.mu.Lock()
		d.written(u, err)
		d.rec.mu.Unlock()
	}
}

// written notes what became of a line.
func (d *driver) written(u utterance, err error) {
	if err != nil && u.hide != "" && !errors.Is(err, child.ErrPartial) {
		d.p.Unhide(u.hide)
	}
	if u.request != "" {
		if err != nil {
			u.why = err.Error()
		}
		d.incompatible(u)
		return
	}
	if err != nil && d.problem == "" && d.stage == working && !errors.Is(err, child.ErrExited) {
		d.problem = "write to the agent: " + err.Error()
	}
	nudge(d.wake)
}

// lead decides after each line, and when time has passed, what comes next.
func (d *driver) lead(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.p.Exited():
			return
		case <-d.wake:
		case <-t.C:
		}
		d.rec.mu.Lock()
		next := d.step(time.Now())
		d.rec.mu.Unlock()
		if !next.IsZero() {
			t.Reset(max(0, time.Until(next)))
		}
	}
}

// step does what is due and says when to look again, even if no line comes; the
// zero time is never.
func (d *driver) step(now time.Time) (next time.Time) {
	open := d.rec.state.Open()
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if !d.quiet {
		d.limits(now, open, sooner)
	}
	if d.stage == working {
		if at := d.start.Add(helloWait); !d.speaker.ready() && !now.Before(at) {
			d.speaker.goOn()
			d.opened()
		} else if !d.speaker.ready() {
			sooner(at)
		}
		d.prompt(open)
	}
	switch d.idle(open) {
	case false:
		d.calm = time.Time{}
	case true:
		if d.calm.IsZero() {
			d.calm = now
		}
	}
	d.finish(now, open)
	sooner(d.due)
	return next
}

// prompt gives the writer what may be written now.
func (d *driver) prompt(open run.Open) {
	for d.speaker.ready() && d.speaker.failed() == "" && d.sent < len(d.o.Prompts) {
		if d.speaker.serial() && d.sent > 0 && (d.passed < d.sent || open.Turns > 0 || d.rec.state.TurnsEnded() == 0) {
			return
		}
		id := uuid.NewString()
		u, err := d.speaker.message(d.o.Prompts[d.sent], id)
		if err != nil {
			d.problem = "write a prompt: " + err.Error()
			d.sent = len(d.o.Prompts)
			return
		}
		d.sent++
		d.out = append(d.out, id)
		d.say(u)
	}
}

// injector is the child's stdin for commands: they wait for the child to be ready.
func (d *driver) injector() injector { return afterHello{d.p, d.begun} }

type afterHello struct {
	driven
	begun <-chan struct{}
}

func (a afterHello) Inject(ctx context.Context, line []byte) error {
	select {
	case <-a.begun:
		return a.driven.Inject(ctx, line)
	case <-a.Exited():
		return child.ErrExited
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", child.ErrGate, context.Cause(ctx))
	}
}
