package run

import (
	"bytes"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// assistant reads an assistant frame.
func (s *State) assistant(e *event.Event, f *dialect.Frame) {
	again := s.repeated(f)
	parent := boundID(f.Get("parent_tool_use_id").Text())
	r := s.spoke(e.Seq, e.Session, parent)
	if again {
		return
	}
	s.counts.Messages++
	for item, typ := range f.Content {
		switch typ {
		case "tool_use":
			var v [3]dialect.Value
			item.Pick(v[:], "id", "name", "input")
			id, name, in := v[0].Text(), v[1].Text(), v[2]
			if name == "DeferExecuteTool" {
				name, in = in.Get("toolName").Text(), in.Get("params")
			}
			s.toolUse(id, name, parent, in)
			if parent == "" && dialect.IsQuestionTool(name) {
				s.addQuestion(e.Seq, name, id, in)
			}
		case "text":
			if r == nil {
				continue
			}
			// A long text is not that note, and decoding texts would be most of
			// the fold's cost.
			said := len(item) < 1<<10 && item.Get("text").Says("Interrupted by user")
			if said && s.interruptSince(r.first) != nil {
				r.cut, r.text = true, false
			} else if r.cut {
				r.text = true
			}
		}
	}
}

// toolUse notes a call: who made it, and the name of a workflow it starts.
func (s *State) toolUse(id, name, parent string, in dialect.Value) {
	if id == "" || s.calls.has(id) {
		return
	}
	s.counts.ToolCalls++
	s.calls.set(id, parent)
	if name == "Workflow" {
		if label := workflowLabel(in.Get("script").Text()); label != "" {
			s.labels.set(id, label)
		}
	}
}

// user reads a user frame of the child: tool results, replays, notes.
func (s *State) user(e *event.Event, f *dialect.Frame) {
	again := s.repeated(f)
	parent := boundID(f.Get("parent_tool_use_id").Text())
	replay := f.Get("isReplay").True()
	if replay && parent == "" {
		s.reachable(e, f.Get("uuid").Text())
	}
	results := 0
	for item, typ := range f.Content {
		if typ != "tool_result" {
			continue
		}
		results++
		s.streamClosed(e.Seq, item)
		if len(s.asks) == 0 && len(s.quest.open) == 0 && s.dialect != dialect.CBC {
			continue // the rest is of no use, and reading it again costs most
		}
		var v [3]dialect.Value
		item.Pick(v[:], "tool_use_id", "is_error", "content")
		call, failed := v[0].Text(), v[1].True()
		s.questionResult(call, failed)
		s.askToolResult(boundID(call), failed, e.Seq)
		if s.dialect != dialect.CBC {
			continue
		}
		if id := dialect.AgentTask(v[2]); id != "" {
			s.joinAgent(boundID(id), boundID(call))
		}
	}
	if !again && !replay && results > 0 {
		if f.OwnResult() {
			parent = ""
		}
		s.spoke(e.Seq, e.Session, parent)
	}
}

// streamClosed looks for a call that was denied because the agent's stdin is
// closed (Claude Code: "Stream closed"): from then on it denies whatever it would
// ask. Only the first one is noted.
func (s *State) streamClosed(seq uint64, item dialect.Value) {
	if s.shut || len(item) > 1<<10 || !item.Get("is_error").True() || !bytes.Contains(item.Get("content"), []byte("Stream closed")) {
		return
	}
	s.shut = true
	s.warn(seq, "stream_closed", "the agent cannot ask any more: its stdin is closed, and every call that needs leave is denied")
}

// StreamClosed reports whether the agent was denied a call because its stdin is
// closed.
func (s *State) StreamClosed() bool { return s.shut }

// joinAgent links a background Agent of CodeBuddy to the call that started it.
func (s *State) joinAgent(id, call string) {
	s.agentCalls.set(id, call)
	if t := s.tasks[id]; t != nil && t.toolUse == "" {
		t.toolUse = call
	}
	if g := s.groups[call]; g != nil {
		g.Task = id
	}
}

// group counts a frame to its sub-agent.
func (s *State) group(call string, seq uint64) {
	g := s.groups[call]
	if g == nil {
		if len(s.groupList) >= maxSubagents {
			return
		}
		g = &SubagentView{Call: call, Parent: "unattached", FirstSeq: seq}
		if s.calls.has(call) {
			if g.Parent = s.calls.get(call); g.Parent == "" {
				g.Parent = "main"
			}
		}
		for _, t := range s.taskList() {
			if t.toolUse == g.Call {
				g.Task = t.id
				g.Name = t.desc
			}
		}
		s.groups[call] = g
		s.groupList = append(s.groupList, call)
	}
	g.Frames++
}
