package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

const (
	allow = `"decision":"allow"`
	deny  = `"decision":"deny","message":"not now"`
)

// ask is a can_use_tool request; id is JSON text.
func ask(id, tool, input string) string {
	return fmt.Sprintf(`{"type":"control_request","request_id":%s,"request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":"tu-%s"}}`,
		id, tool, input, strings.Trim(id, `"`))
}

func withdrawn(id string) string {
	return `{"type":"control_cancel_request","request_id":` + id + `}`
}

// local is an answer of the host, yes and no in both dialects at once.
func local(id string, yes bool) string {
	body := `{"behavior":"deny","message":"host","allowed":false,"reason":"host"}`
	if yes {
		body = `{"behavior":"allow","allowed":true,"updatedInput":{}}`
	}
	return `{"type":"control_response","response":{"subtype":"success","request_id":` + id + `,"response":` + body + "}}\n"
}

// toolResult says what became of the call that an ask was about.
func (s speaker) toolResult(id string, failed bool) string {
	return s.frame(`"type":"user","parent_tool_use_id":null,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"tu-%s","content":"x","is_error":%t}]}`, strings.Trim(id, `"`), failed)
}

// answer sends an answer and returns its command's id.
func (r *rig) answer(ask, decision string, change ...func(*bus.Command)) string {
	r.Helper()
	return r.command("answer", fmt.Sprintf(`{"ask":%q,%s}`, ask, decision), append(change, func(c *bus.Command) { c.EffectBy = time.Time{} })...)
}

// asked lets the agent ask, and waits until the bus has it.
func (r *rig) asked(lines ...string) {
	r.Helper()
	r.say(lines...)
	r.seen(lines[len(lines)-1])
}

