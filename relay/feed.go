package relay

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A feed holds the newest frames of one run that has clients. They take from it
// at their own pace; there is no copy per client.
type feed struct {
	*follower
	limit int    // bytes kept, beside the oldest frame, which may be of any size
	begin uint64 // seq behind which the ring begins, if it is known before
	soon  bool   // it is
	users int    // guarded by hub.mu, like stop
	stop  func() // ends the follower

	heartbeat time.Duration

	// Of the follower's goroutine.
	asm    assembler
	pusher *pusher
	volley []*frame // kept for the next push, like work
	work   []*subscription

	mu    sync.Mutex // guards the rest; add and trim are called under it
	ring  []*frame
	base  int64  // index of ring[0]; indexes only rise
	size  int    // bytes in ring
	from  uint64 // seq of the first frame that the ring would have
	head  uint64 // seq of the newest event taken
	exit  uint64 // seq of the exit event, 0 before it
	lost  *frame // while it holds
	since time.Time
	subs  map[*sub]struct{} // with a goroutine
	idle  []*subscription   // parked

	pushed   int64 // index of the first frame that push has not looked at
	unpushed int   // bytes from there on
}

// A feed that begins for a client at most recent events behind the head begins
// with what that one lacks, and a few events earlier, for those that come with
// it: however many come at once, the run is read once.
const (
	recent  = 512
	earlier = 16
)

// newFeed makes the feed for a first client that has everything up to seq pos,
// where the run's last event is head.
func newFeed(r *Relay, ref bus.Ref, pos, head uint64) *feed {
	f := &feed{
		follower: newFollower(r.past, ref, r.log), limit: r.cfg.QueueBytes, heartbeat: r.cfg.Heartbeat,
		pusher: newPusher(), subs: map[*sub]struct{}{},
	}
	f.start = lastFrame(r.past, ref)
	if pos <= head && head-pos <= recent {
		f.begin, f.soon = pos-min(pos, earlier), true
		f.start = func(context.Context) (uint64, error) { return f.begin, nil }
	}
	f.apply = func(e *event.Event, early bool) {
		if f.take(e, early); f.unpushed >= min(batchBytes, f.limit) {
			f.push()
		}
	}
	f.settled = f.push
	return f
}

// take adds an event or a control fact.
func (f *feed) take(e *event.Event, early bool) {
	if e.Seq == 0 {
		f.control(e, early)
		return
	}
	frames := f.asm.add(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from == 0 {
		f.from = e.Seq
	}
	f.head = e.Seq
	if e.Type == event.TypeExited {
		f.exit, f.lost = e.Seq, nil
	}
	f.add(frames...)
}

func (f *feed) control(e *event.Event, early bool) {
	switch e.Type {
	case event.TypeLost, event.TypeResumed, event.TypeCommandFact:
	default:
		return // audits are not for everybody who may read
	}
	fr := newFrame(e, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case e.Type == event.TypeLost && f.exit == 0:
		f.lost, f.since = fr, e.Time
	case e.Type == event.TypeResumed:
		f.lost = nil
	}
	if !early {
		f.add(fr)
	}
}

// add appends frames and lets the oldest go.
func (f *feed) add(frames ...*frame) {
	for _, fr := range frames {
		f.ring = append(f.ring, fr)
		f.size += len(fr.sse)
		f.unpushed += len(fr.sse)
	}
	f.trim(f.limit)
	for s := range f.subs {
		if s.next < f.base && s.stuck() {
			s.kick()
		}
		s.poke()
	}
}

// trim lets the oldest frames go until limit bytes are left, or one frame.
func (f *feed) trim(limit int) {
	drop := 0
	for ; drop < len(f.ring)-1 && f.size-len(f.ring[drop].sse) > limit; drop++ {
		old := f.ring[drop]
		f.size -= len(old.sse)
		f.from = max(f.from, old.last+1)
		f.ring[drop] = nil
	}
	f.ring, f.base = f.ring[drop:], f.base+int64(drop)
}

// A sub is one subscription's place in a feed.
type sub struct {
	feed *feed
	wake chan struct{} // capacity 1
	*pen

	// Guarded by feed.mu.
	next     int64 // index of the frame to take next
	attached bool
	joined   int64 // what is before this index was there before the client came
}

func (f *feed) enter(p *pen) *sub {
	s := &sub{feed: f, wake: make(chan struct{}, 1), pen: p}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.joined = f.base + int64(len(f.ring))
	f.subs[s] = struct{}{}
	return s
}

func (f *feed) quit(s *sub) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
}

func (s *sub) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// starting is closed when the feed is ready; nil when it is already.
func (s *sub) starting() <-chan struct{} {
	if s.feed.isReady() {
		return nil
	}
	return s.feed.ready
}

// isReady reports whether everything stored before was read once.
func (f *feed) isReady() bool {
	select {
	case <-f.ready:
		return true
	default:
		return false
	}
}

// attach places s behind seq pos, if the ring goes on from there. soon says that
// it will, once the follower has read so far; a poke or starting tells.
func (s *sub) attach(pos uint64) (ok, soon bool) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.attached {
		return true, false
	}
	if f.from == 0 && !f.isReady() {
		return false, f.soon && pos >= f.begin
	}
	if f.from != 0 && pos+1 < f.from {
		return false, false
	}
	// Frames without seq stand behind the one before them.
	i := sort.Search(len(f.ring), func(i int) bool { return f.seqAt(i) > pos })
	if i < len(f.ring) && f.ring[i].last > pos && f.ring[i].first <= pos {
		return false, false // in the middle of a frame
	}
	s.attached, s.next = true, f.base+int64(i)
	return true, false
}

// seqAt is the last seq at or before ring[i], for a search: frames without seq
// take that of their neighbour behind them, or of the end.
func (f *feed) seqAt(i int) uint64 {
	for ; i < len(f.ring); i++ {
		if f.ring[i].last > 0 {
			return f.ring[i].last
		}
	}
	return ^uint64(0)
}

// progress is what a subscription finds in its feed.
type progress struct {
	frames []*frame
	lag    bool // it fell behind what the feed holds, and reads from the bus again
	end    bool // it has everything, and the run has ended
	lost   *frame
	since  time.Time // of lost
}

// take returns what comes next, at least one frame if there is any and otherwise
// at most limit bytes.
func (s *sub) take(pos uint64, limit int) progress {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.next < f.base {
		s.attached = false
		return progress{lag: true}
	}
	p := progress{lost: f.lost, since: f.since}
	size := 0
	for i := int(s.next - f.base); i < len(f.ring); i++ {
		fr := f.ring[i]
		if size += len(fr.sse); size > limit && len(p.frames) > 0 {
			break
		}
		s.next++
		if s.next <= s.joined && fr.last == 0 {
			continue // told by progress.lost, or older than the client
		}
		p.frames = append(p.frames, fr)
	}
	if len(p.frames) == 0 {
		p.end = f.exit != 0 && pos >= f.exit
	}
	return p
}
