package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// answerPrefix begins the ids of answers, which follow from the ask:
	// answer-<run>-<ask>-<attempt>.
	answerPrefix = "answer-"

	// latePrefix begins the ids of answers that did not count.
	latePrefix = "late-"

	// policyPrefix begins the ids of answers of an edge's policy.
	policyPrefix = "policy-"

	// maxLate bounds what is kept of one, in bytes; past it only the decision is.
	maxLate = 16 << 10

	// maxAttempts bounds the answers to one ask that could not be delivered.
	maxAttempts = 100

	// answerDeliver is how long an answer may take to reach the agent; its ask
	// mostly ends before. For its effect it has until the run ends: what was
	// allowed may run for hours.
	answerDeliver = 24 * time.Hour
)

func answerID(run, ask string, attempt int) string {
	return answerPrefix + run + "-" + ask + "-" + strconv.Itoa(attempt)
}

// answeredRun is the run in the id of an answer.
func answeredRun(id string) (string, bool) {
	id, ok := strings.CutPrefix(id, answerPrefix)
	for range 2 { // attempt and ask
		i := strings.LastIndexByte(id, '-')
		if !ok || i <= 0 {
			return "", false
		}
		id = id[:i]
	}
	return id, true
}

// An Asked is an ask and what is known of its run, up to date with the bus.
type Asked struct {
	ID    string
	View  *run.AskView // nil where the run has no such ask
	Ended bool         // the run is over
	// Facts returns the facts of a command beside its acceptance.
	Facts func(command string) []Fact
}

// Answer decides an ask. The first answer counts, and the bus decides which that
// is: the audit fact of the ask's command, stored where there is none. It stands
// for as long as control facts are kept, so that a later answer is told of it
// whichever relay is asked. The same answer again is given as a duplicate;
// [CodeAnswered] is for another one, [CodeAskClosed] for an ask that is open no
// more, [CodeNotFound] for one that never was. An answer that was not delivered
// leaves the ask open for the next one. One that came too late has an audit fact,
// too.
func (g *Giver) Answer(ctx context.Context, i bus.RunInfo, q Asked, a event.Answer, within time.Duration) (Given, error) {
	a.Ask = q.ID
	if err := checkShape(&a); err != nil {
		return Given{}, err
	}
	given, err := g.answer(ctx, i, q, a, within)
	if code := CodeOf(err); code == CodeAskClosed || code == CodeAnswered {
		err = g.late(ctx, i, a, err)
	}
	return given, err
}

// late says in an audit fact that somebody's answer did not count, once for each
// who gave it and what it said, and returns cause, or why the fact is not there.
func (g *Giver) late(ctx context.Context, i bus.RunInfo, a event.Answer, cause error) error {
	who := g.Actor
	if g.For != "" {
		who += "\x00" + g.For
	}
	h := sha256.Sum256(append([]byte(who+"\x00"), canonical(mustJSON(a))...))
	if len(mustJSON(a)) > maxLate {
		a = event.Answer{Ask: a.Ask, Decision: a.Decision, Message: cut(a.Message)}
	}
	why := cause.Error()
	if reason, ok := DetailsOf(cause)["reason"].(string); ok {
		why += ": " + reason
	}
	id := latePrefix + i.Run + "-" + a.Ask + "-" + hex.EncodeToString(h[:6])
	now := time.Now().UTC()
	_, _, err := g.Bus.Decide(ctx, &event.Event{
		Tenant: i.Tenant, Run: i.Run, Ref: subject.Audit(id), Time: now, Type: event.TypeAudit, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON, Data: mustJSON(event.Audit{
			Command: id, Name: cmdAnswer, Actor: g.Actor, From: g.From, For: g.For, Args: &event.CommandArgs{Answer: &a}, Refused: why,
		}),
	}, subject.Audit(id))
	return cmp.Or(err, cause)
}

