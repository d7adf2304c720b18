package relay

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

const (
	// maxCommands and maxFacts bound the facts kept of one run; the oldest
	// command goes first. A person gives a handful.
	maxCommands = 1024
	maxFacts    = 32
)

// A Fact is one step of a command's life, as the API shows it.
type Fact struct {
	Fact   event.Fact        `json:"fact"`
	At     time.Time         `json:"at"`
	Seq    uint64            `json:"seq,omitempty"` // of the run's event; absent where no edge wrote it
	By     string            `json:"by"`            // bus, edge, relay
	Reason string            `json:"reason,omitempty"`
	Task   string            `json:"task,omitempty"`
	Req    string            `json:"request_id,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
}

// A fold is one run's book, kept up to date.
type fold struct {
	*follower
	*book
	used uint64 // guarded by hub.mu, like stop
	stop func()
}

func newFold(r *Relay, ref bus.Ref) *fold {
	f := &fold{follower: newFollower(r.past, ref, r.log), book: newBook(ref.Run)}
	f.start = beginning
	f.apply = func(e *event.Event, _ bool) { f.take(e) }
	return f
}

// A book is one run's state, and its command facts.
type book struct {
	mu    sync.Mutex // guards the rest
	state *run.State
	facts map[string][]Fact
	order []string // of commands
	// answers are the decisions on asks that are on the bus, the last attempt of
	// each ask. The state knows them when the edge has written them.
	answers map[string]decided
}

type decided struct {
	command string
	view    run.AskDecided
}

func newBook(runID string) *book {
	return &book{state: run.New(runID), facts: map[string][]Fact{}, answers: map[string]decided{}}
}

func (f *book) take(e *event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Apply(e)
	if e.Type == event.TypeAudit && e.Seq == 0 {
		f.answered(e)
	}
	if e.Type == event.TypeCommand && e.Stream == event.Edge || e.Type == event.TypeCommandFact && e.Seq == 0 {
		f.fact(e)
	}
}

func (f *book) fact(e *event.Event) {
	var d event.CommandFact
	if json.Unmarshal(e.Data, &d) != nil || d.Command == "" {
		return
	}
	by := "edge"
	if e.Seq == 0 {
		by = "relay"
	}
	list, known := f.facts[d.Command]
	if !known {
		if len(f.order) >= maxCommands {
			delete(f.facts, f.order[0])
			f.order = f.order[1:]
		}
		f.order = append(f.order, d.Command)
	}
	if len(list) < maxFacts {
		list = append(list, Fact{
			Fact: d.Fact, At: e.Time, Seq: e.Seq, By: by, Reason: d.Reason, Task: d.Task, Req: d.RequestID, Detail: d.Detail,
		})
	}
	f.facts[d.Command] = list
}

// answered reads the audit fact of an answer. As many are kept as a run can have
// asks in its state; what is past that shows when it is written.
func (f *book) answered(e *event.Event) {
	var a event.Audit
	if json.Unmarshal(e.Data, &a) != nil || a.Name != cmdAnswer || a.Refused != "" || a.Args == nil || a.Args.Answer == nil {
		return
	}
	ask := a.Args.Ask
	if _, known := f.answers[ask]; !known && len(f.answers) >= maxCommands {
		return
	}
	at := e.Time
	f.answers[ask] = decided{a.Command, run.AskDecided{Decision: a.Args.Decision, By: run.ByBus, Command: a.Command, At: &at}}
}

// doc is the state for showing. An ask in it that is open and was decided on the
// bus says so: the answer is on its way.
func (f *book) doc() run.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.state.View()
	for i := range v.Asks {
		a := &v.Asks[i]
		d, ok := f.answers[a.ID]
		if !ok || a.State != run.AskOpen || a.Decided != nil {
			continue
		}
		if now, _ := fateOf(f.facts[d.command]); now == stands {
			view := d.view
			a.Decided = &view
		}
	}
	return v
}

// view calls fn with the state under its lock.
func (f *book) view(fn func(*run.State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.state)
}

// commandFacts returns what is known of a command beside its acceptance.
func (f *book) commandFacts(id string) []Fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Fact(nil), f.facts[id]...)
}
