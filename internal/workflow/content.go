package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Only what is named here becomes an envelope: texts, calls and their results. A
// child's thinking is in other blocks, and what it says about accounts in other frames.

// isDelta reports whether an event holds nothing but pieces of texts.
func isDelta(e *event.Event) bool {
	return e.Stream == event.Out && (strings.HasSuffix(e.Type, ".stream_event") || strings.HasSuffix(e.Type, ".codex.item.agentMessage.delta") ||
		strings.HasSuffix(e.Type, ".codex.item.plan.delta"))
}

// deltas maps the pieces that one event holds, one a line.
func (m *Mapper) deltas(e *event.Event) {
	var last *node
	var channel string
	var text strings.Builder
	flush := func() {
		if last != nil && text.Len() > 0 {
			m.say(last, channel, text.String())
		}
		text.Reset()
	}
	for line := range bytes.SplitSeq(e.Data, []byte{'\n'}) {
		f, ok := dialect.Parse(line)
		if !ok {
			continue
		}
		var n *node
		var c, t string
		if f.Type == "stream_event" {
			n, t = m.streamEvent(e, &f)
			c = ChannelText
		} else if r, ok := f.RPC(); ok && r.Kind == dialect.RPCNotification {
			n, c, t = m.codexDelta(&r)
		}
		if n == nil || t == "" {
			continue
		}
		if n != last || c != channel {
			flush()
		}
		last, channel = n, c
		text.WriteString(t)
	}
	flush()
}

// say adds a text to a node's output.
func (m *Mapper) say(n *node, channel, text string) {
	for _, p := range pieces(text) {
		m.emit(NodeOutputDelta, n, NodeOutputDeltaData{Channel: channel, Delta: p})
	}
}

// streamEvent reads a piece of a message of Claude Code or CodeBuddy: the node that
// says it, and its text.
func (m *Mapper) streamEvent(e *event.Event, f *dialect.Frame) (*node, string) {
	ev := f.Get("event")
	parent := run.BoundID(f.Get("parent_tool_use_id").Text())
	session := run.BoundID(f.Get("session_id").Text())
	key := session + "\x00" + parent
	switch ev.Get("type").Text() {
	case "message_start":
		if _, ok := m.message[key]; !ok && len(m.message) >= maxSessions {
			clear(m.message)
		}
		m.message[key] = run.BoundID(ev.Get("message").Get("id").Text())
		return nil, ""
	case "content_block_delta":
	default:
		return nil, ""
	}
	d := ev.Get("delta")
	if d.Get("type").Text() != "text_delta" {
		return nil, ""
	}
	// CodeBuddy streams the agents of a workflow as if they were the main loop, under
	// a request of their own.
	if r := f.Get("_requestId"); r.IsString() && m.request[session] != "" && run.BoundID(r.Text()) != m.request[session] {
		return nil, ""
	}
	n := m.speaker(e, session, parent)
	if n == nil {
		return nil, ""
	}
	id := run.BoundID(f.Get("_messageId").Text())
	if id == "" {
		id = m.message[key]
	}
	m.streamed.add(id)
	return n, d.Get("text").Text()
}

// content maps what a frame of the child says and does.
func (m *Mapper) content(e *event.Event, f *dialect.Frame, again bool) {
	if f.Type == "" {
		if r, ok := f.RPC(); ok && r.Kind == dialect.RPCNotification {
			m.codexItem(&r)
		}
		return
	}
	parent := run.BoundID(f.Get("parent_tool_use_id").Text())
	session := run.BoundID(f.Get("session_id").Text())
	if f.OwnResult() {
		parent = ""
	}
	m.requestOf(f, session, parent)
	switch f.Type {
	case "assistant":
		m.scriptsOf(f)
		if !again {
			m.assistant(e, f, session, parent)
		}
	case "user":
		for item, typ := range f.Content {
			if typ == "tool_result" {
				m.result(item)
			}
		}
	case "system":
		if f.Subtype == "api_retry" {
			if n := m.rounds[session]; n != nil {
				m.progress(n, NodeProgressData{Message: "the model's API is tried again", ToolCalls: n.last.ToolCalls, Tokens: n.last.Tokens})
			}
		}
	}
}

