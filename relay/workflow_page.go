package relay

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/cbcast/cbcast/internal/workflow"
)

// A WorkflowPage is the body of GET /api/workflows/runs/{id}/events.
type WorkflowPage struct {
	Events []workflow.Envelope `json:"events"`
	Next   uint64              `json:"next"`   // the cursor of the next page
	Status string              `json:"status"` // now
	Ended  bool                `json:"ended"`  // these are the last ones there will be
}

// pageWorkflow answers with the same envelopes as a stream, as far as there are any.
func (r *Relay) pageWorkflow(w http.ResponseWriter, q *http.Request) *apiErr {
	pos, aerr := cursorOf(q)
	if aerr != nil {
		return aerr
	}
	limit, aerr := limitOf(q, pageDefault, pageMax)
	if aerr != nil {
		return aerr
	}
	l, last, aerr := r.lineOf(q, allOfIt)
	if aerr != nil {
		return aerr
	}
	defer r.lines.leave(l)
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	st := l.standing()
	p := workflowPage{limit: limit, next: pos, st: st}
	if pos/span > last {
		p.extra(st.told.gap(resetOf(pos, last), extraSeq(pos, &p.extras), time.Now().UTC()))
		p.next = 0
	}
	if st.failed && p.next >= st.last {
		return errUnmappable()
	}
	if aerr := p.read(ctx, r, l); aerr != nil {
		return aerr
	}
	w.Header().Set(StatusHeader, st.status)
	writeBody(w, http.StatusOK, p.body())
	return nil
}

// workflowPage is one answer while it is collected.
type workflowPage struct {
	limit int
	st    standing

	next   uint64
	ended  bool
	n      int
	extras uint64
	events []byte
}

var errFull = errors.New("page is full")

// read collects from the line where it has what is behind the cursor, and from a
// mapping of its own where it has not.
func (p *workflowPage) read(ctx context.Context, r *Relay, l *line) *apiErr {
	if entries, ok := l.behind(p.next, p.limit+1); ok {
		for i := range entries {
			if p.put(&entries[i]) != nil {
				return nil
			}
		}
		p.end()
		return nil
	}
	g := r.lines
	select {
	case <-g.turns:
		defer func() { g.turns <- struct{}{} }()
	case <-ctx.Done():
		return fail(CodeUnavailable, "too many read long runs from their beginning; try again")
	}
	own := g.unpark(l.key, p.next)
	if own == nil {
		own = r.newReplay(l.ref, l.id, p.next)
	}
	own.put = p.put
	own.look = func(uint64) (bool, error) { return false, nil }
	switch err := own.run(ctx, r.past, l.ref); {
	case errors.Is(err, errFull):
		g.park(l.key, p.next, own)
	case errors.Is(err, errMapping):
	case err != nil:
		return r.busErr(err)
	default:
		p.end()
	}
	return nil
}

// put adds an entry, or says that there is no room for it.
func (p *workflowPage) put(e *entry) error {
	if e.last <= p.next {
		return nil
	}
	if p.n >= p.limit {
		return errFull
	}
	if e.hole {
		p.extra(p.st.told.gap(gapOf(p.next, e.last, p.st.head), extraSeq(p.next, &p.extras), time.Now().UTC()))
		p.next = e.last
		return nil
	}
	sse, data := e.after(p.next)
	if p.n > 0 && len(p.events)+len(sse) > pageBytes {
		return errFull
	}
	p.add(sse[data : len(sse)-len("\n\n")])
	p.next, p.extras = e.last, 0
	return nil
}

func (p *workflowPage) add(json []byte) {
	if p.n++; p.n > 1 {
		p.events = append(p.events, ',')
	}
	p.events = append(p.events, json...)
}

func (p *workflowPage) extra(e workflow.Envelope) { p.add(e.AppendJSON(nil)) }

// end says what a stream says where there is no more for now.
func (p *workflowPage) end() {
	switch {
	case p.st.failed:
		p.extra(p.st.told.unmappable(extraSeq(p.next, &p.extras), time.Now().UTC()))
	case p.st.over:
		p.ended = p.next >= p.st.last
	case p.st.lost != nil:
		p.extra(p.st.told.lost(extraSeq(p.next, &p.extras), p.st.lost))
	}
}

// body is made by hand: the envelopes are encoded once, for streams.
func (p *workflowPage) body() []byte {
	b := append([]byte(`{"events":[`), p.events...)
	b = strconv.AppendUint(append(b, `],"next":`...), p.next, 10)
	b = append(append(b, `,"status":`...), mustJSON(p.st.status)...)
	b = strconv.AppendBool(append(b, `,"ended":`...), p.ended)
	return append(b, "}\n"...)
}

// allOfIt is a cursor before which nothing may be missing.
const allOfIt = ^uint64(0)

// behind returns up to limit entries behind position pos, if the line has them all.
func (l *line) behind(pos uint64, limit int) (entries []entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pos < l.evicted {
		return nil, false
	}
	for i := l.search(pos); i < len(l.ring) && len(entries) < limit; i++ {
		entries = append(entries, l.ring[i])
	}
	if m, open := l.merge.Open(); open && m.Last > pos && len(entries) < limit {
		entries = append(entries, newEntry(m))
	}
	return entries, true
}
