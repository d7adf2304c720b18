package relay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A CommandRequest is the body of the routes interrupt and stop_task; every field
// may be absent.
type CommandRequest struct {
	ID     string `json:"id"` // else the header Idempotency-Key, else a new one
	Reason string `json:"reason"`
	Task   string `json:"task"` // stop_task needs it; an interrupt with one is a stop_task
	Turn   string `json:"turn"` // "keep": stop the tasks, let the turn go on, where the agent does that
	// Escalate lets an interrupt that is not enough climb to the agent's death.
	Escalate bool `json:"escalate"`
	// DeliverWithin and EffectWithin are in seconds; 0 is the relay's default.
	DeliverWithin float64 `json:"deliver_within"`
	EffectWithin  float64 `json:"effect_within"`
}

// An OrderRequest is the body of POST /v1/runs/{run}/commands.
type OrderRequest struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Args          json.RawMessage `json:"args"`
	DeliverWithin float64         `json:"deliver_within"`
	EffectWithin  float64         `json:"effect_within"`
}

// actorLocal is whoever holds this machine's token.
const actorLocal = "local"

// CommandAccepted is the answer to the POST routes: the bus has the command.
type CommandAccepted struct {
	Command   string `json:"command"`
	Run       string `json:"run"`
	Name      string `json:"name"`
	Ask       string `json:"ask,omitempty"`      // of an answer
	Decision  string `json:"decision,omitempty"` // of an answer
	State     string `json:"state"`              // accepted
	Duplicate bool   `json:"duplicate"`
	Facts     string `json:"facts"` // path to what becomes of it
}

func (r *Relay) interrupt(w http.ResponseWriter, q *http.Request) *apiErr {
	return r.short(w, q, cmdInterrupt)
}

func (r *Relay) stopTask(w http.ResponseWriter, q *http.Request) *apiErr {
	return r.short(w, q, cmdStopTask)
}

// short takes the two commands that have a route of their own.
func (r *Relay) short(w http.ResponseWriter, q *http.Request, name string) *apiErr {
	var req CommandRequest
	keys := []string{"id", "reason", "task", "turn", "escalate", "deliver_within", "effect_within"}
	if aerr := readBody(q, &req, keys); aerr != nil {
		return aerr
	}
	if req.Task != "" {
		name = cmdStopTask
	}
	args := event.CommandArgs{Reason: req.Reason, Task: req.Task, Turn: req.Turn, Escalate: req.Escalate}
	if name == cmdStopTask && (req.Turn != "" || req.Escalate) {
		return fail(CodeBadRequest, "stop_task takes neither turn nor escalate")
	}
	return r.order(w, q, Order{ID: req.ID, Name: name, Args: args}, req.DeliverWithin, req.EffectWithin)
}

// anyCommand takes every command by its name.
func (r *Relay) anyCommand(w http.ResponseWriter, q *http.Request) *apiErr {
	var req OrderRequest
	if aerr := readBody(q, &req, []string{"id", "name", "args", "deliver_within", "effect_within"}); aerr != nil {
		return aerr
	}
	if req.Name == cmdAnswer {
		return fail(CodeBadRequest, "answers go to /v1/runs/{run}/asks/{ask}").with("parameter", "name")
	}
	args, err := ParseArgs(req.Name, req.Args)
	if err != nil {
		return fail(CodeBadRequest, err.Error())
	}
	return r.order(w, q, Order{ID: req.ID, Name: req.Name, Args: args}, req.DeliverWithin, req.EffectWithin)
}

// order gives a command to a run: the same id again is the same command and gets
// the same answer, whatever became of it meanwhile.
func (r *Relay) order(w http.ResponseWriter, q *http.Request, o Order, deliver, effect float64) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	o.ID = cmp.Or(o.ID, q.Header.Get("Idempotency-Key"))
	switch {
	case o.ID != "" && !ValidCommandID(o.ID):
		return fail(CodeBadRequest, "id must be 1 to 64 of A-Z a-z 0-9 - _ . :, and not begin with "+answerPrefix+", "+latePrefix+" or "+policyPrefix).with("parameter", "id")
	case !seconds(deliver) || !seconds(effect):
		return fail(CodeBadRequest, "deliver_within and effect_within are seconds, 0.1 to 86400")
	}
	o.DeliverWithin, o.EffectWithin = duration(deliver), duration(effect)
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	if aerr := r.commandable(ctx, i); aerr != nil {
		return aerr
	}
	g, err := r.giver(q).Give(ctx, i, o)
	r.met.command(o.Name, g, err)
	if err != nil {
		return r.asAPI(err)
	}
	r.accepted(w, http.StatusAccepted, g, CommandAccepted{})
	return nil
}

func (r *Relay) giver(q *http.Request) *Giver {
	return &Giver{
		Bus: r.bus, Actor: callerOf(q).name, From: callerOf(q).from, For: callerOf(q).behalf, DeliverWithin: r.cfg.DeliverWithin, EffectWithin: r.cfg.EffectWithin,
	}
}

