package ingest

import (
	"context"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// idle reports whether there is nothing more to wait for.
func (d *driver) idle(open run.Open) bool {
	switch {
	case d.rec.blind && d.speaker.ready():
		// Output is missing: what is open cannot be known. A child that is told
		// the end of its stdin ends what it does by itself.
		return d.passed == len(d.o.Prompts)
	case d.failed():
		// What was written has no turn any more; what has goes on.
		return !d.rec.state.TurnOpen() && open.Tasks <= open.Silent && open.Asks == 0
	case d.stage == leaving && open.Asks > 0:
		return true // nobody can answer it any more
	case d.stage == working && (d.passed < len(d.o.Prompts) || len(d.queue) > 0):
		return false
	}
	return !open.Any()
}

// limits ends a run that has taken too long.
func (d *driver) limits(now time.Time, open run.Open, sooner func(time.Time)) {
	if at := d.start.Add(d.o.Timeout); d.o.Timeout > 0 {
		switch {
		case now.Before(at):
			sooner(at)
		case d.idle(open) && open.Tasks == 0:
			d.hurried = true // all is done: only the grace is cut
		default:
			d.cut(now, EndedTimeout, d.o.Timeout)
			return
		}
	}
	atWork := !d.speaker.ready() || open.Any() || d.stage == leaving && open.Tasks > 0
	if d.o.MaxIdle > 0 && atWork && open.Asks == 0 {
		at := d.last.Add(d.o.MaxIdle)
		if !now.Before(at) {
			d.cut(now, EndedIdle, d.o.MaxIdle)
			return
		}
		sooner(at)
	}
}

// cut begins the end of a run that has passed a limit: interrupt, SIGTERM, SIGKILL.
func (d *driver) cut(now time.Time, why string, limit time.Duration) {
	d.ended, d.quiet = why, true
	d.rec.factLocked(now, event.TypeStalled, event.Life, event.Stalled{What: why, Seconds: int(limit.Seconds())}, true)
	if d.stage != working {
		d.due = now
		return
	}
	d.stage, d.due = stopping, now
	if u, ok := d.speaker.interrupt(d.rec.track.Main(), "cbcast: "+why); ok && d.speaker.ready() {
		d.due = now.Add(killStep)
		d.queue = nil // prompts that were not written yet
		d.say(u)
	}
}

// failed reports whether nothing can be said any more, and notes why.
func (d *driver) failed() bool {
	if f := d.speaker.failed(); f != "" && d.problem == "" {
		d.problem = f
	}
	return d.problem != ""
}

// finish does the next step of the end when it is due. Each gives the child some
// time, and what begins again meanwhile has it.
func (d *driver) finish(now time.Time, open run.Open) {
	if !d.quiet {
		d.due = d.patience(open)
	} else if d.stage == stopping && !d.calm.IsZero() {
		d.due = now // the interrupt has done it
	}
	if d.due.IsZero() || now.Before(d.due) || d.stage == killed {
		if d.stage == killed {
			d.due = time.Time{}
		}
		return
	}
	switch d.stage {
	case working, stopping:
		d.stage = leaving
		d.calm = now
		d.p.ReleaseStdin()
	case leaving:
		d.stage = asked
		d.signal(syscall.SIGTERM)
	case asked:
		d.stage = killed
		d.signal(syscall.SIGKILL)
	case killed:
	}
	switch {
	case d.stage == killed:
		d.due = time.Time{}
	case d.quiet || d.stage == asked:
		d.due = now.Add(killStep)
	default:
		d.due = d.patience(open)
	}
}

// patience is when the next step is due while no limit is passed; the zero time
// is not yet known.
func (d *driver) patience(open run.Open) time.Time {
	switch {
	case d.stage == asked:
		return d.due
	case d.calm.IsZero():
		return time.Time{}
	case d.stage == working && (d.hurried || d.failed()):
		return d.calm
	case d.stage == working:
		return d.calm.Add(grace)
	case open.Silent > 0:
		// CodeBuddy waits for its agents in the background, and then leaves; their
		// end is never told.
		return d.last.Add(silentStep)
	}
	return d.calm.Add(leaveStep)
}

func (d *driver) signal(s syscall.Signal) {
	if d.ended == "" {
		d.ended = EndedNoExit
	}
	if err := d.p.Signal(s); err != nil {
		d.rec.log.Debug("end the agent", "signal", s, "error", err)
	}
}

// Driven is what became of a drive.
type Driven struct {
	// Ended is what of ours ended the child: [EndedTimeout], [EndedIdle], another
	// word where it did not leave by itself, or "".
	Ended   string
	Problem string // what kept the driver from saying all it was to say
	Answer  string // the agent's last words, cut at 1 MiB
}

// showEvery is the least time between two looks at a run.
const showEvery = 250 * time.Millisecond

// A leader drives a child and shows how it goes; either may be left out.
type leader struct {
	e    *edge
	end  chan struct{}
	done chan struct{}
}

// lead begins. What it begins has ended when last returns.
func (e *edge) lead(ctx context.Context) *leader {
	l := &leader{e: e, end: make(chan struct{}), done: make(chan struct{})}
	if e.driver != nil {
		e.driver.run(ctx)
	}
	go l.show() // ends by last
	return l
}

// stop ends the drive, and says what became of it.
func (l *leader) stop() Driven {
	if l.e.driver == nil {
		return Driven{}
	}
	return l.e.driver.end()
}

// last shows the run once more: it has ended.
func (l *leader) last() {
	close(l.end)
	<-l.done
}

// show gives the run to who looks on. It waits for them, and nothing else does.
func (l *leader) show() {
	defer close(l.done)
	if l.e.o.Progress == nil {
		<-l.end
		return
	}
	look := func() {
		l.e.rec.mu.Lock()
		v := l.e.rec.state.View()
		l.e.rec.mu.Unlock()
		l.e.o.Progress(v)
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-l.end:
			look()
			return
		case <-pause.C:
		}
		select {
		case <-l.end:
			look()
			return
		case <-l.e.rec.shown:
			look()
			pause.Reset(showEvery)
		}
	}
}
