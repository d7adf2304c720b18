package run

import (
	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// sessionSeen lists a session id; the first one is main until a fact or a frame
// says otherwise (see the package dialect for the rule).
func (s *State) sessionSeen(id string, seq uint64) *SessionView {
	for _, v := range s.sessions {
		if v.ID == id {
			return v
		}
	}
	if len(s.sessions) >= maxSessions {
		s.counts.SessionsIgnore++
		return &SessionView{ID: id, Role: "agent", FirstSeq: seq}
	}
	v := &SessionView{ID: id, Role: "agent", FirstSeq: seq}
	s.sessions = append(s.sessions, v)
	return v
}

// setMain makes id the main session.
func (s *State) setMain(id string, seq uint64) {
	if id == "" || id == s.main {
		return
	}
	if s.main != "" {
		if old := s.sessionSeen(s.main, seq); old.Role == "main" {
			old.Role = "former"
		}
	}
	s.main = id
	s.sessionSeen(id, seq).Role = "main"
}

func (s *State) reset(f *dialect.Frame, seq uint64) {
	s.checkpoints = nil // they are of the conversation before
	s.setMain(boundID(f.Get("new_conversation_id").Text()), seq)
}

func (s *State) initFrame(e *event.Event, f *dialect.Frame) {
	s.assumeMain(e.Session, e.Seq)
	if e.Session == s.main || s.main == "" {
		if v := f.Get("claude_code_version").Text(); v != "" {
			s.childVer = clip(v, maxText)
		}
		s.model = clip(f.Get("model").Text(), maxText)
		s.mode = clip(f.Get("permissionMode").Text(), maxText)
	}
	r := s.opening(e.Session, e.Seq)
	if r.turn == nil && s.dialect == dialect.Claude {
		s.begin(r) // Claude Code writes one at the start of every turn, and only there
	}
}

// assumeMain makes the first session main where no fact of the edge has named one.
func (s *State) assumeMain(id string, seq uint64) {
	if s.main == "" {
		s.setMain(id, seq)
	}
}
