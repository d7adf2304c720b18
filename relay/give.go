package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// maxWithin bounds the times that a client may ask for.
	maxWithin = 24 * time.Hour

	// headroom is what a command and its audit fact need of a message beside the
	// arguments.
	headroom = 16 << 10
)

// A Giver gives commands and answers to the bus in somebody's name: the relay in
// a client's, a program that is on the bus itself in its user's.
type Giver struct {
	Bus   *bus.Bus
	Actor string // who: token name or verified identity
	From  string // from where: address or program
	For   string // on whose behalf, "" for the actor's own; audited only
	// DeliverWithin and EffectWithin are the times of a command that names none
	// and has none of its own.
	DeliverWithin, EffectWithin time.Duration
}

// Given says what the bus has.
type Given struct {
	// Command as it counts: the first that was given with its id.
	Command   bus.Command
	Duplicate bool // it was there already
}

// ValidCommandID reports whether a command's id that a client made up is passed
// on. Those of answers are not made up.
func ValidCommandID(id string) bool {
	for _, taken := range [...]string{answerPrefix, latePrefix, policyPrefix} {
		if strings.HasPrefix(id, taken) {
			return false
		}
	}
	return len(id) <= 64 && plainID(id)
}

func plainID(id string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"
	return strings.Trim(id, plain) == "" && strings.Trim(id, ".") != "" // a path of dots is none
}

// Give puts a command on the bus, its audit fact first: no command is carried out
// of which nobody knows who gave it. The same id again is the same command, for as
// long as the run's events are kept, whichever relay is asked; [CodeReused] is for
// an id that was another command's, [CodeEnded] for a run that is over.
func (g *Giver) Give(ctx context.Context, i bus.RunInfo, o Order) (Given, error) {
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	if _, ok := forms[o.Name]; !ok || !ValidCommandID(o.ID) {
		return Given{}, fail(CodeBadRequest, "no such command, or no id that is passed on")
	}
	if err := checkArgs(o.Name, &o.Args); err != nil {
		return Given{}, fail(CodeBadRequest, err.Error())
	}
	c := g.command(i, o)
	if err := g.fits(c.Data); err != nil {
		return Given{}, err
	}
	have, audit, err := g.known(ctx, c, o.Args)
	if err != nil {
		return Given{}, err
	}
	if have != nil {
		return Given{Command: *have, Duplicate: true}, nil
	}
	if err := g.open(ctx, i); err != nil {
		return Given{}, err
	}
	if audit == nil {
		var first bool
		if audit, first, err = g.audit(ctx, c, o.Args); err == nil && !first {
			err = sameAudit(audit, c, o.Args)
		}
		if err != nil {
			return Given{}, err
		}
	}
	// Audited before, and not known to be on the bus: those times count.
	if !audit.DeliverBy.IsZero() {
		c.DeliverBy, c.EffectBy = audit.DeliverBy, audit.EffectBy
	}
	return g.send(ctx, c, o.Args)
}

func (g *Giver) command(i bus.RunInfo, o Order) bus.Command {
	deliver, effect := cmp.Or(g.DeliverWithin, 30*time.Second), cmp.Or(g.EffectWithin, time.Minute)
	if o.Name == cmdMessage {
		deliver, effect = max(deliver, messageDeliver), max(effect, messageEffect)
	}
	deliver, effect = cmp.Or(o.DeliverWithin, deliver), cmp.Or(o.EffectWithin, effect)
	deliver = min(deliver, effect) // what has no time to act is not delivered
	now := time.Now().UTC()
	return bus.Command{
		ID: o.ID, Tenant: i.Tenant, Run: i.Run, Name: o.Name, Data: mustJSON(o.Args),
		Time: now, DeliverBy: now.Add(deliver), EffectBy: now.Add(effect), Actor: g.Actor, From: g.From,
	}
}

// fits reports arguments that no message can carry.
func (g *Giver) fits(data []byte) error {
	if most := g.Bus.MaxPayload(); most > 0 && len(data) > most-headroom {
		return fail(CodeTooLarge, "it is larger than a message on the bus may be").with("bytes", len(data)).with("limit", most-headroom)
	}
	return nil
}

