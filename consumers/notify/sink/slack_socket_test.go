package sink_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/slackdouble"
)

func TestSlackNewButtonsForAnOpenAsk(t *testing.T) {
	c := newChat(t, ls("a1"))
	m, ref := c.tell(notice("", waiting(ls("a1"))))
	first := button(t, m.Blocks, "deny").Value
	c.press(slackdouble.Click{User: "U0OK", Action: "deny", Value: first, Message: &m})
	c.d.Wait("the message shows it", func() bool { return actions(c.message().Blocks) == "interrupt" })
	c.s.Age(2 * time.Minute)
	m, _ = c.tell(notice("", waiting(ls("a1")), func(n *sink.Notice) { n.Updates, n.Kind = ref, sink.Answered }))
	if second := button(t, m.Blocks, "deny").Value; second == first {
		t.Error("a used key is offered again")
	}
}

func TestSlackInterrupt(t *testing.T) {
	c := newChat(t, ls("a1"))
	m, ref := c.tell(notice("", waiting(ls("a1"))))
	stop := button(t, m.Blocks, "interrupt")
	if reply := c.press(slackdouble.Click{User: "U0TWO", Action: "interrupt", Value: stop.Value, Message: &m}); !strings.Contains(reply, "needs the scope command") {
		t.Errorf("%q", reply)
	}
	click := slackdouble.Click{User: "U0CMD", Action: "interrupt", Value: stop.Value, Message: &m}
	c.press(click)
	c.press(click)
	want := []given{{Run: testRun, Command: "slack-" + stop.Value, Behalf: "slack:T0TEAM/U0CMD"}}
	if d := cmp.Diff(want, c.act.all()); d != "" {
		t.Errorf("done (-want +got):\n%s", d)
	}
	m, _ = c.tell(notice("", waiting(ls("a1")), func(n *sink.Notice) {
		n.Updates, n.Kind, n.View.Turns = ref, sink.Answered, append(n.View.Turns, run.TurnView{N: 2, State: "open"})
	}))
	if next := button(t, m.Blocks, "interrupt").Value; next == stop.Value {
		t.Error("the next turn's interrupt is the one that was used")
	}
}

func TestSlackSocketMode(t *testing.T) {
	c := newChat(t, ls("a1"), ls("a2"))
	c.s.Close()
	c.open(func(cfg *sink.SlackConfig) { cfg.SigningSecret, cfg.AppToken = "", c.d.AppToken })
	done := make(chan error, 1)
	ctx, cancel := contextWithCancel(t)
	go func() { done <- c.s.Run(ctx) }()
	c.d.Wait("a connection", func() bool { return c.d.Sockets() == 1 })
	m, _ := c.tell(notice("", waiting(ls("a1"), ls("a2"))))
	all := slackdouble.Buttons(m.Blocks)
	click := slackdouble.Click{User: "U0OK", Action: "allow", Value: all[0].Value, Message: &m}
	payload := c.d.Payload(click)
	click.Payload = payload
	if reply := c.press(click); !strings.HasPrefix(reply, "Approved by") {
		t.Errorf("%q", reply)
	}
	c.d.Click(t.Context(), click) // told again
	c.d.DropSockets()
	c.d.Wait("another connection", func() bool { return c.d.Sockets() == 1 && len(c.d.Calls("apps.connections.open")) == 2 })
	if reply := c.press(slackdouble.Click{User: "U0OK", Action: "deny", Value: all[4].Value, Message: &m}); !strings.HasPrefix(reply, "Denied by") {
		t.Errorf("%q", reply)
	}
	if got := c.act.all(); len(got) != 2 || got[0].Ask != "a1" || got[1].Ask != "a2" {
		t.Errorf("done: %+v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	holdsNone(t, "the log", c.log.String(), "SECRETTICKET", c.d.AppToken)
}

func TestSlackHandlerRefuses(t *testing.T) {
	c := newChat(t, ls("a1"))
	for body, want := range map[string]int{"": 400, "payload=": 400, "payload=%7B": 400, "payload=%7B%7D": 400, "payload=%5B1%5D": 400, strings.Repeat("x", 1<<20): 413} {
		q := httptest.NewRequest(http.MethodPost, "/slack/actions", strings.NewReader(body))
		now := time.Now()
		q.Header.Set("X-Slack-Request-Timestamp", unix(now))
		q.Header.Set("X-Slack-Signature", slackdouble.Sign(c.d.SigningSecret, now, []byte(body)))
		w := httptest.NewRecorder()
		sink.SlackHandler(c.s).ServeHTTP(w, q)
		if w.Code != want {
			t.Errorf("%.20q: %d, want %d", body, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	sink.SlackHandler(c.s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/slack/actions", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	w = httptest.NewRecorder()
	sink.SlackHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/slack/actions", strings.NewReader("x")))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("nobody is there: %d", w.Code)
	}
}

// Slack has its answer before the relay has the click: it waits three seconds.
func TestSlackAnswersFirst(t *testing.T) {
	c := newChat(t, ls("a1"))
	m, _ := c.tell(notice("", waiting(ls("a1"))))
	c.act.wait, c.act.in = make(chan struct{}), make(chan struct{}, 1)
	ack := c.d.Click(t.Context(), slackdouble.Click{User: "U0OK", Action: "allow", Value: button(t, m.Blocks, "allow").Value, Message: &m})
	if ack.Status != http.StatusOK || len(c.act.all()) != 0 {
		t.Errorf("answered %d, done %+v", ack.Status, c.act.all())
	}
	<-c.act.in // it has the key
	if reply := c.press(slackdouble.Click{User: "U0TWO", Action: "allow", Value: button(t, m.Blocks, "allow").Value, Message: &m}); reply != "Somebody is just doing this." {
		t.Errorf("another one meanwhile: %q", reply)
	}
	close(c.act.wait)
	c.d.Wait("the first one's reply", func() bool { return len(c.d.Ephemerals()) == 2 })
	if got := c.act.all(); len(got) != 1 || got[0].Behalf != "slack:T0TEAM/U0OK" {
		t.Errorf("done: %+v", got)
	}
}

// A modal that Slack does not open any more is told of.
func TestSlackTriggerTooOld(t *testing.T) {
	ask := question("a1", run.AskQuestion{ID: "q", Text: "q"})
	c := newChat(t, ask)
	m, _ := c.tell(notice("", waiting(ask)))
	c.d.TriggerAge = 0
	if reply := c.press(slackdouble.Click{User: "U0OK", Action: "open", Value: button(t, m.Blocks, "open").Value, Message: &m}); !strings.Contains(reply, "expired_trigger_id") {
		t.Errorf("%q", reply)
	}
}
