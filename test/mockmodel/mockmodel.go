// Package mockmodel is a scripted model on loopback. It speaks three protocols,
// the Anthropic Messages API (Claude Code), OpenAI chat completions (cbc) and the
// OpenAI Responses API (Codex), so that tests drive the real programs to known
// frames with no network and no key.
//
// It plays turns: for each request they are tried from first to last, and the
// first that has plays left and fits is played. Tests hold a turn at a gate and
// wait until it is reached, so they never guess how long something takes.
//
// Origin: rewritten in one package from the three scripted servers that recorded
// the captures in test/capture.
package mockmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A Turn is one scripted answer.
type Turn struct {
	Name string
	// Last is a regular expression on the text since the model's last words: the
	// user's message and tool results. A turn without it fits any request that
	// offers tools, which the agent's own loop does; put the turns of sub-agents
	// before those.
	Last  string
	Times int // 0 is once, -1 for ever
	Steps []Step
	// Status other than 0 answers with that HTTP error and no steps.
	Status int
}

// A Step is one of: words, a tool call, a gate.
type Step struct {
	Say   string        // streamed in pieces of 8 bytes
	Pause time.Duration // after each piece, at least; see [Model.Pace]
	Call  string        // name of a tool
	Input any           // of the tool
	Gate  string        // wait until the test opens it, or the client leaves
}

// minPause keeps cbc from losing frames; it does with a model that answers without
// any delay. See [Model.Pace].
const minPause = 30 * time.Millisecond

// Model is an http.Handler. Create it with New.
type Model struct {
	mu      sync.Mutex // guards what follows
	turns   []*turn
	reached map[string]int
	changed chan struct{} // closed and replaced when reached grows
	gates   map[string]chan struct{}
	log     []string
	ids     int
	pause   time.Duration
}

type turn struct {
	Turn
	last   *regexp.Regexp
	played int
}

// New returns a model that plays turns. It panics where a regular expression of
// theirs is wrong.
func New(turns ...Turn) *Model {
	m := &Model{reached: map[string]int{}, changed: make(chan struct{}), gates: map[string]chan struct{}{}, pause: minPause}
	m.Add(turns...)
	return m
}

// Add appends turns, for those that need the model's address.
func (m *Model) Add(turns ...Turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range turns {
		p := &turn{Turn: t}
		if t.Last != "" {
			p.last = regexp.MustCompile("(?s)" + t.Last)
		}
		m.turns = append(m.turns, p)
	}
}

// Pace makes the model wait for d at least after each piece of text and each call.
// cbc 2.117 needs the more the busier the machine is.
func (m *Model) Pace(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pause = d
}

// Open lets everyone who waits at a gate, and who will, pass.
func (m *Model) Open(gate string) {
	g := m.gate(gate)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-g:
	default:
		close(g)
	}
}

// Await waits until something happened n times in all: "NAME", a turn was asked
// for; "at NAME", a gate was reached; "left NAME", a client left while it waited
// there.
func (m *Model) Await(ctx context.Context, name string, n int) error {
	for {
		m.mu.Lock()
		have, changed := m.reached[name], m.changed
		m.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s was reached %d of %d times: %w\n%s", name, have, n, ctx.Err(), m.Log())
		}
	}
}

// Log says what was asked and answered, one line each.
func (m *Model) Log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.log, "\n")
}

func (m *Model) gate(name string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.gates[name]
	if !ok {
		g = make(chan struct{})
		m.gates[name] = g
	}
	return g
}

// wait marks the gate as reached and waits for it.
func (m *Model) wait(ctx context.Context, gate string) error {
	g := m.gate(gate)
	m.reach("at " + gate)
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		m.logf("client left at gate %s", gate)
		m.reach("left " + gate)
		return ctx.Err()
	}
}

func (m *Model) reach(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached[name]++
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Model) logf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *Model) nextID(prefix string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids++
	return fmt.Sprintf("%s_mock_%04d", prefix, m.ids)
}

