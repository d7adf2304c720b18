package ingest

import (
	"github.com/cbcast/cbcast/internal/dialect"
)

// codexSpeaker speaks JSON-RPC with a codex app-server.
type codexSpeaker struct {
	o       *Drive
	newID   func() string
	version string
	hello   string // ids of our requests
	begin   string
	turns   map[string]bool // turn/start, while it is not answered
	thread  string
	turn    string // the last one that began on the thread
	wrong   string
	words   string // of the last message on the thread
}

func (s *codexSpeaker) open() []utterance {
	s.hello, s.turns = s.newID(), map[string]bool{}
	line, _ := dialect.CodexInitialize(s.hello, s.version)
	return []utterance{{line: line, hide: s.hello}}
}

// enter starts a thread, or goes on with one. What is known of its sandbox is said
// again: a resumed thread has lost it.
func (s *codexSpeaker) enter() utterance {
	s.begin = s.newID()
	t := dialect.CodexThread{Cwd: s.o.cwd, Model: s.o.model, Approval: s.o.Approval, Sandbox: s.o.Sandbox}
	if id := s.o.Resume.Session; id != "" {
		return utterance{line: dialect.CodexThreadResume(s.begin, id, t), hide: s.begin}
	}
	return utterance{line: dialect.CodexThreadStart(s.begin, t), hide: s.begin}
}

func (s *codexSpeaker) ready() bool    { return s.thread != "" }
func (s *codexSpeaker) failed() string { return s.wrong }
func (s *codexSpeaker) answer() string { return s.words }

func (s *codexSpeaker) goOn() {
	if s.wrong == "" {
		s.wrong = "the agent answers no initialize"
	}
}

// serial: a message that comes while a turn runs joins it.
func (*codexSpeaker) serial() bool { return true }

func (s *codexSpeaker) hear(f *dialect.Frame) []utterance {
	m, ok := f.RPC()
	if !ok {
		return nil
	}
	switch m.Kind {
	case dialect.RPCResponse:
		return s.answered(&m)
	case dialect.RPCRequest:
		if !dialect.IsAskMethod(m.Method) {
			return []utterance{s.cannot(&m)}
		}
	case dialect.RPCNotification:
		if m.Thread().Text() != s.thread {
			return nil
		}
		switch item := m.Params.Get("item"); {
		case m.Method == dialect.MethodTurnStarted:
			s.turn = m.Params.Get("turn").Get("id").Text()
		case m.Method == dialect.MethodItemCompleted && item.Get("type").Text() == "agentMessage":
			s.words = wordsOf(item.Get("text"))
		}
	}
	return nil
}

// answered reads what came of our requests.
func (s *codexSpeaker) answered(m *dialect.RPC) []utterance {
	id := m.ID.Text()
	what := ""
	switch {
	case !m.ID.IsString() || id == "":
		return nil
	case id == s.hello:
		what = dialect.MethodInitialize
	case id == s.begin:
		what = "the thread"
	case s.turns[id]:
		what = dialect.MethodTurnStart
		delete(s.turns, id)
	default:
		return nil
	}
	if m.Error != nil {
		s.wrong = what + ": the agent said: " + bound(m.Error.Get("message").Text(), maxReason)
		return nil
	}
	switch id {
	case s.hello:
		_, done := dialect.CodexInitialize(s.hello, s.version)
		return []utterance{{line: done}, s.enter()}
	case s.begin:
		s.thread = m.Result.Get("thread").Get("id").Text()
		if s.thread == "" {
			s.wrong = "the thread has no id"
		}
	}
	return nil
}

// cannot answers a request that only a host could carry out. The agent goes on.
func (s *codexSpeaker) cannot(m *dialect.RPC) utterance {
	u := utterance{request: m.Method, id: string(m.ID)}
	if len(m.ID) == 0 || len(m.ID) > maxRequestID {
		u.why = "it has no id that can be answered"
		return u
	}
	u.line = dialect.CodexError(m.ID, cannotDo(m.Method))
	return u
}

func (s *codexSpeaker) message(text, uuid string) (utterance, error) {
	id := s.newID()
	s.turns[id] = true
	line, err := dialect.CodexTurnStart(id, s.thread, uuid, dialect.AppendASCII(nil, text))
	return utterance{line: line, hide: id}, err
}

func (s *codexSpeaker) interrupt(string, string) (utterance, bool) {
	if s.thread == "" || s.turn == "" {
		return utterance{}, false
	}
	id := s.newID()
	return utterance{line: dialect.CodexInterrupt(id, s.thread, s.turn), hide: id}, true
}
