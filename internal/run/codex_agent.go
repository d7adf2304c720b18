package run

import (
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// agentItem reads the items by which a thread tells of its sub-agents.
func (s *State) agentItem(e *event.Event, item dialect.Value, typ string, ct *codexTurn) {
	call := boundID(item.Get("id").Text())
	if typ == "subAgentActivity" {
		if item.Get("kind").Text() != "started" {
			call = ""
		}
		s.nameAgent(e, item.Get("agentThreadId"), ct, call, clip(item.Get("agentPath").Text(), maxText), "")
		return
	}
	spawned := item.Get("tool").Text() == "spawnAgent"
	prompt := clip(item.Get("prompt").Text(), maxText)
	if !spawned {
		call, prompt = "", ""
	}
	for id := range item.Get("receiverThreadIds").Items {
		t := s.nameAgent(e, id, ct, call, "", prompt)
		if t != nil && spawned && t.model == "" {
			t.model = clip(item.Get("model").Text(), maxText)
		}
	}
}

// nameAgent makes a thread a sub-agent's: from now on it is shown, with all that
// was seen of it before. It works for the turn that spawned it.
func (s *State) nameAgent(e *event.Event, id dialect.Value, ct *codexTurn, call, path, prompt string) *thread {
	t := s.thread(id.Text())
	if t == nil || t.host || t.isMain(s) {
		return nil
	}
	if t.task == nil {
		t.task = &task{id: t.id, typ: "agent", status: "pending", startedSeq: e.Seq, startedAt: s.now, thread: t.id}
		if ct != nil {
			t.parent = ct.work
		}
		s.adopt(t.task, t.parent)
		s.keepTask(t.task)
		s.sessionSeen(t.id, e.Seq)
		if t.parent != nil {
			t.parent.tokens.add(t.used) // of before it had a name
			t.parent.agents = append(t.parent.agents, t)
		}
		if t.turn != nil {
			t.turn.work = t.parent
			t.works()
		}
	}
	k := t.task
	if k.toolUse == "" {
		k.toolUse = call
	}
	if path != "" && t.path == "" {
		t.path = agentPath(path)
		k.name = agentLabel(t.path)
	}
	if prompt != "" && k.desc == "" {
		k.desc = prompt
	}
	return t
}

// agentPath is a sub-agent's path without its first part, the main agent.
func agentPath(path string) string {
	_, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok {
		return path
	}
	return rest
}

// agentLabel is the last part of a sub-agent's path.
func agentLabel(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// works notes that a turn of a sub-agent runs. It may have more than one.
func (t *thread) works() {
	if k := t.task; k != nil {
		k.status, k.ended, k.synth, k.by, k.err = "running", false, false, "", ""
		k.endedSeq, k.endedAt = 0, k.startedAt
	}
}

// agentRests notes the end of a sub-agent's turn. An interrupt of its parent does
// not end it, only one of its own turn, or the agent that closes it.
func (s *State) agentRests(e *event.Event, t *thread, status string) {
	in := s.interruptOf(t.last, e.Seq, "task")
	k := t.task
	if k == nil {
		return
	}
	switch status {
	case "completed", "failed":
	case "interrupted":
		status = "stopped"
	default:
		status = "unknown"
	}
	k.err, k.summary = t.err, clip(t.said, maxText)
	k.end(status, e.Seq, s.now, status == "unknown")
	s.codexTaskOver(e.Seq, k, in)
}

// threadStatus reads a thread's status. One that is not loaded any more does
// nothing, whatever was said of its turn. One that rests has ended its turn; that
// is told right after, unless the host asked not to be.
func (s *State) threadStatus(e *event.Event, t *thread, status string) {
	if t == nil {
		return
	}
	switch status {
	case "idle":
		if t.turn == nil || !s.cx().noEnds {
			return
		}
		status = "completed"
		for _, in := range s.interrupts {
			if in.codexTurn == t.turn.id {
				status = "interrupted"
			}
		}
		s.turnOver(e, t, status)
	case "systemError":
		if t.turn != nil && s.cx().noEnds {
			s.turnOver(e, t, "failed")
		}
	case "notLoaded":
		if t.turn != nil {
			s.turnOver(e, t, "")
		}
		if k := t.task; k != nil && !k.ended {
			k.end("stopped", e.Seq, s.now, true)
			s.codexTaskOver(e.Seq, k, nil)
		}
	}
}

// agentThread is the thread of a sub-agent's task, nil for any other task.
func (s *State) agentThread(k *task) *thread {
	if s.codex == nil || k.typ != "agent" {
		return nil
	}
	return s.codex.threads[k.id]
}

// codexAtExit closes the items that are open when the child ends. A turn after an
// error that nothing followed has failed, whatever the exit code.
func (s *State) codexAtExit() {
	if s.codex == nil {
		return
	}
	for _, t := range s.codex.order {
		if t.turn == nil {
			continue
		}
		s.leaveItems(t.turn, "")
		if t.turn.failed != "" && t.turn.work != nil {
			t.turn.work.ev.add(Failed, Evidence{t.turn.first, byError, t.turn.failed})
		}
	}
	s.untold(nil)
}

// usage is what a sub-agent used, as its task shows it.
func (t *thread) usage() *TaskUsage {
	u := &TaskUsage{Tokens: t.used.Input + t.used.CacheRead + t.used.Output, ToolUses: int64(t.calls)}
	if t.startedMS > 0 && t.endedMS >= t.startedMS {
		u.DurationMS = t.endedMS - t.startedMS
	}
	return u
}

// view is the n-th sub-agent of its turn as that shows it.
func (t *thread) view(n int) AgentView {
	u := t.usage()
	v := AgentView{
		Key: t.path, AgentID: t.id, Label: agentLabel(t.path), State: "not_reported", Model: t.model, Attempt: int64(t.turns),
		Tokens: u.Tokens, ToolCalls: u.ToolUses, LastTool: t.tool, StartedMS: t.startedMS, EndedMS: t.endedMS, DurationMS: u.DurationMS,
		Error: t.err, Result: clip(t.said, maxText),
	}
	if v.Key == "" {
		v.Key = "agent-" + strconv.Itoa(n)
	}
	if v.Label == "" {
		v.Label = t.task.desc
	}
	switch {
	case !t.task.ended && t.turn == nil:
		v.State = "start"
	case !t.task.ended:
		v.State = "progress"
	case t.task.status == "completed":
		v.State = "done"
	case t.task.status == "failed":
		v.State = "error"
	case t.task.status == "stopped":
		v.State = "stopped"
	}
	return v
}
