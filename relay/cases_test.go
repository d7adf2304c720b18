package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/relay"
)

// Known failures of other programs that concern a relay, by their number in the
// collection they are from. Those that have a test of a wider kind name their
// number there: 064 in TestCommandKey, 093 in TestGap and TestCursor, 095 in
// TestLostThenTruth, 097 in TestWriteTimeoutOfServer, 100 in TestStreamBytes and
// FuzzFrame, 102 in TestSlowClientIsCut, 105 in TestForeignIsMissing.

// openAsks are the asks that the relay lists as open, in short.
func (s *served) openAsks(run string) string {
	s.t.Helper()
	var l relay.AskList
	s.get("/v1/runs/"+run+"/asks?state=open", nil).into(s.t, &l)
	var out []string
	for _, a := range l.Asks {
		out = append(out, fmt.Sprint(a.ID, " ", a.Tool, " form:", a.Form != nil))
	}
	return strings.Join(out, ", ")
}

// Case 060 (siteboon/claudecodeui#462): what is open is not lost with the page that
// showed it. One client comes back behind the request, another comes when it is no
// longer kept: both see the open ask, with its form, and none that is closed. (A relay
// that first reads the run after that knows from the list that an ask is open, and
// not which.)
func TestCaseOpenAskAfterReconnect(t *testing.T) {
	r := newRig(t, small())
	e := r.asking("run-1", bash(1), bash(2), cancel(2))
	s := r.relay(relay.Config{})
	if got := s.openAsks("run-1"); got != "a1 Bash form:true" {
		t.Fatalf("before: %s", got)
	}
	e.emit(notes(3)...)
	e.shipped()
	behind := s.stream("/v1/runs/run-1/stream", map[string]string{"Last-Event-ID": "5"})
	if got := ids(behind.take(3)); got != "6 7 8" {
		t.Errorf("behind the request: %s", got)
	}
	r.purge(0, 8)
	s2 := r.relay(relay.Config{})
	if got := ids(s2.stream("/v1/runs/run-1/stream", nil).take(2)); got != "gap 8" {
		t.Errorf("after retention: %s", got)
	}
	if got := s.openAsks("run-1"); got != "a1 Bash form:true" {
		t.Errorf("after retention: %s", got)
	}
	if got := s.reply("run-1", "a1", allow); got != "202 answer-run-1-a1-1" {
		t.Errorf("the answer: %s", got)
	}
	if got := s.reply("run-1", "a2", allow); got != "410 ask_closed withdrawn" {
		t.Errorf("the answer to what was withdrawn: %s", got)
	}
}

// Case 062 (sesori-ai/sesori_apps_monorepo#960): a rule that allows reads hides
// nothing: a request of another tool, and a read whose answer could not be written,
// are both listed and can be answered by hand.
func TestCaseHiddenUnderAutoAllow(t *testing.T) {
	r := newRig(t, small())
	read := request(2, "Read", `{"file_path":"/w/x"}`)
	read.Ext["auto"] = event.Allow
	failed := func(err string) event.Event {
		return fact(event.TypeDecision, event.Ask, event.AutoDecided{
			Ask: "a2", Tool: "Read", Decision: event.Allow, Rule: "reads", Cause: "rule", Error: err,
		})
	}
	r.asking("run-1", bash(1), read, failed(""), failed("the agent does not read its stdin"))
	s := r.relay(relay.Config{})
	if got := s.openAsks("run-1"); got != "a1 Bash form:true, a2 Read form:true" {
		t.Errorf("open are %q", got)
	}
	for _, ask := range []string{"a1", "a2"} {
		if got := s.reply("run-1", ask, allow); got != "202 answer-run-1-"+ask+"-1" {
			t.Errorf("%s: %s", ask, got)
		}
	}
}

// Case 099 (gin-contrib/gzip#16, coder/agentapi#69): an event is on the wire when it
// is there, not when a buffer is full, also where the client takes compression. That
// who cannot flush is refused is TestNoFlusherIsRefused.
func TestCaseEventsAreNotHeldBack(t *testing.T) {
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(0))
	e.shipped()
	s := r.relay(relay.Config{})
	c := s.stream("/v1/runs/run-1/stream", map[string]string{"Accept-Encoding": "gzip, br, zstd"})
	c.take(1)
	for n := range 5 { // each one alone, and the stream stays open
		e.emit(note(n + 1))
		if got := ids(c.take(1)); got != itoa(uint64(n+2)) {
			t.Fatalf("event %s", got)
		}
	}
	if got := c.res.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("the stream is compressed: %s", got)
	}
}

// Case 105 (GHSA-84j6-jc92-77jm): a cursor counts only within the run in the path,
// and a token that was revoked is none at the next connect and the next command.
func TestCaseCursorOfAnotherRun(t *testing.T) {
	_, s := foreign(t)
	h := map[string]string{"Authorization": "Bearer " + tokenRun, "Last-Event-ID": "2"}
	for _, e := range s.stream("/v1/runs/run-1/stream", h).all() {
		if e.id != "3" || strings.Contains(e.data, secret) {
			t.Errorf("event %s: %.200s", e.id, e.data)
		}
	}
	for _, id := range []string{"run-2/2", "run-2", "2@run-2"} {
		h["Last-Event-ID"] = id
		if got := s.get("/v1/runs/run-1/stream", h); got.status != http.StatusBadRequest || strings.Contains(string(got.body), "run-2") {
			t.Errorf("cursor %s: %d %s", id, got.status, got.body)
		}
	}
	r := newRig(t, small())
	e := r.edge("run-1")
	e.emit(note(1))
	e.shipped()
	soon := time.Now().Add(-time.Second)
	s = r.relay(relay.Config{Tokens: tokensOf(t, grantOf("old", tokenRun, relay.Token{Scopes: allScopes, Expires: soon}))})
	h = map[string]string{"Authorization": "Bearer " + tokenRun}
	if got := s.get("/v1/runs/run-1/stream", h); got.status != http.StatusUnauthorized {
		t.Errorf("a token that has expired may connect: %d", got.status)
	}
	if got := s.do("POST", "/v1/runs/run-1/interrupt", "{}", h); got.status != http.StatusUnauthorized {
		t.Errorf("a token that has expired may command: %d", got.status)
	}
}
