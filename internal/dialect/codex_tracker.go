package dialect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

// codex is what a [Tracker] remembers of a codex app-server.
type codex struct {
	sent    joins // id of a request of the host → its method, a space, its thread
	asked   joins // id of an open request of the child → its method
	threads joins // thread → the item that spawned it, [hostThread] for one of the host
	items   []codexItem
	input   Input // of the last line of the host
}

// codexItem is a command that has not ended.
type codexItem struct {
	thread, turn, id string
	background       bool // its turn has ended
}

// maxItems bounds the commands remembered; the oldest goes first.
const maxItems = 1024

// hostThread marks a thread that the host started or resumed; noCall one of a
// sub-agent whose spawning call is not known. No item has such an id.
const (
	hostThread = "\x00host"
	noCall     = "\x00"
)

func newCodex() *codex {
	return &codex{sent: joins{max: maxAsks}, asked: joins{max: maxAsks}, threads: joins{max: maxJoins}}
}

// An Input says what becomes of a line of the host.
type Input struct {
	// Control messages are recorded as they are. Of any other line only what
	// follows is: it may hold prompts, settings or secrets.
	Control bool
	Type    string // user, other
	UUID    string // of a message
	Session string // that it names
	Request string // exact text of the request's id (codex, and a steer)
}

// Input is what the last line, one of the host, is: the zero Input where it is no
// frame.
func (t *Tracker) Input() Input {
	if t.dialect == Codex && t.frame.Raw != nil && !t.frame.has(keyType) {
		return t.codex.input
	}
	f := &t.frame
	in := Input{Type: "other", UUID: f.Get("uuid").Text(), Session: f.Get("session_id").Text()}
	switch f.Type {
	case typeControlRequest, typeControlResponse, typeControlCancel:
		if in.Control = f.Subtype != subSteer; !in.Control { // it holds what a person says
			in.Request = string(f.ControlID())
		}
	case typeUser:
		in.Type = typeUser
	case "":
		if f.Raw == nil {
			return Input{}
		}
	}
	return in
}

// isCodex reports whether an output frame can only be one of a codex app-server.
func isCodex(f *Frame) bool {
	m, ok := f.RPC()
	if !ok {
		return false
	}
	if m.Kind == RPCResponse {
		return m.Result.Get("codexHome").IsString() && m.Result.Get("userAgent").IsString()
	}
	return codexTypes()[m.Method] != "" && (f.has(keyEmitted) || IsAskMethod(m.Method))
}

// classifyCodex is [Tracker.Classify] for a frame of Codex.
func (t *Tracker) classifyCodex(stream event.Stream, f *Frame) Class {
	c := Class{Kind: event.Msg, ContentType: event.JSON, Frame: true, Ambiguous: f.Dup, Session: t.main.id}
	m, ok := f.RPC()
	if !ok {
		c.Type = rawTypes[Codex].other
		t.codex.input = Input{Type: "other"}
		return c
	}
	c.Type = codexTypeOf(&m)
	if m.Kind != RPCNotification && m.ID == nil {
		c.Ambiguous = true // nobody can answer it, and it answers nobody
	}
	if stream == event.In {
		t.codexIn(&m, f, &c)
	} else {
		t.codexOut(&m, f, &c)
	}
	return c
}

