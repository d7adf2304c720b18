package ingest

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/event"
)

// signal ends the child: it is told to leave, then killed with all its
// descendants. Those are taken hold of before, for its end scatters them.
func (a *escalation) signal(why string, limit time.Duration) {
	c := a.c
	tree := c.proc.Tree()
	defer tree.Close()
	if err := c.proc.SignalFrom(syscall.SIGTERM, child.FromCommand); err != nil {
		return // it has left
	}
	a.climbed(rungSIGTERM, "escalated to SIGTERM: "+why, nil)
	if a.exits(limit) {
		a.killed(tree.Kill(child.FromCommand))
		return
	}
	a.climbed(rungSIGKILL, fmt.Sprintf("escalated to SIGKILL: it did not leave in %s", limit), map[string]string{
		"descendants": strconv.Itoa(tree.Size()),
	})
	n := tree.Kill(child.FromCommand)
	if a.exits(rungKill) {
		a.killed(n)
		return
	}
	c.finish(a.pending, event.UnknownF, "SIGKILL was sent, and the child has not ended")
}

func (a *escalation) exits(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-a.c.proc.Exited():
		return true
	case <-t.C:
		return false
	}
}

// climbed records a rung that is no line. The first fact of all says what was
// open.
func (a *escalation) climbed(rung, reason string, detail map[string]string) {
	a.c.rec.mu.Lock()
	defer a.c.rec.mu.Unlock()
	if detail == nil {
		detail = map[string]string{}
	}
	if rung == rungSIGTERM && !slices.ContainsFunc(a.requests, func(r *request) bool { return r.written }) {
		a.look()
		detail = a.ending.open()
	}
	a.rung = rung
	detail["rung"] = rung
	a.c.factLocked(a.pending, event.Written, reason, "", detail)
}

// killed gives the final fact of a child that a signal of ours ended.
func (a *escalation) killed(descendants int) {
	a.c.rec.mu.Lock()
	defer a.c.rec.mu.Unlock()
	detail := map[string]string{"rung": a.rung, "child": "ended"}
	if descendants > 0 {
		detail["killed"] = strconv.Itoa(descendants)
	}
	a.c.finishLocked(a.pending, event.Settled, "", detail)
}
