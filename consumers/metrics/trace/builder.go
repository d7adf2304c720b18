package trace

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// DefaultSpans is how many spans a run has at most, where nothing else is set.
const DefaultSpans = 10_000

// Bounds of what is open at once in one run, beside those of [run.State].
const (
	maxOpen  = 1024 // tools, chats and sub-agents, each
	maxCalls = 4096 // calls whose caller is remembered
	maxDone  = 1024 // tasks that are known to be out already

	// A user turn goes out when two later ones have begun and nothing of it is open,
	// at the latest when this many have begun: the fold forgets turns, too.
	turnRest, turnForced = 2, 64
)

// BuilderOptions say what a run's trace holds.
type BuilderOptions struct {
	MaxSpans int // of one run, the run's own and its job's not counted; 0 is [DefaultSpans]
	// Content puts texts of the conversation on the spans: arguments and results of
	// tools, what is asked, descriptions. Without it only their lengths are there.
	Content bool
	// Sample says whether a trace is sent at all; nil is [Recorded].
	Sample func(Context) bool
	// Facts returns the facts about the run that its edge did not write. It is called
	// where who gave an answer is not known yet; nil knows none.
	Facts func(tenant, run string) []*event.Event
}

// Recorded reports whether whoever began the trace records it: the sampler
// parentbased_always_on of OpenTelemetry.
func Recorded(c Context) bool { return c.Flags&sampled != 0 }

// A Builder folds the events of one run into its spans. What it returns follows from
// the events alone. It is not safe for concurrent use.
type Builder struct {
	o           BuilderOptions
	run, tenant string
	st          *run.State
	join        event.Joiner
	last        uint64
	part        int

	ctx        Context
	started    event.Started
	first, now time.Time // of the first and the last event
	ended      bool

	out            []Span
	spans, dropped int
	root           happenings

	turns    map[int]*turn // that are not out yet
	lastTurn int           // the latest one begun
	nextOut  int           // the first one that is not out
	tools    table[*tool]
	chats    table[*chat]  // by the path of who speaks
	agents   table[*agent] // by the call that made them, of codex by their thread
	calls    table[call]   // by tool_use id or item
	asked    table[time.Time]
	tasksOut table[bool]  // tasks that are out
	asksOut  table[bool]  // asks that are out
	closed   int          // asks, as last looked at
	waiting  int          // of them those whose outcome is to come
	actors   table[actor] // by command
}

// turn is what is collected of a user turn until it is out.
type turn struct {
	happenings
	links        []Context
	linksDropped uint32
	session      string
	request      string // model
	response     string
}

// owner is who does something: a span, and the turn that it is of (0 for none).
type owner struct {
	path string
	turn int
}

// call is what is remembered of a tool call.
type call struct {
	by          owner
	agent, desc string // of one that starts a sub-agent
	task        string // that the call's result names
}

// NewBuilder returns a builder that knows nothing of its run yet.
func NewBuilder(runID string, o BuilderOptions) *Builder {
	if o.MaxSpans <= 0 {
		o.MaxSpans = DefaultSpans
	}
	if o.Sample == nil {
		o.Sample = Recorded
	}
	return &Builder{
		o: o, run: runID, st: run.New(runID), ctx: ContextOf(runID, ""), turns: map[int]*turn{}, nextOut: 1,
		tools: table[*tool]{max: maxOpen}, chats: table[*chat]{max: maxOpen}, agents: table[*agent]{max: maxOpen}, calls: table[call]{max: maxCalls},
		asked: table[time.Time]{max: maxOpen}, tasksOut: table[bool]{max: maxDone}, actors: table[actor]{max: maxDone}, asksOut: table[bool]{max: maxDone},
	}
}

// LastSeq is the seq of the last event applied.
func (b *Builder) LastSeq() uint64 { return b.last }

// Ended reports whether the run's last event was applied.
func (b *Builder) Ended() bool { return b.ended }

// Context is where the run's spans belong.
func (b *Builder) Context() Context { return b.ctx }

// Apply takes the next event of the run and returns the spans that are finished by
// it. One that was seen before changes nothing. Facts from outside the run's sequence
// (Seq 0) may come at any time.
func (b *Builder) Apply(e *event.Event) []Span {
	b.out = nil
	if e.Seq == 0 {
		b.fact(e)
		return nil
	}
	if b.ended || e.Seq < b.last || e.Seq == b.last && e.Part.I <= b.part {
		return nil
	}
	b.last, b.part = e.Seq, e.Part.I
	whole, _, broken := b.join.Add(e)
	if broken != nil {
		b.whole(broken)
	}
	if whole != nil {
		b.whole(whole)
	}
	return b.out
}

// Lost returns the spans of all that is open, and the run's own: its edge is gone,
// and no longer waited for. A builder is of no use after it.
func (b *Builder) Lost() []Span {
	b.out = nil
	if !b.ended && b.last > 0 {
		b.ended = true
		b.finish()
	}
	return b.out
}

