package ingest

import (
	"errors"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// errNoTurn is the end of an interrupt of a Codex child between turns.
var errNoTurn = errors.New("no turn runs")

// interruptLine makes the line that ends what the child does. Codex wants to know
// which turn: that of the main thread, or of the host's thread that works longest.
func (p *pending) interruptLine(id string) ([]byte, error) {
	if p.dialect() != dialect.Codex {
		return dialect.Interrupt(p.dialect(), id, p.c.rec.track.Main(), bound(p.args.Reason, maxReason)), nil
	}
	thread, turn := p.state().RunningTurn("")
	if turn == "" {
		return nil, errNoTurn
	}
	return dialect.CodexInterrupt(id, thread, turn), nil
}

// stopLine makes the line that ends one task. Of Codex that is the turn of a
// sub-agent, or the process of a command.
func (p *pending) stopLine(id, task string) ([]byte, error) {
	if p.dialect() != dialect.Codex {
		return dialect.StopTask(p.dialect(), id, task)
	}
	if thread, turn := p.state().RunningTurn(task); turn != "" {
		return dialect.CodexInterrupt(id, thread, turn), nil
	}
	if thread, process := p.state().TaskProcess(task); process != "" {
		return dialect.CodexTerminate(id, thread, process), nil
	}
	return nil, errNoTurn
}

// idle gives an interrupt that finds no turn of Codex its final fact.
func (a *interrupt) idle() bool {
	if _, err := a.interruptLine(""); err == nil {
		return false
	}
	a.c.finishLocked(a.pending, event.NoEffect, errNoTurn.Error(), nil)
	return true
}

// acked: Codex says where there was no process any more.
func (a *stopTask) acked(r *request, resp dialect.Response) {
	if string(resp.Body.Get("terminated")) == "false" {
		a.c.finishLocked(a.pending, event.NoEffect, "there was no such process", nil)
		return
	}
	a.ending.acked(r, resp)
}
