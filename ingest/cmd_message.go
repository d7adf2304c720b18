package ingest

import (
	"strconv"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// maxUUID bounds a message's id: it is recorded in full.
	maxUUID = 64
	// maxHeldBack bounds the messages that wait for their turn at the edge.
	maxHeldBack = 16
	// maxContent bounds the content of one, in bytes. What comes over HTTP is not
	// larger.
	maxContent = 1 << 20
)

// message gives the child a user message. It waits at the edge while the child
// would lose it, and goes out in the order of the commands.
type message struct {
	plain
	uuid  string
	taken bool // a fact says that the child has it
}

func newMessage(p plain) action {
	m := &message{plain: p, uuid: p.args.UUID}
	if m.uuid == "" {
		m.uuid = p.cmd.ID
	}
	return m
}

func (a *message) refuse() string {
	if reason := badContent(a.args.Content); reason != "" {
		return reason
	}
	switch {
	case len(a.uuid) > maxUUID:
		return "bad_arguments: a uuid has at most " + strconv.Itoa(maxUUID) + " bytes"
	case a.stale() != "":
		return a.stale()
	case len(a.before()) >= maxHeldBack:
		return "too_many_messages"
	}
	return ""
}

// stale gives it up once the host has ended its side: the conversation is over.
func (a *message) stale() string {
	if a.c.hosted && a.c.rec.inEOF {
		return "stdin_closed"
	}
	return ""
}

// hold keeps the message back where the child would lose it. Claude Code queues
// messages itself. CodeBuddy opens a conversation of its own for each one until
// its first turn has ended, and loses results when several come during a later
// one; Codex takes a message as part of the turn that runs.
func (a *message) hold() bool {
	if a.dialect() == dialect.Claude {
		return false
	}
	st := a.state()
	if a.dialect() == dialect.CBC && st.TurnsEnded() == 0 || st.Open().Turns > 0 {
		return true
	}
	return len(a.before()) > 0
}

// before lists the messages before this one that no line on record shows.
func (a *message) before() (list []*pending) {
	for _, p := range a.c.open {
		if p == a.pending {
			break
		}
		if _, ok := p.act.(*message); ok && !p.final && (len(p.requests) == 0 || !p.requests[0].passed) {
			list = append(list, p)
		}
	}
	return list
}

// prepare makes the line. Claude Code takes a uuid once and says nothing to
// another message with it.
func (a *message) prepare() error {
	if a.dialect() == dialect.Claude && a.state().Message(a.uuid).Known {
		a.c.finishLocked(a.pending, event.NoEffect, "the child has a message with this uuid", nil)
		return nil
	}
	r, err := a.line()
	if err != nil {
		return err
	}
	a.args.Content = nil // it may be large, and the line has it
	a.request(r)
	return nil
}

func (a *message) line() (r *request, err error) {
	r = &request{}
	if session := a.c.rec.track.Main(); a.dialect() == dialect.Codex {
		r.id, r.replies = newRequestID(), true
		r.line, err = dialect.CodexTurnStart(r.id, session, a.uuid, a.args.Content)
	} else {
		r.line, err = dialect.Message(a.dialect(), a.uuid, session, a.args.Content)
	}
	return r, err
}

// acked is the answer of Codex: the message is in a turn. The others give none.
func (a *message) acked(*request, dialect.Response) { a.taken = true }

func (a *message) detail(*request) map[string]string { return map[string]string{"uuid": a.uuid} }

// judge follows the message: Claude Code names each step, of the others the turn
// that covers it tells.
func (a *message) judge() {
	m := a.state().Message(a.uuid)
	detail := map[string]string{"uuid": a.uuid}
	if m.Turn > 0 {
		detail["turn"] = strconv.Itoa(m.Turn)
	}
	switch m.Life {
	case "queued", "started":
		a.take(m.Life, detail)
	case "completed":
		a.settle(detail)
		return
	case "cancelled", "discarded":
		if m.Turn > 0 {
			detail["outcome"] = m.Life
			a.settle(detail)
		} else {
			a.c.finishLocked(a.pending, event.NoEffect, m.Life, detail)
		}
		return
	}
	switch {
	case m.Turn == 0:
	case !m.Done:
		a.take("started", detail)
	case m.Life == "" || m.Aborted:
		if m.Aborted {
			detail["outcome"] = "aborted"
		}
		a.settle(detail)
	}
}

// take records once that the child has the message.
func (a *message) take(how string, detail map[string]string) {
	if a.taken {
		return
	}
	a.taken = true
	detail["state"] = how
	a.c.written(a.pending, a.requests[0])
	a.c.factLocked(a.pending, event.Acked, "", "", detail)
}

func (a *message) settle(detail map[string]string) {
	a.c.written(a.pending, a.requests[0])
	a.c.finishLocked(a.pending, event.Settled, "", detail)
}

// patient reports whether the effect is awaited without a time: a turn takes as
// long as it takes.
func (a *message) patient() bool { return a.taken }

// steer adds to the turn that runs.
type steer struct{ control }

func (a *steer) refuse() string { return badContent(a.args.Content) }

func badContent(content []byte) string {
	if len(content) > maxContent {
		return "bad_arguments: content is over " + strconv.Itoa(maxContent) + " bytes"
	}
	if err := dialect.CheckContent(content); err != nil {
		return "bad_arguments: " + err.Error()
	}
	return ""
}

func (a *steer) prepare() error {
	return a.say(func(id string) ([]byte, error) {
		if a.dialect() != dialect.Codex {
			return dialect.Steer(a.dialect(), id, a.c.rec.track.Main(), a.args.Content)
		}
		thread, turn := a.state().RunningTurn("")
		if turn == "" {
			a.c.finishLocked(a.pending, event.NoEffect, "idle: no turn runs", nil)
			return nil, nil
		}
		return dialect.CodexTurnSteer(id, thread, turn, a.cmd.ID, a.args.Content)
	})
}

// acked settles it where the text joined the turn: idle and stale are CodeBuddy's
// reasons why it did not.
func (a *steer) acked(_ *request, resp dialect.Response) {
	if string(resp.Body.Get("steered")) == "false" {
		reason := bound(resp.Body.Get("reason").Text(), maxReason)
		if reason == "idle" {
			reason = "idle: no turn runs"
		}
		a.c.finishLocked(a.pending, event.NoEffect, reason, nil)
		return
	}
	a.settled(nil)
}
