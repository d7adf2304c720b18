package relay

import (
	"sort"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/workflow"
)

// A line is the one mapping of a workflow stream, for all its clients: it reads the
// run from its first kept event and holds the newest envelopes, encoded once. Deltas
// that came together are one entry; whose cursor is inside it gets the rest of it.
type line struct {
	*follower
	r     *Relay
	id    workflow.ID
	key   lineKey
	limit int // bytes kept, beside the oldest entry, which may be of any size

	users int    // guarded by lines.mu, like the next two
	used  uint64 // when it was last asked for
	stop  func() // ends the follower

	m mapping // of the follower's goroutine

	mu      sync.Mutex // guards the rest
	ring    []entry
	base    int64  // index of ring[0]; indexes only rise
	size    int    // bytes in ring
	evicted uint64 // position of the last entry that was let go
	merge   workflow.Merger
	due     time.Time // when what is open in merge goes out, zero where nothing is
	head    uint64    // seq of the run's last event
	last    uint64    // position of the last item
	over    bool      // nothing follows what there is
	failed  bool      // the mapping ended at a frame that it cannot number
	lost    *event.Event
	told    heading
	view    viewer
	subs    map[*rider]struct{}
}

// An entry is what one SSE event carries, or a hole.
type entry struct {
	last   uint64 // its position
	sse    []byte
	data   int              // where the JSON begins in sse
	joined *workflow.Merged // of several deltas
	hole   bool
}

// entryCost is what an entry costs beside its bytes, roughly.
const entryCost = 128

func (e *entry) cost() int {
	n := len(e.sse) + entryCost
	if e.joined != nil {
		n += len(e.sse)
	}
	return n
}

// newEntry encodes what goes out.
func newEntry(m workflow.Merged) entry {
	env, _ := m.After(m.First - 1)
	e := entry{last: m.Last}
	e.sse, e.data = appendEnvelope(make([]byte, 0, len(env.Data)+384), &env, true)
	if m.First < m.Last {
		e.joined = &m
	}
	return e
}

// after is what of e is behind a cursor: all of it, or the rest of joined deltas.
func (e *entry) after(pos uint64) (sse []byte, data int) {
	if e.joined == nil || pos < e.joined.First {
		return e.sse, e.data
	}
	env, ok := e.joined.After(pos)
	if !ok {
		return nil, 0
	}
	return appendEnvelope(nil, &env, true)
}

func newLine(r *Relay, ref bus.Ref, key lineKey, id workflow.ID) *line {
	l := &line{
		follower: newFollower(r.past, ref, r.log), r: r, id: id, key: key, limit: r.cfg.QueueBytes,
		m: *r.newMapping(ref.Tenant, id), merge: workflow.Merger{Off: r.cfg.Unmerged},
		told: heading{run: id.String()}, subs: map[*rider]struct{}{},
	}
	l.start = beginning
	l.apply = l.take
	return l
}

// take maps an event. Control facts stay out of the mapping: they have no place in
// the order, and every relay must map the same.
func (l *line) take(e *event.Event, _ bool) {
	if e.Seq == 0 {
		l.control(e)
		return
	}
	var items []item
	var err error
	if !l.failed {
		items, err = l.m.add(e)
	}
	status, over, known := l.m.mapper.Status(), l.m.mapper.Over(), l.m.mapper.Known()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head, l.last = e.Seq, l.m.last
	l.view.status, l.view.known = status, known
	if e.Type == event.TypeExited {
		l.lost = nil
	}
	added := false
	for _, it := range items {
		added = l.item(it) || added
	}
	if err != nil {
		l.r.log.Error("workflow mapping ends", "run", l.ref.Run, "seq", e.Seq, "error", err)
		l.failed = true
	}
	if (over || l.failed) && !l.over {
		l.close()
		l.over, added = true, true
	}
	if added {
		l.rouse()
	}
}

// item takes the next item and reports whether clients must look; l.mu is held.
func (l *line) item(it item) bool {
	if it.hole {
		l.close()
		l.push(entry{last: it.pos, hole: true})
		return true
	}
	l.told = headingOf(&it.env)
	l.view.take(&it.env)
	done := l.merge.Add(it.env)
	for _, m := range done {
		l.push(newEntry(m))
	}
	_, open := l.merge.Open()
	first := open && (len(done) > 0 || l.due.IsZero())
	switch {
	case !open:
		l.due = time.Time{}
	case first:
		l.due = time.Now().Add(workflow.MergeWindow)
	}
	return len(done) > 0 || first
}

// close completes what is open; l.mu is held.
func (l *line) close() {
	for _, m := range l.merge.Flush() {
		l.push(newEntry(m))
	}
	l.due = time.Time{}
}

// push appends an entry and lets the oldest go; l.mu is held.
func (l *line) push(e entry) {
	l.ring = append(l.ring, e)
	l.size += e.cost()
	drop := 0
	for ; drop < len(l.ring)-1 && l.size-l.ring[drop].cost() > l.limit; drop++ {
		l.size -= l.ring[drop].cost()
		l.evicted = l.ring[drop].last
		l.ring[drop] = entry{}
	}
	l.ring, l.base = l.ring[drop:], l.base+int64(drop)
}

// rouse has every client look; l.mu is held.
func (l *line) rouse() {
	for s := range l.subs {
		if s.attached && s.next < l.base && s.stuck() {
			s.kick()
		}
		s.poke()
	}
}

func (l *line) control(e *event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Type {
	case event.TypeLost:
		l.lost = e
	case event.TypeResumed:
		l.lost = nil
	default:
		return
	}
	l.rouse()
}

// A standing is where a line stands.
type standing struct {
	head   uint64 // seq of the run's last event
	last   uint64 // position of the last item
	over   bool   // nothing follows what there is
	failed bool
	known  bool // the run has what the id names
	status string
	lost   *event.Event
	told   heading
}

func (l *line) standing() standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := standing{head: l.head, last: l.last, over: l.over, failed: l.failed, status: l.view.status, told: l.told}
	if !l.over {
		s.lost = l.lost
	}
	if s.lost != nil {
		s.status = statusFailed
	}
	s.known = l.id.Task == "" || l.view.known
	return s
}

// statusFailed is the status of a run that failed, or is lost.
const statusFailed = "failed"

// search finds the first entry behind position pos; l.mu is held.
func (l *line) search(pos uint64) int {
	return sort.Search(len(l.ring), func(i int) bool { return l.ring[i].last > pos })
}