// heard is the response that the agent read.
func (r *rig) heard() (id, body string) {
	r.Helper()
	line, err := r.read()
	if err != nil {
		r.Fatal(err)
	}
	var m struct {
		Type     string `json:"type"`
		Response struct {
			Subtype string          `json:"subtype"`
			ID      json.RawMessage `json:"request_id"`
			Body    json.RawMessage `json:"response"`
		} `json:"response"`
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Type != "control_response" || m.Response.Subtype != "success" {
		r.Fatalf("not an answer: %q %v", line, err)
	}
	return string(m.Response.ID), string(m.Response.Body)
}

// quietly makes sure that the agent read nothing more: its stdin ends next.
func (r *rig) quietly() {
	r.Helper()
	r.stdin.Close()
	if line, err := r.read(); err == nil {
		r.Errorf("this was written: %s", line)
	}
}

// closedAsks are the edge's own words on asks.
func closedAsks(t testing.TB, evs []*event.Event) (out []string) {
	t.Helper()
	for _, e := range evs {
		var d event.AskClosed
		if e.Type != event.TypeAsk {
			continue
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Error(err)
		}
		out = append(out, strings.TrimSpace(d.Ask+" "+d.Reason+" "+d.By+" "+d.Decision+" "+d.Outcome))
	}
	return out
}

// view folds events.
func view(evs []*event.Event) run.View {
	s := run.New("r")
	for _, e := range evs {
		s.Apply(e)
	}
	return s.View()
}

// An answer through the bus, in the strict form of each dialect, and what came of it.
func TestAnswer(t *testing.T) {
	input := `{"command":"a && b <c>","n":9007199254740993,"e":"é"}` // case 056
	ascii := strings.ReplaceAll(input, "é", `\u00e9`)
	tests := []struct {
		name     string
		s        speaker
		decision string
		want     string // the inner response
		failed   bool   // the tool's result is an error
		fact     string
		closed   string
	}{
		{"claude allow", claude, allow, `{"behavior":"allow","updatedInput":` + ascii + `}`, false, settled, "a1 answered bus allow ran"},
		{"claude allow, tool fails", claude, allow, `{"behavior":"allow","updatedInput":` + ascii + `}`, true, settled, "a1 answered bus allow failed"},
		{"claude deny", claude, deny, `{"behavior":"deny","message":"not now"}`, true, settled, "a1 answered bus deny denied"},
		{"claude deny without a word", claude, `"decision":"deny"`, `{"behavior":"deny","message":"The request was denied."}`, true, settled, "a1 answered bus deny denied"},
		{"cbc allow", cbc, allow, `{"allowed":true,"updatedInput":` + ascii + `,"tool_use_id":"tu-q1"}`, false, settled, "a1 answered bus allow ran"},
		{"cbc deny", cbc, deny + `,"interrupt":true`, `{"allowed":false,"reason":"not now","interrupt":true}`, true, settled, "a1 answered bus deny denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := session(t, tt.s)
			r.asked(ask(`"q1"`, "Bash", input))
			if v := view(r.w.history(t, r.run)); v.State != "waiting" || v.WaitingFor != "approval" || v.Open.Approvals != 1 {
				t.Errorf("%s for %s, %+v", v.State, v.WaitingFor, v.Open)
			}
			id := r.answer("a1", tt.decision)
			key, body := r.heard()
			equal(t, "id", key, `"q1"`)
			equal(t, "body", body, tt.want)
			r.fact(id, event.Written)
			r.say(tt.s.toolResult(`"q1"`, tt.failed), tt.s.result())
			equal(t, "facts", r.final(id), []string{written, tt.fact})
			equal(t, "again", r.final(r.answer("a1", tt.decision)), []string{"refused: already_answered: answered"})
			r.quietly()
			out := r.exit(0)
			equal(t, "after the end", len(out.State.View().Asks), 1)
			evs := r.w.history(t, r.run)
			equal(t, "closed", closedAsks(t, evs), []string{tt.closed})
			for _, e := range evs {
				if strings.Contains(string(e.Data), `"q1"`) && e.Stream != event.Edge {
					equal(t, "ask of "+string(e.Data), e.Ext["ask"], "a1")
					equal(t, "kind", e.Kind, event.Ask)
				}
			}
			v := view(evs)
			a := v.Asks[0]
			if a.Decided == nil || a.Decided.By != "bus" || a.Decided.Command != id || a.Written == nil || a.Closed.Reason != "answered" {
				t.Errorf("ask %+v, decided %+v", a, a.Decided)
			}
		})
	}
}

// What cannot be answered is refused with its reason, and nothing is written.
func TestAnswerRefused(t *testing.T) {
	question := `{"questions":[{"question":"Which?","options":[{"label":"Red"}]}]}`
	r := session(t, cbc)
	r.asked(
		ask(`"q1"`, "Bash", `{"command":"ls"}`),
		ask(`"q2"`, "AskUserQuestion", question),
		`{"type":"control_request","request_id":"q3","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls","command":"rm"}}}`,
	)
	for _, tt := range []struct{ ask, answer, want string }{
		{"a9", allow, "unknown_ask"},
		{"q1", allow, "unknown_ask"},
		{"", allow, "bad_answer: it names no ask"},
		{"a1", `"decision":"yes"`, `bad_answer: no decision "yes"`},
		{"a1", `"message":"x"`, `bad_answer: no decision ""`},
		{"a1", `"decision":"answer","answers":{"x":"y"}`, "bad_answer: the request is no question; allow or deny it"},
		{"a2", allow, "bad_answer: a question is answered, not only allowed: answers are missing"},
		{"a2", `"decision":"answer","answers":{"How?":"x"}`, `bad_answer: question "Which?" has no answer`},
		{"a3", allow, "bad_answer: the request is ambiguous: keys stand twice in it"},
		{"a3", deny, "bad_answer: the request is ambiguous: keys stand twice in it"},
	} {
		equal(t, tt.ask+" "+tt.answer, r.final(r.answer(tt.ask, tt.answer)), []string{"refused: " + tt.want})
	}
	id := r.answer("a2", `"decision":"answer","answers":{"Which?":"Red"}`)
	_, body := r.heard()
	equal(t, "answered", body, `{"allowed":true,"updatedInput":{"questions":[{"question":"Which?","options":[{"label":"Red"}]}],"answers":{"Which?":"Red"}},"tool_use_id":"tu-q2"}`)
	r.say(cbc.toolResult(`"q2"`, false))
	equal(t, "facts", r.final(id), []string{written, settled})
	r.stdin.Close() // EOF is passed on
	if _, err := r.read(); err == nil {
		t.Error("something else was written")
	}
	equal(t, "after EOF", r.final(r.answer("a1", allow)), []string{"refused: stdin_closed"})
	r.exit(0)
	equal(t, "closed", closedAsks(t, r.w.history(t, r.run)), []string{"a2 answered bus answer answered"})
}

