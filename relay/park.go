package relay

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// Most clients have everything most of the time. Where the relay has the
// connection itself, such a client is parked: it has no goroutine that waits for
// events, no timer and no buffer. Its feed's follower writes new frames to its
// socket, all clients the same bytes, as far as the socket takes them at once;
// one timer beats for all. For whatever else there is to do, a goroutine (the
// pump) is started, which is [subscription.serve]: the way to the live end,
// bytes that the socket did not take, a gap, a lost run, the end.

// A parking is what a subscription has beside that of a client that keeps its
// goroutine.
type parking struct {
	wire  *wire
	bg    context.Context // of the relay
	ctx   context.Context // ends with the connection
	pumps sync.WaitGroup  // one at most

	place int // in feed.idle, -1 outside; guarded by feed.mu

	// mu is held by who writes to a parked client, and guards the rest. While
	// the client is parked it guards the subscription too, sub.next included;
	// otherwise that is the pump's. feed.mu is never taken under it.
	mu     sync.Mutex
	parked bool
	gone   bool
	rest   []byte // what the socket did not take, for the pump
}

// keep serves the client until it goes or the stream ends, and returns at once.
func (s *subscription) keep(bg context.Context, c *caller, l *wire) {
	ctx, cancel := context.WithCancel(bg)
	p := &parking{wire: l, bg: bg, ctx: ctx, place: -1}
	s.pen, s.parking = &pen{r: s.r, out: l}, p
	f := s.r.hub.subscribe(bg, s.ref, s.pos, s.head)
	s.sub = f.enter(s.pen)
	p.pumps.Go(func() {
		s.buf, l.head = l.head, nil
		s.open()
		s.pump()
	})
	leave := c.keep(func() { _ = l.conn.Close() })
	go func() { // counted by admit, ends with the connection
		defer s.r.release()
		defer leave()
		defer s.r.hub.leave(f)
		l.gone()
		cancel()
		_ = l.conn.Close()
		p.mu.Lock()
		p.gone, p.parked = true, false
		p.mu.Unlock()
		p.pumps.Wait()
		f.unlist(s)
		f.quit(s.sub)
	}()
}

// pump serves until the client can be parked, or for good; then the connection
// is closed and its reader does the rest.
func (s *subscription) pump() {
	p := s.parking
	err := s.unpark()
	if err == nil {
		err = s.serve(p.ctx, p.bg)
	}
	if errors.Is(err, errParked) {
		return
	}
	if (err == nil || errors.Is(err, errRelay)) && p.ctx.Err() == nil {
		err = errors.Join(err, s.write(lastChunk))
	}
	if err != nil {
		s.ended(err)
	}
	_ = p.wire.conn.Close()
}

// unpark takes the client back from its feed and writes what a push left over.
func (s *subscription) unpark() error {
	s.sub.feed.unlist(s)
	rest := s.parking.rest
	s.parking.rest = nil
	return s.write(rest)
}

