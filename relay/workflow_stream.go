package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
)

// heartbeat keeps proxies from cutting a silent workflow stream. It is a comment and
// is stored nowhere.
const heartbeat = ": heartbeat\n\n"

// StatusHeader names the header with the run's status when the stream began.
const StatusHeader = "X-Workflow-Run-Status"

// A watcher is one client of a workflow stream. Its goroutine is the handler's; only
// its line and closing wake it.
type watcher struct {
	r       *Relay
	ref     bus.Ref
	line    *line
	place   *rider
	pos     uint64 // everything up to it has been sent
	closing <-chan struct{}

	*pen
	told   *event.Event // the lost that the client knows of
	met    bool         // it has been asked whether it knows
	mapped time.Time    // when its last replay ended

	extras uint64 // envelopes sent without an SSE id
}

// streamWorkflow serves the events of a run, or of one task, by the workflow
// protocol, from the cursor on and then live, until the terminal one.
func (r *Relay) streamWorkflow(w http.ResponseWriter, q *http.Request) *apiErr {
	pos, aerr := cursorOf(q)
	if aerr != nil {
		return aerr
	}
	bg, closing, aerr := r.admit()
	if aerr != nil {
		return aerr
	}
	defer r.release()
	l, last, aerr := r.lineOf(q, pos)
	if aerr != nil {
		return aerr
	}
	defer r.lines.leave(l)
	st := l.standing()
	h := w.Header()
	h.Set(StatusHeader, st.status)
	switch {
	case st.failed && pos >= st.last:
		return errUnmappable()
	case (st.over || r.givenUp(st.lost)) && pos >= st.last && pos/span <= last:
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	s := &watcher{r: r, ref: l.ref, line: l, pos: pos, closing: closing}
	a, aerr := answerOf(w, r.cfg.WriteTimeout)
	if aerr != nil {
		return aerr
	}
	s.pen = &pen{r: r, out: a}
	s.open(st, last)
	s.place = l.enter(s.pen)
	defer l.quit(s.place)
	if err := s.serve(q.Context(), bg); err != nil {
		r.streamEnded(closing, err)
		r.log.Debug("workflow stream ended", "run", l.ref.Run, "after", s.pos, "error", err)
		return nil
	}
	a.deadline(time.Now().Add(r.cfg.WriteTimeout)) // for the end of the answer
	return nil
}

// givenUp reports whether a lost run is waited for no longer.
func (r *Relay) givenUp(lost *event.Event) bool {
	return lost != nil && time.Since(lost.Time) >= r.cfg.LostFinal
}

// open sends the first bytes at once.
func (s *watcher) open(st standing, last uint64) {
	s.buf = fmt.Appendf(s.buf, "retry: %d\n\n", retryMin+rand.IntN(retrySpread))
	if s.pos/span > last {
		env := st.told.gap(resetOf(s.pos, last), s.extra(), time.Now().UTC())
		s.buf, _ = appendEnvelope(s.buf, &env, false)
		s.pos = 0
	}
	_ = s.flush() // the next write says so again
}

// serve sends everything in order. It returns nil at the end of the stream, of a
// drain, or when the client went away.
func (s *watcher) serve(ctx, bg context.Context) error {
	for {
		if !s.place.attach(s.pos) {
			if !s.mapped.IsZero() && time.Since(s.mapped) < replayAgain {
				return errors.Join(errNoBytes, errLag)
			}
			if err := s.replay(ctx, bg); err != nil {
				return err
			}
			s.mapped = time.Now()
			continue
		}
		if err := s.follow(ctx, bg); !errors.Is(err, errLag) {
			return err
		}
	}
}

var errLag = errors.New("client fell behind what is held")

// follow sends what the line has, as it comes.
func (s *watcher) follow(ctx, bg context.Context) error {
	for {
		p := s.place.take(batchBytes, s.ends())
		if p.lag {
			return errLag
		}
		if len(p.entries) > 0 {
			if err := s.send(p); err != nil {
				return err
			}
			continue
		}
		if p.over && p.due.IsZero() {
			if p.failed {
				env := p.told.unmappable(s.extra(), time.Now().UTC())
				s.buf, _ = appendEnvelope(s.buf, &env, false)
			}
			return s.flush()
		}
		end, err := s.lost(p.standing)
		if err != nil || end {
			return err
		}
		idle := s.r.cfg.Heartbeat
		if p.lost != nil {
			idle = min(idle, max(time.Until(p.lost.Time.Add(s.r.cfg.LostFinal)), time.Millisecond))
		}
		if !p.due.IsZero() {
			idle = min(idle, max(time.Until(p.due), 0))
		}
		if more, _, err := s.wait(ctx, bg, idle, nil); !more {
			return err
		}
	}
}

// send writes entries that are behind the cursor.
func (s *watcher) send(p load) error {
	for i := range p.entries {
		if err := s.put(&p.entries[i], p.standing); err != nil {
			return err
		}
	}
	return s.flush()
}

func (s *watcher) put(e *entry, st standing) error {
	if e.last <= s.pos {
		return nil
	}
	sse, _ := e.after(s.pos)
	if e.hole {
		env := st.told.gap(gapOf(s.pos, e.last, st.head), s.extra(), time.Now().UTC())
		sse, _ = appendEnvelope(nil, &env, false)
	}
	s.pos, s.extras = e.last, 0
	if len(s.buf)+len(sse) > batchBytes {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if len(sse) >= batchBytes {
		return s.write(sse)
	}
	s.buf = append(s.buf, sse...)
	return nil
}

// extra is the seq of an envelope without an SSE id: behind the cursor, and before
// what the next event of the run will say.
func (s *watcher) extra() uint64 { return extraSeq(s.pos, &s.extras) }

func extraSeq(pos uint64, n *uint64) uint64 {
	*n++
	return pos + min(*n, span-1-pos%span)
}

// gapOf is a gap behind pos: the envelopes of the next event begin behind hole.
func gapOf(pos, hole, head uint64) workflow.Gap {
	return workflow.Gap{Asked: pos, First: hole + 1, Last: max(hole, head*span) + span - 1, Reason: reasonNotKept}
}

func resetOf(pos, last uint64) workflow.Gap {
	return workflow.Gap{Asked: pos, First: 1, Last: last*span + span - 1, Reason: reasonBeyond}
}

// lost tells the client that the run is lost, once. One that was there before is sent
// away with that, to come back and wait, if it wants to; one that came later waits for
// the edge until it is waited for no longer.
func (s *watcher) lost(st standing) (end bool, err error) {
	there := s.met
	s.met = true
	switch {
	case st.lost == nil && s.told == nil:
		return false, nil
	case st.lost == nil:
		s.told = nil
		env := st.told.returned(s.extra(), time.Now().UTC())
		s.buf, _ = appendEnvelope(s.buf, &env, false)
		return false, s.flush()
	case s.told == nil || s.told.Ref != st.lost.Ref:
		s.told = st.lost
		env := st.told.lost(s.extra(), st.lost)
		s.buf, _ = appendEnvelope(s.buf, &env, false)
		if err := s.flush(); err != nil || there {
			return true, err
		}
	}
	return s.r.givenUp(st.lost), nil
}
