package metrics

import (
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A runKey names a run.
type runKey struct{ tenant, run string }

// A live run is one that has not ended. What is exported is in the snapshot; the fold
// is made again from the run's history when it is needed.
type live struct {
	Tenant    string `json:"tenant"`
	Run       string `json:"run"`
	Partition int    `json:"p,omitempty"`

	// Labels, in their bounded form.
	Who     string `json:"who,omitempty"` // tenant
	Dialect string `json:"dialect,omitempty"`
	CI      string `json:"ci,omitempty"`
	Repo    string `json:"repo,omitempty"`
	Flow    string `json:"flow,omitempty"`

	Last    uint64    `json:"last,omitempty"` // seq of the last event counted
	Part    int       `json:"part,omitempty"`
	Touched time.Time `json:"touched"` // when the last entry about it was stored
	State   string    `json:"state,omitempty"`
	Trace   string    `json:"trace,omitempty"`

	Lost   time.Time `json:"lost,omitzero"`   // since when it is lost
	Final  bool      `json:"final,omitempty"` // it was counted as lost
	Resume string    `json:"resume,omitempty"`
	Again  bool      `json:"again,omitempty"` // it goes on with a session

	Waits []wait           `json:"waits,omitempty"`
	Cmds  map[string]*cmd  `json:"cmds,omitempty"`
	Used  map[string]*used `json:"used,omitempty"` // by session, "" is the process

	state *run.State // nil where it is not held
	join  event.Joiner
	cost  int64 // of holding state
	prev  *live // in the order of use
	next  *live

	model  string // whose series are there
	typ    string // of the last event
	frames *series
	bytes  *series
}

// A wait is an open ask.
type wait struct {
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
}

// A cmd is a command that was seen on the run.
type cmd struct {
	Name    string    `json:"name"`
	Written time.Time `json:"written,omitzero"` // on the child's stdin, the first time
	Final   bool      `json:"final,omitempty"`
}

// maxCmds bounds the commands that are remembered of a run; the fold has the same bound.
const maxCmds = 128

func (l *live) key() runKey { return runKey{l.Tenant, l.Run} }

func (l *live) who(more ...string) []string {
	return append([]string{l.Who, l.Dialect, l.CI, l.Repo, l.Flow}, more...)
}

// exemplar names the run.
func (l *live) exemplar(at time.Time) exemplar {
	e := exemplar{Trace: l.Trace, At: at}
	if len(l.Run) <= 40 && clean(l.Run) == l.Run { // exemplars have 128 characters
		e.Run = l.Run
	}
	return e
}

// folds is the order of use of the live runs whose state is held, the latest first.
type folds struct {
	head, tail *live
	n          int
	cost, max  int64
}

// What holding a state costs, by guess: the maps of an empty one, and the ids that each
// event may add, up to the bounds of the package run.
const (
	foldBase     = 16 << 10
	foldPerEvent = 128
	foldEvents   = 16 << 10
)

func foldCost(last uint64) int64 { return foldBase + foldPerEvent*int64(min(last, foldEvents)) }

// use puts l first, and lets go of what is too much.
func (f *folds) use(l *live) {
	if f.head != l {
		f.drop(l)
		l.next = f.head
		if f.head != nil {
			f.head.prev = l
		} else {
			f.tail = l
		}
		f.head = l
		f.n++
	} else {
		f.cost -= l.cost
	}
	l.cost = foldCost(l.Last)
	f.cost += l.cost
	for f.cost > f.max && f.tail != l {
		old := f.tail
		f.drop(old)
		old.state = nil
	}
}

// drop takes l out of the order.
func (f *folds) drop(l *live) {
	if f.head != l && l.prev == nil {
		return // not in it
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		f.head = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		f.tail = l.prev
	}
	f.cost -= l.cost
	l.prev, l.next, l.cost = nil, nil, 0
	f.n--
}

// An ended run is remembered for a while: what comes again of it counts no more.
type ended struct {
	Tenant string `json:"t"`
	Run    string `json:"r"`
	Last   uint64 `json:"n"`
	Lost   bool   `json:"l,omitempty"` // it was counted as lost
}

// A ring keeps the latest ended runs.
type ring struct {
	max  int
	list []ended // a ring once it is full
	at   int
	byID map[runKey]int
}

func newRing(limit int) *ring { return &ring{max: limit, byID: map[runKey]int{}} }

func (r *ring) get(k runKey) (ended, bool) {
	i, ok := r.byID[k]
	if !ok {
		return ended{}, false
	}
	return r.list[i], true
}

func (r *ring) put(e ended) {
	k := runKey{e.Tenant, e.Run}
	if i, ok := r.byID[k]; ok {
		r.list[i] = e
		return
	}
	if len(r.list) < r.max {
		r.list = append(r.list, e)
		r.byID[k] = len(r.list) - 1
		return
	}
	old := r.list[r.at]
	delete(r.byID, runKey{old.Tenant, old.Run})
	r.list[r.at], r.byID[k] = e, r.at
	r.at = (r.at + 1) % r.max
}

// all lists them, the oldest first.
func (r *ring) all() []ended {
	return append(append([]ended{}, r.list[r.at:]...), r.list[:r.at]...)
}
