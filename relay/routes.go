package relay

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// maxBody bounds a request's body.
	maxBody = 1 << 20

	// answerTimeout bounds an answer that is no stream, from the request on: a
	// state may have to be folded from a long run first.
	answerTimeout = time.Minute
)

// A handler answers a request or returns why not.
type handler func(http.ResponseWriter, *http.Request) *apiErr

// Handler returns the relay's routes. Whoever serves it sets a
// ReadHeaderTimeout; a WriteTimeout does no harm.
func (r *Relay) Handler() http.Handler {
	mux := http.NewServeMux()
	read := func(path string, h handler) { mux.Handle("GET "+path, r.guard(h, r.public)) }
	write := func(path string, h handler) { mux.Handle("POST "+path, r.guard(h, true)) }
	read("/v1/runs", r.listRuns)
	read("/v1/runs/{run}", r.showRun)
	read("/v1/runs/{run}/events", r.pageEvents)
	read("/v1/runs/{run}/stream", r.streamRun)
	write("/v1/runs/{run}/interrupt", r.interrupt)
	write("/v1/runs/{run}/stop_task", r.stopTask)
	write("/v1/runs/{run}/commands", r.anyCommand)
	read("/v1/runs/{run}/asks", r.listAsks)
	write("/v1/runs/{run}/asks/{ask}", r.answerAsk)
	read("/v1/commands/{id}", r.showCommand)
	read("/{$}", r.index)
	mux.Handle("GET /livez", r.guard(r.live, false))
	mux.Handle("GET /readyz", r.guard(r.readyz, false))
	for _, path := range []string{
		"/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/events", "/v1/runs/{run}/stream", "/v1/runs/{run}/interrupt",
		"/v1/runs/{run}/stop_task", "/v1/runs/{run}/commands", "/v1/runs/{run}/asks", "/v1/runs/{run}/asks/{ask}",
		"/v1/commands/{id}", "/{$}", "/livez", "/readyz",
	} {
		mux.Handle(path, r.guard(badMethod, r.public))
	}
	mux.Handle("/", r.guard(func(http.ResponseWriter, *http.Request) *apiErr { return notFound() }, r.public))
	return mux
}

// guard checks who asks before h may answer, in the order from cheap and public
// to secret, and bounds the answer's time.
func (r *Relay) guard(h handler, token bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		rc := http.NewResponseController(w)
		deadline := time.Now().Add(answerTimeout)
		_ = rc.SetReadDeadline(deadline) // where the server has no deadlines, its own timeouts hold
		_ = rc.SetWriteDeadline(deadline)
		q.Body = http.MaxBytesReader(w, q.Body, maxBody)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		err := r.checkHost(q)
		if err == nil {
			err = r.checkOrigin(q)
		}
		if err == nil && token {
			err = r.checkToken(q)
		}
		if err == nil {
			err = h(w, q)
		}
		if err != nil {
			err.write(w)
		}
	})
}

func badMethod(http.ResponseWriter, *http.Request) *apiErr {
	return fail(CodeBadMethod, "this path does not take this method")
}

func (r *Relay) live(w http.ResponseWriter, _ *http.Request) *apiErr {
	fmt.Fprintln(w, "ok")
	return nil
}

func (r *Relay) readyz(w http.ResponseWriter, _ *http.Request) *apiErr {
	if !r.Ready() {
		return fail(CodeUnavailable, "the bus is away, or not read yet")
	}
	fmt.Fprintln(w, "ok")
	return nil
}

// Ready reports whether the relay reads everything it should.
func (r *Relay) Ready() bool { return r.bus.Connected() && r.hub.ready() && r.reg.whole() }

const indexText = `cbcast relay

GET  /v1/runs                        runs, the newest first (state, waiting_for, tenant, dialect, session,
                                     limit, cursor)
GET  /v1/runs/{run}                  one run's state
GET  /v1/runs/{run}/events           its events, page by page (after, limit, task, session)
GET  /v1/runs/{run}/stream           its events as server-sent events (Last-Event-ID or after, task, session)
GET  /v1/runs/{run}/asks             what the agent asks (state)
POST /v1/runs/{run}/asks/{ask}       answer it; needs the token
POST /v1/runs/{run}/interrupt        stop what the agent does; needs the token
POST /v1/runs/{run}/stop_task        stop one task; needs the token
POST /v1/runs/{run}/commands         any command by its name; needs the token
GET  /v1/commands/{id}               what became of a command
GET  /livez, /readyz
`

func (r *Relay) index(w http.ResponseWriter, _ *http.Request) *apiErr {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, indexText)
	return nil
}
