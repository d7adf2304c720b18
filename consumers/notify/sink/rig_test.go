package sink_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

const testRun = "0198f3c2-0000-7000-8000-00000000abcd"

var loopback = func() *sink.Guard {
	g, err := sink.NewGuard([]string{"127.0.0.0/8", "::1"}, "")
	if err != nil {
		panic(err)
	}
	return g
}()

// notice is one of a run that ended well, changed by more.
func notice(kind sink.Kind, more ...func(*sink.Notice)) *sink.Notice {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	end := start.Add(83 * time.Second)
	n := &sink.Notice{
		ID: testRun + "/42", Kind: kind, Tenant: "acme", Run: testRun, At: time.Now(),
		Event: &event.Event{Tenant: "acme", Run: testRun, Seq: 42, Type: event.TypeExited, Time: end},
		CI:    map[string]string{"cirepo": "acme/web", "cijob": "test", "ciref": "main"},
		Links: sink.Links{Run: "https://cbcast.example/#/run/" + testRun, CI: "https://ci.example/jobs/7"},
		View: &run.View{
			Run: testRun, Tenant: "acme", Dialect: "claude", State: "done", StartedAt: &start, EndedAt: &end,
			Verdict: &run.Judgement{Verdict: run.Success}, Usage: run.UsageView{CostUSD: 0.42},
			Tasks:  []run.TaskView{{ID: "t1", Type: "local_workflow", Name: "fix-tests", Status: "completed"}, {ID: "t2", Status: "failed"}},
			Result: &run.ResultView{Text: "All tests pass."},
		},
	}
	for _, f := range more {
		f(n)
	}
	return n
}

// waiting is a notice of a run that waits for these.
func waiting(asks ...run.AskView) func(*sink.Notice) {
	return func(n *sink.Notice) {
		n.Kind, n.Asks = sink.Waiting, asks
		n.View.State, n.View.Verdict, n.View.EndedAt, n.View.Result = "waiting", nil, nil, nil
		n.View.Open = run.Open{Turns: 1, Asks: len(asks), Approvals: len(asks)}
		n.View.Turns = []run.TurnView{{N: 1, State: "open"}}
		n.Event.Type, n.ID = "dev.cbcast.claude.control_request.can_use_tool", testRun+"/7"
	}
}

func withResult(text string) func(*sink.Notice) {
	return func(n *sink.Notice) { n.View.Result = &run.ResultView{Text: text} }
}

// approval is an ask to use a tool.
func approval(id, tool string, input any) run.AskView {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	title := tool
	if m, ok := input.(map[string]string); ok && m["command"] != "" {
		line, _, more := strings.Cut(m["command"], "\n")
		if title = line; more { // as the fold makes it
			title += "…"
		}
		if len(title) > 200 {
			title = strings.ToValidUTF8(title[:199], "") + "…"
		}
	}
	return run.AskView{
		ID: id, Class: run.Approval, Kind: "permission", Tool: tool, ToolUseID: "toolu_" + id, Title: title, State: run.AskOpen, OpenedSeq: 7,
		Form: &run.AskForm{Input: raw},
	}
}

func question(id string, questions ...run.AskQuestion) run.AskView {
	return run.AskView{
		ID: id, Class: run.Question, Kind: "question", Tool: "AskUserQuestion", Title: questions[0].Text, State: run.AskOpen,
		Form: &run.AskForm{Questions: questions},
	}
}

// A given is what an actor was told to do.
type given struct {
	Run, Ask, Command string
	Answer            event.Answer
	Behalf            string
}

// An actor stands for the relay: asks that somebody can close, and the first answer
// counts.
type actor struct {
	mu    sync.Mutex
	asks  map[string]*run.AskView
	given []given
	first map[string]given
	err   error         // of the next call
	wait  chan struct{} // of answers, until it is closed
	in    chan struct{} // capacity 1: one waits
}

func newActor(asks ...run.AskView) *actor {
	a := &actor{asks: map[string]*run.AskView{}, first: map[string]given{}}
	for i := range asks {
		a.asks[asks[i].ID] = &asks[i]
	}
	return a
}

func (a *actor) set(ask run.AskView) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks[ask.ID] = &ask
}

func (a *actor) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *actor) all() []given {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]given{}, a.given...)
}

func (a *actor) Ask(_ context.Context, run, ask string) (*run.AskView, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.asks[ask]
	if v == nil || run != testRun {
		return nil, &sink.ActError{Code: "not_found", Message: "the run has no such ask"}
	}
	c := *v
	return &c, nil
}

func (a *actor) Answer(_ context.Context, run, ask string, answer event.Answer, behalf string) (sink.Acted, error) {
	if a.wait != nil {
		select {
		case a.in <- struct{}{}:
		default:
		}
		<-a.wait
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.err; err != nil {
		a.err = nil
		return sink.Acted{}, err
	}
	g := given{Run: run, Ask: ask, Answer: answer, Behalf: behalf, Command: "answer-" + run + "-" + ask + "-1"}
	if was, ok := a.first[ask]; ok {
		x, _ := json.Marshal(was.Answer)
		y, _ := json.Marshal(answer)
		if string(x) == string(y) {
			return sink.Acted{Command: g.Command, Duplicate: true}, nil
		}
		d, _ := json.Marshal(map[string]string{"decision": was.Answer.Decision, "actor": "notify", "for": was.Behalf})
		return sink.Acted{}, &sink.ActError{Code: "already_answered", Message: "somebody else has answered this first", Details: d}
	}
	a.first[ask], a.given = g, append(a.given, g)
	return sink.Acted{Command: g.Command}, nil
}

func (a *actor) Interrupt(_ context.Context, run, id, reason, behalf string) (sink.Acted, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given = append(a.given, given{Run: run, Command: id, Behalf: behalf})
	return sink.Acted{Command: id}, nil
}

// A journal is a log that tests look through.
type journal struct {
	mu sync.Mutex
	b  strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func holdsNone(t *testing.T, what, text string, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		if strings.Contains(text, s) {
			t.Errorf("%s holds %q: %s", what, s, text)
		}
	}
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