// whole takes an event that is no part of another.
func (b *Builder) whole(e *event.Event) {
	if !e.Time.IsZero() {
		b.now = e.Time
		if b.first.IsZero() {
			b.first = e.Time
		}
	}
	if b.tenant == "" {
		b.tenant = e.Tenant
	}
	if e.Type == event.TypeStarted && json.Unmarshal(e.Data, &b.started) == nil {
		b.ctx = ContextOf(b.run, e.TraceParent)
	}
	var f dialect.Frame
	parsed := false
	if e.ContentType == event.JSON && e.Stream != event.Edge && e.Stream != event.Err && !strings.HasSuffix(e.Type, ".stream_event") {
		f, parsed = dialect.Parse(e.Data)
	}
	before := b.st.Repeats()
	if parsed {
		b.st.ApplyParsed(e, &f)
	} else {
		b.st.Apply(e)
	}
	b.newTurns(e)
	switch {
	case e.Stream == event.Edge:
		b.edge(e)
	case parsed && e.Stream == event.Out && b.st.Repeats() == before:
		b.frame(e, &f)
	}
	b.interrupts(e)
	b.asksClosed()
	if _, gone := b.st.Exit(); gone {
		b.ended = true
		b.finish()
		return
	}
	b.turnsOut()
}

// frame takes a line of the child that was not seen before.
func (b *Builder) frame(e *event.Event, f *dialect.Frame) {
	if f.Type == "" {
		if m, ok := f.RPC(); ok && b.st.Dialect() == dialect.Codex {
			b.codex(e, &m)
		}
		return
	}
	switch f.Type {
	case "assistant":
		b.assistant(e, f)
	case "user":
		b.user(e, f)
	case "result":
		b.chatsOver(e.Session)
	case "system":
		b.system(e, f)
	}
}

// newTurns notes the user turns that an event began.
func (b *Builder) newTurns(e *event.Event) {
	n, ok := b.st.LastTurn()
	for ok && b.lastTurn < n {
		b.lastTurn++
		b.turns[b.lastTurn] = &turn{session: e.Session, request: b.st.Model()}
	}
}

// turnsOut sends off the turns that are over.
func (b *Builder) turnsOut() {
	for n := b.nextOut; n <= b.lastTurn-turnRest; n++ {
		if b.turns[n] == nil {
			if n == b.nextOut {
				b.nextOut++
			}
			continue
		}
		v, kept := b.st.Turn(n)
		if kept && v.State == "open" && n > b.lastTurn-turnForced {
			continue
		}
		b.turnOut(n)
	}
}

// speaker is who a frame of claude or cbc is of: a sub-agent, or the main loop of a
// session in its turn.
func (b *Builder) speaker(e *event.Event, parent string) owner {
	if parent != "" {
		return b.agent(parent, e).self()
	}
	return b.main(e.Session)
}

// main is the turn that a session works on, else the latest, else the run itself.
func (b *Builder) main(session string) owner {
	for _, r := range b.st.Rounds() {
		if r.Session == session && r.Turn > 0 {
			return turnOwner(r.Turn)
		}
	}
	if n, ok := b.st.LastTurn(); ok {
		return turnOwner(n)
	}
	return owner{path: runPath}
}

const (
	runPath = "run"
	jobPath = "job"
)

func turnOwner(n int) owner { return owner{turnPath(n), n} }

func turnPath(n int) string { return "turn/" + strconv.Itoa(n) }

// happen notes an event on the turn that is worked on, or on the run.
func (b *Builder) happen(session, name string, a attrs) {
	if t := b.turns[b.main(session).turn]; t != nil {
		t.add(name, b.now, a)
		return
	}
	b.root.add(name, b.now, a)
}

// emit gives a span its ids and sends it off. A run has a bound of spans: what is
// only a leaf of the trace may use three quarters of it.
func (b *Builder) emit(s Span, parent string, leaf bool) {
	if !b.o.Sample(b.ctx) {
		return
	}
	limit := b.o.MaxSpans
	if leaf {
		limit -= limit / 4
	}
	if b.spans >= limit {
		b.dropped++
		return
	}
	b.spans++
	s.Parent = SpanOf(b.run, parent)
	b.send(s)
}

func (b *Builder) send(s Span) {
	s.Context, s.ID = b.ctx, SpanOf(b.run, s.Path)
	var own attrs
	own.str("cbcast.run.id", b.run)
	own.str("cbcast.tenant", b.tenant)
	s.Attrs = append(own, s.Attrs...)
	s.finish()
	b.out = append(b.out, s)
}

// IsLost reports whether the run's edge is gone and has not come back.
func (b *Builder) IsLost() bool { return b.st.Lost() }
