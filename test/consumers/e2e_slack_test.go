package consumers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/cbcast/cbcast/test/capture"
	"github.com/cbcast/cbcast/test/slackdouble"
)

// channels are those of the two Slack apps, the first with a request URL.
var channels = map[string]string{"chat": "C0CI", "socket": "C0SOCK"}

// messages are those about a run in a channel.
func (c *cast) messages(channel, run string) []slackdouble.Message {
	return slices.DeleteFunc(c.slack.Messages(channel), func(m slackdouble.Message) bool {
		return !slices.ContainsFunc(m.Blocks, func(b json.RawMessage) bool { return bytes.Contains(b, []byte(run)) })
	})
}

// buttons are what a run's message in a channel offers.
func (c *cast) buttons(channel, run string) map[string]string {
	all := map[string]string{}
	for _, m := range c.messages(channel, run) {
		for _, b := range slackdouble.Buttons(m.Blocks) {
			all[b.Action] = b.Value
		}
	}
	return all
}

// offered waits until the message about a run has the button.
func (c *cast) offered(channel, run, action string) slackdouble.Click {
	c.t.Helper()
	c.slack.Wait(action+" for "+run, func() bool { return c.buttons(channel, run)[action] != "" })
	m := c.messages(channel, run)[0]
	return slackdouble.Click{Action: action, Value: c.buttons(channel, run)[action], Message: &m}
}

// press has somebody click and returns what he is told, which begins with want. A machine
// that is busy may have no answer in time, which is said to him; then he tries again, and
// "" is returned where it turns out to be done.
func (c *cast) press(k slackdouble.Click, user, want string) string {
	c.t.Helper()
	k.User = user
	for n := range 20 {
		before := len(c.replies(k))
		if a := c.slack.Click(c.t.Context(), k); a.Status != http.StatusOK {
			c.t.Fatalf("%s clicks %s: %d %q", user, k.Action, a.Status, a.Body)
		}
		c.slack.Wait("a reply to "+user, func() bool { return len(c.replies(k)) > before })
		all := c.replies(k)
		switch said := all[len(all)-1]; {
		case strings.HasPrefix(said, want):
			return said
		case n > 0 && strings.Contains(said, "was answered"), n > 0 && strings.Contains(said, "had done before"):
			return ""
		case !strings.Contains(said, "try again"):
			c.t.Fatalf("%s clicks %s and is told %q, want %q", user, k.Action, said, want)
		}
	}
	c.t.Fatalf("%s clicks %s again and again", user, k.Action)
	return ""
}

// replies are what the user of a click was told.
func (c *cast) replies(k slackdouble.Click) (all []string) {
	for _, e := range c.slack.Ephemerals() {
		if e.User == k.User && e.Channel == k.Message.Channel {
			all = append(all, e.Text)
		}
	}
	return all
}

// answers has each ask answered once everybody was told of it.
func (c *cast) answers() {
	c.t.Helper()
	for _, v := range c.shows {
		if v.asks == "" {
			continue
		}
		c.told.wait(c.t, v.told("waiting")...)
		chat, socket := c.offered("C0CI", v.id, "allow"), c.offered("C0SOCK", v.id, "allow")
		chat.Secret = c.slack.SigningSecret // by the request URL, though the other app has Socket Mode
		switch v.asks {
		case "chat":
			forged := chat
			forged.User, forged.Secret = "U0OK", "another"
			if a := c.slack.Click(c.t.Context(), forged); a.Status != http.StatusUnauthorized {
				c.t.Errorf("signed by another: %d %q", a.Status, a.Body)
			}
			c.press(chat, "U0NOBODY", "You are not on the list")
			c.press(chat, "U0READ", "You may not do this: it needs the scope answer")
			if said := c.press(chat, "U0OK", "Approved by <@U0OK>; it is on its way to the agent."); said != "" {
				c.press(chat, "U0TWO", "This was done already. "+said)
				c.press(chat, "U0OK", said)
			}
		case "socket":
			c.press(socket, "U0NOBODY", "You are not on the list")
			c.press(socket, "U0OK", "Approved by <@U0OK>; it is on its way to the agent.")
		}
		close(v.answer)
		for _, channel := range channels {
			c.slack.Wait("no buttons for "+v.id, func() bool { b := c.buttons(channel, v.id); return b["allow"]+b["deny"] == "" })
		}
	}
}

