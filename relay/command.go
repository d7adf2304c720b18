package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// Names of commands.
const (
	cmdInterrupt = "interrupt"
	cmdStopTask  = "stop_task"
)

const (
	// maxWithin bounds the times that a client may ask for.
	maxWithin = time.Hour

	// ackAfter is how long after the line was written an answer may take before
	// the state says that there is none.
	ackAfter = 5 * time.Second
)

// A CommandRequest is the body of the POST routes; every field may be absent.
type CommandRequest struct {
	ID     string `json:"id"` // else the header Idempotency-Key, else a new one
	Reason string `json:"reason"`
	Task   string `json:"task"` // stop_task needs it; an interrupt with one is a stop_task
	Turn   string `json:"turn"` // "keep": stop the tasks, let the turn go on, where the agent does that
	// DeliverWithin and EffectWithin are in seconds; 0 is the relay's default.
	DeliverWithin float64 `json:"deliver_within"`
	EffectWithin  float64 `json:"effect_within"`
}

// actorLocal is whoever holds this machine's token.
const actorLocal = "local"

// args is the data of the command on the bus.
type args struct {
	Reason string `json:"reason,omitempty"`
	Task   string `json:"task,omitempty"`
	Turn   string `json:"turn,omitempty"`
}

// CommandAccepted is the answer to the POST routes: the bus has the command.
type CommandAccepted struct {
	Command   string `json:"command"`
	Run       string `json:"run"`
	Name      string `json:"name"`
	State     string `json:"state"` // accepted
	Duplicate bool   `json:"duplicate"`
	Facts     string `json:"facts"` // path to what becomes of it
}

func (r *Relay) interrupt(w http.ResponseWriter, q *http.Request) *apiErr {
	return r.command(w, q, cmdInterrupt)
}

func (r *Relay) stopTask(w http.ResponseWriter, q *http.Request) *apiErr {
	return r.command(w, q, cmdStopTask)
}

// command takes a command for a run: the same id again is the same command and
// gets the same answer, whatever became of it meanwhile.
func (r *Relay) command(w http.ResponseWriter, q *http.Request, name string) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	req, aerr := readCommand(q)
	if aerr != nil {
		return aerr
	}
	if req.Task != "" {
		name = cmdStopTask
	} else if name == cmdStopTask {
		return fail(CodeBadRequest, "stop_task needs a task").with("parameter", "task")
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	c := r.newCommand(i, name, req, q)
	dup, aerr := r.known(ctx, c)
	if aerr == nil && !dup {
		dup, aerr = r.give(ctx, i, c, req)
	}
	if aerr != nil {
		return aerr
	}
	w.Header().Set("Location", "/v1/commands/"+c.ID)
	writeJSON(w, http.StatusAccepted, CommandAccepted{
		Command: c.ID, Run: c.Run, Name: c.Name, State: string(event.Accepted), Duplicate: dup, Facts: "/v1/commands/" + c.ID,
	})
	return nil
}

// commandKeys are the names that a command's body may have, exactly: a misspelt
// "task" must not stop everything, and encoding/json takes "TASK" for it.
var commandKeys = []string{"id", "reason", "task", "turn", "deliver_within", "effect_within"}

func decodeCommand(body []byte, req *CommandRequest) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for name := range fields {
		if !slices.Contains(commandKeys, name) {
			return fmt.Errorf("unknown field %q", name)
		}
	}
	return json.Unmarshal(body, req)
}