// codexIn reads a line of the host.
func (t *Tracker) codexIn(m *RPC, f *Frame, c *Class) {
	x := t.codex
	thread := t.sessions.text(m.Thread())
	x.input = Input{Control: true, Type: "other", Session: thread, Request: string(m.ID)}
	switch m.Kind {
	case RPCNotification:
		c.Kind = event.Cmd
		x.input.Control = m.Method == "initialized"
	case RPCRequest:
		c.Kind = event.Cmd
		x.sent.set(string(m.ID), m.Method+" "+thread)
		x.input.Control = plainRequest(m.Method)
		if m.Method == MethodTurnStart || m.Method == MethodTurnSteer {
			c.Kind = event.Msg
			x.input.Type, x.input.UUID = typeUser, m.Params.Get("clientUserMessageId").Text()
		}
	case RPCResponse:
		method := x.asked.get(string(m.ID))
		x.input.Control = method != "account/chatgptAuthTokens/refresh" && method != "attestation/generate" && (method != secretInput || saysNothing(m))
		if !IsAskMethod(method) && method != secretInput {
			x.asked.remove(string(m.ID))
			return
		}
		c.Kind = event.Ask
		c.Ambiguous = c.Ambiguous || f.AmbiguousRPC(m)
		c.Ask = t.asks.of(m.ID)
	}
	if thread != "" {
		t.codexThread(thread, c)
	}
}

// plainRequest reports whether a request of the host holds no prompt, no setting
// and no secret: it is recorded as it is.
func plainRequest(method string) bool {
	switch method {
	case MethodInitialize, MethodTurnInterrupt, "model/list", "collaborationMode/list", "account/read", "account/rateLimits/read",
		"thread/read", "thread/list", "thread/loaded/list", "thread/turns/list", "thread/items/list", "thread/archive", "thread/unarchive",
		"thread/unsubscribe", "thread/delete", "thread/compact/start", "thread/rollback", "thread/revert", "thread/name/set",
		"thread/backgroundTerminals/list", "thread/backgroundTerminals/clean", MethodTerminate,
		"skills/list", "mcpServerStatus/list", "thread/goal/get", "thread/goal/clear":
		return true
	}
	return false
}

// codexOut reads a line of the child.
func (t *Tracker) codexOut(m *RPC, f *Frame, c *Class) {
	x := t.codex
	thread := t.sessions.text(m.Thread())
	switch m.Kind {
	case RPCResponse:
		c.Kind = event.Cmd
		method, of, known := strings.Cut(x.sent.get(string(m.ID)), " ")
		x.sent.remove(string(m.ID))
		if thread != "" && opensThread(method, known, m.Result) {
			t.hostThread(thread)
		}
		if thread == "" {
			thread = of
		}
	case RPCRequest:
		t.codexRequest(m, f, c)
	case RPCNotification:
		switch m.Method {
		case MethodResolved:
			id := rpcID(m.Params.Get("requestId"))
			c.Kind = event.Ask
			c.Ask = t.asks.of(id)
			x.asked.remove(string(id))
		case MethodThreadStarted:
			if m.Params.Get("thread").Get("parentThreadId").Null() {
				t.hostThread(thread)
			}
		case MethodTurnStarted:
			if t.main.id == "" {
				t.hostThread(thread)
			}
		}
	}
	if thread != "" {
		t.codexThread(thread, c)
	}
	if m.Kind == RPCNotification {
		x.follow(m, thread, c)
	}
}

// opensThread reports whether the answer to a request gives the host a thread.
// Where the request was not seen, as on a tap, the answer's form says so.
func opensThread(method string, known bool, result Value) bool {
	switch method {
	case MethodThreadStart, MethodThreadResume, MethodThreadFork:
		return true
	}
	return !known && !result.Get("approvalPolicy").Null()
}

// hostThread notes a thread of the host; the first one is the main session.
func (t *Tracker) hostThread(thread string) {
	if thread == "" {
		return
	}
	t.codex.threads.set(thread, hostThread)
	if t.main.id == "" && len(thread) <= maxJoinID {
		t.main.id = thread
	}
}

// codexThread binds a frame to its thread, and to the task that a sub-agent's is.
func (t *Tracker) codexThread(thread string, c *Class) {
	c.Session = thread
	call := t.codex.threads.get(thread)
	if call == "" || call == hostThread {
		return
	}
	c.Task = thread
	if call != noCall {
		c.Parent = call
	}
}

