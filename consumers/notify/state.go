package notify

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
)

// A record is one line of the outbox journal: everything that one decision
// changes, so that a crash keeps all of it or nothing.
type record struct {
	Since  time.Time        `json:"since,omitzero"`
	Notes  []*sink.Notice   `json:"notes,omitempty"`
	Items  []*item          `json:"items,omitempty"` // new, or replaced
	Gone   []gone           `json:"gone,omitempty"`  // items that are delivered or given up
	Try    *try             `json:"try,omitempty"`
	Watch  []*watch         `json:"watch,omitempty"`
	Closed []string         `json:"closed,omitempty"` // watches that ended
	Marks  []*marks         `json:"marks,omitempty"`
	Groups map[string]group `json:"groups,omitempty"`
	Dest   *destState       `json:"dest,omitempty"`
}

// An item is one notice on its way to one destination.
type item struct {
	ID      string    `json:"id"` // of the notice, "@" and the target
	Note    string    `json:"note"`
	Target  target    `json:"target"`
	Rule    string    `json:"rule,omitempty"`
	Kind    sink.Kind `json:"kind"`
	Tenant  string    `json:"tenant,omitempty"`
	Run     string    `json:"run,omitempty"`
	Ask     string    `json:"ask,omitempty"`
	Mention string    `json:"mention,omitempty"`
	Text    string    `json:"text,omitempty"`  // Notice.Note
	Group   string    `json:"group,omitempty"` // items of one group are told together
	Order   uint64    `json:"order"`           // items of one run and target are told in this order
	Made    time.Time `json:"made"`
	Hold    time.Time `json:"hold,omitzero"` // not before
	Expires time.Time `json:"expires"`
	Tries   int       `json:"tries,omitempty"`
	Next    time.Time `json:"next,omitzero"`
	Pause   time.Time `json:"pause,omitzero"`
	Unsure  bool      `json:"unsure,omitempty"` // an attempt began and nobody knows how it ended
	Members []string  `json:"members,omitempty"`
	First   bool      `json:"first,omitempty"` // of what it tells, nothing was told there before
	Again   bool      `json:"again,omitempty"` // from replay: told whatever was told before

	durable bool // its record is on the disk
	lane    *lane
}

// A target is a destination, and where within it.
type target struct {
	Dest string `json:"dest"`
	At   string `json:"at,omitempty"` // Notice.To
}

func (t target) key() string {
	if t.At == "" {
		return t.Dest
	}
	return t.Dest + "|" + t.At
}

// gone is an item's end.
type gone struct {
	Item string `json:"item"`
	How  string `json:"how"` // delivered, merged, dead, expired, dropped, closed …
}

// A try is written before an attempt, and once more after one that failed.
type try struct {
	Item   string    `json:"item"`
	N      int       `json:"n"`
	Unsure bool      `json:"unsure"`
	Next   time.Time `json:"next,omitzero"`
	Pause  time.Time `json:"pause,omitzero"` // until then the whole lane is left alone
}

// A watch is something that was told and still holds: an open ask, a lost run. It
// is told again by the clock, and told to be over where it was told.
type watch struct {
	ID      string    `json:"id"` // run, "/", ask or "lost", "@" and the rule
	Tenant  string    `json:"tenant,omitempty"`
	Run     string    `json:"run"`
	Ask     string    `json:"ask,omitempty"` // "" for a lost run
	Seq     uint64    `json:"seq,omitempty"` // of the ask's event
	Rule    string    `json:"rule"`
	Note    string    `json:"note"`
	Told    []target  `json:"told"`
	Since   time.Time `json:"since"`
	N       int       `json:"n,omitempty"` // reminders so far
	Next    time.Time `json:"next,omitzero"`
	Climb   time.Time `json:"climb,omitzero"` // when it escalates
	Climbed bool      `json:"climbed,omitempty"`
}

// due is when the watch wants to be looked at, zero for never.
func (w *watch) due() time.Time {
	switch {
	case w.Next.IsZero():
		return w.Climb
	case w.Climb.IsZero() || w.Next.Before(w.Climb):
		return w.Next
	}
	return w.Climb
}

// A group collects items until Due; the next may be told Last plus its interval.
type group struct {
	Due  time.Time `json:"due,omitzero"`
	Last time.Time `json:"last,omitzero"`
}

// destState is what is known of a destination beyond the rules.
type destState struct {
	Name     string    `json:"name"`
	Disabled bool      `json:"disabled"`
	Why      string    `json:"why,omitempty"`
	At       time.Time `json:"at,omitzero"`
}

// Bounds of what is kept. What happens past them is counted as suppressed or
// dropped, with the reason.
const (
	maxItems     = 20_000 // in all queues together
	maxNoteBytes = 64 << 20
	maxWatches   = 10_000
	maxGroups    = 10_000
)

