package dialect

import (
	"bytes"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// Class is what a line means for the bus. It is derived, never a copy of the
// frame's text except the ids.
type Class struct {
	Type        string // ce-type, one of [Types]
	Kind        event.Kind
	Session     string // the frame's own, else the run's main one; "" before it is known
	Task        string // the task that the frame belongs to, "" is none or not known
	Parent      string // tool_use id of the call that a sub-agent's frame belongs to
	TraceParent string
	ContentType string // event.JSON for a frame, "" for raw bytes
	Frame       bool   // the line is a frame
	Ambiguous   bool   // a key stands twice in a way that can change the meaning

	// Ask is the ask that the line is about, by an id of ours: a1, a2, … in the
	// order asked. It is on the request, on each answer and on what closes it by
	// name. Where one line lists several they are joined by commas: [SplitAsks].
	Ask      string
	AskOpens bool // the line is the request, told for the first time or again
}

// Bounds of what a Tracker remembers; the oldest entry goes first.
const (
	maxJoins = 4096 // tool_use → task; a run starts a few tasks a minute
	maxAsks  = 1024 // asks; children have a handful open at once
)

// A Tracker classifies a run's lines in the order they came. It is not safe for
// concurrent use.
type Tracker struct {
	frame     Frame // the last one classified
	dialect   Name
	confirmed bool
	output    Output
	main      mainSession
	tasks     joins // tool_use id, agent id → task id
	asks      asks  // requests of the child that a person answers
	sessions  cache
	taskIDs   cache
	traces    cache
	parents   cache
	codex     *codex // nil where the child is another
}

// NewTracker returns a tracker for a child of dialect d.
func NewTracker(d Name) *Tracker {
	if d != Claude && d != CBC && d != Codex {
		d = Unknown
	}
	t := &Tracker{dialect: d, tasks: joins{max: maxJoins}}
	if d == Codex {
		t.codex = newCodex()
	}
	return t
}

// SetOutput tells the tracker what the child was asked to write: the lines of
// the one-shot formats text and json are no frames, see [OutputOf].
func (t *Tracker) SetOutput(o Output) { t.output = o }

// Dialect is the dialect as given, corrected by the frames seen.
func (t *Tracker) Dialect() Name { return t.dialect }

// Main is the run's main session id, "" until it is known.
func (t *Tracker) Main() string { return t.main.id }

// Classify says what the line (without its LF) is and learns from it. cut says
// that no LF followed: a complete object is still a frame, anything else is raw.
func (t *Tracker) Classify(stream event.Stream, line []byte, cut bool) Class {
	t.frame = Frame{}
	if stream == event.Err {
		return Class{Type: rawTypes[t.dialect].err, Kind: event.Raw, Session: t.main.id}
	}
	if stream == event.Out && (t.output == OutputText || t.output == OutputJSON) {
		return t.raw()
	}
	var ok bool
	if t.frame, ok = Parse(line); ok && t.frame.Type == "" && t.isCodex(stream) {
		return t.classifyCodex(stream, &t.frame)
	}
	if !ok || t.frame.Type == "" && t.dialect == Unknown {
		t.frame = Frame{}
		return t.raw()
	}
	f := t.frame
	if stream == event.Out {
		t.learn(&f)
	}
	c := Class{
		Kind: t.kindOf(stream, &f), Parent: t.parents.text(f.field(keyParent)), ContentType: event.JSON,
		Frame: true, Ambiguous: f.Dup,
	}
	if c.Parent != "" && f.OwnResult() {
		c.Parent = ""
	}
	c.Type = typeOf(t.dialect, f.Type, f.Subtype)
	t.trace(&f, &c)
	c.Session = t.sessionOf(&f, stream)
	c.Task = t.taskOf(&f, &c)
	t.follow(stream, &f, &c)
	return c
}

// isCodex reports whether the frame in hand is read as one of Codex: the child is
// one, or was not known and now shows that it is.
func (t *Tracker) isCodex(stream event.Stream) bool {
	if t.dialect == Unknown && stream == event.Out && isCodex(&t.frame) {
		t.dialect, t.codex = Codex, newCodex()
	}
	if t.dialect != Codex {
		return false
	}
	t.confirmed = t.confirmed || stream == event.Out
	return true
}

// Frame is the frame that the last line was, the zero Frame if it was none. It
// spares whoever looks at the same line next to parse it again; it aliases it.
func (t *Tracker) Frame() *Frame { return &t.frame }

func (t *Tracker) raw() Class {
	return Class{Type: rawTypes[t.dialect].out, Kind: event.Raw, Session: t.main.id}
}

// learn takes from an output frame what later ones are judged by.
func (t *Tracker) learn(f *Frame) {
	if !t.confirmed {
		t.confirm(f)
	}
	t.main.see(f, t.dialect)
}

// confirm corrects the dialect: only Claude Code's init names its version, only
// CodeBuddy stamps its frames.
func (t *Tracker) confirm(f *Frame) {
	switch {
	case f.Type == typeSystem && f.Subtype == subInit && !f.field(keyClaudeVersion).Null():
		t.dialect, t.confirmed = Claude, true
	case !f.field(keyTimestamp).Null():
		t.dialect = CBC
		t.confirmed = f.Type == typeSystem && f.Subtype == subInit
	}
}

// Confirmed reports whether an init frame has named the dialect.
func (t *Tracker) Confirmed() bool { return t.confirmed }

// trace reads _meta: the trace parent, and the session in the baggage.
func (t *Tracker) trace(f *Frame, c *Class) {
	meta := f.field(keyMeta)
	if len(meta) == 0 {
		return
	}
	c.TraceParent = t.traces.text(meta.Get("traceparent"))
}

const baggageKey = "codebuddy.session_id="

// sessionOf binds a frame to a session: its own id, the one in its baggage
// (CodeBuddy's control requests), else the process's main one.
func (t *Tracker) sessionOf(f *Frame, stream event.Stream) string {
	if stream == event.Out {
		if v := f.field(keySession); len(v) > 2 && v.IsString() {
			return t.sessions.text(v)
		}
		if f.Type == typeControlRequest {
			if id := baggageSession(f); id != "" {
				return id
			}
		}
	}
	return t.main.id
}

func baggageSession(f *Frame) string {
	baggage := f.field(keyMeta).Get("baggage").Text()
	for part := range strings.SplitSeq(baggage, ",") {
		if id, ok := strings.CutPrefix(strings.TrimSpace(part), baggageKey); ok {
			id, _, _ = strings.Cut(id, ";")
			return id
		}
	}
	return ""
}

// taskOf finds the task that a frame belongs to.
func (t *Tracker) taskOf(f *Frame, c *Class) string {
	if v := f.field(keyTask); len(v) > 2 && v.IsString() {
		return t.taskIDs.text(v)
	}
	if c.Parent != "" {
		return t.tasks.get(c.Parent)
	}
	if f.Type == typeControlRequest {
		r := f.field(keyRequest)
		if id := r.Get("agent_id").Text(); id != "" {
			if task := t.tasks.get(id); task != "" {
				return task
			}
		}
		return r.Get("task_id").Text()
	}
	return ""
}

// follow keeps the joins and names the asks.
func (t *Tracker) follow(stream event.Stream, f *Frame, c *Class) {
	switch f.Type {
	case typeSystem:
		if c.Task != "" && stream == event.Out {
			t.followTask(f, c.Task)
		}
	case typeUser:
		if stream == event.Out && t.dialect != Claude {
			t.joinAgents(f)
		}
	case typeControlRequest:
		if c.Kind == event.Ask {
			c.Ambiguous = f.AmbiguousControl()
			c.Ask, c.AskOpens = t.asks.opened(f.ControlID(), f.Subtype), true
		} else if stream == event.Out && IsAsk(f.Subtype) {
			c.Ambiguous = true // it has no id: nothing can answer it
		}
	case typeControlResponse:
		if stream == event.In {
			c.Ask = t.asks.of(f.ControlID())
		} else {
			c.Ask = t.asks.pending(f)
			c.AskOpens = c.Ask != ""
		}
	case typeControlCancel:
		c.Ask = t.asks.of(f.ControlID())
	}
}

func (t *Tracker) followTask(f *Frame, task string) {
	switch f.Subtype {
	case "task_started":
		t.tasks.set(task, task) // Claude's agent_id of a local_agent is its task id
		fallthrough
	case "task_progress":
		if v := f.field(keyToolUse); len(v) > 2 {
			t.tasks.set(v.Text(), task)
		}
		for item := range f.field(keyProgress).Items {
			if id := item.Get("agentId"); len(id) > 2 {
				t.tasks.set(id.Text(), task)
			}
		}
	}
}

// OwnResult reports whether a user frame names as its parent the very call whose
// result it is: CodeBuddy 2.117 does so in the main session. Such a frame is no
// sub-agent's.
func (f *Frame) OwnResult() bool {
	parent := f.field(keyParent)
	if f.Type != typeUser || len(parent) <= 2 || !parent.IsString() {
		return false
	}
	for item := range f.Content {
		if bytes.Equal(item.Get("tool_use_id"), parent) {
			return true
		}
	}
	return false
}

var taskIDMark = []byte("task_id: agent-")

// joinAgents reads "task_id: agent-…" from the tool_result that answers the call
// of a background Agent: CodeBuddy links the two nowhere else.
func (t *Tracker) joinAgents(f *Frame) {
	if !bytes.Contains(f.Raw, taskIDMark) {
		return
	}
	for item, typ := range f.Content {
		if typ != "tool_result" {
			continue
		}
		if id := AgentTask(item.Get("content")); id != "" {
			t.tasks.set(item.Get("tool_use_id").Text(), id)
		}
	}
}

// AgentTask finds the task id that a CodeBuddy Agent's tool_result announces in
// its text, "" where there is none.
func AgentTask(content Value) string {
	text := content.Text()
	if content.IsArray() {
		for item := range content.Items {
			if text = item.Get("text").Text(); strings.Contains(text, "task_id: agent-") {
				break
			}
		}
	}
	_, rest, ok := strings.Cut(text, "task_id: ")
	if !ok || !strings.HasPrefix(rest, "agent-") {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end < 0 {
		end = len(rest)
	}
	return rest[:end]
}
