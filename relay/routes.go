package relay

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
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

// A route is one method on one path.
type route struct {
	method, path string
	scope        Scope // what the caller must hold; "" is open to everybody
	serve        handler
	about        string // one line for people, "" where the route is not shown
}

// routes lists everything the relay answers. Whoever is asked for another path or
// method is answered by [Relay.Handler] itself.
func (r *Relay) routes() []route {
	return slices.Concat(r.runRoutes(), r.manyRoutes(), r.commandRoutes(), r.workflowRoutes(), r.specRoutes(), r.webRoutes(), r.sessionRoutes(), r.metricsRoutes(), r.serviceRoutes(), r.alsoRoutes())
}

// runRoutes read.
func (r *Relay) runRoutes() []route {
	return []route{
		{"GET", "/v1/runs", ScopeRead, r.listRuns, "runs, the newest first (state, waiting_for, tenant, dialect, session, limit, cursor)"},
		{"GET", "/v1/runs/{run}", ScopeRead, r.showRun, "one run's state"},
		{"GET", "/v1/runs/{run}/events", ScopeRead, r.pageEvents, "its events, page by page (after, limit, task, session)"},
		{"GET", "/v1/runs/{run}/stream", ScopeRead, again(r.streamRun), "its events as server-sent events (Last-Event-ID or after, task, session)"},
		{"GET", "/v1/runs/{run}/asks", ScopeRead, r.listAsks, "what the agent asks (state)"},
		{"GET", "/v1/commands/{id}", ScopeRead, r.showCommand, "what became of a command"},
	}
}

// commandRoutes act.
func (r *Relay) commandRoutes() []route {
	return []route{
		{"POST", "/v1/runs/{run}/asks/{ask}", ScopeAnswer, r.answerAsk, "answer it"},
		{"POST", "/v1/runs/{run}/interrupt", ScopeCommand, r.interrupt, "stop what the agent does"},
		{"POST", "/v1/runs/{run}/stop_task", ScopeCommand, r.stopTask, "stop one task"},
		{"POST", "/v1/runs/{run}/commands", ScopeCommand, r.anyCommand, "any command by its name"},
	}
}

// serviceRoutes are about the relay itself.
func (r *Relay) serviceRoutes() []route {
	return []route{
		{"GET", "/livez", "", r.live, "the relay runs"},
		{"GET", "/readyz", "", r.readyz, "it reads everything it should"},
	}
}

// alsoRoutes are those of programs beside the relay.
func (r *Relay) alsoRoutes() []route {
	var all []route
	for _, pattern := range slices.Sorted(maps.Keys(r.also)) {
		method, path, _ := strings.Cut(pattern, " ")
		h := r.also[pattern]
		all = append(all, route{method, path, "", func(w http.ResponseWriter, q *http.Request) *apiErr {
			h.ServeHTTP(w, q)
			return nil
		}, ""})
	}
	return all
}

// Handler returns the relay's routes. Whoever serves it sets a
// ReadHeaderTimeout; a WriteTimeout does no harm.
func (r *Relay) Handler() http.Handler {
	mux := http.NewServeMux()
	scopes, methods := map[string]Scope{}, map[string][]string{} // of each path
	for _, t := range r.routes() {
		h := t.serve
		if t.scope != "" {
			h = onBehalf(h)
		}
		mux.Handle(t.method+" "+t.path, r.guard(h, t.scope))
		methods[t.path] = append(methods[t.path], t.method)
		if _, ok := scopes[t.path]; !ok {
			scopes[t.path] = ScopeRead
		}
		if t.scope == "" {
			scopes[t.path] = ""
		}
	}
	for path, scope := range scopes {
		mux.Handle(path, r.guard(badMethod(methods[path]), scope))
	}
	nothing := r.guard(func(http.ResponseWriter, *http.Request) *apiErr { return notFound() }, ScopeRead)
	mux.Handle("/", nothing)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		// The mux would send who asks for /a/../b to /b, before anything is checked.
		if p := q.URL.Path; p != "" && p != "*" && path.Clean(p) != p {
			nothing.ServeHTTP(w, q)
			return
		}
		mux.ServeHTTP(w, q)
	})
}

// guard checks who asks before h may answer, in the order from cheap and public
// to secret, and bounds the answer's time.
func (r *Relay) guard(h handler, scope Scope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		rc := http.NewResponseController(w)
		// Where the server has no deadlines, its own timeouts hold. A body is read
		// to its end by the server, too, before it sends a refusal.
		wait := answerTimeout
		if q.ContentLength != 0 {
			wait = bodyTimeout
		}
		_ = rc.SetReadDeadline(time.Now().Add(wait))
		_ = rc.SetWriteDeadline(time.Now().Add(answerTimeout))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		err := r.checkHost(q)
		if err == nil {
			if r.cors(w, q) {
				r.met.answered(nil)
				return
			}
			err = r.checkOrigin(q)
		}
		var who *caller
		if err == nil {
			who, err = r.let(w, q, h, scope)
		}
		r.met.answered(err)
		if err != nil {
			r.refused(q, who, err)
			err.write(w)
		}
	})
}

// let answers q if its sender holds scope and has room for one more request. What
// is only read ends with the sender's rights.
func (r *Relay) let(w http.ResponseWriter, q *http.Request, h handler, scope Scope) (who *caller, err *apiErr) {
	if scope != "" {
		if who, err = r.checkCaller(q, scope); err != nil {
			return who, err
		}
	}
	hold, err := r.gate.holdFor(q, who)
	if err != nil {
		return who, err
	}
	defer hold.leave()
	if err := takeBody(w, q); err != nil {
		return who, err
	}
	if who == nil {
		return nil, h(w, q)
	}
	who.hold = hold
	ctx := context.WithValue(q.Context(), callerKey{}, who)
	if who.grant != nil && !unsafe(q.Method) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer who.atEnd(cancel)()
		ctx = inner
	}
	return who, h(w, q.WithContext(ctx))
}

func badMethod(methods []string) handler {
	return func(w http.ResponseWriter, _ *http.Request) *apiErr {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return fail(CodeBadMethod, "this path does not take this method")
	}
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
	if r.others != nil {
		all := r.others()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			word := "ok"
			if all[name] != nil {
				word = "not ready: " + all[name].Error()
			}
			fmt.Fprintf(w, "%s: %s\n", name, word)
		}
	}
	return nil
}

// Ready reports whether the relay reads everything it should.
func (r *Relay) Ready() bool { return r.bus.Connected() && r.hub.ready() && r.reg.whole() }

func (r *Relay) index(w http.ResponseWriter, _ *http.Request) *apiErr {
	var b strings.Builder
	b.WriteString("cbcast relay\n\n")
	for _, t := range r.routes() {
		if t.about == "" {
			continue
		}
		fmt.Fprintf(&b, "%-6s %-32s %s", t.method, strings.TrimSuffix(t.path, "{$}"), t.about)
		if t.scope != "" && t.scope != ScopeRead {
			fmt.Fprintf(&b, "; needs a token with the scope %s", t.scope)
		}
		b.WriteString("\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, b.String())
	return nil
}
