package relay

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	listDefault, listMax = 100, 1000

	// maxRunID bounds a run id in a path; real ones have 36 bytes.
	maxRunID = 128
)

// A RunEntry is one run in the list.
type RunEntry struct {
	bus.RunInfo
	Alive bool `json:"alive"` // its edge is there
}

// A RunList is the body of GET /v1/runs.
type RunList struct {
	Runs []RunEntry `json:"runs"`
	Next string     `json:"next,omitempty"` // the cursor of the next page; absent on the last
}

// listWords are the parameters of the list that take one of a few words: any other
// is a mistake, not a list without runs.
var listWords = []struct {
	param string
	words []string
}{
	{"state", []string{"starting", "working", "waiting", "idle", "done", "lost"}},
	{"waiting_for", []string{"approval", "input", "resume"}},
}

func (r *Relay) listRuns(w http.ResponseWriter, q *http.Request) *apiErr {
	if !r.reg.whole() {
		return fail(CodeUnavailable, "the list of runs is not read yet")
	}
	query := q.URL.Query()
	limit, aerr := limitOf(q, listDefault, listMax)
	if aerr != nil {
		return aerr
	}
	for _, c := range listWords {
		if v := query.Get(c.param); v != "" && !slices.Contains(c.words, v) {
			return fail(CodeBadRequest, c.param+" must be one of "+strings.Join(c.words, ", ")).with("parameter", c.param)
		}
	}
	var behind *bus.RunInfo
	if c := query.Get("cursor"); c != "" {
		if behind = parseListCursor(c); behind == nil {
			return fail(CodeBadCursor, "cursor is none that this list gave").with("parameter", "cursor")
		}
	}
	is := func(param, have string) bool {
		want := query.Get(param)
		return want == "" || want == have
	}
	caller := callerOf(q)
	linked := r.reg.linked(query.Get("session"))
	all, more := r.reg.list(behind, limit, func(i *bus.RunInfo) bool {
		return caller.sees(*i) && linked(i) && is("state", i.State) && is("waiting_for", i.WaitingFor) && is("tenant", i.Tenant) && is("dialect", i.Dialect)
	})
	out := RunList{Runs: []RunEntry{}}
	if more {
		out.Next = listCursor(all[len(all)-1])
	}
	for _, i := range all {
		out.Runs = append(out.Runs, RunEntry{i, r.reg.alive(i.Run)})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// limitOf reads the parameter limit. More than most is cut to it.
func limitOf(q *http.Request, usual, most int) (int, *apiErr) {
	s := q.URL.Query().Get("limit")
	if s == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fail(CodeBadRequest, "limit must be a number from 1 on").with("parameter", "limit")
	}
	return min(n, most), nil
}

// listCursor names the place behind i in the list.
func listCursor(i bus.RunInfo) string {
	return base64.RawURLEncoding.EncodeToString([]byte(i.Started.UTC().Format(time.RFC3339Nano) + " " + i.Run))
}

func parseListCursor(s string) *bus.RunInfo {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(s) > 512 {
		return nil
	}
	started, run, ok := strings.Cut(string(b), " ")
	at, err := time.Parse(time.RFC3339Nano, started)
	if err != nil || !ok || run == "" {
		return nil
	}
	return &bus.RunInfo{Run: run, Started: at}
}

// runOf finds the run in the path.
func (r *Relay) runOf(q *http.Request) (bus.RunInfo, *apiErr) {
	id := q.PathValue("run")
	if id == "" || len(id) > maxRunID {
		return bus.RunInfo{}, notFound()
	}
	if r.background() == nil {
		return bus.RunInfo{}, fail(CodeUnavailable, "the relay is starting or ending")
	}
	i, err := r.reg.find(q.Context(), id)
	if notFoundErr(err) {
		i, err = r.findArchived(q, id)
	}
	return r.mine(q, i, err)
}

// A RunDoc is the body of GET /v1/runs/{run}.
type RunDoc struct {
	Info  bus.RunInfo `json:"info"`  // what the list says
	Alive bool        `json:"alive"` // its edge is there
	First uint64      `json:"first"` // the first event that is kept, 0 without one
	State run.View    `json:"state"` // folded from the events
}

func (r *Relay) showRun(w http.ResponseWriter, q *http.Request) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	ctx, cancel := context.WithTimeout(q.Context(), answerTimeout-time.Second)
	defer cancel()
	doc := RunDoc{Info: i, Alive: r.reg.alive(i.Run)}
	e, _, err := r.past.FirstKept(ctx, i.Ref())
	switch {
	case err == nil:
		doc.First = e.Seq
	case !errors.Is(err, bus.ErrNotFound):
		return r.busErr(err)
	}
	f, err := r.hub.fold(ctx, i.Ref())
	if err != nil {
		return r.busErr(err)
	}
	doc.State = f.doc()
	if _, err := r.reg.find(ctx, i.Run); notFoundErr(err) {
		doc.Info = f.entry(i) // only the archive knows the run
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// lostSince returns the fact that a run is lost, where that is its last word.
func (r *Relay) lostSince(ctx context.Context, ref bus.Ref) (*event.Event, error) {
	e, _, err := r.bus.Control(ctx, ref.Tenant, ref.Run, subject.Liveness)
	if notFoundErr(err) || err == nil && e.Type != event.TypeLost {
		return nil, nil
	}
	return e, err
}
