package run

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// ChildVersion is the child's version, "" while it is not known.
func (s *State) ChildVersion() string { return s.childVer }

// TaskSilent reports whether waiting for a task's end is no use between turns: a
// background Agent of CodeBuddy tells none before the next one.
func (s *State) TaskSilent(id string) bool {
	t := s.tasks[id]
	return t != nil && s.neverReports(t)
}

// Mode and Model are the child's permission mode and model, as far as known.
func (s *State) Mode() string { return s.mode }

// Model is the child's model.
func (s *State) Model() string { return s.model }

// checkpoint notes that the child can go back to the user message id.
func (s *State) checkpoint(e *event.Event, id string) *CheckpointView {
	id = boundID(id)
	if id == "" || s.noRewind {
		return &CheckpointView{}
	}
	for _, c := range s.checkpoints {
		if c.ID == id {
			return c
		}
	}
	if len(s.checkpoints) >= maxCheckpoints {
		s.checkpoints = append(s.checkpoints[:0:0], s.checkpoints[1:]...)
		s.dropped.Checkpoints++
	}
	c := &CheckpointView{ID: id, Seq: e.Seq, At: at(e.Time)}
	s.checkpoints = append(s.checkpoints, c)
	return c
}

// checkpointViews lists the messages that the child can go back to now.
func (s *State) checkpointViews() (list []CheckpointView) {
	for _, c := range s.checkpoints {
		v := *c
		if v.Turn == 0 {
			v.Turn = s.Message(v.ID).Turn
		}
		list = append(list, v)
	}
	return list
}

// snapshot reads CodeBuddy's note of the files as they were before a user message:
// it can go back to those messages, and to no other.
func (s *State) snapshot(e *event.Event, f *dialect.Frame) {
	snap := f.Get("snapshot")
	c := s.checkpoint(e, snap.Get("messageId").Text())
	if t := s.current(s.main); t != nil && c.Turn == 0 {
		c.Turn = t.n
	}
	n := 0
	for range snap.Get("trackedFileBackups").Fields {
		n++
	}
	c.Files = max(c.Files, n)
}

// reachable notes the uuid of a message that Claude Code has taken in: it keeps
// the files of each, where it was told to keep any.
func (s *State) reachable(e *event.Event, uuid string) {
	if s.dialect == dialect.Claude {
		s.checkpoint(e, uuid)
	}
}

// settingAsked remembers what a control request is to change.
func (s *State) settingAsked(f *dialect.Frame) {
	req := f.Get("request")
	switch id := string(f.ControlID()); f.Subtype {
	case "set_permission_mode":
		s.changes.set(id, "mode "+clip(req.Get("mode").Text(), maxText))
	case "set_model":
		s.changes.set(id, "model "+clip(req.Get("model").Text(), maxText))
	case "rewind", "rewind_files":
		s.changes.set(id, "rewind")
	}
}

// settingAcked applies it once the child has done it. The answer names the value
// where the child says it.
func (s *State) settingAcked(f *dialect.Frame, resp dialect.Value) {
	if f.Subtype == "error" {
		s.lacked(clip(resp.Get("error").Text(), maxText))
	}
	what, value, _ := strings.Cut(s.changes.get(string(f.ControlID())), " ")
	body, failed := resp.Get("response"), f.Subtype == "error"
	if v := body.Get(what).Text(); what != "" && v != "" {
		value = clip(v, maxText)
	}
	switch {
	case what == "rewind":
		s.rewound(dialect.ReadRewound(body), failed, resp.Get("error").Text())
	case failed || value == "": // Claude Code takes no model for its default
	case what == "mode":
		s.mode = value
	case what == "model":
		s.model = value
	}
}

// lacked remembers a command that the child says it does not know.
func (s *State) lacked(text string) {
	name, ok := dialect.UnknownRequest(text)
	if !ok || !slices.Contains(dialect.Commands, name) {
		return
	}
	if s.lacks == nil {
		s.lacks = map[string]string{}
	}
	s.lacks[name] = text
}

// Lacks is what the child said of a command that it does not know, "" for others.
func (s *State) Lacks(command string) string { return s.lacks[command] }

// obeys lists the commands that the child obeys, as far as known.
func (s *State) obeys() []string {
	return slices.DeleteFunc(dialect.Capabilities(s.dialect, s.childVer), func(c string) bool { return s.Lacks(c) != "" })
}

// rewound forgets the checkpoints that a rewind has made useless: after one of the
// conversation CodeBuddy finds none of the earlier ones any more. A Claude Code
// that was not told to keep files has none at all.
func (s *State) rewound(r dialect.Rewound, failed bool, text string) {
	switch {
	case failed && text == "File rewinding is not enabled.":
		s.noRewind, s.checkpoints = true, nil
	case !failed && r.Can && r.History.True():
		s.checkpoints = nil
	}
}

// A MessageState is what became of a user message.
type MessageState struct {
	Known bool // it was written to the child
	// Life is Claude Code's last word: queued, started, completed, cancelled,
	// discarded.
	Life string
	// Turn is the number of the turn that covers it, 0 while none does; Done says
	// that this turn has ended, Aborted how.
	Turn          int
	Done, Aborted bool
}

// Message looks up a user message by its uuid.
func (s *State) Message(uuid string) (m MessageState) {
	seq, err := strconv.ParseUint(s.inputs.get(uuid), 10, 64)
	if err != nil {
		return m
	}
	m.Known, m.Life = true, s.messages.get(uuid)
	for _, t := range slices.Backward(s.turns) {
		if !slices.Contains(t.inputs, seq) {
			continue
		}
		m.Turn = t.n
		open := slices.ContainsFunc(s.openRounds(), func(r *round) bool { return r.turn == t })
		m.Done = t.endedSeq > 0 && !open
		m.Aborted = m.Done && t.abortedLast
		return m
	}
	return m
}
