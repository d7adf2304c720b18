package relay

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// slack is how long after a command's time its edge may still be heard.
	slack = 5 * time.Second

	// maxOpen bounds the commands waited for. Past it the next ones are left to
	// other relays and to whoever asks.
	maxOpen = 10_000
)

// Audit is the data of the fact who gave a command.
type Audit = event.Audit

// A clerk waits for every command's time and says what became of those that no
// living edge could answer for, once among all relays.
type clerk struct {
	r    *Relay
	wake chan struct{} // capacity 1

	mu    sync.Mutex // guards the rest
	open  map[string]matter
	todo  []bus.RunInfo // runs whose earlier commands are to be read
	seen  map[string]matter
	order []string // ids in seen, the oldest first
}

// A matter is one command whose end is not known.
type matter struct {
	Audit
	tenant, run string
	given       time.Time
	at          time.Time // of the next look
}

func newClerk(r *Relay) *clerk {
	return &clerk{r: r, wake: make(chan struct{}, 1), open: map[string]matter{}, seen: map[string]matter{}}
}

// audited takes up the command of an audit fact.
func (c *clerk) audited(e *event.Event) {
	m := matter{tenant: e.Tenant, run: e.Run, given: e.Time}
	if json.Unmarshal(e.Data, &m.Audit) != nil || m.Command == "" || subject.Audit(m.Command) != e.Ref {
		return
	}
	if m.DeliverBy.IsZero() { // written by an older or another program: look it up
		m.at = time.Now()
	} else {
		m.at = m.DeliverBy.Add(slack)
	}
	c.mu.Lock()
	if len(c.open) < maxOpen {
		c.open[m.run+"/"+m.Command] = m
	}
	if _, known := c.seen[m.Command]; !known {
		if len(c.order) >= maxOpen {
			delete(c.seen, c.order[0])
			c.order = c.order[1:]
		}
		c.order = append(c.order, m.Command)
	}
	c.seen[m.Command] = m
	c.mu.Unlock()
	c.poke()
}

// find returns a command that the bus may have let go: some minutes after its
// delivery time. What was given before this relay began is known where the run's
// edge was not there then.
func (c *clerk) find(id string) (matter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.seen[id]
	return m, ok
}

// recall takes up earlier commands to runs whose edge is not there.
func (c *clerk) recall(runs []bus.RunInfo) {
	c.mu.Lock()
	c.todo = append(c.todo, runs...)
	c.mu.Unlock()
	c.poke()
}

func (c *clerk) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (c *clerk) run(ctx context.Context) {
	for {
		c.mu.Lock()
		todo := c.todo
		c.todo = nil
		now, wait := time.Now(), time.Hour
		var due []matter
		for _, m := range c.open {
			if d := m.at.Sub(now); d > 0 {
				wait = min(wait, d)
			} else {
				due = append(due, m)
			}
		}
		c.mu.Unlock()
		for _, i := range todo {
			c.read(ctx, i)
		}
		for _, m := range due {
			c.settle(ctx, m)
		}
		if len(todo)+len(due) > 0 {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-c.wake:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// read takes up the commands of a run by their audit facts.
func (c *clerk) read(ctx context.Context, i bus.RunInfo) {
	for e, err := range c.r.bus.Controls(ctx, i.Tenant, i.Run) {
		if err != nil {
			c.r.log.Debug("earlier commands not read", "run", i.Run, "error", err)
			return
		}
		if e.Type == event.TypeAudit {
			c.audited(e)
		}
	}
}

// settle looks at one command and plans the next look, or is done with it.
func (c *clerk) settle(ctx context.Context, m matter) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	next, err := c.judge(ctx, &m)
	if err != nil {
		c.r.log.Debug("command not settled yet", "command", m.Command, "error", err)
		next = time.Now().Add(slack)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := m.run + "/" + m.Command
	if next.IsZero() {
		delete(c.open, key)
		return
	}
	m.at = next
	c.open[key] = m
}

// judge says what became of a command, if it is time and nobody else can. It
// returns when to look again, or zero when there is no more to do.
func (c *clerk) judge(ctx context.Context, m *matter) (time.Time, error) {
	if m.DeliverBy.IsZero() {
		cmd, err := c.r.bus.FindCommand(ctx, m.Command)
		if notFoundErr(err) || err == nil && cmd.Run != m.run {
			return time.Time{}, nil
		}
		if err != nil {
			return time.Time{}, err
		}
		m.DeliverBy, m.EffectBy, m.EdgeAlive = cmd.DeliverBy, cmd.EffectBy, true
		return m.DeliverBy.Add(slack), nil
	}
	i, err := c.r.bus.Run(ctx, m.run)
	if notFoundErr(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	f, err := c.r.hub.fold(ctx, i.Ref())
	if err == nil {
		err = f.sync(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	facts := f.commandFacts(m.Command)
	written := false
	for _, fact := range facts {
		if fact.Fact.Final() {
			return time.Time{}, nil
		}
		written = written || fact.Fact == event.Written || fact.Fact == event.Acked
	}
	end := m.EffectBy.Add(slack)
	if p, err := c.r.bus.Presence(ctx, m.run); err != nil {
		return time.Time{}, err
	} else if p == bus.Alive {
		if time.Now().Before(end) {
			return end, nil
		}
		if time.Now().After(end.Add(10 * time.Minute)) { // it is off the bus; nobody can carry it out
			return time.Time{}, nil
		}
		return time.Now().Add(time.Minute), nil
	}
	if written && time.Now().Before(end) {
		return end, nil
	}
	ended := false
	f.mu.Lock()
	ended = f.state.Ended()
	f.mu.Unlock()
	switch {
	case written:
		return time.Time{}, c.say(ctx, m, event.UnknownF, "it was written, and the edge is gone")
	case ended || !m.EdgeAlive:
		return time.Time{}, c.say(ctx, m, event.Expired, "no edge took it in time")
	default:
		// The edge was there when the command came. What it did with it may lie
		// in its spool.
		return time.Time{}, c.say(ctx, m, event.UnknownF, "the edge went away and has not said what it did")
	}
}

// say writes the fact, once among all relays.
func (c *clerk) say(ctx context.Context, m *matter, fact event.Fact, reason string) error {
	data, err := json.Marshal(event.CommandFact{Command: m.Command, Name: m.Name, Fact: fact, Reason: reason, Task: m.Task})
	if err != nil {
		return err
	}
	what := subject.CommandFact(m.Command)
	_, err = c.r.bus.PutControl(ctx, &event.Event{
		Tenant: m.tenant, Run: m.run, Ref: what, Time: time.Now().UTC(), Type: event.TypeCommandFact, Kind: event.Cmd,
		Stream: event.Edge, ContentType: event.JSON, Data: data,
	}, what, 0)
	if errors.Is(err, bus.ErrConflict) {
		return nil
	}
	return err
}

// ValidCommandID reports whether a command's id that a client made up is passed on.
func ValidCommandID(id string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"
	return len(id) <= 64 && strings.Trim(id, plain) == "" && strings.Trim(id, ".") != "" // a path of dots is none
}
