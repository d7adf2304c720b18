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

// A fold is one run's state, and its command facts.
type fold struct {
	*follower
	used uint64 // guarded by hub.mu, like stop
	stop func()

	mu    sync.Mutex // guards the rest
	state *run.State
	facts map[string][]Fact
	order []string // of commands
}

func newFold(r *Relay, ref bus.Ref) *fold {
	f := &fold{follower: newFollower(r.bus, ref, r.log), state: run.New(ref.Run), facts: map[string][]Fact{}}
	f.start = beginning
	f.apply = f.take
	return f
}

func (f *fold) take(e *event.Event, _ bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Apply(e)
	if e.Type == event.TypeCommand && e.Stream == event.Edge || e.Type == event.TypeCommandFact && e.Seq == 0 {
		f.fact(e)
	}
}

func (f *fold) fact(e *event.Event) {
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

// view calls fn with the state under its lock.
func (f *fold) view(fn func(*run.State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.state)
}

// commandFacts returns what is known of a command beside its acceptance.
func (f *fold) commandFacts(id string) []Fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Fact(nil), f.facts[id]...)
}
