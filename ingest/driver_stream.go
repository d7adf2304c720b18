package ingest

import (
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
)

// A speaker writes what a driver says in one dialect, and hears what the child
// says to a driver. Its methods run under the recorder's lock.
type speaker interface {
	// open begins: the first lines.
	open() []utterance
	// hear looks at a line of the child. What it returns is written in its order.
	hear(f *dialect.Frame) []utterance
	// ready reports whether messages can be written.
	ready() bool
	// goOn is called when the child has not answered for long.
	goOn()
	// failed says why no message can be written any more, "" while that is not so.
	failed() string
	// message is one prompt.
	message(text, uuid string) (utterance, error)
	// interrupt ends the turn that is open; false where there is no way to.
	interrupt(main, reason string) (utterance, bool)
	// answer is the last words of the agent.
	answer() string
	// serial says that a message waits until the one before has had its turn.
	serial() bool
}

// An utterance is one line for the child, with its LF.
type utterance struct {
	line []byte
	hide string // the id of the request that it is: its answer is not the parent's
	// The line tells the child that nobody can do what it asked.
	request, id string
	why         string // there is no line, for this reason
}

// stream speaks stream-json with Claude Code and CodeBuddy.
type stream struct {
	d     dialect.Name
	newID func() string
	hello string // id of initialize
	heard bool   // it is answered
	began bool   // a turn has begun
	wrong string // nothing can be said any more
	words string // of the last result
}

// maxAnswer bounds the last words of an agent, in bytes.
const maxAnswer = 1 << 20

// wordsOf is a text as it is kept: whole characters of at most maxAnswer bytes.
func wordsOf(v dialect.Value) string {
	s := v.Text()
	if len(s) > maxAnswer {
		s = strings.ToValidUTF8(s[:maxAnswer], "")
	}
	return s
}

func (s *stream) open() []utterance {
	s.hello = s.newID()
	b := append([]byte(nil), `{"type":"control_request","request_id":`...)
	b = dialect.AppendASCII(b, s.hello)
	b = append(b, `,"request":{"subtype":"initialize"`...)
	if s.d == dialect.CBC {
		// Without it a question ends the turn: the tool does not exist then.
		b = append(b, `,"capabilities":{"askUserQuestion":true}`...)
	}
	return []utterance{{line: append(b, "}}\n"...), hide: s.hello}}
}

func (s *stream) ready() bool    { return s.heard }
func (s *stream) failed() string { return s.wrong }
func (s *stream) answer() string { return s.words }
func (s *stream) goOn()          { s.heard = true }

// serial: until its first turn has ended CodeBuddy opens a conversation for each
// message, and of several that wait it loses some.
func (s *stream) serial() bool { return s.d == dialect.CBC }

func (s *stream) hear(f *dialect.Frame) []utterance {
	switch f.Type {
	case "control_response":
		resp, ok := dialect.ResponseOf(f.Raw)
		if ok && string(resp.ID) == string(dialect.RequestID(s.hello)) {
			s.heard = true // also where it is an error: a message needs no initialize
		}
	case "control_request":
		if !dialect.IsAsk(f.Subtype) {
			return []utterance{s.cannot(f)}
		}
	case "result":
		if t := wordsOf(f.Get("result")); t != "" {
			s.words = t
		}
	case "system":
		s.began = s.began || f.Subtype == "init"
	case "error":
		// CodeBuddy says so that there is no such conversation, and waits on.
		if !s.began && s.wrong == "" {
			s.wrong = "the agent said: " + bound(f.Get("error").Text(), maxReason)
		}
	}
	return nil
}

// cannot answers a request that only a host could carry out.
func (s *stream) cannot(f *dialect.Frame) utterance {
	id := f.ControlID()
	u := utterance{request: f.Subtype, id: string(id)}
	raw := asciiID(id)
	switch {
	case raw == nil:
		u.why = "it has no id"
		return u
	case f.AmbiguousControl():
		u.why = "its keys stand twice"
		return u
	}
	b := append([]byte(nil), `{"type":"control_response","response":{"subtype":"error","request_id":`...)
	b = append(b, raw...)
	b = append(b, `,"error":`...)
	b = dialect.AppendASCII(b, cannotDo(f.Subtype))
	u.line = append(b, "}}\n"...)
	return u
}

// cannotDo is what the child is told.
func cannotDo(request string) string {
	return "there is no host: cbcast drives this agent and cannot do " + bound(request, maxArgument)
}

// asciiID is the id of a request as it goes back: its type is kept, and it is
// ASCII. nil where there is none, or one that no answer can have.
func asciiID(id dialect.Value) []byte {
	switch {
	case len(id) == 0 || len(id) > maxRequestID || id.Null():
		return nil
	case id.IsString():
		return dialect.AppendASCII(nil, id.Text())
	}
	for _, c := range id {
		if c < ' ' || c > '~' {
			return nil
		}
	}
	return id
}

// maxRequestID bounds the id of a request that is answered, in bytes.
const maxRequestID = 1024

func (s *stream) message(text, uuid string) (utterance, error) {
	line, err := dialect.Message(s.d, uuid, "", dialect.AppendASCII(nil, text))
	return utterance{line: line}, err
}

func (s *stream) interrupt(main, reason string) (utterance, bool) {
	id := s.newID()
	return utterance{line: dialect.Interrupt(s.d, id, main, reason), hide: id}, true
}