// requestOf learns the request that a session of CodeBuddy works on from the frames
// that no workflow's agent writes.
func (m *Mapper) requestOf(f *dialect.Frame, session, parent string) {
	r := f.Get("_requestId")
	if parent != "" || !r.IsString() || f.Type != "assistant" && (f.Type != "system" || f.Subtype != "status") {
		return
	}
	if _, ok := m.request[session]; !ok && len(m.request) >= maxSessions {
		clear(m.request)
	}
	m.request[session] = run.BoundID(r.Text())
}

func (m *Mapper) assistant(e *event.Event, f *dialect.Frame, session, parent string) {
	n := m.speaker(e, session, parent)
	if n == nil {
		return
	}
	msg := f.Get("message")
	whole := !m.streamed.has(run.BoundID(msg.Get("id").Text()))
	if c := msg.Get("content"); whole && c.IsString() {
		m.sayAll(n, c.Text())
	}
	for item, typ := range f.Content {
		switch typ {
		case "text":
			if whole {
				m.sayAll(n, item.Get("text").Text())
			}
		case "tool_use":
			m.call(n, item)
		}
	}
}

func (m *Mapper) sayAll(n *node, text string) {
	if text != "" {
		m.say(n, ChannelText, text)
	}
}

// speaker is the node that a frame belongs to, nil for none that the stream is
// about. A sub-agent that is no task has one from its first frame on.
func (m *Mapper) speaker(e *event.Event, session, parent string) *node {
	if parent == "" {
		return m.rounds[session]
	}
	if id := m.taskOf(e, parent); id != "" {
		return m.bodyOf(id)
	}
	if n := m.subs[parent]; n != nil || m.subsOver.has(parent) {
		return n
	}
	return m.newSub(parent)
}

// taskOf is the task whose call a sub-agent's frame names, "" for none.
func (m *Mapper) taskOf(e *event.Event, parent string) string {
	if run.BoundID(e.Parent) == parent && e.Task != "" {
		if _, ok := m.state.TaskState(run.BoundID(e.Task)); ok {
			return run.BoundID(e.Task)
		}
	}
	for st := range m.state.TaskStates {
		if st.ToolUseID == parent {
			return st.ID
		}
	}
	return ""
}

// bodyOf is the node of what a task does itself, nil where the stream is not about
// it or it is over.
func (m *Mapper) bodyOf(id string) *node {
	t := m.tasks[id]
	if t == nil || t.over {
		return nil
	}
	if t.body == nil || !t.body.isStarted {
		v, ok := m.state.Task(id)
		if !ok || !m.started || !m.startBody(t, v, false) {
			return nil
		}
	}
	return t.body
}

// newSub starts the node of a sub-agent that is no task: its call is open, in a node
// that the stream is about.
func (m *Mapper) newSub(call string) *node {
	c := m.tools[call]
	if c == nil || len(m.open) >= maxNodes || len(m.subs) >= maxTools {
		return nil
	}
	var prefix string
	k := m.attempts["subagent"] + 1
	if t := m.tasks[c.node.task]; t != nil {
		prefix = t.prefix
		t.subs++
		k = t.subs
	} else {
		m.attempts["subagent"] = k
	}
	id := "subagent/" + strconv.Itoa(k)
	if prefix != "" {
		id = prefix + "/" + id
	}
	n := newNode(id, 1, NodeInfo{Kind: "subagent", ParentNodeID: c.node.id}, c.node.task)
	n.call = call
	m.startNode(n, nil, 0)
	m.subs[call] = n
	return n
}

// scriptsOf looks for workflows that a frame starts, also where the stream is not
// about who starts them.
func (m *Mapper) scriptsOf(f *dialect.Frame) {
	for item, typ := range f.Content {
		if typ != "tool_use" {
			continue
		}
		if name, in := dialect.EffectiveTool(item.Get("name").Text(), item.Get("input")); name == "Workflow" {
			m.script(run.BoundID(item.Get("id").Text()), in.Get("script").Text())
		}
	}
}

// script remembers the hash of a workflow's script until its task is announced.
func (m *Mapper) script(call, source string) {
	if call == "" || source == "" || m.scripts[call] != "" {
		return
	}
	if len(m.scripts) >= maxSessions {
		clear(m.scripts)
	}
	m.scripts[call] = hash(source)
}

// hash names a script: the first half of its SHA-256.
func hash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + hex.EncodeToString(sum[:16])
}
