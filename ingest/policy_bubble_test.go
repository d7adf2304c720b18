package ingest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/ingest"
	"github.com/cbcast/cbcast/ingest/child"
	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/dialect"
)

// played is an edge without a process, under a policy.
func played(t *testing.T, policy string) *ingest.Played {
	t.Helper()
	o := ingest.Options{
		Config:    ingest.Config{Tenant: "acme", SpoolRunMax: 1 << 30, SpoolMax: -1, CaptureStdin: "control", PresenceTTL: 30 * time.Second},
		SpoolRoot: filepath.Join(t.TempDir(), "spool"), Key: []byte("0123456789abcdef"), Partitions: 1, Dialect: dialect.Claude,
		Argv: streamArgs, Log: testLog(t),
	}
	policed(t, policy)(&o)
	p := ingest.NewPlayed(t, o)
	p.Say(claude.init())
	p.Say(claude.text("hello"))
	return p
}

const timeouts = `{"timeouts":{"approval":{"after":"1h","then":"deny"},"question":{"after":"2h","then":"deny","interrupt":false,"message":"nobody is here"}}}`

// 058: an ask that nobody answers is denied at its time, and the turn ends; that
// the same was asked before is counted.
func TestPolicyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, timeouts)
		for i := range 5 {
			id := fmt.Sprintf(`"q%d"`, i)
			p.Say(ask(id, "Bash", `{"command":"make deploy"}`))
			time.Sleep(time.Hour - time.Nanosecond) // the bubble's time
			synctest.Wait()
			if v := p.View(); v.State != "waiting" || len(p.Lines()) != i {
				t.Fatalf("%s, %d lines, before the time", v.State, len(p.Lines()))
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			want := fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%s,"response":{"behavior":"deny","message":"Nobody answered in time.","interrupt":true}}}`+"\n", id)
			if len(p.Lines()) != i+1 {
				t.Fatalf("%d lines", len(p.Lines()))
			}
			equal(t, "line", p.Lines()[i], want)
			if v := p.View(); v.State == "waiting" {
				t.Error("still waiting")
			}
			p.Say(claude.toolResult(id, true))
			p.Say(claude.aborted())
			a := p.View().Asks[i]
			equal(t, "ask", fmt.Sprint(a.Closed.Reason, " ", a.Outcome, " ", a.Decided.By, " ", a.Decided.Cause, " ", a.Repeats),
				fmt.Sprint("expired denied policy timeout ", i))
		}
		p.Say(ask(`"other"`, "Bash", `{"command":"make test"}`))
		equal(t, "another command", p.View().Asks[5].Repeats, 0)
		p.Say(withdrawn(`"other"`)) // nothing is due for it
		p.Say(ask(`"question"`, "AskUserQuestion", `{"questions":[{"question":"Which?"}]}`))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		equal(t, "lines", len(p.Lines()), 6)
		if !strings.Contains(p.Lines()[5], `"message":"nobody is here"}`) {
			t.Errorf("the question was answered with %s", p.Lines()[5])
		}
		evs := p.End()
		got := decisions(t, evs)
		equal(t, "decisions", len(got), 6)
		equal(t, "the first", got[0], "a1 Bash deny timeout")
	})
}

// A person, or the host, who answers in time is not overruled, and what a person
// answers late was decided.
func TestPolicyAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, timeouts)
		p.Say(ask(`"q1"`, "Bash", `{}`))
		p.Say(ask(`"q2"`, "Bash", `{}`))
		p.Say(ask(`"q3"`, "Bash", `{}`))
		p.Hear(strings.TrimSpace(local(`"q1"`, true)))
		give := func(id, ask string) {
			p.Give(bus.Command{ID: id, Name: "answer", Data: []byte(`{"ask":"` + ask + `","decision":"allow"}`), DeliverBy: time.Now().Add(24 * time.Hour)})
			synctest.Wait()
		}
		give("c2", "a2")
		equal(t, "lines", len(p.Lines()), 1)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		equal(t, "lines", len(p.Lines()), 2)
		if !strings.Contains(p.Lines()[1], `"q3"`) {
			t.Errorf("denied: %s", p.Lines()[1])
		}
		give("c3", "a3")
		evs := p.End()
		equal(t, "decisions", decisions(t, evs), []string{"a3 Bash deny timeout"})
		equal(t, "too late", facts(evs, "c3"), []string{"refused: already_answered: by the policy"})
	})
}

// 062: a decision that cannot be written leaves the ask to people, who see it.
func TestPolicyNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, `{"rules":[{"name":"reads","tool":"Read","then":"allow"}]}`)
		p.Fail(child.ErrStdinClosed)
		p.Say(ask(`"q1"`, "Read", `{}`))
		p.Say(ask(`"q2"`, "Bash", `{}`))
		synctest.Wait()
		v := p.View()
		if v.State != "waiting" || v.Open.Approvals != 2 || v.Asks[0].State != "open" || v.Asks[0].Decided != nil || len(v.Warnings) != 1 {
			t.Errorf("%s, %+v, %+v, warnings %+v", v.State, v.Open, v.Asks, v.Warnings)
		}
		p.Fail(nil)
		p.Give(bus.Command{ID: "c1", Name: "answer", Data: []byte(`{"ask":"a1","decision":"allow"}`)})
		synctest.Wait()
		equal(t, "lines", len(p.Lines()), 1)
		p.Say(claude.toolResult(`"q1"`, false))
		evs := p.End()
		equal(t, "decisions", decisions(t, evs), []string{"a1 Read allow rule reads", "a1 Read allow rule reads stdin_closed"})
		equal(t, "by hand", facts(evs, "c1"), []string{written, settled})
		equal(t, "closed", closedAsks(t, evs), []string{"a1 answered bus allow ran"})
	})
}

// What is kept of open asks is bounded. One too large to keep is open, is not
// answered from here, and no rule decides it.
func TestAskTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := played(t, `{"rules":[{"tool":"Write","then":"allow"}]}`)
		p.Say(ask(`"big"`, "Write", `{"content":"`+strings.Repeat("x", 16<<20)+`"}`))
		synctest.Wait()
		if v := p.View(); v.State != "waiting" || !v.Asks[0].Form.InputLeftOut {
			t.Errorf("%s %+v", v.State, v.Asks[0])
		}
		p.Give(bus.Command{ID: "c1", Name: "answer", Data: []byte(`{"ask":"a1","decision":"deny"}`)})
		for i := range 300 {
			p.Say(ask(fmt.Sprint(i), "Bash", `{}`))
		}
		n, size := p.Kept()
		equal(t, "kept", n, 255)
		if size > 1<<20 {
			t.Errorf("%d bytes", size)
		}
		for i := range 300 {
			p.Say(withdrawn(fmt.Sprint(i)))
		}
		n, size = p.Kept()
		equal(t, "kept", []int{n, size}, []int{0, 0})
		evs := p.End()
		equal(t, "facts", facts(evs, "c1"), []string{"refused: bad_answer: the request is not kept here, it is too large or too many are open; its host can answer it"})
		equal(t, "lines", len(p.Lines()), 0)
	})
}