// state is what the journal says. It is guarded by the desk.
type state struct {
	since   time.Time
	notes   map[string]*sink.Notice
	refs    map[string]int // items and watches by note
	sizes   map[string]int // of notes, about
	bytes   int            // of all
	items   map[string]*item
	watches map[string]*watch
	byRun   map[string][]*watch // by runKey
	groups  map[string]group
	dests   map[string]destState
	marks   map[string]*marks // by their key: those that the told log may not have yet
	order   uint64
}

func newState() *state {
	return &state{
		notes: map[string]*sink.Notice{}, refs: map[string]int{}, sizes: map[string]int{}, items: map[string]*item{}, watches: map[string]*watch{},
		byRun: map[string][]*watch{}, groups: map[string]group{}, dests: map[string]destState{}, marks: map[string]*marks{},
	}
}

// apply changes the state as a record says, which has so many bytes as a line.
// Applying one again changes nothing.
func (s *state) apply(r *record, size int) {
	if !r.Since.IsZero() {
		s.since = r.Since
	}
	for _, n := range r.Notes {
		s.bytes += size/len(r.Notes) - s.sizes[n.ID]
		s.notes[n.ID], s.sizes[n.ID] = n, size/len(r.Notes)
	}
	for _, it := range r.Items {
		s.setItem(it)
	}
	for _, w := range r.Watch {
		s.setWatch(w)
	}
	for _, g := range r.Gone {
		s.endItem(g.Item)
	}
	for _, id := range r.Closed {
		s.endWatch(id)
	}
	if t := r.Try; t != nil {
		if it := s.items[t.Item]; it != nil {
			it.Tries, it.Unsure, it.Next, it.Pause = t.N, t.Unsure, t.Next, t.Pause
		}
	}
	for _, m := range r.Marks {
		s.marks[m.key()] = m
	}
	maps.Copy(s.groups, r.Groups)
	if r.Dest != nil {
		s.dests[r.Dest.Name] = *r.Dest
		if !r.Dest.Disabled {
			delete(s.dests, r.Dest.Name)
		}
	}
	for _, n := range r.Notes {
		s.release(n.ID, 0)
	}
}

func (s *state) setItem(it *item) {
	s.order = max(s.order, it.Order)
	s.refs[it.Note]++
	if old := s.items[it.ID]; old != nil {
		s.release(old.Note, 1)
	}
	s.items[it.ID] = it
}

func (s *state) endItem(id string) {
	if it := s.items[id]; it != nil {
		delete(s.items, id)
		s.release(it.Note, 1)
	}
}

func (s *state) setWatch(w *watch) {
	s.refs[w.Note]++
	if old := s.watches[w.ID]; old != nil {
		s.unlist(old)
		s.release(old.Note, 1)
	}
	s.watches[w.ID] = w
	k := runKey(w.Tenant, w.Run)
	s.byRun[k] = append(s.byRun[k], w)
}

func (s *state) endWatch(id string) {
	if w := s.watches[id]; w != nil {
		delete(s.watches, id)
		s.unlist(w)
		s.release(w.Note, 1)
	}
}

func (s *state) unlist(w *watch) {
	k := runKey(w.Tenant, w.Run)
	list := slices.DeleteFunc(slices.Clone(s.byRun[k]), func(o *watch) bool { return o.ID == w.ID })
	if len(list) == 0 {
		delete(s.byRun, k)
		return
	}
	s.byRun[k] = list
}

// release gives n uses of a note back. One that nothing uses is forgotten.
func (s *state) release(note string, n int) {
	s.refs[note] -= n
	if s.refs[note] <= 0 {
		s.bytes -= s.sizes[note]
		delete(s.refs, note)
		delete(s.sizes, note)
		delete(s.notes, note)
	}
}

// snapshot writes the state as lines of a new journal. Of the marks those are in it
// that the told log may not have: with the items of a decision its marks are durable.
func (s *state) snapshot() ([]byte, error) {
	var out []byte
	line := func(r record) error {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		out = appendLine(out, b)
		return nil
	}
	if err := line(record{Since: s.since}); err != nil {
		return nil, err
	}
	used := map[string]record{}
	for _, id := range slices.Sorted(maps.Keys(s.items)) {
		it := s.items[id]
		r := used[it.Note]
		r.Items = append(r.Items, it)
		used[it.Note] = r
	}
	for _, id := range slices.Sorted(maps.Keys(s.watches)) {
		w := s.watches[id]
		r := used[w.Note]
		r.Watch = append(r.Watch, w)
		used[w.Note] = r
	}
	for _, id := range slices.Sorted(maps.Keys(used)) {
		r := used[id]
		if n := s.notes[id]; n != nil {
			r.Notes = []*sink.Notice{n}
		}
		if err := line(r); err != nil {
			return nil, err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.marks)) {
		if err := line(record{Marks: []*marks{s.marks[k]}}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.dests)) {
		d := s.dests[name]
		if err := line(record{Dest: &d}); err != nil {
			return nil, err
		}
	}
	if len(s.groups) > 0 {
		return out, line(record{Groups: s.groups})
	}
	return out, nil
}
