package relay

import (
	"sort"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// A wide holds what one log of the bus had last, of all its runs, for those who
// follow many. The hub's reader fills it, as long as somebody takes from it; there
// is one copy for all.
type wide struct {
	log   bus.Log
	limit int // bytes kept, beside the oldest frame

	mu    sync.Mutex // guards the rest
	reads bool       // at is known
	gen   int        // counts the starts of the reader: places from before are to be located again
	at    bus.Place  // of the reader
	users map[*manyPos]func()
	left  time.Time // when the last of them left
	on    bool      // the ring is kept

	ring  []wideFrame
	base  int64     // index of ring[0]; indexes only rise
	size  int       // bytes in ring
	from  bus.Place // the ring has everything behind it
	joins map[runKey]*joining
}

// A wideFrame is a frame and where in the log it ends.
type wideFrame struct {
	*frame
	tenant, run string
	kind        event.Kind
	time        time.Time
	at          bus.Place // zero: what follows has the same place, and the id
}

// A joining is the unfinished frame of a run.
type joining struct {
	asm   assembler
	bytes int
}

// maxJoins bounds the unfinished frames of a log, in runs and in bytes. Past it
// the ring begins anew, and they are read from the bus.
const (
	maxJoins     = 4096
	maxJoinBytes = 64 << 20
)

func newWide(log bus.Log, limit int) *wide {
	return &wide{log: log, limit: limit, users: map[*manyPos]func(){}, joins: map[runKey]*joining{}}
}

// started says that the reader reads behind at, and may have missed what was
// before.
func (l *wide) started(at bus.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	l.reads, l.at = true, at
	l.restart(at)
}

// stopped says that the reader does not read.
func (l *wide) stopped() {
	l.mu.Lock()
	l.reads = false
	l.mu.Unlock()
}

// restart empties the ring: it has what comes behind at. l.mu is held.
func (l *wide) restart(at bus.Place) {
	l.base += int64(len(l.ring))
	l.ring, l.size, l.from = nil, 0, at
	clear(l.joins)
	l.poke()
}

func (l *wide) poke() {
	for _, poke := range l.users {
		poke()
	}
}

// take adds an event. Only the hub's reader calls it.
func (l *wide) take(e *event.Event, at bus.Place) {
	key := runKey{e.Tenant, e.Run}
	l.mu.Lock()
	l.at = at
	on, open := l.on, l.joins[key] != nil
	l.mu.Unlock()
	if !on {
		return
	}
	var frames []wideFrame
	switch plain := e.Chunk.IsZero() && e.Part.IsZero() && !open; {
	case e.Seq == 0:
		frames = wideFact(e, at)
	case plain:
		frames = []wideFrame{wideOf(newFrame(e, e.Seq), e, at)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return
	}
	if frames == nil && e.Seq > 0 {
		var ok bool
		if frames, ok = l.join(key, e, at); !ok {
			l.restart(at)
			return
		}
	}
	if len(frames) > 0 {
		l.add(frames)
		l.poke()
	}
}

// join takes a part of a frame, or what broke one. ok is false where it goes on
// with what is not here, or too much is unfinished. l.mu is held.
func (l *wide) join(key runKey, e *event.Event, at bus.Place) (frames []wideFrame, ok bool) {
	j := l.joins[key]
	if j == nil {
		if e.Chunk.I > 1 || e.Part.I > 1 || len(l.joins) >= maxJoins {
			return nil, false
		}
		j = &joining{}
		l.joins[key] = j
	}
	frames = j.add(e, at)
	if j.bytes == 0 {
		delete(l.joins, key)
	}
	total := 0
	for _, j := range l.joins {
		total += j.bytes
	}
	return frames, total <= maxJoinBytes
}

// add returns the frames that e completes; bytes is 0 when nothing is held.
func (j *joining) add(e *event.Event, at bus.Place) []wideFrame {
	j.bytes += len(e.Data)
	var out []wideFrame
	for _, f := range j.asm.add(e) {
		out = append(out, wideOf(f, e, bus.Place{}))
	}
	if len(out) > 0 {
		out[len(out)-1].at = at
		if j.bytes = 0; out[len(out)-1].last != e.Seq {
			j.bytes = len(e.Data) // e broke a frame and begins one
			out[len(out)-1].at = bus.Place{}
		}
	}
	return out
}

func wideOf(f *frame, e *event.Event, at bus.Place) wideFrame {
	return wideFrame{f, e.Tenant, e.Run, e.Kind, e.Time, at}
}

// wideFact is a control fact that is for everybody who may read.
func wideFact(e *event.Event, at bus.Place) []wideFrame {
	switch e.Type {
	case event.TypeLost, event.TypeResumed, event.TypeCommandFact:
		return []wideFrame{wideOf(newFrame(e, 0), e, at)}
	}
	return nil
}

// add appends frames and lets the oldest go; l.mu is held.
func (l *wide) add(frames []wideFrame) {
	for _, f := range frames {
		l.ring = append(l.ring, f)
		l.size += len(f.data) + perEvent
	}
	drop := 0
	// What has no place of its own goes with what follows it.
	for ; drop < len(l.ring)-1 && l.size > l.limit || drop > 0 && drop < len(l.ring) && l.ring[drop-1].at.Seq == 0; drop++ {
		l.size -= len(l.ring[drop].data) + perEvent
		if at := l.ring[drop].at; at.Seq != 0 {
			l.from = at
		}
	}
	clear(l.ring[:drop])
	l.ring, l.base = l.ring[drop:], l.base+int64(drop)
}

// enter counts p in; poke is called when there is something new, and must not
// block.
func (l *wide) enter(p *manyPos, poke func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[p] = poke
	if !l.on {
		l.on = true
		l.restart(l.at)
	}
}

func (l *wide) quit(p *manyPos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users, p)
	l.left = time.Now()
}

// cool lets go of the ring when nobody has taken from it since t.
func (l *wide) cool(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on && len(l.users) == 0 && l.left.Before(t) {
		l.restart(l.at)
		l.on = false
	}
}

// attach finds the frame that follows on a place. Where the ring does not reach
// back that far, to is up to where the bus has to be read.
func (l *wide) attach(gen int, at bus.Place) (next int64, to bus.Place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reads || gen != l.gen {
		return 0, bus.Place{}, false
	}
	if at.Seq < l.from.Seq {
		return 0, l.from, false
	}
	i := sort.Search(len(l.ring), func(i int) bool { return l.placeAt(i) > at.Seq })
	return l.base + int64(i), at, true
}

// placeAt is the place of ring[i], for a search.
func (l *wide) placeAt(i int) uint64 {
	for ; i < len(l.ring); i++ {
		if at := l.ring[i].at.Seq; at != 0 {
			return at
		}
	}
	return ^uint64(0)
}

// next returns what follows at index, about limit bytes of it. lag says that it is
// no longer there, or that the reader began again.
func (l *wide) next(gen int, index int64, limit int) (frames []wideFrame, lag bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gen != l.gen || index < l.base {
		return nil, true
	}
	i := int(index - l.base)
	end, size := i, 0
	for ; end < len(l.ring) && (size < limit || l.ring[end-1].at.Seq == 0); end++ {
		size += len(l.ring[end].data)
	}
	return append([]wideFrame(nil), l.ring[i:end]...), false
}

// knows reports whether a place is surely still what it was: one that the ring or
// the reader has.
func (l *wide) knows(at bus.Place) (gen int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(p bus.Place) bool { return p.Seq == at.Seq && p.Time.Equal(at.Time) }
	if !l.reads {
		return l.gen, false
	}
	if at.Seq == 0 || same(l.at) || same(l.from) {
		return l.gen, true
	}
	i := sort.Search(len(l.ring), func(i int) bool { return l.placeAt(i) >= at.Seq })
	return l.gen, i < len(l.ring) && same(l.ring[i].at)
}

// place is where the reader is; ok is false before it reads.
func (l *wide) place() (at bus.Place, gen int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.gen, l.reads
}