// codexRequest reads a request of the child.
func (t *Tracker) codexRequest(m *RPC, f *Frame, c *Class) {
	if m.ID == nil {
		return
	}
	method := m.Method
	if !IsAskMethod(method) {
		t.codex.asked.set(string(m.ID), method)
		return
	}
	c.Kind = event.Ask
	c.Ambiguous = c.Ambiguous || f.AmbiguousRPC(m)
	if asksSecret(m.Params) {
		method = secretInput
	}
	t.codex.asked.set(string(m.ID), method)
	c.Ask, c.AskOpens = t.asks.opened(m.ID, m.Method), true
}

// secretInput stands for a question that asks for a secret: its answer is not
// recorded.
const secretInput = MethodUserInput + " secret"

// saysNothing reports whether an answer to a question holds none: a refusal.
func saysNothing(m *RPC) bool {
	if m.Error != nil {
		return true
	}
	for k := range m.Result.Fields {
		if !keyIs(k, "answers") {
			return false
		}
	}
	for range m.Result.Get("answers").Fields {
		return false
	}
	return m.Result.Get("answers").IsObject()
}

// follow learns sub-agents and background commands from a notification.
func (x *codex) follow(m *RPC, thread string, c *Class) {
	switch m.Method {
	case MethodItemStarted, MethodItemCompleted:
		x.item(m, thread, c)
	case MethodTurnStarted:
		if c.Task != "" {
			c.Kind = event.Task
		}
	case MethodPlan:
		c.Kind = event.Task
	case MethodTurnCompleted:
		c.Kind = event.End
		x.turnEnded(m, thread)
	default:
		if v := m.Params.Get("itemId"); v.IsString() && len(x.items) > 0 {
			if i := x.find(thread, v); i >= 0 && x.items[i].background {
				c.Task = x.items[i].id
			}
		}
	}
}

func (x *codex) item(m *RPC, thread string, c *Class) {
	item := m.Params.Get("item")
	id := item.Get("id")
	done := m.Method == MethodItemCompleted
	switch string(item.Get("type").inner()) {
	case "commandExecution":
		i := x.find(thread, id)
		switch {
		case i < 0 && !done && len(id) <= maxJoinID:
			if len(x.items) >= maxItems {
				x.items = x.items[1:]
			}
			x.items = append(x.items, codexItem{thread: thread, turn: m.Turn().Text(), id: id.Text()})
		case i >= 0 && done:
			if x.items[i].background {
				c.Kind, c.Task = event.End, x.items[i].id
			}
			x.items = slices.Delete(x.items, i, i+1)
		}
	case "subAgentActivity":
		c.Kind = event.Task
		call := noCall
		if string(item.Get("kind").inner()) == "started" {
			call = id.Text()
		}
		x.name(item.Get("agentThreadId"), call)
	case "collabAgentToolCall":
		c.Kind = event.Task
		call := noCall
		if string(item.Get("tool").inner()) == "spawnAgent" {
			call = id.Text()
		}
		for v := range item.Get("receiverThreadIds").Items {
			x.name(v, call)
		}
	}
}

// name makes a thread a sub-agent's. A call that is known stays.
func (x *codex) name(thread Value, call string) {
	id := thread.Text()
	if have := x.threads.get(id); id != "" && (have == "" || have == noCall && call != "") {
		x.threads.set(id, call)
	}
}

func (x *codex) find(thread string, id Value) int {
	for i := range x.items {
		if it := &x.items[i]; bytes.Equal(id.inner(), []byte(it.id)) && it.thread == thread {
			return i
		}
	}
	return -1
}

// turnEnded makes the commands that outlive a completed turn background ones. Of
// any other turn no end of a command is told.
func (x *codex) turnEnded(m *RPC, thread string) {
	turn := m.Turn().Text()
	completed := string(m.Params.Get("turn").Get("status").inner()) == "completed"
	x.items = slices.DeleteFunc(x.items, func(it codexItem) bool {
		return it.thread == thread && it.turn == turn && !it.background && !completed
	})
	for i := range x.items {
		if it := &x.items[i]; it.thread == thread && it.turn == turn {
			it.background = true
		}
	}
}
