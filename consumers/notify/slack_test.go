package notify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/consumers/notify"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/test/slackdouble"
)

func slackOptions(t *testing.T) (*slackdouble.Server, notify.Options) {
	s := slackdouble.New(t)
	s.Rate = time.Millisecond
	s.AddChannel("C1", "runs")
	return s, notify.Options{Bus: serve(t), Partitions: 1, Dir: t.TempDir(), Config: notify.Config{Rules: rulesFile(t, nil, fmt.Sprintf(`
version: 1
destinations:
  chat: {type: slack, token: %q, channel: C1, api: %q, timeout: 2s, allow: [127.0.0.1], merge: 500, retry: {ladder: [10ms, 10ms, 10ms, 1s]}}
rules:
  - {name: all, to: [chat]}
`, s.Token, s.API()))}}
}

// A run has one message in Slack, from its ask over its loss to its end.
func TestSlack(t *testing.T) {
	s, o := slackOptions(t)
	b := o.Bus
	_, stop := start(t, o)
	events := script("r1", initLine, prompt, askLine("q1", "ls"))
	publish(t, b, "r1", events)
	s.Wait("the ask", func() bool { return len(s.Messages("C1")) == 1 })
	first := s.Messages("C1")[0]
	updates := len(s.Calls("chat.update"))
	fact(t, b, "r1", event.TypeLost, "lost-1")
	s.Wait("the loss", func() bool { return len(s.Calls("chat.update")) > updates })
	updates = len(s.Calls("chat.update"))
	publish(t, b, "r1", append(events, script("r1", initLine, prompt, askLine("q1", "ls"), done, "exit 0")[len(events):]...))
	s.Wait("the end", func() bool { return len(s.Calls("chat.update")) > updates })
	if all := s.Messages("C1"); len(all) != 1 || all[0].TS != first.TS {
		t.Errorf("%d messages, want the first one alone", len(all))
	}
	stop()
}

// Where a channel is busy, what waits for it is told as one, and every run is in it.
// 106 prometheus/alertmanager#2111.
func TestSlackBusy(t *testing.T) {
	s, o := slackOptions(t)
	s.Script("chat.postMessage", slackdouble.Reply{Status: 429, Header: map[string]string{"Retry-After": "3"}})
	n, stop := start(t, o)
	publish(t, o.Bus, "first", script("first", initLine, prompt, done, "exit 0"))
	waitMetric(t, n, "cbcast_notifications_failed_total{destination=chat,reason=throttled} 1")
	var ids []string
	for i := range 20 {
		id := fmt.Sprintf("busy-%02d", i)
		ids = append(ids, id)
		publish(t, o.Bus, id, script(id, initLine, prompt, done, "exit 0"))
	}
	s.Wait("all runs", func() bool {
		text := ""
		for _, m := range s.Messages("C1") {
			text += m.Text + fmt.Sprintf("%s", m.Blocks)
		}
		for _, id := range ids {
			if !strings.Contains(text, id) {
				return false
			}
		}
		return true
	})
	if n := len(s.Messages("C1")); n > 10 {
		t.Errorf("%d messages for 20 runs of a busy channel", n)
	}
	stop()
}
