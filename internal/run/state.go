package run

import (
	"bytes"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Bounds. What no longer fits is counted in [Dropped], the oldest finished first.
const (
	maxTurns       = 256  // a long chat; totals go on
	maxTasks       = 512  // a run of an hour starts some dozens
	maxAgents      = 1024 // of one workflow
	maxAsks        = 256  // closed ones go first
	maxSessions    = 64
	maxCommands    = 128
	maxInterrupts  = 64
	maxWarnings    = 64
	maxTypes       = 128  // ce-types are from a fixed list, shorter than this
	maxSubagents   = 256  // groups of frames by parent_tool_use_id
	maxUUIDs       = 4096 // a repeat comes within a turn or after a compaction
	maxCalls       = 4096 // tool_use ids whose owner is remembered
	maxLabels      = 256  // workflow names by tool_use id
	maxPending     = 1024 // user messages not yet covered by a turn
	maxModels      = 64
	maxCheckpoints = 64      // the latest are the ones that are gone back to
	maxText        = 400     // bytes of any text taken from a frame
	maxResultText  = 4 << 10 // of the last result
	maxStructured  = 64 << 10
	maxDocument    = 8 << 20 // output of a one-shot run in format json
)

// State is one run, folded from its events. It is not safe for concurrent use.
// The zero State is not ready: use [New].
type State struct {
	parsed *dialect.Frame // of the event in hand, nil where the caller did not parse it

	run, tenant string
	dialect     dialect.Name
	started     event.Started
	startedAt   time.Time
	childVer    string
	model, mode string

	now  time.Time // of the last event
	last uint64    // its seq
	part int       // the last part of it
	join event.Joiner

	main     string
	sessions []*SessionView

	turns      []*turn
	turnCount  int
	rounds     map[string]*round // open or about to open, by session
	pending    []input           // user messages that no turn covers yet
	inputsSeen bool
	results    int    // rounds that a result ended
	closed     int    // rounds that ended without one
	lastResult uint64 // seq
	woke       int    // turn whose task ended since the last result

	tasks      map[string]*task
	taskOrder  []string
	hasList    map[string]bool // task ids seen in a background_tasks_changed
	labels     store           // tool_use id → workflow label
	asks       []*ask
	askCount   int // ids given
	asksClosed int
	groups     map[string]*SubagentView
	groupList  []string
	agentCalls store // task id of a CodeBuddy Agent → tool_use id
	calls      store // tool_use id → owner call, "" is main
	messages   store // uuids of user messages
	requests   store // ids of the parent's control requests
	uuids      store
	changes    store // request ids of changes that are not answered yet
	denials    store // tool_use ids that a result listed as denied
	inputs     store // seqs of user messages by uuid

	checkpoints []*CheckpointView
	noRewind    bool              // the child keeps no files to go back to
	lacks       map[string]string // commands that the child said it does not know, and how

	shut bool // the agent was denied a call because its stdin is closed

	use        usage
	result     *ResultView
	interrupts []*interrupt
	commands   []*CommandView
	warnings   []Warning
	counts     Counts

	frames  int    // lines on stdout that are frames
	tail    uint64 // seq of a cut tail on stdout
	quest   questions
	caps    *event.Capabilities // nil while no fact said them
	doc     []byte              // raw stdout, while it may be a document
	docOver bool
	ending  evidence
	exit    *ExitView
	lost    *LostView
	dropped Dropped
	codex   *codexState // nil of any other child
}

// New returns the state of a run of which nothing is known yet.
func New(runID string) *State {
	return &State{
		run: runID, dialect: dialect.Unknown, rounds: map[string]*round{}, tasks: map[string]*task{},
		hasList: map[string]bool{}, groups: map[string]*SubagentView{},
		labels: store{max: maxLabels}, calls: store{max: maxCalls}, agentCalls: store{max: maxLabels}, uuids: store{max: maxUUIDs}, requests: store{max: maxPending}, messages: store{max: maxPending},
		changes: store{max: maxPending}, denials: store{max: maxPending}, inputs: store{max: maxPending},
		counts: Counts{Frames: map[string]int{}, Types: map[string]int{}},
		join:   event.Joiner{},
		use:    usage{sessions: map[string]totals{}, models: map[string]ModelUsage{}},
	}
}

// Apply folds one event. Events of the run come in the order of their seq, facts
// from CTL at any time. An event that was applied before (its seq is not new)
// changes nothing. e and its data may be reused after the call.
func (s *State) Apply(e *event.Event) {
	if e.Seq == 0 {
		s.applyCTL(e)
		return
	}
	if e.Seq < s.last || e.Seq == s.last && e.Part.I <= s.part {
		return
	}
	if s.last > 0 && e.Seq > s.last+1 {
		s.counts.Missing += e.Seq - s.last - 1
	}
	s.last, s.part = e.Seq, e.Part.I
	whole, _, broken := s.join.Add(e)
	if broken != nil {
		s.applyWhole(broken)
	}
	if whole != nil {
		s.applyWhole(whole)
	}
}

func (s *State) applyWhole(e *event.Event) {
	if !e.Time.IsZero() {
		s.now = e.Time
	}
	if s.tenant == "" {
		s.tenant = e.Tenant
	}
	s.counts.Redacted += len(e.Redacted)
	if len(e.Session) > maxID || len(e.Task) > maxID {
		short := *e
		short.Session, short.Task = boundID(e.Session), boundID(e.Task)
		e = &short
	}
	if e.Stream == event.Edge {
		s.applyEdge(e)
		return
	}
	s.counts.Frames[stream(e.Stream)]++
	s.countType(e.Type)
	switch e.Stream {
	case event.Out:
		s.applyOut(e)
	case event.In:
		s.applyIn(e)
	case event.Err, event.Edge:
	}
}

// ApplyParsed is [State.Apply] for an event whose data the caller has parsed
// already. f is used only where it lies in e.Data itself: not where data was
// masked, or is put together from chunks.
func (s *State) ApplyParsed(e *event.Event, f *dialect.Frame) {
	s.parsed = f
	s.Apply(e)
	s.parsed = nil
}

func (s *State) frame(data []byte) (dialect.Frame, bool) {
	if p := s.parsed; p != nil && len(data) > 0 && len(p.Raw) == len(data) && &p.Raw[0] == &data[0] {
		return *p, true
	}
	return dialect.Parse(data)
}

// stream keeps the keys of Counts.Frames to the known ones.
func stream(s event.Stream) string {
	switch s {
	case event.Out, event.Err, event.In:
		return string(s)
	default:
		return "other"
	}
}

func (s *State) countType(ceType string) {
	name := strings.TrimPrefix(ceType, event.TypePrefix)
	if _, rest, ok := strings.Cut(name, "."); ok {
		name = rest
	}
	if _, ok := s.counts.Types[name]; !ok && len(s.counts.Types) >= maxTypes {
		name = "other"
	}
	s.counts.Types[clip(name, maxText)]++
}

// applyOut folds one line of the child's stdout.
func (s *State) applyOut(e *event.Event) {
	if e.ContentType != event.JSON && e.ContentType != event.NDJSON {
		s.applyRaw(e)
		return
	}
	s.frames++
	s.doc = nil
	if d := dialect.FromType(e.Type); d != dialect.Unknown {
		s.dialect = d
	}
	if e.Session != "" && s.dialect != dialect.Codex { // whose threads may have no name yet
		s.sessionSeen(e.Session, e.Seq)
	}
	if strings.HasSuffix(e.Type, ".stream_event") {
		s.spoke(e.Seq, e.Session, boundID(e.Parent))
		return
	}
	f, ok := s.frame(e.Data)
	if !ok {
		return
	}
	if f.Dup {
		s.counts.Ambiguous++
	}
	if f.Type == "" && s.dialect == dialect.Codex {
		s.codexOut(e, &f)
		return
	}
	switch f.Type {
	case "system":
		s.system(e, &f)
	case "assistant":
		s.assistant(e, &f)
	case "user":
		s.user(e, &f)
	case "result":
		s.resultFrame(e, &f)
	case "control_request":
		s.childRequest(e, &f)
	case "control_response":
		s.ack(e, &f)
	case "control_cancel_request":
		s.cancelAsk(e, &f)
	case "command_lifecycle":
		s.lifecycle(e, &f)
	case "conversation_reset":
		s.reset(&f, e.Seq)
	case "file-history-snapshot":
		s.snapshot(e, &f)
	case "error":
		s.errorFrame(e, &f)
	}
}

// applyRaw keeps what may be the document of a one-shot run, and remembers a tail.
func (s *State) applyRaw(e *event.Event) {
	s.tail = 0
	if e.Cut && len(e.Data) > 0 {
		s.tail = e.Seq
	}
	if s.frames > 0 || s.docOver || s.started.Output == string(dialect.OutputText) {
		return
	}
	if len(s.doc) == 0 && !mayBeDocument(e.Data) || len(s.doc)+len(e.Data) > maxDocument {
		s.doc, s.docOver = nil, true
		return
	}
	s.doc = append(s.doc, e.Data...)
	if !e.Cut {
		s.doc = append(s.doc, '\n')
	}
}

// mayBeDocument reports whether output that begins with line can be the JSON of a
// one-shot run. Blank lines before it do not matter.
func mayBeDocument(line []byte) bool {
	line = bytes.TrimLeft(line, " \t\r\n")
	return len(line) == 0 || line[0] == '{' || line[0] == '['
}

func (s *State) system(e *event.Event, f *dialect.Frame) {
	switch f.Subtype {
	case "init":
		s.initFrame(e, f)
	case "status":
		s.status(e, f)
	case "task_started":
		s.taskStarted(e, f)
	case "task_progress":
		s.taskProgress(e, f)
	case "task_updated":
		s.taskUpdated(e, f)
	case "task_notification":
		s.taskNotification(e, f)
	case "background_tasks_changed":
		s.tasksChanged(e, f)
	case "api_retry":
		s.counts.Retries++
	case "hook_response":
		// Exit code 2 is how a command hook of Claude Code blocks.
		if f.Get("outcome").Text() == "blocked" || f.Get("exit_code").Int() == 2 {
			s.hookDenied(e.Seq, f.Get("hook_event").Text())
		}
	case "informational":
		if f.Get("prevent_continuation").True() {
			s.hookDenied(e.Seq, clip(f.Get("content").Text(), maxText))
		}
	}
}

func (s *State) warn(seq uint64, what, text string) {
	if len(s.warnings) < maxWarnings {
		s.warnings = append(s.warnings, Warning{seq, what, clip(text, maxText)})
	}
}