// park leaves the client to its feed, if it has everything and nothing else is
// to be waited for. Everything was flushed.
func (s *subscription) park() bool {
	p, f := s.parking, s.sub.feed
	p.wire.deadline(time.Time{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if !s.sub.attached || !f.isReady() || s.sub.next != f.base+int64(len(f.ring)) || f.lost != nil || s.sub.cut.Load() {
		return false
	}
	select {
	case <-s.closing:
		return false
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.parked, p.place = true, len(f.idle)
	f.idle = append(f.idle, s)
	delete(f.subs, s.sub)
	return true
}

// unlist moves s from the parked clients to those with a goroutine.
func (f *feed) unlist(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := s.parking
	if p.place < 0 {
		return
	}
	last := len(f.idle) - 1
	f.idle[p.place] = f.idle[last]
	f.idle[p.place].parking.place = p.place
	f.idle[last] = nil
	f.idle, p.place = f.idle[:last], -1
	f.subs[s.sub] = struct{}{}
}

// wake starts the pump of a parked client; p.mu is held.
func (s *subscription) wake() {
	p := s.parking
	if p.parked {
		p.parked = false
		p.pumps.Go(s.pump)
	}
}

// A volley is what parked clients are sent at once.
type volley struct {
	frames []*frame
	from   int64 // index of the first
	plain  bool  // nothing in it asks for more than its bytes
	all    []byte
	beat   time.Time // of the next heartbeat
}

// parallel is how many clients one goroutine writes to, about.
const parallel = 32

// push sends the parked clients what is new. Only the follower calls it.
func (f *feed) push() {
	f.mu.Lock()
	end := f.base + int64(len(f.ring))
	v := volley{from: max(f.pushed, f.base)}
	f.pushed, f.unpushed = end, 0
	if len(f.idle) == 0 || v.from == end {
		f.mu.Unlock()
		return
	}
	v.frames = append(f.volley[:0], f.ring[v.from-f.base:]...)
	work := append(f.work[:0], f.idle...)
	f.mu.Unlock()

	v.prepare(f.heartbeat)
	if len(work) < 2*parallel {
		v.fire(f.pusher, work)
	} else {
		var wg sync.WaitGroup
		n := max(parallel, (len(work)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
		for part := range slices.Chunk(work, n) {
			wg.Go(func() { v.fire(newPusher(), part) })
		}
		wg.Wait()
	}
	clear(v.frames)
	clear(work)
	f.volley, f.work = v.frames, work
	if cap(work) > 2*len(work)+parallel { // most have gone
		f.work = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		f.trim(min(idleRing, f.limit))
	}
}

// idleRing is what a feed keeps while all of its clients have everything, for
// those that come back a little later.
const idleRing = 32 << 10

func (v *volley) prepare(heartbeat time.Duration) {
	v.beat = time.Now().Add(heartbeat)
	v.plain = true
	for i, f := range v.frames {
		if f.last == 0 || f.typ == event.TypeExited || i > 0 && f.first != v.frames[i-1].last+1 {
			v.plain = false
			return
		}
	}
	v.all = v.frames[0].chunk
	if len(v.frames) > 1 {
		v.all = chunks(v.frames, filter{})
	}
}

// chunks joins the bytes of the frames that l takes.
func chunks(frames []*frame, l filter) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		if l.takes(f) {
			b.Write(f.chunk)
		}
	}
	return b.Bytes()
}

func (v *volley) fire(p *pusher, work []*subscription) {
	for _, s := range work {
		v.send(p, s)
	}
}

// send sends one client what it does not have.
func (v *volley) send(p *pusher, s *subscription) {
	k := s.parking
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.parked {
		return
	}
	skip := s.sub.next - v.from
	if skip >= int64(len(v.frames)) {
		return // it came after these
	}
	if !v.plain || skip < 0 || v.frames[skip].first != s.pos+1 {
		s.wake()
		return
	}
	frames, b := v.frames[skip:], v.all
	if s.filter != (filter{}) || skip > 0 {
		b = chunks(frames, s.filter)
	}
	s.sub.next += int64(len(frames))
	s.pos = frames[len(frames)-1].last
	if len(b) > 0 {
		s.pushed(p, b, v.beat)
	}
}

// pushed writes b to a parked client; p.mu is held. Where the socket has no room
// the pump does it, under a deadline.
func (s *subscription) pushed(p *pusher, b []byte, beat time.Time) {
	n, err := p.push(s.parking.wire, b)
	if err != nil {
		_ = s.parking.wire.conn.Close() // its reader does the rest
		return
	}
	s.r.met.sent(n)
	s.beat = beat
	if n < len(b) {
		s.parking.rest = b[n:]
		s.wake()
	}
}

// unparkAll starts the pump of every parked client: there is an end to tell.
func (h *hub) unparkAll() {
	for _, s := range h.parked() {
		s.parking.mu.Lock()
		s.wake()
		s.parking.mu.Unlock()
	}
}

func (h *hub) parked() []*subscription {
	var all []*subscription
	for _, f := range h.allFeeds() {
		f.mu.Lock()
		all = append(all, f.idle...)
		f.mu.Unlock()
	}
	return all
}

// head is the last event of a run that has clients, as its feed knows it, and
// whether that is the exit. It spares the bus a question for each of many that
// come at once. The feed may be behind, so a cursor beyond head says nothing.
func (h *hub) head(ref bus.Ref) (seq uint64, exited, ok bool) {
	h.mu.RLock()
	f := h.feeds[keyOf(ref)]
	h.mu.RUnlock()
	if f == nil || !f.isReady() {
		return 0, false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head, f.exit != 0, f.lost == nil && f.head > 0
}

// beats is how often it is looked for heartbeats that are due, of a heartbeat's
// time.
const beats = 8

// beat keeps the heartbeats of parked clients, until ctx ends.
func (h *hub) beat(ctx context.Context) {
	every := h.r.cfg.Heartbeat
	t := time.NewTicker(max(every/beats, time.Millisecond))
	defer t.Stop()
	p := newPusher()
	b := closeChunk(append(make([]byte, chunkHead), comment...))
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		due, next := now.Add(every/beats), now.Add(every)
		for _, s := range h.parked() {
			s.parking.mu.Lock()
			if s.parking.parked && s.beat.Before(due) {
				s.pushed(p, b, next)
			}
			s.parking.mu.Unlock()
		}
	}
}

// head is the start of an answer.
func head(h http.Header) []byte {
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(&b) // to memory
	b.WriteString("\r\n")
	return b.Bytes()
}
