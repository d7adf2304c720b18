package sink_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/slackdouble"
)

// A chat is a bot with buttons, and the double it lives in.
type chat struct {
	t   *testing.T
	d   *slackdouble.Server
	s   *sink.Slack
	act *actor
	log *journal
	dir string
}

func newChat(t *testing.T, asks ...run.AskView) *chat {
	c := &chat{t: t, d: slackdouble.New(t), act: newActor(asks...), log: &journal{}, dir: t.TempDir()}
	c.d.TriggerAge = time.Hour
	c.open(func(*sink.SlackConfig) {})
	return c
}

// open starts the bot, again after Close as a new process would.
func (c *chat) open(more func(*sink.SlackConfig)) {
	c.t.Helper()
	c.s = bot(c.t, c.d, func(cfg *sink.SlackConfig) {
		cfg.SigningSecret, cfg.Dir, cfg.Actor = c.d.SigningSecret, c.dir, c.act
		cfg.Log = slog.New(slog.NewTextHandler(c.log, nil))
		cfg.Users = map[string][]string{
			"U0OK": {"answer", "command"}, "U0TWO": {"answer"}, "U0CMD": {"command"}, "T0FAR/U0FAR": {"answer"},
		}
		more(cfg)
	})
	web := httptest.NewServer(sink.SlackHandler(c.s))
	c.t.Cleanup(web.Close)
	c.d.RequestURL = web.URL + "/slack/actions"
}

// tell sends a notice and returns the run's message.
func (c *chat) tell(n *sink.Notice) (slackdouble.Message, *sink.Ref) {
	c.t.Helper()
	o := send(c.t, c.s, n)
	return c.message(), o.Ref
}

func (c *chat) message() slackdouble.Message {
	c.t.Helper()
	list := c.d.Messages("C0CI")
	if len(list) != 1 {
		c.t.Fatalf("%d messages", len(list))
	}
	return list[0]
}

func button(t *testing.T, blocks []json.RawMessage, action string) slackdouble.Button {
	t.Helper()
	for _, b := range slackdouble.Buttons(blocks) {
		if b.Action == action {
			return b
		}
	}
	t.Fatalf("no button %s in %v", action, slackdouble.Buttons(blocks))
	return slackdouble.Button{}
}

func actions(blocks []json.RawMessage) string {
	var names []string
	for _, b := range slackdouble.Buttons(blocks) {
		names = append(names, b.Action)
	}
	return strings.Join(names, " ")
}

// press clicks and waits for what its sender is told.
func (c *chat) press(click slackdouble.Click) string {
	c.t.Helper()
	before := len(c.d.Ephemerals())
	ack := c.d.Click(c.t.Context(), click)
	if ack.Status != http.StatusOK {
		c.t.Fatalf("answered %d %q", ack.Status, ack.Body)
	}
	c.d.Wait("an answer to the one who clicked", func() bool { return len(c.d.Ephemerals()) > before })
	all := c.d.Ephemerals()
	if last := all[len(all)-1]; last.User != click.User || last.Channel != "C0CI" {
		c.t.Errorf("told %+v", last)
	}
	return all[len(all)-1].Text
}

func ls(id string) run.AskView { return approval(id, "Bash", map[string]string{"command": "ls"}) }

