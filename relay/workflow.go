package relay

import (
	"context"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/workflow"
)

// workflowRoutes speak the workflow event protocol v1.0. {id} is a run, or one task
// of it, as [workflow.ParseID] reads it.
func (r *Relay) workflowRoutes() []route {
	return []route{
		{"GET", "/api/workflows/runs/{id}", ScopeRead, r.showWorkflow, "a run, or a task of it, as a workflow"},
		{"GET", "/api/workflows/runs/{id}/events", ScopeRead, r.pageWorkflow, "its workflow events, page by page (after, limit)"},
		{"GET", "/api/workflows/runs/{id}/stream", ScopeRead, again(r.streamWorkflow), "its workflow events as server-sent events (Last-Event-ID or after)"},
		{"POST", "/api/workflows/runs/{id}/resume", ScopeAnswer, r.resumeWorkflow, "answer what it waits for"},
		{"POST", "/api/workflows/runs/{id}/cancel", ScopeCommand, r.cancelWorkflow, "stop it"},
	}
}

// workflowOf finds what the path names. The rights are those of the run, and what
// the caller may not see is not there.
func (r *Relay) workflowOf(q *http.Request) (workflow.ID, bus.RunInfo, *apiErr) {
	id, err := workflow.ParseID(q.PathValue("id"))
	if err != nil {
		return id, bus.RunInfo{}, notFound()
	}
	q.SetPathValue("run", id.Run)
	i, aerr := r.runOf(q)
	return id, i, aerr
}

// lineOf returns the line of what the path names, mapped as far as the run's last
// event where a cursor at pos needs that, and that event's seq. The caller leaves it.
func (r *Relay) lineOf(q *http.Request, pos uint64) (l *line, last uint64, aerr *apiErr) {
	id, i, aerr := r.workflowOf(q)
	if aerr != nil {
		return nil, 0, aerr
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	switch e, _, err := r.past.Last(ctx, i.Ref()); {
	case err == nil:
		last = e.Seq
	case !notFoundErr(err):
		return nil, 0, r.busErr(err)
	}
	l, aerr = r.lines.open(i.Ref(), id)
	if aerr != nil {
		return nil, 0, aerr
	}
	if aerr = r.upTo(ctx, l, pos, last); aerr == nil && !l.standing().known {
		aerr = notFound()
	}
	if aerr != nil {
		r.lines.leave(l)
		return nil, 0, aerr
	}
	return l, last, nil
}

// upTo waits for a line to be ready. What it may not have seen yet of the run counts
// where the cursor, or what is looked for, is not before it.
func (r *Relay) upTo(ctx context.Context, l *line, pos, last uint64) *apiErr {
	select {
	case <-l.ready:
	case <-l.done:
		return fail(CodeUnavailable, "the relay is ending")
	case <-r.closing:
		return fail(CodeUnavailable, "the relay is ending")
	case <-ctx.Done():
		return fail(CodeUnavailable, "the run is long and not read yet; try again")
	}
	st := l.standing()
	if st.head >= last || pos/span < st.head && st.known {
		return nil
	}
	if err := l.follower.sync(ctx); err != nil {
		return r.busErr(err)
	}
	return nil
}