func readCommand(q *http.Request) (CommandRequest, *apiErr) {
	var req CommandRequest
	body, err := io.ReadAll(q.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return req, fail(CodeTooLarge, "the body is over 1 MiB")
	}
	if err != nil {
		return req, fail(CodeBadRequest, "the body did not come whole")
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // some shells write one
	if len(bytes.TrimSpace(body)) > 0 {
		if err := decodeCommand(body, &req); err != nil {
			return req, fail(CodeBadRequest, "the body must be one JSON object with id, reason, task, turn, deliver_within, effect_within")
		}
	}
	if req.ID == "" {
		req.ID = q.Header.Get("Idempotency-Key")
	}
	if req.ID == "" {
		req.ID = uuid.NewString()
	}
	switch {
	case !ValidCommandID(req.ID):
		return req, fail(CodeBadRequest, "id must be 1 to 64 of A-Z a-z 0-9 - _ . :").with("parameter", "id")
	case req.Turn != "" && req.Turn != "keep" && req.Turn != "end":
		return req, fail(CodeBadRequest, "turn must be keep or end").with("parameter", "turn")
	case !seconds(req.DeliverWithin) || !seconds(req.EffectWithin):
		return req, fail(CodeBadRequest, "deliver_within and effect_within are seconds, 0.1 to 3600")
	case len(req.Reason) > 4096 || len(req.Task) > 1024:
		return req, fail(CodeBadRequest, "reason or task is too long")
	}
	return req, nil
}

// seconds reports whether s is a time that a command may name; 0 names none.
func seconds(s float64) bool { return s == 0 || s >= 0.1 && s <= maxWithin.Seconds() }

func (r *Relay) newCommand(i bus.RunInfo, name string, req CommandRequest, q *http.Request) bus.Command {
	within := func(s float64, usual time.Duration) time.Duration {
		if s == 0 {
			return usual
		}
		return time.Duration(s * float64(time.Second))
	}
	now := time.Now().UTC()
	deliver := within(req.DeliverWithin, r.cfg.DeliverWithin)
	effect := within(req.EffectWithin, r.cfg.EffectWithin)
	deliver = min(deliver, effect) // what has no time to act is not delivered
	return bus.Command{
		ID: req.ID, Tenant: i.Tenant, Run: i.Run, Name: name, Data: mustJSON(args{req.Reason, req.Task, req.Turn}),
		Time: now, DeliverBy: now.Add(deliver), EffectBy: now.Add(effect), Actor: actorLocal, From: q.RemoteAddr,
	}
}

// known reports whether the bus has c already.
func (r *Relay) known(ctx context.Context, c bus.Command) (bool, *apiErr) {
	have, err := r.bus.FindCommand(ctx, c.ID)
	if err == nil {
		return true, same(have, c)
	}
	if !notFoundErr(err) {
		return false, r.busErr(err)
	}
	// It may have left the bus; its audit fact stays as long as the events.
	e, _, err := r.bus.Control(ctx, c.Tenant, c.Run, subject.Audit(c.ID))
	if notFoundErr(err) {
		return false, nil
	}
	if err != nil {
		return false, r.busErr(err)
	}
	var a Audit
	_ = json.Unmarshal(e.Data, &a) // then nothing is equal
	var want args
	_ = json.Unmarshal(c.Data, &want)
	if a.Name != c.Name || a.Task != want.Task {
		return false, reused()
	}
	if a.DeliverBy.IsZero() || time.Now().Before(a.DeliverBy) {
		return false, nil // audited, but the answer of the bus got lost
	}
	return true, nil
}

func reused() *apiErr { return fail(CodeReused, "this id was used for another command") }

// same says whether two commands of one id are one command.
func same(have, c bus.Command) *apiErr {
	var a, b args
	if have.Run != c.Run || have.Name != c.Name || json.Unmarshal(have.Data, &a) != nil ||
		json.Unmarshal(c.Data, &b) != nil || a.Task != b.Task || a.Turn != b.Turn {
		return reused()
	}
	return nil
}

// give puts a command on the bus, its audit fact first: no command is carried
// out of which nobody knows who gave it.
func (r *Relay) give(ctx context.Context, i bus.RunInfo, c bus.Command, req CommandRequest) (dup bool, aerr *apiErr) {
	last, _, err := r.bus.Last(ctx, i.Ref())
	if err != nil && !notFoundErr(err) {
		return false, r.busErr(err)
	}
	if err == nil && last.Type == event.TypeExited {
		return false, fail(CodeEnded, "the run has ended; nothing was done").with("run", i.Run)
	}
	alive, err := r.bus.Alive(ctx, i.Run)
	if err != nil {
		return false, r.busErr(err)
	}
	_, err = r.bus.PutControl(ctx, &event.Event{
		Tenant: c.Tenant, Run: c.Run, Ref: subject.Audit(c.ID), Time: c.Time, Type: event.TypeAudit, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON,
		Data: mustJSON(Audit{
			Command: c.ID, Name: c.Name, Task: req.Task, Reason: req.Reason, Actor: c.Actor, From: c.From,
			DeliverBy: c.DeliverBy, EffectBy: c.EffectBy, EdgeAlive: alive,
		}),
	}, subject.Audit(c.ID), 0)
	if err != nil && !errors.Is(err, bus.ErrConflict) {
		return false, r.busErr(err)
	}
	dup, err = r.bus.SendCommand(ctx, c)
	if err != nil {
		return false, r.busErr(err)
	}
	if dup { // another request of this id was quicker
		have, err := r.bus.FindCommand(ctx, c.ID)
		if err == nil {
			return true, same(have, c)
		}
	}
	return dup, nil
}

// A CommandDoc is the body of GET /v1/commands/{id}.
type CommandDoc struct {
	Command string `json:"command"`
	Run     string `json:"run"`
	Name    string `json:"name"`
	Task    string `json:"task,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// State is the latest fact that holds, or sent_not_acked: written more than
	// 5 s ago and not answered.
	State     string     `json:"state"`
	Final     bool       `json:"final"` // nothing more is expected
	DeliverBy time.Time  `json:"deliver_by"`
	EffectBy  *time.Time `json:"effect_by,omitempty"`
	Facts     []Fact     `json:"facts"`
}

const stateNotAcked = "sent_not_acked"

func (r *Relay) showCommand(w http.ResponseWriter, q *http.Request) *apiErr {
	id := q.PathValue("id")
	if !ValidCommandID(id) {
		return notFound()
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	c, err := r.bus.FindCommand(ctx, id)
	if notFoundErr(err) {
		if m, ok := r.clerk.find(id); ok {
			c = bus.Command{
				ID: id, Tenant: m.tenant, Run: m.run, Name: m.Name, Data: mustJSON(args{Reason: m.Reason, Task: m.Task}),
				Time: m.given, DeliverBy: m.DeliverBy, EffectBy: m.EffectBy,
			}
			err = nil
		}
	}
	if err != nil {
		return r.busErr(err)
	}
	i, err := r.reg.find(ctx, c.Run)
	if err != nil {
		return r.busErr(err)
	}
	f, err := r.hub.fold(ctx, i.Ref())
	if err != nil {
		return r.busErr(err)
	}
	var a args
	_ = json.Unmarshal(c.Data, &a) // another program's command may have other data
	doc := CommandDoc{
		Command: id, Run: c.Run, Name: c.Name, Task: a.Task, Reason: a.Reason, DeliverBy: c.DeliverBy,
		Facts: append([]Fact{{Fact: event.Accepted, At: c.Time, By: "bus"}}, f.commandFacts(id)...),
	}
	if !c.EffectBy.IsZero() {
		doc.EffectBy = &c.EffectBy
	}
	doc.State, doc.Final = commandState(doc.Facts, time.Now())
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// commandState derives where a command stands. The edge's final fact holds over
// a relay's, which only stood in for it.
func commandState(facts []Fact, now time.Time) (state string, final bool) {
	for _, by := range []string{"edge", "relay"} {
		for _, f := range facts {
			if f.By == by && f.Fact.Final() {
				return string(f.Fact), true
			}
		}
	}
	last := facts[len(facts)-1]
	acked := slices.ContainsFunc(facts, func(f Fact) bool { return f.Fact == event.Acked })
	if !acked && last.Fact == event.Written && now.Sub(last.At) >= ackAfter {
		return stateNotAcked, false
	}
	return string(last.Fact), false
}