// Case 124: an old message, another user, a forged value, a double click.
func TestCase124(t *testing.T) {
	c := newChat(t, ls("a1"))
	m, _ := c.tell(notice("", waiting(ls("a1"))))
	if got := actions(m.Blocks); got != "allow deny why interrupt" {
		t.Fatalf("buttons %s", got)
	}
	allow, deny := button(t, m.Blocks, "allow"), button(t, m.Blocks, "deny")
	if strings.Contains(allow.Value, "a1") || strings.Contains(allow.Value, testRun) || allow.Value == deny.Value || len(allow.Value) < 20 {
		t.Errorf("a value tells, or can be guessed: %q, %q", allow.Value, deny.Value)
	}
	click := slackdouble.Click{User: "U0OK", Action: "allow", Value: allow.Value, Message: &m}
	with := func(f func(*slackdouble.Click)) slackdouble.Click {
		k := click
		f(&k)
		return k
	}
	for _, x := range []struct {
		name  string
		click slackdouble.Click
		want  string
	}{
		{"old", with(func(k *slackdouble.Click) { k.Age = 400 * time.Second }), "too_old"},
		{"from the future", with(func(k *slackdouble.Click) { k.Age = -400 * time.Second }), "too_old"},
		{"signed with another secret", with(func(k *slackdouble.Click) { k.Secret = "other" }), "bad_signature"},
		{"no signature", with(func(k *slackdouble.Click) { k.Header = map[string]string{"X-Slack-Signature": ""} }), "bad_signature"},
		{"no time", with(func(k *slackdouble.Click) { k.Header = map[string]string{"X-Slack-Request-Timestamp": ""} }), "bad_signature"},
	} {
		ack := c.d.Click(t.Context(), x.click)
		if ack.Status != http.StatusUnauthorized || strings.TrimSpace(ack.Body) != x.want {
			t.Errorf("%s: %d %q", x.name, ack.Status, ack.Body)
		}
	}
	told := map[string]string{}
	for _, x := range []struct {
		name  string
		click slackdouble.Click
		want  string
	}{
		{"not on the list", with(func(k *slackdouble.Click) { k.User = "U0NORIGHT" }), "not on the list"},
		{"the wrong scope", with(func(k *slackdouble.Click) { k.User = "U0CMD" }), "needs the scope answer"},
		{"of another workspace", with(func(k *slackdouble.Click) { k.Team = "T0FAR" }), "another workspace"},
		{"forged", with(func(k *slackdouble.Click) { k.Value = "forged" }), "not known here"},
		{"the value of another button", with(func(k *slackdouble.Click) { k.Value = deny.Value }), "not known here"},
		{"an action that is none", with(func(k *slackdouble.Click) { k.Action = "admin" }), "not known here"},
	} {
		reply := c.press(x.click)
		if !strings.Contains(reply, x.want) {
			t.Errorf("%s: %q", x.name, reply)
		}
		told[x.name] = reply
	}
	if told["not on the list"] == told["the wrong scope"] || told["not on the list"] == told["of another workspace"] {
		t.Error("refusals have one text")
	}
	if got := c.act.all(); len(got) != 0 {
		t.Fatalf("done: %+v", got)
	}
	payload := c.d.Payload(click)
	if reply := c.press(with(func(k *slackdouble.Click) { k.Payload = payload })); reply != "Approved by <@U0OK>; it is on its way to the agent." {
		t.Errorf("the click: %q", reply)
	}
	before := len(c.d.Ephemerals())
	for range 3 { // Slack's retries
		ack := c.d.Click(t.Context(), with(func(k *slackdouble.Click) {
			k.Payload, k.Header = payload, map[string]string{"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
		}))
		if ack.Status != 200 || ack.Body != "" {
			t.Errorf("retry: %d %q", ack.Status, ack.Body)
		}
	}
	if reply := c.press(click); reply != "Approved by <@U0OK>; it is on its way to the agent." {
		t.Errorf("the same once more: %q", reply)
	}
	if n := len(c.d.Ephemerals()) - before; n != 1 {
		t.Errorf("retries were told %d times", n-1)
	}
	if reply := c.press(with(func(k *slackdouble.Click) { k.User = "U0TWO" })); !strings.Contains(reply, "done already. Approved by <@U0OK>") {
		t.Errorf("another one later: %q", reply)
	}
	if reply := c.press(slackdouble.Click{User: "U0TWO", Action: "deny", Value: deny.Value, Message: &m}); !strings.Contains(reply, "Somebody else was first: allow by slack:T0TEAM/U0OK") {
		t.Errorf("another decision: %q", reply)
	}
	want := []given{{Run: testRun, Ask: "a1", Command: "answer-" + testRun + "-a1-1", Answer: event.Answer{Decision: "allow"}, Behalf: "slack:T0TEAM/U0OK"}}
	if d := cmp.Diff(want, c.act.all()); d != "" {
		t.Errorf("done (-want +got):\n%s", d)
	}
	c.d.Wait("the message shows it", func() bool { return actions(c.message().Blocks) == "interrupt" })
	changed := c.message()
	if text := strings.Join(changed.Texts(), "\n"); !strings.Contains(text, "Approved by <@U0OK>") {
		t.Errorf("the message says %s", text)
	}
	for _, want := range []string{"user=T0TEAM/U0OK", "outcome=done ", "outcome=forbidden", "outcome=unknown_key", "outcome=already_answered", "outcome=key_used", "ask=a1", "input_sha256=", "command=answer-"} {
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, c.log)
		}
	}
	holdsNone(t, "the log", c.log.String(), allow.Value, c.d.SigningSecret, c.d.Token)
}

