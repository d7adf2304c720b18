package ingest

import (
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Causes of a decision of the policy.
const (
	causeRule    = "rule"
	causeTimeout = "timeout"
)

// policyCommand is the id of the command with which the policy answers an ask. It
// is one of this edge, and on no bus.
func policyCommand(runID, ask string) string { return "policy-" + runID + "-" + ask }

// decide lets the policy decide an ask that was just opened, now or later.
func (b *asks) decide(k *keptAsk) {
	if r := b.policy.rule(&k.req); r != nil {
		a := event.Answer{Decision: r.Then}
		if r.Then == event.Deny {
			if a.Message = r.Message; a.Message == "" {
				a.Message = "The policy " + r.Name + " does not allow this."
			}
		}
		b.give(k, a, event.AutoDecided{Rule: r.Name, Cause: causeRule})
		return
	}
	t, ok := b.policy.Timeouts[k.req.Class()]
	if !ok || t.Then != event.Deny {
		return
	}
	b.c.wg.Go(func() { // ends with the ask or the run, at the latest after t
		timer := time.NewTimer(t.after)
		defer timer.Stop()
		select {
		case <-k.over:
			return
		case <-b.c.running.Done():
			return
		case <-timer.C:
		}
		b.c.rec.mu.Lock()
		defer b.c.rec.mu.Unlock()
		if v, ok := b.c.rec.state.Ask(k.id); !ok || v.State != run.AskOpen || k.by != nil && !k.by.final {
			return // somebody is answering
		}
		a := event.Answer{Decision: event.Deny, Message: t.Message, Interrupt: t.Interrupt == nil || *t.Interrupt}
		if a.Message == "" {
			a.Message = "Nobody answered in time."
		}
		b.give(k, a, event.AutoDecided{Cause: causeTimeout})
	})
}

// give states a decision of the policy and writes it the way every answer takes.
// One that cannot be written leaves the ask to people.
func (b *asks) give(k *keptAsk, a event.Answer, d event.AutoDecided) {
	a.Ask, d.Ask, d.Decision, d.Message = k.id, k.id, a.Decision, a.Message
	d.Tool = bound(k.req.ToolName(), maxArgument)
	b.decided(d)
	now := time.Now()
	rec := b.c.rec
	then := func(f event.Fact, reason string) {
		v, ok := rec.state.Ask(k.id)
		if ok && v.State != run.AskShut && v.Written == nil && (f == event.Refused || f == event.Expired) {
			d.Error = reason
			b.decided(d)
		}
	}
	p, reason, _ := b.c.admitLocked(bus.Command{
		ID: policyCommand(rec.run, k.id), Tenant: rec.tenant, Run: rec.run, Name: "answer", Time: now, DeliverBy: now.Add(deliverWait),
		Data: mustJSON(event.CommandArgs{Answer: &a}), Actor: run.ByPolicy,
	}, then)
	if p == nil {
		then(event.Refused, reason)
		return
	}
	b.c.start(b.c.running, p)
}

func (b *asks) decided(d event.AutoDecided) {
	b.c.rec.factLocked(time.Now(), event.TypeDecision, event.Ask, d, true)
}
