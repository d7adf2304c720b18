package run

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// ask is something that the child waits for.
type ask struct {
	AskView
	key    string // exact text of the vendor's id, with its JSON type
	method string // or subtype
	agent  bool   // a sub-agent of a task asks
	sig    uint64 // of tool and input

	closing int // number of its end, see [State.EachAsk]
}

func (a *ask) open() bool { return a.State == AskOpen }
func (a *ask) shut() bool { return a.State == AskShut }

// asked is a request of the child that somebody answers, as its dialect reads it.
type asked struct {
	id     string        // ours; "" is the event's own, or counted
	key    dialect.Value // the vendor's id; nil where it stands twice: nothing can answer it
	method string        // or subtype
	// Of the view.
	class, kind, tool, call, title string
	form                           *AskForm
	input                          dialect.Value
	ambiguous, agent               bool
}

// openAsk notes that the child asks. A request that is told again is the same ask.
func (s *State) openAsk(e *event.Event, q asked) *ask {
	key := boundID(string(q.key))
	if a := s.askByKey(q.key); a != nil && a.method == q.method {
		return a
	}
	if q.id == "" {
		q.id = e.Ext["ask"]
	}
	a := &ask{key: key, method: q.method, agent: q.agent, sig: signature(q.tool, q.input)}
	a.AskView = AskView{
		ID: s.askID(q.id), Class: q.class, Kind: q.kind, Tool: clip(q.tool, maxText), ToolUseID: boundID(q.call),
		Session: e.Session, Task: e.Task, Title: oneLine(q.title), Form: q.form, State: AskOpen, Ambiguous: q.ambiguous,
		OpenedSeq: e.Seq, OpenedAt: at(s.now),
	}
	if q.ambiguous {
		s.counts.Ambiguous++
	}
	for _, old := range s.asks {
		if old.sig == a.sig && old.Decided != nil && old.Decided.Cause == "timeout" {
			a.Repeats++
		}
	}
	if d := e.Ext["auto"]; d != "" {
		a.State, a.Decided = AskAnswered, &AskDecided{Decision: clip(d, maxText), By: ByPolicy, Cause: "rule", Seq: e.Seq, At: at(s.now)}
	}
	if len(s.asks) >= maxAsks {
		i := max(0, slices.IndexFunc(s.asks, (*ask).shut))
		s.asks = append(s.asks[:i:i], s.asks[i+1:]...)
		s.dropped.Asks++
	}
	s.asks = append(s.asks, a)
	return a
}

// askID takes an id of ours as given, or counts on.
func (s *State) askID(given string) string {
	if n, err := strconv.Atoi(strings.TrimPrefix(given, "a")); err == nil && n > 0 && given == dialect.AskID(n) {
		s.askCount = max(s.askCount, n)
		return given
	}
	s.askCount++
	return dialect.AskID(s.askCount)
}

func signature(tool string, input dialect.Value) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tool + "\x00"))
	_, _ = h.Write(input)
	return h.Sum64()
}

// oneLine is the first line of a text, cut for a title.
func oneLine(t string) string {
	t = strings.TrimSpace(t)
	if i := strings.IndexAny(t, "\r\n"); i >= 0 {
		t = t[:i] + "…"
	}
	return clip(t, maxTitle)
}

const maxTitle = 200

// askByKey finds the latest ask with the vendor's id.
func (s *State) askByKey(id dialect.Value) *ask {
	key := boundID(string(id))
	for _, a := range slices.Backward(s.asks) {
		if key != "" && a.key == key {
			return a
		}
	}
	return nil
}

