package relay

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	// slack is how long after a command's time its edge may still be heard.
	slack = 5 * time.Second

	// maxOpen bounds the commands waited for. Past it the next ones are left to
	// other relays and to whoever asks.
	maxOpen = 10_000

	// commandsLeave is how long after its time a command is surely off the bus.
	commandsLeave = 10 * time.Minute
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
	todo  []bus.RunInfo     // runs whose earlier commands are to be read
	seen  map[string]runKey // the runs of commands
	order []string          // ids in seen, the oldest first
	news  uint64            // counts runs that ended or were lost
}

// A matter is one command whose end is not known.
type matter struct {
	Audit       // without the arguments
	tenant, run string
	at          time.Time // of the next look
}

func newClerk(r *Relay) *clerk {
	return &clerk{r: r, wake: make(chan struct{}, 1), open: map[string]matter{}, seen: map[string]runKey{}}
}

// audited takes up the command of an audit fact.
func (c *clerk) audited(e *event.Event) {
	m := matter{tenant: e.Tenant, run: e.Run}
	if json.Unmarshal(e.Data, &m.Audit) != nil || m.Command == "" || m.Refused != "" || subject.Audit(m.Command) != e.Ref {
		return
	}
	m.Args = nil
	switch {
	case m.DeliverBy.IsZero(): // written by an older or another program: look it up
		m.at = time.Now()
	case m.Name == cmdAnswer: // see [clerk.finish]
		m.at = e.Time.Add(slack)
	default:
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
	c.seen[m.Command] = runKey{m.tenant, m.run}
	c.mu.Unlock()
	c.poke()
}

// find returns the run of a command that the bus may have let go: some minutes
// after its delivery time. What was given before this relay began is known where
// the run's edge was not there then, or an ask was open.
func (c *clerk) find(id string) (tenant, run string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.seen[id]
	return k.tenant, k.run, ok
}

// ended looks soon at what is open of a run that ended or was lost.
func (c *clerk) ended(run string) {
	at := time.Now().Add(settleDelay)
	c.mu.Lock()
	c.news++
	for key, m := range c.open {
		if m.run == run && m.at.After(at) {
			m.at = at
			c.open[key] = m
		}
	}
	c.mu.Unlock()
	c.poke()
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
	c.mu.Lock()
	news := c.news
	c.mu.Unlock()
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
	if soon := time.Now().Add(settleDelay); c.news != news && next.After(soon) {
		next = soon // it may be this run that ended meanwhile
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
	if finalFact(facts) != nil {
		return time.Time{}, nil
	}
	v := verdict{written: isWritten(facts), silent: len(facts) == 0}
	f.view(func(st *run.State) { v.ended, v.lost = st.Ended(), st.Lost() })
	next, err := c.wait(ctx, m, v)
	if errors.Is(err, errLeft) {
		return time.Time{}, nil
	}
	if err != nil || !next.IsZero() {
		return next, err
	}
	word, reason := v.word(m.EdgeAlive)
	return time.Time{}, c.say(ctx, m, word, reason)
}

// A verdict is what is known of a command without a final fact.
type verdict struct {
	written bool // the edge said so
	silent  bool // it said nothing
	ended   bool // the run is over
	lost    bool // its edge is gone
}

// errLeft says that the command is off the bus while the edge lives and says
// nothing: nobody can carry it out, and nobody knows more.
var errLeft = errors.New("the command has left the bus")

// wait says when to look again, zero when it is time to judge.
func (c *clerk) wait(ctx context.Context, m *matter, v verdict) (time.Time, error) {
	now, end := time.Now(), m.EffectBy.Add(slack)
	if m.EffectBy.IsZero() { // as long as the run; see [clerk.ended]
		if v.lost && v.written {
			return time.Time{}, nil
		}
		end = now.Add(time.Hour)
	}
	if !v.ended && now.Before(m.DeliverBy) {
		var err error
		if m.Name == cmdAnswer && v.silent {
			err = c.finish(ctx, m)
		}
		return m.DeliverBy.Add(slack), err
	}
	p, err := c.r.bus.Presence(ctx, m.run)
	switch {
	case err != nil:
		return time.Time{}, err
	case p == bus.Alive && v.ended: // it leaves, or its death is not noticed yet
		return now.Add(slack), nil
	case now.Before(end) && (p == bus.Alive || v.written && !v.ended):
		return end, nil
	case p == bus.Alive && now.After(end.Add(commandsLeave)):
		return time.Time{}, errLeft
	case p == bus.Alive:
		return now.Add(time.Minute), nil
	}
	return time.Time{}, nil
}

// word says what became of the command.
func (v verdict) word(edgeAlive bool) (event.Fact, string) {
	switch {
	case v.written && v.ended:
		return event.UnknownF, "it was written, and the run ended first"
	case v.written:
		return event.UnknownF, "it was written, and the edge is gone"
	case v.ended:
		return event.Expired, "the run ended before it was delivered"
	case !edgeAlive:
		return event.Expired, "no edge took it in time"
	}
	// The edge was there when the command came. What it did with it may lie in its
	// spool.
	return event.UnknownF, "the edge went away and has not said what it did"
}

// finish puts an answer on the bus that was decided and may not have got there:
// the relay that took it may have died in between.
func (c *clerk) finish(ctx context.Context, m *matter) error {
	a, e, err := findAudit(ctx, c.r.bus, m.tenant, m.run, m.Command)
	if err == nil {
		_, err = c.r.bus.SendCommand(ctx, ofAudit(e, a))
	}
	return err
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