// What was withdrawn, changed, or is another's now is not answered.
func TestSlackWhatIsAskedNow(t *testing.T) {
	closed := func(reason string) run.AskView {
		a := ls("a1")
		a.State, a.Form, a.Closed = run.AskShut, nil, &run.AskEnd{Reason: reason}
		return a
	}
	for name, x := range map[string]struct {
		now  func(a *actor)
		want string
	}{
		"withdrawn":   {func(a *actor) { a.set(closed(run.ReasonWithdrawn)) }, "the agent withdrew it"},
		"elsewhere":   {func(a *actor) { a.set(closed(run.ReasonLocal)) }, "own host answered"},
		"over":        {func(a *actor) { a.set(closed(run.ReasonRunEnded)) }, "the run has ended"},
		"other input": {func(a *actor) { a.set(approval("a1", "Bash", map[string]string{"command": "rm -rf /w"})) }, "not what the message shows"},
		"other tool":  {func(a *actor) { a.set(approval("a1", "Write", map[string]string{"command": "ls"})) }, "not what the message shows"},
		"ambiguous": {func(a *actor) {
			v := ls("a1")
			v.Ambiguous = true
			a.set(v)
		}, "says one thing twice"},
		"unknown": {func(a *actor) { delete(a.asks, "a1") }, "does not know this run or ask"},
		"ended":   {func(a *actor) { a.fail(&sink.ActError{Code: "already_ended"}) }, "The run has ended"},
		"late": {func(a *actor) {
			a.fail(&sink.ActError{Code: "ask_closed", Details: json.RawMessage(`{"reason":"expired"}`)})
		}, "its time was over"},
		"no rights":      {func(a *actor) { a.fail(&sink.ActError{Code: "forbidden", Message: "no scope"}) }, "token that notify has"},
		"not answerable": {func(a *actor) { a.fail(&sink.ActError{Code: "not_answerable", Message: "<@U1> it is secret"}) }, "&lt;@U1&gt; it is secret"},
		"away":           {func(a *actor) { a.fail(errors.New("dial tcp 10.0.0.1:8420: refused")) }, "The relay did not answer"},
		"busy":           {func(a *actor) { a.fail(&sink.ActError{Code: "unavailable"}) }, "too busy or away"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChat(t, ls("a1"))
			m, _ := c.tell(notice("", waiting(ls("a1"))))
			x.now(c.act)
			reply := c.press(slackdouble.Click{User: "U0OK", Action: "allow", Value: button(t, m.Blocks, "allow").Value, Message: &m})
			if !strings.Contains(reply, x.want) {
				t.Errorf("%q", reply)
			}
			if got := c.act.all(); len(got) != 0 {
				t.Errorf("done: %+v", got)
			}
		})
	}
	t.Run("it can be tried again", func(t *testing.T) {
		c := newChat(t, ls("a1"))
		m, _ := c.tell(notice("", waiting(ls("a1"))))
		click := slackdouble.Click{User: "U0OK", Action: "allow", Value: button(t, m.Blocks, "allow").Value, Message: &m}
		c.act.fail(&sink.ActError{Code: "unavailable"})
		c.press(click)
		if reply := c.press(click); !strings.HasPrefix(reply, "Approved") || len(c.act.all()) != 1 {
			t.Errorf("%q, %+v", reply, c.act.all())
		}
	})
}