func (s *State) ask(id string) *ask {
	for _, a := range slices.Backward(s.asks) {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// answerAsk notes an answer on the child's stdin: the host's, or ours. It is false
// where the ask had one; the child takes the first.
func (s *State) answerAsk(e *event.Event, a *ask, decision string) bool {
	if a.Written != nil || a.shut() {
		s.warn(e.Seq, "answered_again", a.ID)
		return false
	}
	by := ByHost
	if e.Ext["origin"] == "cbcast" {
		by = ByBus
		if a.Decided != nil && a.Decided.By == ByPolicy {
			by = ByPolicy
		}
	}
	if a.Decided == nil || by == ByHost {
		a.Decided = &AskDecided{Decision: decision, By: by, Seq: e.Seq, At: at(s.now)}
	}
	a.State, a.Written = AskAnswered, &AskWritten{Seq: e.Seq, At: at(s.now)}
	return true
}

// end closes an ask for what was seen. One that nobody answered ends for the
// given reason and has no outcome; one that was answered ends for the answer.
func (s *State) endAsk(a *ask, unanswered, outcome string, seq uint64) {
	if a.Decided == nil || a.Written == nil && a.State == AskOpen {
		s.closeAsk(a, unanswered, OutcomeNone, seq)
		return
	}
	reason := ReasonAnswered
	switch {
	case a.Decided.By == ByHost:
		reason = ReasonLocal
	case a.Decided.Cause == "timeout":
		reason = ReasonExpired
	case a.Decided.By == ByPolicy:
		reason = ReasonPolicy
	}
	s.closeAsk(a, reason, outcome, seq)
}

// follows says what an answer leads to where nothing else tells.
func (a *ask) follows() string {
	switch {
	case a.Decided == nil:
		return OutcomeNone
	case a.Decided.Decision == event.Deny, a.Decided.Decision == "error":
		return OutcomeDenied
	case a.Kind == "question", a.Kind == "elicitation":
		return OutcomeAnswered
	}
	return OutcomeUnknown
}

// closeAsk closes an ask once.
func (s *State) closeAsk(a *ask, reason, outcome string, seq uint64) {
	if a.shut() {
		return
	}
	a.State, a.Outcome, a.Form = AskShut, outcome, nil
	a.Closed = &AskEnd{Reason: reason, Seq: seq, At: at(s.now)}
	s.asksClosed++
	a.closing = s.asksClosed
}

// asksAtExit ends what is open when the run ends. died says that its edge did not
// see the end: then nobody knows whether an answer on its way was heard.
func (s *State) asksAtExit(seq uint64, died bool) {
	for _, a := range s.asks {
		switch {
		case a.shut():
			continue
		case a.open():
			s.ending.add(Incomplete, Evidence{a.OpenedSeq, byOpenAsk, a.Tool})
			s.closeAsk(a, ReasonRunEnded, OutcomeNone, seq)
		case died:
			a.State, a.Outcome, a.Form = AskUnknown, OutcomeUnknown, nil
		default:
			s.closeAsk(a, ReasonRunEnded, OutcomeUnknown, seq)
		}
	}
}

// askClosed reads the edge's own word that an ask is closed. It matters where
// the evidence is not among the events of this fold.
func (s *State) askClosed(e *event.Event) {
	var d event.AskClosed
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	a := s.ask(d.Ask)
	if a == nil {
		return
	}
	if a.Decided == nil && d.By != "" {
		a.Decided = &AskDecided{Decision: clip(d.Decision, maxText), By: clip(d.By, maxText), Command: boundID(d.Command), Seq: e.Seq, At: at(s.now)}
	}
	if a.shut() && a.Outcome == OutcomeUnknown && d.Outcome != "" {
		a.Outcome = clip(d.Outcome, maxText)
	}
	s.closeAsk(a, clip(d.Reason, maxText), clip(d.Outcome, maxText), e.Seq)
}

// askDecision reads a decision of the edge's policy.
func (s *State) askDecision(e *event.Event) {
	var d event.AutoDecided
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	a := s.ask(d.Ask)
	if a == nil || a.shut() || a.Written != nil {
		return
	}
	if d.Error != "" { // the ask is as open as before
		s.warn(e.Seq, "decision_not_written", d.Ask+": "+d.Error)
		a.State, a.Decided = AskOpen, nil
		return
	}
	a.State = AskAnswered
	a.Decided = &AskDecided{
		Decision: clip(d.Decision, maxText), By: ByPolicy, Rule: clip(d.Rule, maxText), Cause: clip(d.Cause, maxText), Seq: e.Seq, At: at(s.now),
	}
}

// askCommand reads a fact of an answer that came through the bus.
func (s *State) askCommand(e *event.Event, d *event.CommandFact) {
	a := s.ask(d.Detail["ask"])
	if a == nil {
		return
	}
	switch {
	case d.Fact == event.Written && a.Decided != nil && a.Decided.By != ByHost:
		a.Decided.Command = boundID(d.Command)
		if d.Detail["decision"] == event.Answers && a.Decided.Decision == event.Allow {
			a.Decided.Decision = event.Answers // which the line of claude and cbc does not tell apart
		}
	case d.Fact == event.UnknownF && a.Written == nil && !a.shut():
		// The line may have reached the child.
		if a.Decided == nil {
			a.Decided = &AskDecided{Decision: clip(d.Detail["decision"], maxText), By: ByBus, Command: boundID(d.Command), Seq: e.Seq, At: at(e.Time)}
		}
		a.State, a.Outcome = AskUnknown, OutcomeUnknown
	}
}

// waitingFor says what the open asks want: approval or input. An approval comes
// first, for it holds back something that is about to happen.
func (s *State) waitingFor() string {
	o := s.open()
	switch {
	case o.Approvals > 0:
		return "approval"
	case o.Questions > 0:
		return "input"
	}
	return ""
}

// Ask returns one ask, also one that is closed, while the fold has it.
func (s *State) Ask(id string) (AskView, bool) {
	if a := s.ask(id); a != nil {
		return s.askView(a), true
	}
	return AskView{}, false
}

// Asks lists the asks, oldest first.
func (s *State) Asks() []AskView {
	list := make([]AskView, 0, len(s.asks))
	for _, a := range s.asks {
		list = append(list, s.askView(a))
	}
	return list
}

// OpenAskAfter returns the first open ask that was asked behind seq: its id,
// place and time. ok is false where there is none.
func (s *State) OpenAskAfter(seq uint64) (id string, at uint64, opened time.Time, ok bool) {
	for _, a := range s.asks {
		if a.open() && a.OpenedSeq > seq && a.OpenedAt != nil {
			return a.ID, a.OpenedSeq, *a.OpenedAt, true
		}
	}
	return "", 0, time.Time{}, false
}

// AsksClosed counts the asks that have closed so far.
func (s *State) AsksClosed() int { return s.asksClosed }

// askView is a copy for showing. While the edge is lost nobody knows whether what
// was answered last came to anything.
func (s *State) askView(a *ask) AskView {
	v := a.AskView
	if v.State == AskAnswered && s.Lost() {
		v.State, v.Outcome = AskUnknown, OutcomeUnknown
	}
	if v.Decided != nil {
		d := *v.Decided
		v.Decided = &d
	}
	return v
}
