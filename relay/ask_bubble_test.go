package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
	"github.com/cbcast/cbcast/relay"
)

// Two relays are asked at once by many: the bus decides, once. 11 minutes later the
// command has left the bus, and a third relay, started since, still knows.
func TestFirstAnswerWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		e := r.asking("run-1", bash(1))
		e.renew(ttl)
		relays := []*served{r.relayInBubble(relay.Config{}), r.relayInBubble(relay.Config{})}
		got := make([]string, 16)
		var wg sync.WaitGroup
		for n := range got {
			wg.Go(func() {
				body := `{"decision":"deny","message":"no","deliver_within":25}`
				if n/2%2 == 0 {
					body = `{"decision":"allow","deliver_within":25}`
				}
				for { // while another's write is under way the bus has no answer
					if got[n] = relays[n%2].reply("run-1", "a1", body); !strings.HasPrefix(got[n], "503") {
						return
					}
				}
			})
		}
		wg.Wait()
		const id = "answer-run-1-a1-1"
		cmd, err := r.bus.FindCommand(t.Context(), id)
		var args event.CommandArgs
		if err != nil || json.Unmarshal(cmd.Data, &args) != nil {
			t.Fatalf("on the bus: %+v, %v", cmd, err)
		}
		won, lost := `{"decision":"allow"}`, deny
		if args.Decision == event.Deny {
			won, lost = deny, won
		}
		first := 0
		for n, g := range got {
			switch {
			case g == "202 "+id:
				first++
			case (args.Decision == event.Allow) == (n/2%2 == 0) && g != "200 "+id, (args.Decision == event.Allow) != (n/2%2 == 0) && g != "409 already_answered":
				t.Errorf("answer %d: %s, the decision is %s", n, g, args.Decision)
			}
		}
		sent, audited := r.on("run-1")
		if first != 1 || len(sent) != 1 || len(audited) != 1 {
			t.Errorf("%d were first, %q on the bus, %q audited", first, sent, audited)
		}
		e.say(id, "answer", event.Written, "")
		e.say(id, "answer", event.Settled, "")
		time.Sleep(11 * time.Minute)
		if _, err := r.bus.FindCommand(t.Context(), id); !errors.Is(err, bus.ErrNotFound) {
			t.Fatalf("the command is still on the bus: %v", err)
		}
		for n, s := range append(relays, r.relayInBubble(relay.Config{})) {
			if g := s.reply("run-1", "a1", won); g != "200 "+id {
				t.Errorf("relay %d, the same 11 minutes later: %s", n, g)
			}
			if g := s.reply("run-1", "a1", lost); g != "409 already_answered" {
				t.Errorf("relay %d, another 11 minutes later: %s", n, g)
			}
			var d relay.CommandDoc
			s.get("/v1/commands/"+id, nil).into(t, &d)
			if d.State != "settled" || d.Args == nil || d.Args.Answer == nil || d.Args.Decision != args.Decision {
				t.Errorf("relay %d: %+v", n, d)
			}
		}
		if sent, audited := r.on("run-1"); len(sent) != 0 || len(audited) != 1 {
			t.Errorf("at the end %q on the bus, %q audited", sent, audited)
		}
	})
}

// A decision of which the relay died before the command was on the bus is finished:
// by whoever answers next, by another relay, by one that starts later.
func TestDecisionIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		r.asking("run-1", bash(1)).renew(ttl)
		waits := r.asking("run-2", bash(1))
		waits.info.State = "waiting"
		waits.register()
		waits.renew(ttl)
		r.asking("run-3", bash(1)).renew(ttl)
		half := func(run string) { // what a relay does first
			t.Helper()
			id, now := "answer-"+run+"-a1-1", time.Now().UTC()
			f := fact(event.TypeAudit, event.Cmd, event.Audit{
				Command: id, Name: "answer", Actor: "local", From: "there", DeliverBy: now.Add(24 * time.Hour),
				EdgeAlive: true, Args: &event.CommandArgs{Answer: &event.Answer{Ask: "a1", Decision: event.Allow}},
			})
			f.Tenant, f.Run, f.Ref, f.Time = tenant, run, subject.Audit(id), now
			if _, err := r.bus.PutControl(t.Context(), &f, f.Ref, 0); err != nil {
				t.Fatal(err)
			}
		}
		whole := func(run string) {
			t.Helper()
			c, err := r.bus.FindCommand(t.Context(), "answer-"+run+"-a1-1")
			if err != nil || c.Actor != "local" || c.From != "there" || string(c.Data) != `{"ask":"a1","decision":"allow"}` ||
				c.DeliverBy.Sub(c.Time) != 24*time.Hour {
				t.Errorf("%s: %+v %s, %v", run, c, c.Data, err)
			}
		}
		half("run-1")
		half("run-2")
		s := r.relayInBubble(relay.Config{})
		if g := s.reply("run-1", "a1", deny); g != "409 already_answered" {
			t.Errorf("another answer: %s", g)
		}
		whole("run-1")
		half("run-3")
		time.Sleep(6 * time.Second)
		whole("run-2")
		whole("run-3")
	})
}

// What became of an answer that no edge spoke of: it expired when the run ended
// first, and nobody knows when its edge went with it written.
func TestAnswerFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRig(t)
		ends, dies := r.asking("run-1", bash(1)), r.asking("run-2", bash(1))
		leave, stop := ends.renew(ttl), dies.renew(ttl)
		s := r.relayInBubble(relay.Config{})
		for _, run := range []string{"run-1", "run-2"} {
			if g := s.reply(run, "a1", allow); g != "202 answer-"+run+"-a1-1" {
				t.Fatal(g)
			}
		}
		state := func(run string) string {
			var d relay.CommandDoc
			s.get("/v1/commands/answer-"+run+"-a1-1", nil).into(t, &d)
			return fmt.Sprint(d.State, " ", d.Final)
		}
		dies.say("answer-run-2-a1-1", "answer", event.Written, "")
		time.Sleep(time.Hour)
		if got := state("run-1") + ", " + state("run-2"); got != "accepted false, written false" {
			t.Errorf("while the edges live: %s", got)
		}
		ends.emit(exited())
		ends.shipped()
		leave()
		stop()
		time.Sleep(time.Minute)
		if got := state("run-1") + ", " + state("run-2"); got != "expired true, unknown true" {
			t.Errorf("afterwards: %s", got)
		}
		if g := s.reply("run-1", "a1", allow); g != "410 ask_closed run_ended" {
			t.Errorf("after the end: %s", g)
		}
		if g := s.reply("run-2", "a1", deny); g != "409 already_answered" {
			t.Errorf("another where nobody knows: %s", g)
		}
	})
}
