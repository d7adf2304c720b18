package relay

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// An AskList is the body of GET /v1/runs/{run}/asks.
type AskList struct {
	Run        string        `json:"run"`
	State      string        `json:"state"`                 // of the run
	WaitingFor string        `json:"waiting_for,omitempty"` // approval or input while State is waiting
	Alive      bool          `json:"alive"`                 // its edge is there
	LastSeq    uint64        `json:"last_seq"`              // the event up to which this holds
	Asks       []run.AskView `json:"asks"`                  // in the order asked
}

func (r *Relay) listAsks(w http.ResponseWriter, q *http.Request) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	want := q.URL.Query().Get("state")
	switch want {
	case "", "open", "answered", "closed", "unknown":
	default:
		return fail(CodeBadRequest, "state must be open, answered, closed or unknown").with("parameter", "state")
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	f, err := r.hub.fold(ctx, i.Ref())
	if err != nil {
		return r.busErr(err)
	}
	doc := AskList{Run: i.Run, Alive: r.reg.alive(i.Run), Asks: []run.AskView{}}
	v := f.doc()
	doc.State, doc.WaitingFor, doc.LastSeq = v.State, v.WaitingFor, v.LastSeq
	for _, a := range v.Asks {
		if want == "" || a.State == want {
			doc.Asks = append(doc.Asks, a)
		}
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// An AnswerRequest is the body of POST /v1/runs/{run}/asks/{ask}.
type AnswerRequest struct {
	Decision     string                     `json:"decision"` // allow, deny, answer, vendor
	Message      string                     `json:"message"`
	Answers      map[string]json.RawMessage `json:"answers"`
	UpdatedInput json.RawMessage            `json:"updated_input"`
	Interrupt    bool                       `json:"interrupt"`
	Session      bool                       `json:"session"`
	Vendor       json.RawMessage            `json:"vendor"`
	// DeliverWithin is in seconds; 0 is a day.
	DeliverWithin float64 `json:"deliver_within"`
}

var answerKeys = []string{
	"decision", "message", "answers", "updated_input", "interrupt", "session", "vendor", "deliver_within",
}

func (r *Relay) answerAsk(w http.ResponseWriter, q *http.Request) *apiErr {
	var req AnswerRequest
	if aerr := readBody(q, &req, answerKeys); aerr != nil {
		return aerr
	}
	if !seconds(req.DeliverWithin) {
		return fail(CodeBadRequest, "deliver_within is in seconds, 0.1 to 86400").with("parameter", "deliver_within")
	}
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	id := q.PathValue("ask")
	if !validAsk(id) {
		return noAsk(id)
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
	a := event.Answer{
		Decision: req.Decision, Message: req.Message, Answers: req.Answers, UpdatedInput: req.UpdatedInput,
		Interrupt: req.Interrupt, Session: req.Session, Vendor: req.Vendor,
	}
	asked := f.asked(id)
	if aerr := r.answerableHere(ctx, i, asked); aerr != nil {
		return aerr
	}
	g, err := r.giver(q).Answer(ctx, i, asked, a, duration(req.DeliverWithin))
	return r.answered(w, g, err, id, a.Decision)
}

// answered says what became of an answer: it counts, or it was given before.
func (r *Relay) answered(w http.ResponseWriter, g Given, err error, ask, decision string) *apiErr {
	r.met.command(cmdAnswer, g, err)
	if err != nil {
		return r.asAPI(err)
	}
	status := http.StatusAccepted
	if g.Duplicate {
		status = http.StatusOK
	}
	r.accepted(w, status, g, CommandAccepted{Ask: ask, Decision: decision})
	return nil
}

// validAsk reports whether an ask's id can be one: they are short and plain.
func validAsk(id string) bool { return id != "" && len(id) <= 32 && plainID(id) }

func noAsk(id string) *apiErr {
	return fail(CodeNotFound, "the run has no such ask").with("ask", cut(id))
}

// asked is what the book says of an ask.
func (f *book) asked(id string) Asked {
	q := Asked{ID: id, Facts: f.commandFacts}
	f.view(func(st *run.State) {
		q.Ended = st.Ended()
		if a, ok := st.Ask(id); ok {
			q.View = &a
		}
	})
	return q
}

// A Reading is what the bus had of one run when it was read.
type Reading struct{ book *book }

// Read reads a run from the bus, for programs that are on the bus themselves.
func Read(ctx context.Context, b *bus.Bus, i bus.RunInfo) (*Reading, error) {
	r := &Reading{newBook(i.Run)}
	for e, err := range b.History(ctx, i.Ref(), 0) {
		if err != nil {
			return nil, err
		}
		r.book.take(e)
	}
	for e, err := range b.Controls(ctx, i.Tenant, i.Run) {
		if err != nil {
			return nil, err
		}
		r.book.take(e)
	}
	return r, nil
}

// View is the run's state, as the relay shows it.
func (r *Reading) View() run.View { return r.book.doc() }

// Asked is what was read of an ask.
func (r *Reading) Asked(id string) Asked { return r.book.asked(id) }
