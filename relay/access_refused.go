package relay

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// refusalsLogged bounds the log's lines about refused requests, in a second: whoever
// is not let in must not fill the disk either.
const refusalsLogged = 20

// refusals bound what the log says of them.
type refusals struct {
	mu     sync.Mutex
	second time.Time
	lines  int
	left   int // out of the log since the last line
}

// line reports whether one more fits, and how many did not since the last.
func (s *refusals) line(now time.Time) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.second) >= time.Second {
		s.second, s.lines = now, 0
	}
	if s.lines >= refusalsLogged {
		s.left++
		return 0, false
	}
	s.lines++
	left, s.left = s.left, 0
	return left, true
}

// refused logs who was not let in, and who wanted to act and could not.
func (r *Relay) refused(q *http.Request, who *caller, err *apiErr) {
	switch err.code {
	case CodeUnauthorized, CodeForbidden, CodeBadHost, CodeBadOrigin, CodeTooOften:
		r.logRefusal(q, who, slog.LevelWarn, string(err.code))
	default:
		if unsafe(q.Method) {
			r.logRefusal(q, who, slog.LevelInfo, string(err.code))
		}
	}
}

func (r *Relay) logRefusal(q *http.Request, who *caller, level slog.Level, code string) {
	left, ok := r.refusals.line(time.Now())
	if !ok {
		return
	}
	actor, from := "", ""
	if who != nil {
		actor, from = who.name, who.from
	} else {
		from, _ = r.gate.clientAddr(q)
	}
	r.log.Log(q.Context(), level, "request refused", "code", code, "actor", actor, "from", from, "method", q.Method, "path", cut(q.URL.Path), "not_logged", left)
}

// mine returns i where q's caller may see it, and otherwise what it is told of a run
// that is not there: the same words, after the same question to the bus, so that
// neither the text nor the time tells the two apart.
func (r *Relay) mine(q *http.Request, i bus.RunInfo, err error) (bus.RunInfo, *apiErr) {
	if err != nil {
		return bus.RunInfo{}, r.busErr(err)
	}
	c := callerOf(q)
	if c.sees(i) {
		return i, nil
	}
	r.met.foreign.Inc()
	r.logRefusal(q, c, slog.LevelWarn, "foreign_run")
	if _, err := r.bus.Run(q.Context(), i.Run); err != nil && !notFoundErr(err) {
		return bus.RunInfo{}, r.busErr(err)
	}
	return bus.RunInfo{}, notFound()
}
