package run

import (
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Bounds of what is kept of a codex app-server.
const (
	maxThreads = 1024 // of a run; one of a sub-agent each
	maxOpen    = 1024 // items of one turn that have not ended
	maxSteps   = 64   // of a plan
)

// codexState is what a run of codex app-server has beside what all runs have.
type codexState struct {
	threads map[string]*thread
	order   []*thread // as first seen
	asks    []*codexAsk
	sandbox string
	noEnds  bool // the host does not want to be told of the end of a turn
}

// thread is one conversation: the host's own, or a sub-agent's. Codex announces a
// sub-agent's thread by nothing but its first frame; what it is comes with an item
// of its parent right after. Until then it is kept, and neither shown nor counted.
type thread struct {
	id     string
	host   bool
	task   *task  // a sub-agent's, once it has a name
	parent *turn  // the user turn that a sub-agent works for
	path   string // of a sub-agent
	model  string
	turn   *codexTurn // that runs, nil between turns
	last   *codexTurn // the latest one
	turns  int
	calls  int
	tool   string // the last one called
	said   string // the last message
	err    string // of the last turn

	startedMS, endedMS int64  // Unix milliseconds, the child's clock
	counted            bool   // total was seen
	total              Tokens // as last told
	used               Tokens // in this run
}

// codexTurn is one turn of a thread.
type codexTurn struct {
	id, thread string
	work       *turn // the user turn it belongs to, nil of a thread without a name
	first      uint64
	open       map[string]openItem
	order      []string // of open
	items      ItemCounts
	plan       []PhaseView
	failed     string // an error after which nothing is tried again
}

// openItem is an item that has begun.
type openItem struct {
	typ     string
	text    string // the command, the files, the tool
	seq     uint64
	process string // of a command; the server of an MCP call
	changes []byte // of a file change, while they are short
	long    bool   // they are not
}

// cx returns the codex part of the state.
func (s *State) cx() *codexState {
	if s.codex == nil {
		s.codex = &codexState{threads: map[string]*thread{}}
	}
	return s.codex
}

// thread finds or makes a thread, nil for no id.
func (s *State) thread(id string) *thread {
	x := s.cx()
	id = boundID(id)
	if t := x.threads[id]; t != nil || id == "" {
		return t
	}
	if len(x.order) >= maxThreads {
		x.forget(x.least(), s)
	}
	t := &thread{id: id}
	x.threads[id] = t
	x.order = append(x.order, t)
	return t
}

// least is the thread that is missed least: one that rests, then any but the host's.
func (x *codexState) least() *thread {
	best := x.order[0]
	for _, t := range x.order {
		switch {
		case t.host:
		case t.turn == nil:
			return t
		case best.host:
			best = t
		}
	}
	return best
}

// forget drops a thread. What a sub-agent that is dropped at work comes to is not
// known.
func (x *codexState) forget(t *thread, s *State) {
	delete(x.threads, t.id)
	is := func(have *thread) bool { return have == t }
	x.order = slices.DeleteFunc(x.order, is)
	if t.parent != nil {
		t.parent.agents = slices.DeleteFunc(t.parent.agents, is)
	}
	if k := t.task; k != nil && !k.ended {
		k.end("unknown", s.last, s.now, true)
	}
}

// hostThread marks a thread as the host's own; the first one is main.
func (s *State) hostThread(t *thread, seq uint64) {
	if t == nil || t.host || t.task != nil {
		return
	}
	t.host = true
	if s.assumeMain(t.id, seq); s.main != t.id {
		s.sessionSeen(t.id, seq).Role = "concurrent"
	}
}

// codexOut folds a frame of the child.
func (s *State) codexOut(e *event.Event, f *dialect.Frame) {
	m, ok := f.RPC()
	if !ok {
		return
	}
	switch m.Kind {
	case dialect.RPCResponse:
		s.codexResponse(e, &m)
	case dialect.RPCRequest:
		s.codexRequest(e, f, &m)
	case dialect.RPCNotification:
		s.codexNote(e, &m)
	}
}

func (s *State) codexNote(e *event.Event, m *dialect.RPC) {
	switch m.Method {
	case dialect.MethodThreadStarted:
		if m.Params.Get("thread").Get("parentThreadId").Null() {
			s.hostThread(s.threadOf(m), e.Seq)
		}
		s.threadInfo(m.Params.Get("thread"), m.Params)
	case dialect.MethodThreadStatus:
		s.threadStatus(e, s.threadOf(m), m.Params.Get("status").Get("type").Text())
	case "thread/closed":
		s.threadStatus(e, s.threadOf(m), "notLoaded")
	case dialect.MethodTurnStarted:
		s.turnStarted(e, m)
	case dialect.MethodTurnCompleted:
		s.turnCompleted(e, m)
	case dialect.MethodItemStarted, dialect.MethodItemCompleted:
		s.codexItem(e, m)
	case dialect.MethodPlan:
		if t := s.codexTurn(m); t != nil {
			t.setPlan(m.Params.Get("plan"))
		}
	case dialect.MethodTokens:
		s.codexTokens(m)
	case dialect.MethodResolved:
		s.codexResolved(e, m)
	case dialect.MethodReview:
		if m.Params.Get("review").Get("status").Text() == "denied" {
			s.codexDenied(e.Seq, m, byReview, m.Params.Get("action").Get("command").Text())
		}
	case "hook/completed":
		if run := m.Params.Get("run"); run.Get("status").Text() == "blocked" {
			s.codexDenied(e.Seq, m, byHook, run.Get("eventName").Text())
		}
	case "thread/settings/updated":
		if v := m.Params.Get("threadSettings"); s.threadOf(m).isMain(s) {
			s.settings(v.Get("model"), v.Get("approvalPolicy"), v.Get("sandboxPolicy"))
		}
	case dialect.MethodError:
		s.codexError(e, m)
	}
}

func (s *State) threadOf(m *dialect.RPC) *thread { return s.thread(m.Thread().Text()) }

func (t *thread) isMain(s *State) bool { return t != nil && t.id == s.main }

// codexTurn finds the turn that a frame is about, nil where it is not known.
func (s *State) codexTurn(m *dialect.RPC) *codexTurn {
	t := s.threadOf(m)
	id := boundID(m.Turn().Text())
	switch {
	case t == nil || id == "":
		return nil
	case t.turn != nil && t.turn.id == id:
		return t.turn
	case t.last != nil && t.last.id == id:
		return t.last
	}
	return nil
}

// codexDenied adds a refusal to the turn that a frame is about.
func (s *State) codexDenied(seq uint64, m *dialect.RPC, what, text string) {
	s.counts.Denied++
	if t := s.codexTurn(m); t != nil && t.work != nil {
		t.work.ev.add(Denied, Evidence{seq, what, text})
	}
}

// codexResponse reads the answer to a request of the host.
func (s *State) codexResponse(e *event.Event, m *dialect.RPC) {
	if v := m.Result.Get("userAgent"); v.IsString() {
		s.childVer = agentVersion(v.Text())
	}
	if th := m.Result.Get("thread"); th.IsObject() && m.Result.Get("approvalPolicy") != nil {
		s.hostThread(s.threadOf(m), e.Seq)
		s.threadInfo(th, m.Result)
	}
	id := boundID(string(m.ID))
	found := s.inputAnswered(e, id, m)
	for _, in := range s.interrupts {
		if id == "" || in.id != id || in.AckedSeq != 0 {
			continue
		}
		in.AckedSeq = e.Seq
		switch {
		case m.Error != nil:
			in.Error = clip(m.Error.Get("message").Text(), maxText)
		case string(m.Result.Get("terminated")) == "false":
			in.Error = "there was no such process"
		}
		return
	}
	wrapped := s.started.Source == "" // then every line of stdin is on record
	if !found && (wrapped || len(s.requests.m) > 0) && !s.requests.has(id) {
		s.counts.AcksUnknown++
		s.warn(e.Seq, "stray_response", id)
	}
}

// threadInfo takes from a thread's description what is shown of the main one.
func (s *State) threadInfo(th, settings dialect.Value) {
	t := s.thread(th.Get("id").Text())
	if t == nil {
		return
	}
	if v := th.Get("model"); v.IsString() {
		t.model = clip(v.Text(), maxText)
	}
	if !t.isMain(s) {
		return
	}
	if v := th.Get("cliVersion").Text(); v != "" {
		s.childVer = clip(v, maxText)
	}
	s.settings(settings.Get("model"), settings.Get("approvalPolicy"), settings.Get("sandbox"))
}

func (s *State) settings(model, approval, sandbox dialect.Value) {
	if model.IsString() {
		s.model = clip(model.Text(), maxText)
	}
	for key := range approval.Fields { // {"granular":{…}}
		s.mode = clip(string(key), maxText)
	}
	if approval.IsString() {
		s.mode = clip(approval.Text(), maxText)
	}
	switch sandbox.Get("type").Text() {
	case "readOnly":
		s.cx().sandbox = "read-only"
	case "workspaceWrite":
		s.cx().sandbox = "workspace-write"
	case "dangerFullAccess":
		s.cx().sandbox = "danger-full-access"
	}
}

// agentVersion finds the version in "host/0.153.4 (Debian …) …".
func agentVersion(agent string) string {
	agent, _, _ = strings.Cut(agent, " (")
	return clip(agent[strings.LastIndexByte(agent, '/')+1:], maxText)
}

// codexError reads an error of a turn. One that is tried again ends nothing.
func (s *State) codexError(e *event.Event, m *dialect.RPC) {
	if m.Params.Get("willRetry").True() {
		s.counts.Retries++
		return
	}
	text := clip(m.Params.Get("error").Get("message").Text(), maxText)
	if t := s.codexTurn(m); t != nil {
		t.failed = text
	} else {
		s.warn(e.Seq, "error", text)
	}
}
