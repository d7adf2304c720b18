package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

const (
	// batchBytes is how much goes into one write. A frame alone may be larger.
	batchBytes = 64 << 10

	// retryMin and retrySpread are what clients wait before they come back, in
	// milliseconds, so that those of an ended relay do not come at once.
	retryMin, retrySpread = 1000, 1000
)

// A subscription is one client of a run's stream. While there is anything to
// wait for but the next event it has a goroutine, which only feed and closing
// wake: the handler's, or a [parking]'s, which needs none for a client that has
// everything.
type subscription struct {
	r       *Relay
	ref     bus.Ref
	filter  filter
	pos     uint64 // seq that everything up to has been sent or filtered out
	head    uint64 // of the run, when the client came
	final   bool   // only the archive has the run: nothing comes behind head
	closing <-chan struct{}
	sub     *sub
	parking *parking // nil where the client keeps its goroutine
	told    *frame   // the lost that the client knows of
	*pen
}

// streamRun serves the run's events as server-sent events, from the cursor on
// and then live, until the exit event. The package comment has the protocol.
func (r *Relay) streamRun(w http.ResponseWriter, q *http.Request) *apiErr {
	i, aerr := r.runOf(q)
	if aerr != nil {
		return aerr
	}
	after, aerr := cursorOf(q)
	if aerr != nil {
		return aerr
	}
	ctx, closing, aerr := r.admit()
	if aerr != nil {
		return aerr
	}
	kept := false // by a goroutine that outlives this call
	defer func() {
		if !kept {
			r.release()
		}
	}()
	s := &subscription{r: r, ref: i.Ref(), filter: filterOf(q), pos: after, closing: closing}
	over, err := s.over(q.Context())
	switch {
	case err != nil:
		return r.busErr(err)
	case over:
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if l := hijack(w, q); l != nil {
		kept = true
		s.keep(ctx, callerOf(q), l)
		return nil
	}
	a, aerr := answerOf(w, r.cfg.WriteTimeout)
	if aerr != nil {
		return aerr
	}
	s.pen = &pen{r: r, out: a}
	s.open()
	f := r.hub.subscribe(ctx, s.ref, s.pos, s.head)
	defer r.hub.leave(f)
	s.sub = f.enter(s.pen)
	defer f.quit(s.sub)
	if err := s.serve(q.Context(), ctx); err != nil {
		s.ended(err)
		return nil
	}
	a.deadline(time.Now().Add(r.cfg.WriteTimeout)) // for the end of the answer
	return nil
}

func (s *subscription) ended(err error) {
	s.r.streamEnded(s.closing, err)
	s.r.log.Debug("stream ended", "run", s.ref.Run, "after", s.pos, "error", err)
}

// streamEnded counts a client that was cut because it took nothing.
func (r *Relay) streamEnded(closing <-chan struct{}, err error) {
	select {
	case <-closing:
	default:
		if errors.Is(err, errSlow) || errors.Is(err, os.ErrDeadlineExceeded) {
			r.met.cut()
		}
	}
}

// over reports whether the client has everything there will ever be: its cursor
// is at the exit event, or at the end of a run that was lost too long ago, or that only
// the archive has. It also learns the run's end.
func (s *subscription) over(ctx context.Context) (bool, error) {
	head, exited, ok := s.r.hub.head(s.ref)
	if ok && s.pos <= head && (exited || s.r.past.archive == nil || s.r.reg.alive(s.ref.Run)) {
		s.head = head
		return exited && s.pos == head, nil
	}
	last, _, err := s.r.past.Last(ctx, s.ref)
	if notFoundErr(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.head = last.Seq
	if last.Type != event.TypeExited {
		if s.final, err = s.r.only(ctx, s.ref); err != nil {
			return false, err
		}
	}
	if s.pos != s.head {
		return false, nil
	}
	if last.Type == event.TypeExited || s.final {
		return true, nil
	}
	if s.r.reg.alive(s.ref.Run) {
		return false, nil
	}
	lost, err := s.r.lostSince(ctx, s.ref)
	return lost != nil && time.Since(lost.Time) >= s.r.cfg.LostFinal, err
}

// open sends the first bytes at once, behind what the outlet has for a head.
func (s *subscription) open() {
	s.say(fmt.Appendf(nil, "retry: %d\n\n", retryMin+rand.IntN(retrySpread)))
	if s.pos > s.head {
		g := Gap{Asked: s.pos, Last: s.head, Reason: reasonBeyond}
		s.say(g.append(nil, evReset))
		s.pos = 0
	}
	_ = s.flush() // the next write says so again
}

// say adds what is no frame to what is written next.
func (s *subscription) say(sse []byte) {
	if s.pen.out.chunked() {
		sse = closeChunk(append(make([]byte, chunkHead, chunkHead+len(sse)+2), sse...))
	}
	s.buf = append(s.buf, sse...)
}

// bytes is a frame as the outlet takes it.
func (s *subscription) bytes(f *frame) []byte {
	if s.pen.out.chunked() {
		return f.chunk
	}
	return f.sse
}

var (
	errRelay   = errors.New("relay ends")
	errParked  = errors.New("client has everything")
	errNoBytes = errors.New("client does not take the bytes")
	errSlow    = fmt.Errorf("%w: it takes nothing", errNoBytes)
)

// serve sends everything in order. It returns nil at the end of the run's stream
// or when the client went away, errRelay at the end of a drain, errParked when
// the feed goes on by itself.
func (s *subscription) serve(ctx, bg context.Context) error {
	for failed := 0; ; {
		if ctx.Err() != nil { // gone, or of no right any more
			return nil
		}
		ok, soon := s.sub.attach(s.pos)
		if soon {
			if more, err := s.wait(ctx, bg, s.r.cfg.Heartbeat, s.sub.starting()); !more {
				return err
			}
			continue
		}
		if !ok {
			sent, err := s.history(ctx)
			switch {
			case err != nil && (errors.Is(err, errNoBytes) || ctx.Err() != nil):
				return err
			case err != nil:
				failed++
			case sent:
				failed = 0
				continue
			}
			// The bus is away, or the feed is not there yet.
			if more, err := s.wait(ctx, bg, min(retryMax, 20*time.Millisecond<<min(failed, 10)), s.sub.starting()); !more {
				return err
			}
			continue
		}
		p := s.sub.take(s.pos, batchBytes)
		switch {
		case p.lag:
			continue
		case len(p.frames) > 0:
			end, err := s.send(p.frames)
			if err != nil || end {
				return err
			}
			continue
		case p.end:
			return s.flush()
		}
		end, err := s.lost(p)
		if err != nil || end {
			return err
		}
		if s.final && s.pos >= s.head {
			return s.flush()
		}
		if s.parking != nil && p.lost == nil {
			if err := s.flush(); err != nil {
				return err
			}
			if s.park() {
				return errParked
			}
		}
		idle := s.r.cfg.Heartbeat
		if p.lost != nil {
			idle = min(idle, max(time.Until(p.since.Add(s.r.cfg.LostFinal)), time.Millisecond))
		}
		if more, err := s.wait(ctx, bg, idle, s.sub.starting()); !more {
			return err
		}
	}
}

// lost tells a client that came to a run already lost so, once, and ends the
// stream when it will not be waited for any longer.
func (s *subscription) lost(p progress) (end bool, err error) {
	if p.lost == nil {
		s.told = nil
		return false, nil
	}
	if s.told == nil {
		s.told = p.lost
		s.buf = append(s.buf, s.bytes(p.lost)...)
		if err := s.flush(); err != nil {
			return true, err
		}
	}
	return time.Since(p.since) >= s.r.cfg.LostFinal, nil
}

// wait returns when there may be more to send, after d at the latest; more is
// false when there will not. It keeps the heartbeat.
func (s *subscription) wait(ctx, bg context.Context, d time.Duration, starting <-chan struct{}) (more bool, err error) {
	if err := s.flush(); err != nil {
		return false, err
	}
	select {
	case <-s.closing: // everything there was has been sent
		return false, errRelay
	default:
	}
	if starting != nil {
		d = time.Hour
	}
	t := time.NewTimer(min(d, max(time.Until(s.beat), 0)))
	defer t.Stop()
	select {
	case <-s.sub.wake:
	case <-starting:
	case <-t.C:
		if !time.Now().Before(s.beat) {
			s.say(comment)
			return true, s.flush()
		}
	case <-s.closing:
	case <-ctx.Done():
		return false, nil
	case <-bg.Done():
		return false, errRelay
	}
	return true, nil
}

// history sends what the bus has behind the position, and reports whether there
// was anything.
func (s *subscription) history(ctx context.Context) (sent bool, err error) {
	var asm assembler
	for e, err := range s.r.past.History(ctx, s.ref, s.pos) {
		if err != nil {
			return sent, errors.Join(err, s.flush())
		}
		for _, f := range asm.add(e) {
			sent = true
			if err := s.put(f); err != nil {
				return sent, err
			}
		}
		select {
		case <-s.closing:
			return sent, errors.Join(errNoBytes, errRelay)
		default:
		}
	}
	return sent, s.flush()
}

// send sends frames of the feed. end says that the stream ends with them.
func (s *subscription) send(frames []*frame) (end bool, err error) {
	for _, f := range frames {
		if f.last > 0 && f.last <= s.pos {
			continue
		}
		if f.name == evLost && s.told != nil && string(s.told.sse) == string(f.sse) {
			continue
		}
		if err := s.put(f); err != nil {
			return true, err
		}
		if f.name == evLost {
			// Provisional: the client comes back and waits, if it wants to.
			return true, s.flush()
		}
	}
	return false, s.flush()
}

// put adds a frame to what is written next, after a gap if there is one.
func (s *subscription) put(f *frame) error {
	if f.last > 0 {
		if f.first > s.pos+1 {
			s.head = max(s.head, f.last)
			g := Gap{Asked: s.pos, First: f.first, Last: s.head, Reason: reasonNotKept}
			s.say(g.append(nil, evGap))
		}
		s.pos = f.last
	}
	if !s.filter.takes(f) {
		return nil
	}
	b := s.bytes(f)
	if len(s.buf)+len(b) > batchBytes {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if len(b) >= batchBytes {
		return s.write(b)
	}
	s.buf = append(s.buf, b...)
	return nil
}

// comment is a heartbeat.
var comment = []byte(":\n\n")
