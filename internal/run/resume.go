package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// Bounds of what is shown of questions that ended a run.
const (
	maxLeft = 16
	maxPlan = 4 << 10
)

// WaitsView says that a run ended on questions that nobody could answer in it, or
// nobody did: an answer continues the session in a new run.
type WaitsView struct {
	Session string      `json:"session,omitempty"` // to be resumed
	Asks    []ResumeAsk `json:"asks"`
}

// ResumeAsk is one such question.
type ResumeAsk struct {
	ID   string `json:"id"`   // of the ask; q1, q2 … where the child could not ask
	Kind string `json:"kind"` // question, plan; permission where a hook put the call off
	Tool string `json:"tool"`
	Call string `json:"tool_use_id,omitempty"`
	Seq  uint64 `json:"seq"` // of the call, or of the result that told of it
	// Questions are empty where the child said no more than that it wanted to ask.
	Questions []AskQuestion `json:"questions,omitempty"`
	Text      string        `json:"text,omitempty"` // of a plan, or the input of another call
}

// waitingForResume is what a run that has ended on a question waits for.
const waitingForResume = "resume"

// questions are the calls that want a person's answer.
type questions struct {
	open []ResumeAsk // of the round that is worked on
	left []ResumeAsk // without an answer when a round of turn ended
	turn int
	n    int
}

// addQuestion notes a call of the main loop that asks a person. Whether it can, and
// whether it is answered, shows later.
func (s *State) addQuestion(seq uint64, tool, call string, in dialect.Value) {
	call = boundID(call)
	known := func(q ResumeAsk) bool { return call != "" && q.Call == call }
	if len(s.quest.open)+len(s.quest.left) >= maxLeft || slices.ContainsFunc(s.quest.open, known) || slices.ContainsFunc(s.quest.left, known) {
		return
	}
	q := ResumeAsk{Kind: "permission", Tool: clip(tool, maxText), Call: call, Seq: seq}
	switch tool {
	case "AskUserQuestion":
		q.Kind, q.Questions = "question", questionsOf(in)
	case "ExitPlanMode":
		q.Kind, q.Text = "plan", clip(in.Get("plan").Text(), maxPlan)
	default:
		if q.Text = clip(in.Get("command").Text(), maxPlan); q.Text == "" {
			q.Text = clip(string(in), maxText)
		}
	}
	s.quest.n++
	q.ID = fmt.Sprintf("q%d", s.quest.n)
	s.quest.open = append(s.quest.open, q)
}

// questionResult reads a tool_result: only one that is no error is an answer. Claude
// Code says "exists but is not enabled in this context" where nobody can be asked.
func (s *State) questionResult(call string, failed bool) {
	if len(s.quest.open) == 0 || failed {
		return
	}
	id := boundID(call)
	s.quest.open = slices.DeleteFunc(s.quest.open, func(q ResumeAsk) bool { return q.Call == id })
}

// questionsAtResult keeps what a round left without an answer, with what only its
// result tells: calls that were denied (Claude Code without a control channel), put
// off by a hook ("defer"), or not to be had (CodeBuddy).
func (s *State) questionsAtResult(seq uint64, f *dialect.Frame, turn int) {
	if s.quest.turn != turn {
		s.quest.turn, s.quest.left = turn, nil
	}
	for d := range f.Get("permission_denials").Items {
		if name := d.Get("tool_name").Text(); dialect.IsQuestionTool(name) {
			s.addQuestion(seq, name, d.Get("tool_use_id").Text(), d.Get("tool_input"))
		}
	}
	if d := f.Get("deferred_tool_use"); d.IsObject() {
		s.addQuestion(seq, d.Get("name").Text(), d.Get("id").Text(), d.Get("input"))
	}
	for item := range f.Get("errors").Items {
		name, ok := strings.CutPrefix(item.Text(), "Tool ")
		name, _, found := strings.Cut(name, " not found")
		if ok && found && dialect.IsQuestionTool(name) && len(s.quest.open) == 0 {
			s.addQuestion(seq, name, "", nil)
		}
	}
	s.quest.left = append(s.quest.left, s.unanswered()...)
	s.quest.open = nil
}