// 052, 054: what the agent took back is not answered, by nobody.
func TestAnswerWithdrawn(t *testing.T) {
	r := session(t, claude)
	r.asked(ask(`"q1"`, "Bash", `{}`), withdrawn(`"q1"`))
	equal(t, "answer", r.final(r.answer("a1", allow)), []string{"refused: withdrawn"})
	r.quietly()
	r.exit(0)
	equal(t, "closed", closedAsks(t, r.w.history(t, r.run)), []string{"a1 withdrawn   none"})
}

// Two asks are open at once, are answered in the other order, and one is taken by
// an interrupt.
func TestTwoAsks(t *testing.T) {
	r := session(t, claude)
	r.asked(ask(`"q1"`, "Read", `{"n":1}`), ask(`"q2"`, "Read", `{"n":2}`), ask(`"q3"`, "AskUserQuestion", `{}`))
	v := view(r.w.history(t, r.run))
	equal(t, "open", []any{v.State, v.WaitingFor, v.Open.Approvals, v.Open.Questions}, []any{"waiting", "approval", 2, 1})
	second := r.answer("a2", allow)
	id, body := r.heard()
	equal(t, "second", id+body, `"q2"{"behavior":"allow","updatedInput":{"n":2}}`)
	r.say(claude.toolResult(`"q2"`, false))
	equal(t, "second", r.final(second), []string{written, settled})
	first := r.answer("a1", deny)
	id, _ = r.heard()
	equal(t, "first", id, `"q1"`)
	r.say(claude.toolResult(`"q1"`, true))
	equal(t, "first", r.final(first), []string{written, settled})
	if v := view(r.w.history(t, r.run)); v.State != "waiting" || v.WaitingFor != "input" {
		t.Errorf("%s for %s", v.State, v.WaitingFor)
	}
	stop := r.command("interrupt", "")
	req := r.request()
	r.say(withdrawn(`"q3"`), ack(req.ID), claude.toolResult(`"q3"`, true), claude.aborted())
	equal(t, "interrupt", r.final(stop), []string{written, acked, settled})
	equal(t, "third", r.final(r.answer("a3", deny)), []string{"refused: withdrawn: an interrupt or the turn's end took it"})
	r.quietly()
	r.exit(0)
	equal(t, "closed", closedAsks(t, r.w.history(t, r.run)), []string{"a2 answered bus allow ran", "a1 answered bus deny denied", "a3 cleared   none"})
}