func (r *Relay) accepted(w http.ResponseWriter, status int, g Given, doc CommandAccepted) {
	c := g.Command
	doc.Command, doc.Run, doc.Name, doc.Duplicate = c.ID, c.Run, c.Name, g.Duplicate
	doc.State, doc.Facts = string(event.Accepted), "/v1/commands/"+c.ID
	w.Header().Set("Location", doc.Facts)
	writeJSON(w, status, doc)
}

// readBody reads the body of a command: nothing, or one JSON object that has only
// names in keys.
func readBody(q *http.Request, v any, keys []string) *apiErr {
	body, err := io.ReadAll(q.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fail(CodeTooLarge, "the body is over 1 MiB")
	}
	if err != nil {
		return fail(CodeBadRequest, "the body did not come whole")
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // some shells write one
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if err := decode(body, v, keys); err != nil {
		return fail(CodeBadRequest, "the body: "+err.Error())
	}
	return nil
}

// seconds reports whether s is a time that a command may name; 0 names none.
func seconds(s float64) bool { return s == 0 || s >= 0.1 && s <= maxWithin.Seconds() }

func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A CommandDoc is the body of GET /v1/commands/{id}.
type CommandDoc struct {
	Command string `json:"command"`
	Run     string `json:"run"`
	Name    string `json:"name"`
	Task    string `json:"task,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Args are the command's; the text of a message or a steer is an
	// [event.Digest] in them.
	Args *event.CommandArgs `json:"args"`
	// State is the latest fact that holds, or sent_not_acked: written more than
	// 5 s ago and not answered.
	State     string     `json:"state"`
	Final     bool       `json:"final"` // nothing more is expected
	DeliverBy time.Time  `json:"deliver_by"`
	EffectBy  *time.Time `json:"effect_by,omitempty"`
	Facts     []Fact     `json:"facts"`
}

const (
	stateNotAcked = "sent_not_acked"

	// ackAfter is how long after the line was written an answer may take before
	// the state says that there is none.
	ackAfter = 5 * time.Second
)

func (r *Relay) showCommand(w http.ResponseWriter, q *http.Request) *apiErr {
	id := q.PathValue("id")
	if len(id) > 2*maxRunID || !plainID(id) {
		return notFound()
	}
	if r.background() == nil {
		return fail(CodeUnavailable, "the relay is starting or ending")
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	c, err := r.findCommand(ctx, id)
	if err != nil {
		return r.busErr(err)
	}
	i, err := r.reg.find(ctx, c.Run)
	i, aerr := r.mine(q, i, err)
	if aerr != nil {
		return aerr
	}
	f, err := r.hub.fold(ctx, i.Ref())
	if err != nil {
		return r.busErr(err)
	}
	var a event.CommandArgs
	_ = json.Unmarshal(c.Data, &a) // another program's command may have other data
	doc := CommandDoc{
		Command: id, Run: c.Run, Name: c.Name, Task: a.Task, Reason: a.Reason, Args: auditArgs(id, a), DeliverBy: c.DeliverBy,
		Facts: append([]Fact{{Fact: event.Accepted, At: c.Time, By: "bus"}}, f.commandFacts(id)...),
	}
	if !c.EffectBy.IsZero() {
		doc.EffectBy = &c.EffectBy
	}
	doc.State, doc.Final = commandState(c.Name, doc.Facts, time.Now())
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// findCommand finds a command on the bus, or by its audit fact when it has left:
// an answer always, for its id names the run, another one where this relay knows
// the run.
func (r *Relay) findCommand(ctx context.Context, id string) (bus.Command, error) {
	c, err := r.bus.FindCommand(ctx, id)
	if !notFoundErr(err) {
		return c, err
	}
	tenant, run, known := r.clerk.find(id)
	if name, ok := answeredRun(id); ok && !known {
		i, err := r.reg.find(ctx, name)
		if err != nil {
			return c, err
		}
		tenant, run, known = i.Tenant, i.Run, true
	}
	if !known {
		return c, err
	}
	a, e, err := findAudit(ctx, r.bus, tenant, run, id)
	if err != nil {
		return c, err
	}
	return ofAudit(e, a), nil
}

// commandState derives where a command stands. The edge's final fact holds over
// a relay's, which only stood in for it.
func commandState(name string, facts []Fact, now time.Time) (state string, final bool) {
	if f := finalFact(facts); f != nil {
		return string(f.Fact), true
	}
	last := facts[len(facts)-1]
	acked := name == cmdAnswer // no agent acknowledges one
	for _, f := range facts {
		acked = acked || f.Fact == event.Acked
	}
	if !acked && last.Fact == event.Written && now.Sub(last.At) >= ackAfter {
		return stateNotAcked, false
	}
	return string(last.Fact), false
}

// finalFact is the fact that says what became of a command, nil while none does.
func finalFact(facts []Fact) *Fact {
	for _, by := range []string{"edge", "relay"} {
		for i := range facts {
			if facts[i].By == by && facts[i].Fact.Final() {
				return &facts[i]
			}
		}
	}
	return nil
}
