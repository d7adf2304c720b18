package ingest

import (
	"errors"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// answer decides an ask. It is written once, and only while the ask is open: the
// child takes the first answer, and whoever gave it is told so.
type answer struct {
	plain
	kept *keptAsk
}

func (a *answer) refuse() string {
	if a.args.Answer == nil || a.args.Ask == "" {
		return "bad_answer: it names no ask"
	}
	v, ok := a.state().Ask(a.args.Ask)
	if !ok {
		return "unknown_ask"
	}
	if reason := a.tooLate(v); reason != "" {
		return reason
	}
	if a.kept = a.c.asks.kept[a.args.Ask]; a.kept == nil || a.kept.line == nil {
		return "bad_answer: the request is not kept here, it is too large or too many are open; its host can answer it"
	}
	if _, err := dialect.AnswerLine(a.dialect(), a.kept.req, *a.args.Answer); err != nil {
		return "bad_answer: " + err.Error()
	}
	return ""
}

// tooLate says why an ask takes no answer any more.
func (a *answer) tooLate(v run.AskView) string {
	switch v.State {
	case run.AskOpen:
		return ""
	case run.AskShut:
		switch v.Closed.Reason {
		case run.ReasonLocal:
			return "already_answered_locally"
		case run.ReasonWithdrawn:
			return "withdrawn"
		case run.ReasonCleared:
			return "withdrawn: an interrupt or the turn's end took it"
		case run.ReasonRunEnded:
			return "already_ended"
		}
		return "already_answered: " + v.Closed.Reason
	}
	switch d := v.Decided; {
	case d == nil:
		return "already_answered"
	case d.By == run.ByHost:
		return "already_answered_locally"
	case d.By == run.ByPolicy && v.Written == nil && a.then != nil:
		return ""
	case d.By == run.ByPolicy:
		return "already_answered: by the policy"
	}
	return "already_answered"
}

func (a *answer) stale() string {
	if v, ok := a.state().Ask(a.args.Ask); ok {
		return a.tooLate(v)
	}
	return ""
}

func (a *answer) prepare() error {
	if reason := a.stale(); reason != "" {
		return errors.New(reason)
	}
	if by := a.kept.by; by != nil && by != a.pending && !by.final {
		return errors.New("already_answered")
	}
	line, err := dialect.AnswerLine(a.dialect(), a.kept.req, *a.args.Answer)
	if err != nil {
		return errors.New("bad_answer: " + err.Error())
	}
	a.kept.by = a.pending
	a.request(&request{line: line})
	return nil
}

func (a *answer) detail(*request) map[string]string { return a.about(nil) }

// about says what the fact is about.
func (a *answer) about(v *run.AskView) map[string]string {
	d := map[string]string{}
	if v != nil && v.Closed != nil {
		d["closed"] = v.Closed.Reason
		if v.Outcome != "" { // Codex tells it later
			d["outcome"] = v.Outcome
		}
	}
	return d
}

// passed looks whether the host was first after all: its line and ours stand in
// the order in which the child reads them.
func (a *answer) passed(r *request) {
	v, ok := a.state().Ask(a.args.Ask)
	late := ""
	switch {
	case ok && v.State == run.AskShut && v.Written == nil:
		late = v.Closed.Reason
	case ok && v.Decided != nil && v.Decided.By == run.ByHost:
		late = "already_answered_locally"
	}
	if late == "" {
		a.judge()
		a.endTurn(r)
		return
	}
	a.c.written(a.pending, r) // before the last fact
	a.c.finishLocked(a.pending, event.NoEffect, late, a.about(&v))
}

func (a *answer) judge() {
	v, ok := a.state().Ask(a.args.Ask)
	if !ok || v.State != run.AskShut {
		return
	}
	a.c.written(a.pending, a.requests[0]) // what is seen has a cause
	switch v.Closed.Reason {
	case run.ReasonWithdrawn, run.ReasonCleared, run.ReasonLocal:
		a.c.finishLocked(a.pending, event.NoEffect, v.Closed.Reason, a.about(&v))
	default:
		a.c.finishLocked(a.pending, event.Settled, "", a.about(&v))
	}
}

// unhurried: what was allowed may run for hours. The wait ends with the ask.
func (a *answer) unhurried() {}

// endTurn interrupts the turn of a Codex child whose answer has no form for that.
func (a *answer) endTurn(r *request) {
	q := a.kept.req
	if !a.args.Answer.Interrupt || a.dialect() != dialect.Codex || a.final || r != a.requests[0] || dialect.DenialEnds(q.Method) {
		return
	}
	id := newRequestID()
	line := dialect.CodexInterrupt(id, q.Params.Get("threadId").Text(), q.Params.Get("turnId").Text())
	next := a.request(&request{id: id, line: line, replies: true, reason: "the denial ends the turn"})
	place := a.c.queue.enter()
	a.c.wg.Go(func() { // ends with one write, or with a
		if err := a.c.send(a.ctx, a.pending, next, place); err != nil {
			a.c.log.Warn("interrupt after a denial", "command", a.cmd.ID, "error", err)
		}
	})
}

// failed: the child refuses only the interrupt behind an answer.
func (a *answer) failed(*request, string) string { return "" }