// known finds a command of c's id: on the bus, or in the audit fact, which stays
// as long as the events. have is the command where it was given for certain, audit
// the fact where there is one.
func (g *Giver) known(ctx context.Context, c bus.Command, args event.CommandArgs) (have *bus.Command, audit *event.Audit, err error) {
	on, err := g.Bus.FindCommand(ctx, c.ID)
	if err == nil {
		return &on, nil, sameCommand(on, c, args)
	}
	if !notFoundErr(err) {
		return nil, nil, err
	}
	a, e, err := findAudit(ctx, g.Bus, c.Tenant, c.Run, c.ID)
	if notFoundErr(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := sameAudit(a, c, args); err != nil {
		return nil, nil, err
	}
	if a.DeliverBy.IsZero() || time.Now().Before(a.DeliverBy) {
		return nil, a, nil
	}
	was := ofAudit(e, a)
	return &was, a, nil
}

// open reports a run that is over.
func (g *Giver) open(ctx context.Context, i bus.RunInfo) error {
	last, _, err := g.Bus.Last(ctx, i.Ref())
	if err != nil && !notFoundErr(err) {
		return err
	}
	if err == nil && last.Type == event.TypeExited {
		return fail(CodeEnded, "the run has ended; nothing was done").with("run", i.Run)
	}
	return nil
}

// audit says who gave c, unless that was said before, and returns what stands.
func (g *Giver) audit(ctx context.Context, c bus.Command, args event.CommandArgs) (stands *event.Audit, first bool, err error) {
	alive, err := g.Bus.Alive(ctx, c.Run)
	if err != nil {
		return nil, false, err
	}
	a := event.Audit{
		Command: c.ID, Name: c.Name, Task: args.Task, Reason: args.Reason, Actor: c.Actor, From: c.From, For: g.For,
		DeliverBy: c.DeliverBy, EffectBy: c.EffectBy, EdgeAlive: alive, Args: auditArgs(c.ID, args),
	}
	e, mine, err := g.Bus.Decide(ctx, &event.Event{
		Tenant: c.Tenant, Run: c.Run, Ref: subject.Audit(c.ID), Time: c.Time, Type: event.TypeAudit, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON, Data: mustJSON(a),
	}, subject.Audit(c.ID))
	if err != nil || mine {
		return &a, mine, err
	}
	var other event.Audit
	_ = json.Unmarshal(e.Data, &other) // what cannot be read is the same as nothing
	return &other, false, nil
}

// send stores c, whose audit fact stands.
func (g *Giver) send(ctx context.Context, c bus.Command, args event.CommandArgs) (Given, error) {
	dup, err := g.Bus.SendCommand(ctx, c)
	if err != nil {
		return Given{}, err
	}
	if dup { // another request of this id was quicker
		if have, err := g.Bus.FindCommand(ctx, c.ID); err == nil {
			return Given{Command: have, Duplicate: true}, sameCommand(have, c, args)
		}
	}
	return Given{Command: c, Duplicate: dup}, nil
}

// findAudit returns what the audit fact of a command says.
func findAudit(ctx context.Context, b *bus.Bus, tenant, run, id string) (*event.Audit, *event.Event, error) {
	e, _, err := b.Control(ctx, tenant, run, subject.Audit(id))
	if err != nil {
		return nil, nil, err
	}
	var a event.Audit
	_ = json.Unmarshal(e.Data, &a) // then nothing is equal
	return &a, e, nil
}

// ofAudit is the command of an audit fact. A message in it has no text.
func ofAudit(e *event.Event, a *event.Audit) bus.Command {
	args := event.CommandArgs{Task: a.Task, Reason: a.Reason}
	if a.Args != nil {
		args = *a.Args
	}
	return bus.Command{
		ID: a.Command, Tenant: e.Tenant, Run: e.Run, Name: a.Name, Data: mustJSON(args), Time: e.Time,
		DeliverBy: a.DeliverBy, EffectBy: a.EffectBy, Actor: a.Actor, From: a.From,
	}
}

func reused() error { return fail(CodeReused, "this id was used for another command") }

// sameCommand says whether two commands of one id are one.
func sameCommand(have, c bus.Command, args event.CommandArgs) error {
	var a event.CommandArgs
	if have.Run != c.Run || have.Name != c.Name || json.Unmarshal(have.Data, &a) != nil || !sameArgs(c.ID, a, args) {
		return reused()
	}
	return nil
}

// sameAudit says whether an audit fact is that of c.
func sameAudit(a *event.Audit, c bus.Command, args event.CommandArgs) error {
	switch {
	case a.Name != c.Name, a.Args != nil && !sameArgs(c.ID, *a.Args, args), a.Args == nil && a.Task != args.Task:
		return reused()
	}
	return nil
}

// asAPI turns what a [Giver] returns into an answer.
func (r *Relay) asAPI(err error) *apiErr {
	var aerr *apiErr
	switch {
	case err == nil:
		return nil
	case errors.As(err, &aerr):
		return aerr
	}
	return r.busErr(err)
}
