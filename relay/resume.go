package relay

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/workflow"
)

// resumePurpose is what resume tokens are signed for.
const resumePurpose = "resume"

// resumeToken is what a run.awaiting_input says to go on with: the ask, a dot and a
// MAC of run and ask. Every relay with the same secret makes the same, whenever. What
// uses it up is the answer to the ask: there is one.
func (r *Relay) resumeToken(tenant, runID, ask string) string {
	return ask + "." + base64.RawURLEncoding.EncodeToString(r.mac(resumePurpose, tenant, runID, ask))
}

// askOf is the ask that a resume token is for, if this run's.
func (r *Relay) askOf(i bus.RunInfo, token string) (ask string, ok bool) {
	ask, _, ok = strings.Cut(token, ".")
	if !ok || !validAsk(ask) {
		return "", false
	}
	return ask, hmac.Equal([]byte(token), []byte(r.resumeToken(i.Tenant, i.Run, ask)))
}

// A ResumeRequest is the body of POST /api/workflows/runs/{id}/resume.
type ResumeRequest struct {
	ResumeToken string          `json:"resumeToken"` // of a run.awaiting_input
	Action      string          `json:"action"`      // one of its actions
	Data        json.RawMessage `json:"data"`        // as its formSchema says
}

// resumeWorkflow answers what a run waits for. Of the answers to one token the first
// counts, whichever relay was asked and by which route it came; the same one again is
// told so.
func (r *Relay) resumeWorkflow(w http.ResponseWriter, q *http.Request) *apiErr {
	var req ResumeRequest
	if aerr := readBody(q, &req, []string{"resumeToken", "action", "data"}); aerr != nil {
		return aerr
	}
	_, i, aerr := r.workflowOf(q)
	if aerr != nil {
		return aerr
	}
	for name, v := range map[string]string{"resumeToken": req.ResumeToken, "action": req.Action} {
		if v == "" {
			return fail(CodeBadRequest, name+" is missing").with("parameter", name)
		}
	}
	id, ok := r.askOf(i, req.ResumeToken)
	if !ok {
		return fail(CodeBadToken, "this resumeToken is none that this run gave")
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	f, err := r.hub.fold(ctx, i.Ref())
	if err == nil {
		err = f.sync(ctx)
	}
	if err != nil {
		return r.busErr(err)
	}
	asked := f.asked(id)
	if aerr := r.answerableHere(ctx, i, asked); aerr != nil {
		return aerr
	}
	a, aerr := r.answerOf(ctx, i, asked, req)
	if aerr != nil {
		return aerr
	}
	g, err := r.giver(q).Answer(ctx, i, asked, a, 0)
	return r.answered(w, g, err, id, a.Decision)
}

// answerOf makes the answer of what the form was filled in with. The form of an ask
// that is over is looked up as it was: the same answer again must be known again.
func (r *Relay) answerOf(ctx context.Context, i bus.RunInfo, q Asked, req ResumeRequest) (a event.Answer, aerr *apiErr) {
	if q.View == nil {
		return a, noAsk(q.ID)
	}
	view := *q.View
	if view.Form == nil && view.State != run.AskOpen {
		was, err := r.asAsked(ctx, i, view)
		if err != nil {
			return a, r.busErr(err)
		}
		view = was
	}
	a, err := workflow.AnswerOf(view, req.Action, req.Data)
	if err == nil {
		return a, nil
	}
	aerr = fail(CodeBadRequest, err.Error()).with("ask", q.ID)
	var form *workflow.FormError
	if errors.As(err, &form) {
		aerr = aerr.with("parameter", form.Parameter)
	}
	return a, aerr
}

// asAsked is an ask as it was when it was asked, read from the run's events.
func (r *Relay) asAsked(ctx context.Context, i bus.RunInfo, now run.AskView) (run.AskView, error) {
	st := run.New(i.Run)
	for e, err := range r.bus.History(ctx, i.Ref(), 0) {
		if err != nil {
			return now, err
		}
		st.Apply(e)
		if e.Seq < now.OpenedSeq {
			continue
		}
		if was, ok := st.Ask(now.ID); ok {
			return was, nil
		}
	}
	return now, nil
}

// A CancelRequest is the body of POST /api/workflows/runs/{id}/cancel; every field may
// be absent.
type CancelRequest struct {
	ID     string `json:"id"` // of the command, else the header Idempotency-Key, else a new one
	Reason string `json:"reason"`
	// Escalate lets the cancelling of a run climb to the agent's death.
	Escalate bool `json:"escalate"`
}

// cancelWorkflow interrupts a run, or stops a task of it. What becomes of it are the
// events run.cancel_requested and run.cancelled.
func (r *Relay) cancelWorkflow(w http.ResponseWriter, q *http.Request) *apiErr {
	var req CancelRequest
	if aerr := readBody(q, &req, []string{"id", "reason", "escalate"}); aerr != nil {
		return aerr
	}
	id, _, aerr := r.workflowOf(q)
	if aerr != nil {
		return aerr
	}
	o := Order{ID: req.ID, Name: cmdInterrupt, Args: event.CommandArgs{Reason: req.Reason, Escalate: req.Escalate}}
	if id.Task != "" {
		if req.Escalate {
			return fail(CodeBadRequest, "escalate is for a whole run").with("parameter", "escalate")
		}
		if aerr := r.cancellable(q, req.ID == "" && q.Header.Get("Idempotency-Key") == ""); aerr != nil {
			return aerr
		}
		o.Name, o.Args.Task = cmdStopTask, id.Task
	}
	return r.order(w, q, o, 0, 0)
}

// cancellable says why a task cannot be stopped, as far as it shows here. What was
// asked for with an id may have been asked for before.
func (r *Relay) cancellable(q *http.Request, anew bool) *apiErr {
	l, _, aerr := r.lineOf(q, allOfIt)
	if aerr != nil {
		return aerr
	}
	defer r.lines.leave(l)
	if anew && l.standing().over {
		return fail(CodeEnded, "the task has ended; nothing was done")
	}
	return nil
}