func (g *Giver) answer(ctx context.Context, i bus.RunInfo, q Asked, a event.Answer, within time.Duration) (Given, error) {
	for n := 1; n <= maxAttempts; n++ {
		id := answerID(i.Run, q.ID, n)
		audit, e, err := findAudit(ctx, g.Bus, i.Tenant, i.Run, id)
		switch {
		case notFoundErr(err):
			return g.decide(ctx, i, q, id, a, within)
		case err != nil:
			return Given{}, err
		}
		facts := q.Facts(id)
		switch f, reason := fateOf(facts); f {
		case stands:
			return g.stands(ctx, ofAudit(e, audit), audit, a, len(facts) == 0)
		case tooLate:
			return Given{}, fail(CodeAskClosed, "the ask was open no more when the answer came").
				with("ask", q.ID).with("reason", reason).with("command", id)
		case undelivered:
		}
	}
	return Given{}, fail(CodeAskClosed, fmt.Sprintf("%d answers could not be delivered", maxAttempts)).with("ask", q.ID)
}

// decide is the first to answer, or finds that another was.
func (g *Giver) decide(ctx context.Context, i bus.RunInfo, q Asked, id string, a event.Answer, within time.Duration) (Given, error) {
	if err := answerable(q); err != nil {
		return Given{}, err
	}
	if err := checkAnswer(q.View, &a); err != nil {
		return Given{}, err
	}
	deliver := cmp.Or(within, answerDeliver)
	now := time.Now().UTC()
	args := event.CommandArgs{Answer: &a}
	c := bus.Command{
		ID: id, Tenant: i.Tenant, Run: i.Run, Name: cmdAnswer, Data: mustJSON(args),
		Time: now, DeliverBy: now.Add(deliver), Actor: g.Actor, From: g.From,
	}
	if err := g.fits(c.Data); err != nil {
		return Given{}, err
	}
	stands, first, err := g.audit(ctx, c, args)
	if err != nil {
		return Given{}, err
	}
	if first {
		_, err := g.Bus.SendCommand(ctx, c)
		return Given{Command: c}, err // after an error the next one to ask finishes it
	}
	c.DeliverBy, c.EffectBy, c.Actor, c.From = stands.DeliverBy, stands.EffectBy, stands.Actor, stands.From
	if stands.Args != nil {
		c.Data = mustJSON(stands.Args)
	}
	return g.stands(ctx, c, stands, a, true)
}

// stands compares an answer with the decision c, and puts that on the bus where it
// may not have got there.
func (g *Giver) stands(ctx context.Context, c bus.Command, audit *event.Audit, a event.Answer, unsure bool) (Given, error) {
	if unsure && time.Now().Before(c.DeliverBy) {
		if _, err := g.Bus.SendCommand(ctx, c); err != nil {
			return Given{}, err
		}
	}
	have := event.Answer{}
	if audit.Args != nil && audit.Args.Answer != nil {
		have = *audit.Args.Answer
	}
	if !bytes.Equal(canonical(mustJSON(have)), canonical(mustJSON(a))) {
		err := fail(CodeAnswered, "somebody else has answered this first").
			with("ask", a.Ask).with("command", c.ID).with("decision", have.Decision).with("actor", audit.Actor).with("at", c.Time)
		if audit.For != "" {
			err = err.with("for", audit.For)
		}
		return Given{}, err
	}
	return Given{Command: c, Duplicate: true}, nil
}

// A fate is what became of one answer to an ask.
type fate int

const (
	stands      fate = iota // it counts, whether it has reached the agent, will, or nobody knows
	undelivered             // it never will; the ask is as open as before
	tooLate                 // the ask was open no more
)

// lateReasons begin an edge's refusal when the ask is open no more.
var lateReasons = map[string]bool{
	"already_answered": true, "already_answered_locally": true, "withdrawn": true, "already_ended": true, "unknown_ask": true,
}

// fateOf reads the facts of an answer. reason is the word that the last one begins
// with.
func fateOf(facts []Fact) (f fate, reason string) {
	end := finalFact(facts)
	if end == nil {
		return stands, ""
	}
	reason, _, _ = strings.Cut(end.Reason, ":")
	reason = strings.TrimSpace(reason)
	switch {
	case end.Fact == event.NoEffect, end.Fact == event.Refused && lateReasons[reason]:
		return tooLate, reason
	case (end.Fact == event.Expired || end.Fact == event.Refused) && !isWritten(facts):
		return undelivered, reason
	}
	return stands, reason
}

func isWritten(facts []Fact) bool {
	for _, f := range facts {
		if f.Fact == event.Written || f.Fact == event.Acked {
			return true
		}
	}
	return false
}