// pick consumes a play of the turn that answers a request.
func (m *Model) pick(last string, tools bool) Turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.turns {
		limit := max(t.Times, 1)
		if t.Times >= 0 && t.played >= limit {
			continue
		}
		if t.last == nil && !tools || t.last != nil && !t.last.MatchString(last) {
			continue
		}
		t.played++
		return t.Turn
	}
	if tools {
		return Turn{Name: "off script", Steps: []Step{{Say: "off script"}}}
	}
	return Turn{Name: "aside", Steps: []Step{{Say: "aside"}}} // titles, summaries
}

// ServeHTTP answers all protocols. GET /gate/NAME waits at a gate: a scripted
// shell command can do that, and so be known to run.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		m.answer(w, r, &messages{w: w}, decode[request])
	case r.Method == http.MethodPost && r.URL.Path == "/v1/chat/completions":
		m.answer(w, r, &chat{w: w}, decode[request])
	case r.Method == http.MethodPost && r.URL.Path == "/v1/responses":
		m.answer(w, r, &responses{w: w}, func(r io.Reader) (request, error) {
			req, err := decode[responsesRequest](r)
			return req.common(), err
		})
	case strings.HasPrefix(r.URL.Path, "/gate/"):
		if m.wait(r.Context(), strings.TrimPrefix(r.URL.Path, "/gate/")) == nil {
			_, _ = io.WriteString(w, "open\n")
		}
	case r.URL.Path == "/v1/messages/count_tokens":
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": 1})
	case r.Method == http.MethodHead || r.URL.Path == "/":
	default:
		m.logf("%s %s: not served", r.Method, r.URL.Path)
		writeJSON(w, http.StatusNotFound, map[string]any{"type": "error", "error": map[string]any{"type": "not_found_error", "message": "not served"}})
	}
}

// encoder writes one answer in one protocol.
type encoder interface {
	start(id, model string)
	say(text string)
	call(id, name string, input []byte)
	end(calls bool)
	whole(id, model, text string, calls []toolCall) // the answer to a request that wants no stream
}

type toolCall struct {
	id, name string
	input    []byte
}

func decode[T any](r io.Reader) (v T, err error) {
	err = json.NewDecoder(r).Decode(&v)
	return v, err
}

func (m *Model) answer(w http.ResponseWriter, r *http.Request, enc encoder, decode func(io.Reader) (request, error)) {
	req, err := decode(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	last := req.last()
	t := m.pick(last, len(req.Tools) > 0)
	m.logf("%s plays %q: %d tools, last %.80q", r.URL.Path, t.Name, len(req.Tools), last)
	m.reach(t.Name)
	if t.Status != 0 {
		writeJSON(w, t.Status, map[string]any{"type": "error", "error": map[string]any{"type": "api_error", "message": "scripted"}})
		return
	}
	var text strings.Builder
	var calls []toolCall
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		enc.start(m.nextID("msg"), req.Model)
	}
	for _, s := range t.Steps {
		switch {
		case s.Gate != "":
			if m.wait(r.Context(), s.Gate) != nil {
				return
			}
		case s.Call != "":
			input, err := json.Marshal(s.Input)
			if err != nil {
				panic(err) // a test's own value
			}
			c := toolCall{m.nextID("toolu"), s.Call, input}
			calls = append(calls, c)
			if req.Stream {
				enc.call(c.id, c.name, c.input)
				if m.sleep(r.Context(), s) != nil {
					return
				}
			}
		default:
			text.WriteString(s.Say)
			if req.Stream && m.stream(r.Context(), enc, s) != nil {
				m.logf("client left in turn %s", t.Name)
				return
			}
		}
	}
	if req.Stream {
		enc.end(len(calls) > 0)
		return
	}
	enc.whole(m.nextID("msg"), req.Model, text.String(), calls)
}

func (m *Model) stream(ctx context.Context, enc encoder, s Step) error {
	for rest := s.Say; rest != ""; {
		n := min(8, len(rest))
		enc.say(rest[:n])
		rest = rest[n:]
		if err := m.sleep(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// sleep is the pause after a piece of a step.
func (m *Model) sleep(ctx context.Context, s Step) error {
	m.mu.Lock()
	d := max(s.Pause, m.pause)
	m.mu.Unlock()
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