// An ask that the host answers first is its own; the order of the lines decides.
func TestHostAnswers(t *testing.T) {
	r := session(t, claude)
	r.asked(ask(`"q1"`, "Bash", `{}`))
	r.write(local(`"q1"`, true))
	r.heard()
	r.await("the host's answer", func(e *event.Event) bool { return e.Stream == event.In && e.Ext["ask"] == "a1" })
	equal(t, "after the host", r.final(r.answer("a1", deny)), []string{"refused: already_answered_locally"})
	r.say(claude.toolResult(`"q1"`, false))

	// The host is inside a line when ours comes, and it is the answer.
	r.asked(ask(`"q2"`, "Bash", `{}`))
	line := local(`"q2"`, false)
	r.write(line[:20])
	id := r.answer("a2", allow)
	r.write(line[20:])
	key, body := r.heard()
	if key != `"q2"` || !strings.Contains(body, "host") {
		t.Errorf("the host's answer came as %s %s", key, body)
	}
	r.say(claude.toolResult(`"q2"`, true))
	if got := r.final(id); !strings.HasSuffix(got[len(got)-1], "already_answered_locally") {
		t.Errorf("ours: %q", got)
	}
	r.stdin.Close()
	for { // ours may stand behind the host's: then the agent ignores it
		if _, err := r.read(); err != nil {
			break
		}
	}
	r.exit(0)
	equal(t, "closed", closedAsks(t, r.w.history(t, r.run)), []string{"a1 answered_local host allow ran", "a2 answered_local host deny denied"})
}

// Two answers through the bus at once: one is written.
func TestAnsweredTwice(t *testing.T) {
	r := session(t, claude)
	r.asked(ask(`"q1"`, "Bash", `{}`))
	r.half(`{"type":"user",`) // both wait behind half a line
	one, two := r.answer("a1", allow), r.answer("a1", deny)
	r.write(`"message":{"role":"user","content":"x"}}` + "\n")
	if line, err := r.read(); err != nil || !strings.Contains(line, "user") {
		t.Fatal(line, err)
	}
	_, body := r.heard()
	if !strings.Contains(body, `"allow"`) {
		t.Errorf("the second came first: %s", body)
	}
	equal(t, "second", r.final(two), []string{"refused: already_answered"})
	r.say(claude.toolResult(`"q1"`, false))
	equal(t, "first", r.final(one), []string{written, settled})
	r.quietly()
	r.exit(0)
}

// flagged leaves out what other tests on the same bus cause: they use the same
// session.
func flagged(ws []run.Warning) []run.Warning {
	return slices.DeleteFunc(ws, func(w run.Warning) bool { return w.What == "session_conflict" })
}

// 066: ids are answered with the JSON type they came with.
func TestAnswerIDs(t *testing.T) {
	r := session(t, claude)
	ids := []string{"0", `""`, `"7"`, "7"}
	for _, id := range ids {
		r.say(ask(id, "Bash", `{}`))
	}
	none := ask("null", "Bash", `{}`)
	r.asked(none)
	if v := view(r.w.history(t, r.run)); len(v.Asks) != 4 || v.Open.Asks != 4 || len(flagged(v.Warnings)) != 1 {
		t.Errorf("%d asks, %+v", len(v.Asks), v.Warnings)
	}
	for i, want := range ids {
		r.answer(fmt.Sprintf("a%d", i+1), deny)
		if id, _ := r.heard(); id != want {
			t.Errorf("a%d was answered to %s, want %s", i+1, id, want)
		}
	}
	r.quietly()
	r.exit(0)
}

// 050: the host's EOF is held back while an ask is open, so that the answer
// reaches the agent.
func TestAnswerAfterEOF(t *testing.T) {
	r := session(t, claude, func(o *ingest.Options) { o.HoldStdin = true })
	r.stdin.Close()
	r.asked(ask(`"q1"`, "Bash", `{}`))
	id := r.answer("a1", allow)
	r.heard()
	r.say(claude.toolResult(`"q1"`, false), claude.result())
	equal(t, "facts", r.final(id), []string{written, settled})
	if line, err := r.read(); err == nil { // the EOF comes when nothing is open
		t.Errorf("this was written: %s", line)
	}
	r.exit(0)
}