// What is not to be offered has no button: case 022, secrets, what is too long.
func TestSlackNotOffered(t *testing.T) {
	ambiguous, answered, long, secret, form := ls("a1"), ls("a1"), ls("a1"), question("a1", run.AskQuestion{ID: "q", Text: "Password?", Secret: true}), ls("a1")
	ambiguous.Ambiguous = true
	answered.Decided = &run.AskDecided{Decision: "allow", By: run.ByPolicy}
	long.Form = &run.AskForm{InputLeftOut: true}
	form.Kind, form.Class = "elicitation", run.Question
	cutTitle := approval("a1", "commandExecution", map[string]string{"cwd": "/w"})
	cutTitle.Kind, cutTitle.Title = "command", "make deploy && "+strings.Repeat("x", 180)+"…"
	session := ls("a1")
	session.Form.Session = true
	plan := approval("a1", "ExitPlanMode", map[string]string{"plan": "1. do it"})
	plan.Kind, plan.Class = "plan", run.Question
	for name, x := range map[string]struct {
		ask  run.AskView
		want string
		says string
	}{
		"ambiguous":               {ambiguous, "interrupt", "says one thing twice"},
		"answered":                {answered, "interrupt", "answered already"},
		"too long for the state":  {long, "deny why interrupt", "too long to be shown"},
		"a secret":                {secret, "deny why interrupt", "asks for a secret"},
		"a form":                  {form, "deny why interrupt", "It is a form"},
		"its title hides the end": {cutTitle, "deny why interrupt", "too long to be shown"},
		"with the session":        {session, "allow session deny why interrupt", "wants to use Bash"},
		"a plan":                  {plan, "allow deny why interrupt", "1. do it"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChat(t, x.ask)
			m, _ := c.tell(notice("", waiting(x.ask)))
			if got := actions(m.Blocks); got != x.want {
				t.Errorf("buttons %q, want %q", got, x.want)
			}
			if text := strings.Join(m.Texts(), "\n"); !strings.Contains(text, x.says) {
				t.Errorf("no %q in %s", x.says, text)
			}
		})
	}
	t.Run("nobody may click", func(t *testing.T) {
		c := newChat(t, ls("a1"))
		c.s.Close()
		c.open(func(cfg *sink.SlackConfig) { cfg.Users = nil })
		if m, _ := c.tell(notice("", waiting(ls("a1")))); actions(m.Blocks) != "" || c.s.Capabilities().Buttons {
			t.Errorf("buttons %s", actions(m.Blocks))
		}
	})
}

// Buttons go when the ask is closed elsewhere, and outlive this process otherwise.
func TestSlackButtonsGoAndStay(t *testing.T) {
	c := newChat(t, ls("a1"), ls("a2"))
	m, ref := c.tell(notice("", waiting(ls("a1"), ls("a2"))))
	value := button(t, m.Blocks, "allow").Value
	m, ref = c.tell(notice("", waiting(ls("a2")), func(n *sink.Notice) { n.Kind, n.Updates = sink.Answered, ref }))
	if got := actions(m.Blocks); got != "allow deny why interrupt" {
		t.Errorf("after one was closed: %s", got)
	}
	c.s.Close()
	c.open(func(*sink.SlackConfig) {})
	m, _ = c.tell(notice("", waiting(ls("a2")), func(n *sink.Notice) { n.Kind, n.Updates = sink.Answered, ref }))
	if reply := c.press(slackdouble.Click{User: "U0OK", Action: "allow", Value: value, Message: &m}); !strings.HasPrefix(reply, "Approved") {
		t.Errorf("the old button in a new process: %q", reply)
	}
	c.s.Close()
	c.open(func(*sink.SlackConfig) {})
	if reply := c.press(slackdouble.Click{User: "U0TWO", Action: "allow", Value: value, Message: &m}); !strings.Contains(reply, "done already") {
		t.Errorf("a used button in a new process: %q", reply)
	}
	if got := c.act.all(); len(got) != 1 {
		t.Errorf("done: %+v", got)
	}
	m, _ = c.tell(notice(sink.Finished, func(n *sink.Notice) { n.Updates = ref }))
	if got := actions(m.Blocks); got != "" {
		t.Errorf("after the end: %s", got)
	}
}

// An answer that never reached the agent leaves the ask open: then there are new
// buttons.
// A command that is cut is read whole, page by page, before it can be approved.
// Questions are answered in a form, with options and in one's own words.
// A choice that is none of the options decides nothing.
// The same by Socket Mode, also after the connection was lost.
// What is no callback is refused, and nothing breaks.
