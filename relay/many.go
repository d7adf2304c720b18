package relay

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
)

// A many is one client of the stream of many runs. Its goroutine is the
// handler's; pokes wake it.
type many struct {
	r       *Relay
	filter  manyFilter
	conv    *conversation // of the filter's session
	out     *manyOut
	closing <-chan struct{}
	wake    chan struct{} // capacity 1

	logs  []*manyPos
	since time.Time // of the cursor, zero without one
	came  time.Time // the client
	moved bool      // the places have changed since the client was told

	watch *manyWatch
	shown map[string]struct{} // runs that the client holds for matching
	ready bool                // the client was told so
}

// manyRoutes are about many runs at once.
func (r *Relay) manyRoutes() []route {
	return []route{{
		"GET", "/v1/stream", ScopeRead, again(r.streamMany),
		"the list of runs and the events of all as server-sent events (tenant, dialect, session, state, waiting_for, kind, runs, limit, from, Last-Event-ID or after)",
	}}
}

// streamMany serves the list of runs that match and their events. docs/api.md has
// the protocol.
func (r *Relay) streamMany(w http.ResponseWriter, q *http.Request) *apiErr {
	f, aerr := manyFilterOf(q)
	if aerr != nil {
		return aerr
	}
	places, aerr := manyCursorOf(q, len(r.hub.logs))
	if aerr != nil {
		return aerr
	}
	bg, closing, aerr := r.admit()
	if aerr != nil {
		return aerr
	}
	defer r.release()
	s := &many{
		r: r, filter: f, conv: r.reg.following(f.session), closing: closing, wake: make(chan struct{}, 1),
		since: newestOf(places), came: time.Now(), shown: map[string]struct{}{},
	}
	if s.out, aerr = newManyOut(w, r); aerr != nil {
		return aerr
	}
	r.hub.join(s.out)
	defer r.hub.part(s.out)
	if f.list {
		s.watch = r.reg.watch(s.poke)
		defer r.reg.unwatch(s.watch)
	}
	if f.events {
		for n, l := range r.hub.logs {
			p := &manyPos{many: s, wide: l, placed: f.start}
			if places != nil {
				p.at, p.placed = places[n], true
			}
			s.logs = append(s.logs, p)
			l.enter(p, s.poke)
			defer l.quit(p)
			defer p.stop()
		}
	}
	if err := s.serve(q.Context(), bg); err != nil {
		r.streamEnded(closing, err)
		r.log.Debug("stream of many runs ended", "error", err)
	}
	return nil
}

func (s *many) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// serve returns when the client went away or the relay ends.
func (s *many) serve(ctx, bg context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(bg, func() { cancel(errRelay) })()
	for {
		next := time.Now().Add(time.Hour) // when there may be something without a poke
		busy, err := s.turn(ctx, &next)
		if err != nil {
			return err
		}
		select {
		case <-s.closing:
			s.out.buf = append(s.out.buf, ": the relay ends, come back\n\n"...)
			return errors.Join(errRelay, s.out.flush())
		default:
		}
		if busy {
			continue
		}
		if err := s.wait(ctx, next); err != nil {
			return err
		}
	}
}

// turn tells some of what there is to tell. busy means that there may be more.
func (s *many) turn(ctx context.Context, next *time.Time) (busy bool, err error) {
	for _, p := range s.logs {
		if !p.begin() {
			return false, nil // its reader pokes
		}
	}
	if busy, err = s.tellList(); err != nil || !s.ready {
		return busy, err
	}
	for _, p := range s.logs {
		more, err := p.turn(ctx, next)
		if err != nil {
			return false, err
		}
		busy = busy || more
	}
	return busy, nil
}

// wait returns when there may be more to tell. It keeps the heartbeat.
func (s *many) wait(ctx context.Context, next time.Time) error {
	if err := s.out.flush(); err != nil {
		return err
	}
	if s.out.beat.Before(next) {
		next = s.out.beat
	}
	t := time.NewTimer(time.Until(next))
	defer t.Stop()
	select {
	case <-s.wake:
	case <-s.closing:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		if !time.Now().Before(s.out.beat) {
			if s.moved && s.ready {
				s.id()
				s.out.buf = append(s.out.buf, '\n')
			}
			s.out.buf = append(s.out.buf, ":\n\n"...)
			return s.out.flush()
		}
	}
	return nil
}

// id appends the line with the cursor.
func (s *many) id() {
	places := make([]bus.Place, len(s.logs))
	for i, p := range s.logs {
		places[i] = p.at
	}
	s.out.buf = append(appendMany(append(s.out.buf, "id: "...), places), '\n')
	s.moved = false
}

// tell adds an event to what is written next.
func (s *many) tell(name string, data []byte, withID bool) error {
	if withID {
		s.id()
	}
	b := append(append(s.out.buf, "event: "...), name...)
	b = append(append(b, "\ndata: "...), data...)
	s.out.buf = append(b, "\n\n"...)
	if len(s.out.buf) < batchBytes {
		return nil
	}
	return s.out.flush()
}