// An ask whose end nobody saw: the agent left after the answer.
func TestAnswerAtExit(t *testing.T) {
	r := session(t, claude)
	r.asked(ask(`"q1"`, "Bash", `{}`), ask(`"q2"`, "Bash", `{}`))
	id := r.answer("a1", allow)
	r.heard()
	r.fact(id, event.Written)
	r.exit(1)
	evs := r.w.history(t, r.run)
	equal(t, "facts", facts(evs, id), []string{written, "unknown: the run ended first"})
	v := view(evs)
	equal(t, "answered", v.Asks[0].State+" "+v.Asks[0].Closed.Reason+" "+v.Asks[0].Outcome, "closed run_ended unknown")
	equal(t, "not answered", v.Asks[1].State+" "+v.Asks[1].Closed.Reason+" "+v.Asks[1].Outcome, "closed run_ended none")
}

// An edge that is killed with an answer written, or on its way, leaves the ask
// unknown; with none the ask ended. Nothing is ever sent again.
func TestKilledEdgeAsk(t *testing.T) {
	root := filepath.Join(t.TempDir(), "spool")
	r, cmd := edgeRig(t, root)
	r.write(user)
	r.read()
	r.asked(claude.init(), ask(`"q1"`, "Bash", `{}`), ask(`"q2"`, "Bash", `{}`), ask(`"q3"`, "Bash", `{}`))
	id := r.answer("a1", allow)
	r.heard()
	r.fact(id, event.Written)
	r.half(`{"type":"user",`) // the next answer waits
	waits := r.answer("a3", deny)
	poll(r, "the intent in the journal", func() bool {
		files, _ := filepath.Glob(filepath.Join(root, "*", "*"))
		return slices.ContainsFunc(files, func(name string) bool {
			b, _ := os.ReadFile(name)
			return filepath.Ext(name) != ".seg" && bytes.Contains(b, []byte(waits))
		})
	})
	cmd.Process.Kill()
	cmd.Wait()
	for range r.reports { // ends with the child
	}
	if got := flush(t, root); len(got) != 1 {
		t.Fatalf("flushed %+v", got)
	}
	evs := r.w.history(t, r.run)
	equal(t, "facts", facts(evs, id), []string{written, "unknown: the edge died before the effect was seen"})
	v := view(evs)
	equal(t, "asks", len(v.Asks), 3)
	a := v.Asks[0]
	if a.State != "unknown" || a.Outcome != "unknown" || a.Decided == nil || a.Decided.Command != id || a.Written == nil || a.Closed != nil {
		t.Errorf("answered ask: %+v %+v", a, a.Decided)
	}
	equal(t, "not answered", v.Asks[1].State+" "+v.Asks[1].Closed.Reason, "closed run_ended")
	equal(t, "facts", facts(evs, waits), []string{"unknown: the edge died before the effect was seen"})
	a = v.Asks[2]
	if a.State != "unknown" || a.Decided == nil || a.Decided.Decision != "deny" || a.Decided.Command != waits || a.Written != nil {
		t.Errorf("ask with an answer on its way: %+v %+v", a, a.Decided)
	}
	equal(t, "lines of ours", countOurs(evs), 1)
}

func countOurs(evs []*event.Event) (n int) {
	for _, e := range evs {
		if e.Ext["origin"] == "cbcast" {
			n++
		}
	}
	return n
}

// A request that is for the host itself passes, is recorded, and gets no answer
// of ours.
func TestUnknownRequest(t *testing.T) {
	r := session(t, claude)
	odd := `{"type":"control_request","request_id":"x-1","request":{"subtype":"read_the_clock"}}`
	hook := `{"type":"control_request","request_id":"h-1","request":{"subtype":"hook_callback","callback_id":"c"}}`
	r.asked(odd, hook)
	r.quietly()
	r.exit(0)
	out := r.stdout()
	if !strings.Contains(out, odd) || !strings.Contains(out, hook) {
		t.Errorf("the host got %q", out)
	}
	evs := r.w.history(t, r.run)
	equal(t, "lines of ours", countOurs(evs), 0)
	equal(t, "asks", len(view(evs).Asks), 0)
	for _, e := range evs {
		if bytes.Contains(e.Data, []byte("read_the_clock")) {
			equal(t, "type", e.Type, "dev.cbcast.claude.control_request.other")
		}
	}
}