// unanswered lists the open questions that nobody decided or took away.
func (s *State) unanswered() []ResumeAsk {
	var list []ResumeAsk
	for _, q := range s.quest.open {
		a := s.askOfCall(q.Call)
		if a != nil {
			q.ID = a.ID
		}
		if (a == nil || a.Decided == nil) && s.interruptSince(q.Seq) == nil {
			list = append(list, q)
		}
	}
	return list
}

// askOfCall is the ask about a call, nil where there was none.
func (s *State) askOfCall(call string) *ask {
	for _, a := range s.asks {
		if call != "" && a.ToolUseID == call {
			return a
		}
	}
	return nil
}

// waits is what a run that is over waits for.
func (s *State) waits() *WaitsView {
	if s.exit == nil && !s.Lost() {
		return nil
	}
	list := s.unanswered()
	if n := len(s.turns); n > 0 && s.turns[n-1].n == s.quest.turn {
		list = append(slices.Clone(s.quest.left), list...)
	}
	if len(list) == 0 {
		return nil
	}
	return &WaitsView{Session: s.main, Asks: list}
}

// Find returns the question with this id. Where there is only one "" finds it.
func (w *WaitsView) Find(id string) (ResumeAsk, bool) {
	if w == nil {
		return ResumeAsk{}, false
	}
	for _, q := range w.Asks {
		if q.ID == id || id == "" && len(w.Asks) == 1 {
			return q, true
		}
	}
	return ResumeAsk{}, false
}

// Prompt is the message that gives an answer to a session that is resumed.
func (q ResumeAsk) Prompt(a event.Answer) string {
	if a.Decision == event.Deny {
		return strings.TrimSuffix(q.subject()+" is declined: "+a.Message, ": ")
	}
	if q.Kind != "question" {
		return strings.TrimSuffix(q.subject()+" is approved. Go on. "+a.Message, " ")
	}
	var lines []string
	for _, known := range q.Questions {
		if v, ok := a.Answers[known.ID]; ok {
			lines = append(lines, fmt.Sprintf("Answer to %q: %s", known.Text, words(v)))
		}
	}
	if len(lines) == 0 { // the questions are not known, or called otherwise
		for _, k := range sortedKeys(a.Answers) {
			lines = append(lines, words(a.Answers[k]))
		}
	}
	if a.Message != "" {
		lines = append(lines, a.Message)
	}
	return strings.Join(lines, "\n")
}

func (q ResumeAsk) subject() string {
	switch q.Kind {
	case "question":
		return "The question"
	case "plan":
		return "The plan"
	}
	return "The call of " + q.Tool + " that was put off"
}

// View is q as an ask, for whoever reads answers to one.
func (q ResumeAsk) View() *AskView {
	v := &AskView{ID: q.ID, Class: Approval, Kind: q.Kind, Tool: q.Tool, ToolUseID: q.Call, Title: oneLine(q.Text), State: AskShut, OpenedSeq: q.Seq}
	v.Form, v.Closed = &AskForm{Message: q.Text, Questions: q.Questions}, &AskEnd{Reason: ReasonRunEnded}
	if q.Kind == "question" {
		v.Class = Question
	}
	return v
}

// Answer pairs words with the questions, in order. Words without a question, and
// those to questions that are not known, are told as they are.
func (q ResumeAsk) Answer(list []string) event.Answer {
	a := event.Answer{Ask: q.ID, Decision: event.Answers, Answers: map[string]json.RawMessage{}}
	for i, word := range list {
		key := fmt.Sprintf("%03d", i)
		if i < len(q.Questions) {
			key = q.Questions[i].ID
		}
		a.Answers[key], _ = json.Marshal(word) // a string always marshals
	}
	return a
}

// words is an answer as text: a string, or strings with commas between.
func words(v json.RawMessage) string {
	var one string
	if json.Unmarshal(v, &one) == nil {
		return one
	}
	var many []string
	if json.Unmarshal(v, &many) == nil {
		return strings.Join(many, ", ")
	}
	return string(v)
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
