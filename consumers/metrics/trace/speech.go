package trace

import (
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// chat is one answer of a model, while it is told.
type chat struct {
	id         string
	by         owner
	session    string
	model      string
	start, end time.Time
	seq        uint64 // of its first frame
	frames     int
	stop, err  string
	text       int // bytes of what it says
}

// assistant takes a frame of the model's answer: it goes on, or another begins, and
// it may call tools.
func (b *Builder) assistant(e *event.Event, f *dialect.Frame) {
	by := b.speaker(e, run.BoundID(f.Get("parent_tool_use_id").Text()))
	msg := f.Get("message")
	c := b.chat(e, by, run.BoundID(msg.Get("id").Text()))
	c.end = b.now
	c.frames++
	if v := msg.Get("model").Text(); v != "" && v != "<synthetic>" {
		c.model = clip(v, maxName)
	}
	if v := msg.Get("stop_reason").Text(); v != "" {
		c.stop = clip(v, maxName)
	}
	if v := f.Get("error").Text(); v != "" {
		c.err = clip(v, maxName)
	}
	if t := b.turns[by.turn]; t != nil {
		if c.model != "" && by.path == turnPath(by.turn) {
			t.response = c.model
		}
		t.link(e.TraceParent)
	}
	for item, typ := range f.Content {
		switch typ {
		case "tool_use":
			b.toolUse(e, by, item)
		case "text":
			c.text += len(item.Get("text"))
		}
	}
}

// link notes the span of the child's own that a frame names: one a trace.
func (t *turn) link(traceParent string) {
	c, ok := run.ParseTraceParent(traceParent)
	if !ok {
		return
	}
	for _, have := range t.links {
		if have.Trace == c.Trace {
			return
		}
	}
	if len(t.links) >= maxLinks {
		t.linksDropped++
		return
	}
	t.links = append(t.links, c)
}

// chat finds or begins the answer that a frame is of. It begins when the model was
// asked: with the turn or the agent, or with the last result of a tool.
func (b *Builder) chat(e *event.Event, by owner, id string) *chat {
	if c, ok := b.chats.get(by.path); ok {
		if c.id == id && id != "" {
			return c
		}
		b.chatOver(by.path)
	}
	start, ok := b.asked.get(by.path)
	if !ok {
		start = b.began(by)
	}
	if start.IsZero() || start.After(b.now) {
		start = b.now
	}
	b.asked.set(by.path, time.Time{}) // the next one is asked for anew
	c := &chat{id: id, by: by, session: e.Session, start: start, seq: e.Seq}
	if gone, out := b.chats.set(by.path, c); out {
		b.chatOut(gone)
	}
	return c
}

// began is when somebody began who has not spoken yet.
func (b *Builder) began(by owner) time.Time {
	if key, ok := strings.CutPrefix(by.path, agentPath("")); ok {
		if a, ok := b.agents.get(key); ok {
			return a.start
		}
	}
	if v, ok := b.st.Turn(by.turn); ok && by.path == turnPath(by.turn) && v.StartedAt != nil {
		return *v.StartedAt
	}
	return time.Time{}
}

// chatOver ends what somebody says.
func (b *Builder) chatOver(path string) {
	if c, ok := b.chats.get(path); ok {
		b.chats.del(path)
		b.chatOut(c)
	}
}

// chatsOver ends what the main loop of a session says.
func (b *Builder) chatsOver(session string) {
	for path, c := range b.chats.all {
		if c.session == session && c.by.path == turnPath(c.by.turn) {
			b.chatOver(path)
		}
	}
}

func (b *Builder) chatOut(c *chat) {
	model := c.model
	if model == "" {
		model = b.st.Model()
	}
	var a attrs
	a.str("gen_ai.operation.name", "chat")
	a.str("gen_ai.provider.name", b.provider())
	a.str("gen_ai.conversation.id", c.session)
	a.str("gen_ai.request.model", model)
	a.str("gen_ai.response.model", c.model)
	a.str("gen_ai.response.id", c.id)
	if c.stop != "" {
		a.list("gen_ai.response.finish_reasons", []string{c.stop})
	}
	a.num("cbcast.frames", int64(c.frames))
	a.int("cbcast.text.length", int64(c.text))
	s := Span{
		Path: "chat/" + c.id + "/" + strconv.FormatUint(c.seq, 10), Name: "chat " + model, Kind: Client,
		Start: c.start, End: c.end,
	}
	if model == "" {
		s.Name = "chat"
	}
	if c.err != "" {
		a.str("error.type", c.err)
		s.Status, s.Message = Error, c.err
	}
	s.Attrs = a
	b.emit(s, c.by.path, true)
}

// user takes a user frame of the child: results of tools.
func (b *Builder) user(e *event.Event, f *dialect.Frame) {
	if f.Get("isReplay").True() {
		return
	}
	parent := run.BoundID(f.Get("parent_tool_use_id").Text())
	if parent != "" && f.OwnResult() {
		parent = "" // CodeBuddy 2.117 names the call itself
	}
	by := b.speaker(e, parent)
	results := false
	for item, typ := range f.Content {
		if typ == "tool_result" {
			results = true
			b.toolResult(item)
		}
	}
	if results {
		b.chatOver(by.path)
		b.asked.set(by.path, b.now)
	}
}

// system takes what the child says about itself.
func (b *Builder) system(e *event.Event, f *dialect.Frame) {
	switch f.Subtype {
	case "init":
		if by := b.main(e.Session); by.turn > 0 && b.turns[by.turn] != nil {
			b.asked.set(by.path, b.now)
		}
	case "status":
		if f.Get("status").Text() == "requesting" {
			b.asked.set(b.main(e.Session).path, b.now)
		}
	case "task_started", "task_progress":
		b.agentTask(e, f)
	case "api_retry":
		var a attrs
		a.int("cbcast.attempt", f.Get("attempt").Int())
		a.int("http.response.status_code", f.Get("error_status").Int())
		a.str("error.type", f.Get("error").Text())
		b.happen(e.Session, "cbcast.api_retry", a)
	case "compact_boundary":
		var a attrs
		meta := f.Get("compact_metadata")
		a.str("cbcast.compaction.trigger", meta.Get("trigger").Text())
		a.int("cbcast.compaction.before", meta.Get("pre_tokens").Int())
		a.int("cbcast.compaction.after", meta.Get("post_tokens").Int())
		b.happen(e.Session, "cbcast.compaction", a)
	}
}

// provider is who makes the model calls, as far as the program says it.
func (b *Builder) provider() string {
	switch b.st.Dialect() {
	case dialect.Claude:
		return "anthropic"
	case dialect.CBC:
		return "codebuddy"
	case dialect.Codex:
		return "openai"
	case dialect.Unknown:
	}
	return ""
}