// slackShows checks that each run has one message in each channel, changed in place, and
// what followed in its thread; and that the agents read what was clicked.
func (c *cast) slackShows() {
	c.t.Helper()
	for _, v := range c.shows {
		for _, channel := range channels {
			if v.rest {
				if n := len(c.messages(channel, v.id)); n != 0 {
					c.t.Errorf("%s: %d messages in %s that no rule is for", v.name, n, channel)
				}
				continue
			}
			title := map[string]string{"finished": "Finished, " + v.verdict(), "failed": "Failed", "interrupted": "Interrupted"}[v.kind]
			c.slack.Wait(title+" of "+v.name, func() bool {
				all := c.messages(channel, v.id)
				return len(all) == 1 && strings.Contains(all[0].Text, title) && (v.asks == "" || len(c.slack.Thread(channel, all[0].TS)) > 0)
			})
			m := c.messages(channel, v.id)[0]
			replies := c.slack.Thread(channel, m.TS)
			if v.asks != "" && (m.Updates == 0 || len(replies) == 0) || v.asks == "" && len(replies) > 0 {
				c.t.Errorf("%s in %s: %d updates, %d replies", v.name, channel, m.Updates, len(replies))
			}
			if b := c.buttons(channel, v.id); len(b) > 0 {
				c.t.Errorf("%s in %s: buttons after its end: %v", v.name, channel, b)
			}
		}
		c.read(v)
	}
	for _, k := range c.slack.Calls("") {
		if k.Error != "" {
			c.t.Errorf("slack: %s: %s", k.Method, k.Error)
		}
	}
	if n := len(c.slack.Messages("C0CI")); n != len(c.shows)-1 {
		c.t.Errorf("%d messages in C0CI", n)
	}
}

// read checks what an agent read: what the recording's did, and of an ask that was
// answered in Slack the answer to that very one.
func (c *cast) read(v *show) {
	c.t.Helper()
	got, err := os.ReadFile(v.stdin)
	if err != nil {
		c.t.Fatal(err)
	}
	if v.asks == "" || v.asks == "host" {
		if !bytes.Equal(got, v.c.Stdin) {
			c.t.Errorf("%s: the agent read %q, want %q", v.name, got, v.c.Stdin)
		}
		return
	}
	lines, _ := capture.Lines(got)
	want, _ := capture.Lines(v.c.Stdin)
	if len(lines) != len(want) {
		c.t.Fatalf("%s: the agent read %d lines, want %d: %s", v.name, len(lines), len(want), got)
	}
	n := len(lines) - 1
	if a, b := answerOf(lines[n]), answerOf(want[n]); a != b {
		c.t.Errorf("%s: the agent read the answer %s, want one like %s", v.name, lines[n], want[n])
	}
	if !slices.EqualFunc(lines[:n], want[:n], bytes.Equal) {
		c.t.Errorf("%s: the agent read %s", v.name, got)
	}
}

// answerOf is what an answer answers, and how.
func answerOf(b []byte) string {
	var a struct {
		ID       *int
		Result   struct{ Decision string }
		Type     string
		Response struct {
			RequestID string `json:"request_id"`
			Response  struct{ Behavior string }
		}
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return err.Error()
	}
	if a.ID != nil {
		return fmt.Sprint(*a.ID, a.Result.Decision)
	}
	return fmt.Sprint(a.Type, a.Response.RequestID, a.Response.Response.Behavior)
}
