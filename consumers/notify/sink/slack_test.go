package sink_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/slackdouble"
)

// bot is a bot in the double's workspace, without a pause between messages.
func bot(t testing.TB, d *slackdouble.Server, more ...func(*sink.SlackConfig)) *sink.Slack {
	t.Helper()
	cfg := sink.SlackConfig{Name: "ci", Token: d.Token, Channel: "C0CI", API: d.API(), Guard: loopback, Timeout: 2 * time.Minute, Log: slog.New(slog.DiscardHandler)}
	for _, f := range more {
		f(&cfg)
	}
	s, err := sink.NewSlack(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.SetGap(0)
	t.Cleanup(func() { s.Close() })
	d.Rate, d.Burst = time.Millisecond, 1000
	return s
}

func send(t testing.TB, s sink.Sink, n *sink.Notice) sink.Outcome {
	t.Helper()
	o := s.Send(t.Context(), n)
	if o.Verdict != sink.Delivered {
		t.Fatalf("%s: %s, %v", n.Kind, o.Verdict, o.Err)
	}
	return o
}

// A run has one message, updated in place, and what follows stands in its thread.
func TestSlackOneMessagePerRun(t *testing.T) {
	d := slackdouble.New(t)
	s := bot(t, d)
	first := send(t, s, notice("", waiting(approval("a1", "Bash", map[string]string{"command": "make deploy"})), func(n *sink.Notice) { n.Mention = "<@U0ONCALL>" }))
	list := d.Messages("C0CI")
	if len(list) != 1 || len(d.Thread("C0CI", list[0].TS)) != 0 {
		t.Fatalf("after the first: %d messages, %d replies", len(list), len(d.Thread("C0CI", list[0].TS)))
	}
	if first.Ref == nil || first.Ref.TS != list[0].TS || first.Ref.Channel != "C0CI" {
		t.Fatalf("ref %+v, message %s", first.Ref, list[0].TS)
	}
	want := []string{"<@U0ONCALL>", "<https://cbcast.example/#/run/" + testRun + "|Open the run>", "<https://ci.example/jobs/7|CI job>"}
	got := list[0].Specials()
	slices.Sort(got)
	if d := cmp.Diff(slices.Sorted(slices.Values(append(want, "<@U0ONCALL>"))), got); d != "" {
		t.Errorf("what Slack makes something of (-want +got):\n%s", d)
	}
	second := send(t, s, notice(sink.Answered, func(n *sink.Notice) { n.Updates, n.ID, n.View.State = first.Ref, testRun+"/9", "working" }))
	third := send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Updates = second.Ref }))
	list = d.Messages("C0CI")
	replies := d.Thread("C0CI", list[0].TS)
	if len(list) != 1 || list[0].Updates != 2 || len(replies) != 2 {
		t.Fatalf("%d messages, %d updates, %d replies", len(list), list[0].Updates, len(replies))
	}
	if text := strings.Join(list[0].Texts(), "\n"); !strings.Contains(text, "Finished, success: fix-tests") || !strings.Contains(text, "Cost: $0.42") ||
		!strings.Contains(text, "Duration: 1m23s") || !strings.Contains(text, "Tasks: 1 completed, 1 failed") {
		t.Errorf("the message says:\n%s", text)
	}
	// The same notice again, as after a crash before it was written down.
	send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Updates, n.Attempt = third.Ref, 2 }))
	if n := len(d.Thread("C0CI", list[0].TS)); n != 2 {
		t.Errorf("%d replies after the same notice", n)
	}
	// A message that somebody deleted is told anew.
	d.Delete("C0CI", list[0].TS)
	again := send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Updates, n.ID = third.Ref, testRun+"/43" }))
	if list = d.Messages("C0CI"); len(list) != 1 || again.Ref.TS != list[0].TS || again.Ref.TS == third.Ref.TS {
		t.Errorf("after it was deleted: %d messages, ref %+v", len(list), again.Ref)
	}
}

// Nobody hears of the answer to what nobody was told of.
func TestSlackNothingToUpdate(t *testing.T) {
	d := slackdouble.New(t)
	s := bot(t, d)
	send(t, s, notice(sink.Answered))
	if n := len(d.Calls("")); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// Case 107: a post that arrived without an answer is found, not made again.
func TestSlackUnknownOutcome(t *testing.T) {
	for name, c := range map[string]slackdouble.Reply{
		"reset after it was taken": {Accept: true, Reset: true},
		"fatal_error":              {Accept: true, Body: `{"ok":false,"error":"fatal_error"}`},
		"a page instead":           {Accept: true, Status: 502, Body: "<html>"},
		"no JSON":                  {Accept: true, Body: "ok, thanks"},
	} {
		t.Run(name, func(t *testing.T) {
			d := slackdouble.New(t)
			s := bot(t, d)
			d.Script("chat.postMessage", c)
			o := s.Send(t.Context(), notice(sink.Finished))
			if o.Verdict != sink.Unknown || o.Err == nil {
				t.Fatalf("%s, %v", o.Verdict, o.Err)
			}
			o = send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Unsure, n.Attempt = true, 2 }))
			list := d.Messages("C0CI")
			if len(list) != 1 || o.Ref == nil || o.Ref.TS != list[0].TS {
				t.Errorf("%d messages, ref %+v", len(list), o.Ref)
			}
		})
	}
	t.Run("late", func(t *testing.T) {
		d := slackdouble.New(t)
		// On a busy machine the time is over before anything is sent: then once more.
		for timeout := time.Second; len(d.Messages("C0CI")) == 0; timeout *= 4 {
			d.Script("chat.postMessage", slackdouble.Reply{Accept: true, Delay: time.Hour})
			o := bot(t, d, func(c *sink.SlackConfig) { c.Timeout = timeout }).Send(t.Context(), notice(sink.Finished))
			if len(d.Messages("C0CI")) == 1 && o.Verdict != sink.Unknown || o.Verdict == sink.Delivered {
				t.Fatalf("%s, %v", o.Verdict, o.Err)
			}
		}
		send(t, bot(t, d), notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true }))
		if n := len(d.Messages("C0CI")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("it had not arrived", func(t *testing.T) {
		d := slackdouble.New(t)
		s := bot(t, d)
		d.Script("chat.postMessage", slackdouble.Reply{Reset: true})
		if o := s.Send(t.Context(), notice(sink.Finished)); o.Verdict != sink.Unknown {
			t.Fatalf("%s, %v", o.Verdict, o.Err)
		}
		send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true }))
		if n := len(d.Messages("C0CI")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("nobody can look", func(t *testing.T) {
		d := slackdouble.New(t)
		s := bot(t, d)
		d.Script("conversations.history", slackdouble.Reply{Body: `{"ok":false,"error":"missing_scope","needed":"channels:history"}`})
		o := s.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.Unsure = true }))
		if o.Verdict != sink.Unknown || !strings.Contains(fmt.Sprint(o.Err), "channels:history") || len(d.Messages("C0CI")) != 0 {
			t.Errorf("%s, %v", o.Verdict, o.Err)
		}
	})
	t.Run("an update can be repeated", func(t *testing.T) {
		d := slackdouble.New(t)
		s := bot(t, d)
		o := send(t, s, notice(sink.Finished))
		d.Script("chat.update", slackdouble.Reply{Accept: true, Reset: true})
		if o := s.Send(t.Context(), notice(sink.Lost, func(n *sink.Notice) { n.Updates = o.Ref })); o.Verdict != sink.Retry {
			t.Errorf("%s, %v", o.Verdict, o.Err)
		}
	})
	t.Run("a reply in the thread", func(t *testing.T) {
		d := slackdouble.New(t)
		s := bot(t, d)
		o := send(t, s, notice("", waiting(approval("a1", "Bash", map[string]string{"command": "ls"}))))
		d.Script("chat.postMessage", slackdouble.Reply{Accept: true, Reset: true})
		o = s.Send(t.Context(), notice(sink.Finished, func(n *sink.Notice) { n.Updates = o.Ref }))
		if o.Verdict != sink.Unknown || o.Ref == nil {
			t.Fatalf("%+v", o)
		}
		o = send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Updates, n.Unsure = o.Ref, true }))
		if n := len(d.Thread("C0CI", o.Ref.TS)); n != 1 {
			t.Errorf("%d replies", n)
		}
	})
}

// Case 106: how long to wait is told in all forms.
func TestSlackRateLimits(t *testing.T) {
	for name, c := range map[string]struct {
		reply    slackdouble.Reply
		min, max time.Duration
	}{
		"seconds": {slackdouble.Reply{Status: 429, Header: map[string]string{"Retry-After": "7"}}, 7 * time.Second, 7 * time.Second},
		"a date": {
			slackdouble.Reply{Status: 429, Header: map[string]string{"Retry-After": time.Now().Add(30 * time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}},
			20 * time.Minute, 30 * time.Minute,
		},
		"none":         {slackdouble.Reply{Status: 429}, 0, 0},
		"in the body":  {slackdouble.Reply{Body: `{"ok":false,"error":"rate_limited"}`}, 0, 0},
		"both":         {slackdouble.Reply{Header: map[string]string{"Retry-After": "3"}, Body: `{"ok":false,"error":"ratelimited"}`}, 3 * time.Second, 3 * time.Second},
		"far too long": {slackdouble.Reply{Status: 429, Header: map[string]string{"Retry-After": "1e300"}}, time.Hour, time.Hour},
		"nonsense":     {slackdouble.Reply{Status: 429, Header: map[string]string{"Retry-After": "soon"}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := slackdouble.New(t)
			s := bot(t, d)
			d.Script("chat.postMessage", c.reply)
			o := s.Send(t.Context(), notice(sink.Finished))
			if o.Verdict != sink.Retry || !o.Throttled || o.After < c.min || o.After > c.max {
				t.Errorf("%s, throttled %v, after %s, %v", o.Verdict, o.Throttled, o.After, o.Err)
			}
			if n := len(d.Calls("chat.postMessage")); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// The double takes one message a second, with three at once; the sink keeps to it.
func TestSlackPace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	d := slackdouble.New(t)
	s := bot(t, d)
	s.SetGap(200 * time.Millisecond)
	d.Rate, d.Burst = 200*time.Millisecond, 3
	for i := range 8 {
		send(t, s, notice(sink.Finished, func(n *sink.Notice) { n.Run = fmt.Sprintf("run-%d", i) }))
	}
	for _, c := range d.Calls("") {
		if c.Error != "" {
			t.Errorf("%s: %s", c.Method, c.Error)
		}
	}
}

func TestSlackRefusals(t *testing.T) {
	for body, want := range map[string]sink.Verdict{
		`{"ok":false,"error":"channel_not_found"}`:    sink.Refused,
		`{"ok":false,"error":"not_in_channel"}`:       sink.Refused,
		`{"ok":false,"error":"invalid_auth"}`:         sink.Refused,
		`{"ok":false,"error":"service_unavailable"}`:  sink.Retry,
		`{"ok":false,"error":"internal_error"}`:       sink.Unknown,
		`{"ok":false,"error":"xoxb-test-token-0001"}`: sink.Refused,
	} {
		d := slackdouble.New(t)
		s := bot(t, d)
		d.Script("chat.postMessage", slackdouble.Reply{Body: body})
		o := s.Send(t.Context(), notice(sink.Finished))
		if o.Verdict != want {
			t.Errorf("%s: %s, %v", body, o.Verdict, o.Err)
		}
		holdsNone(t, body, fmt.Sprint(o.Err), "xoxb", "127.0.0.1")
	}
	s, err := sink.NewSlack(sink.SlackConfig{Name: "ci", Token: "xoxb-1", Guard: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if o := s.Send(t.Context(), notice(sink.Finished)); o.Verdict != sink.Refused || !o.Permanent {
		t.Errorf("without a channel: %+v", o)
	}
}

// Case 112: where Slack refuses the form all the same, something is told.
func TestSlackMinimal(t *testing.T) {
	for _, code := range []string{"invalid_blocks", "msg_blocks_too_long", "msg_too_long", "metadata_too_large"} {
		d := slackdouble.New(t)
		s := bot(t, d)
		d.Script("chat.postMessage", slackdouble.Reply{Body: `{"ok":false,"error":"` + code + `"}`})
		o := send(t, s, notice(sink.Failed))
		list := d.Messages("C0CI")
		if len(list) != 1 || len(list[0].Blocks) != 0 || !strings.Contains(list[0].Text, "Failed: fix-tests") || !strings.Contains(o.Note, code) {
			t.Errorf("%s: %+v, note %q", code, list, o.Note)
		}
		d.Script("chat.update", slackdouble.Reply{Body: `{"ok":false,"error":"` + code + `"}`})
		send(t, s, notice(sink.Lost, func(n *sink.Notice) { n.Updates = o.Ref }))
		if list = d.Messages("C0CI"); !strings.Contains(list[0].Text, "Lost") {
			t.Errorf("%s: update %q", code, list[0].Text)
		}
	}
}

func TestSlackDigest(t *testing.T) {
	d := slackdouble.New(t)
	s := bot(t, d)
	n := &sink.Notice{ID: "digest/1", Kind: sink.Digest, At: time.Now(), Note: "300 runs finished in 2 m", To: "#ci"}
	for i := range 300 {
		n.Digest = append(n.Digest, sink.Line{
			Kind: sink.Finished, Run: fmt.Sprintf("run-%03d", i), Verdict: "success", Text: "build <!channel> & *more*", Link: fmt.Sprintf("https://cbcast.example/#/run/run-%03d", i),
		})
	}
	send(t, s, n)
	list := d.Messages("C0CI")
	if len(list) != 1 {
		t.Fatalf("%d messages", len(list))
	}
	for _, special := range list[0].Specials() {
		if !strings.HasPrefix(special, "<https://cbcast.example/#/run/run-") {
			t.Errorf("special %s", special)
		}
	}
	text := strings.Join(list[0].Texts(), "\n")
	if !strings.Contains(text, "300 runs finished in 2 m") || !strings.Contains(text, "run-000") || !strings.Contains(text, "more") {
		t.Errorf("the digest says %.300s", text)
	}
}

// Case 110 and 112: texts of others make no links, mentions or blocks too long, and
// what is shown of one is its beginning.
func TestSlackHostileTexts(t *testing.T) {
	for name, text := range map[string]string{
		"a link":             "Done. <https://evil.example.test|Open report> & <@U0000000> \u001b]8;;http://evil.example.test\u0007x\u001b]8;;\u0007",
		"mentions":           "<!channel> <!here> <!everyone> <!subteam^S1> <#C1>",
		"entities":           "*bold* `x` &lt;!here&gt; &amp;lt;",
		"ascii":              strings.Repeat("a", 50_000),
		"all angle brackets": strings.Repeat("<", 50_000),
		"emoji over the cut": strings.Repeat("x", 2999) + strings.Repeat("\U0001F389", 100),
		"entity over it":     strings.Repeat("y", 2997) + strings.Repeat("<&>", 20),
		"lines":              strings.Repeat("line\n", 10_000),
		"han":                strings.Repeat("\u4e2d", 20_000),
		"no UTF-8":           "a\xff\xfeb",
		"only blanks":        " \t\n\u200b\u2028",
		"fences":             "```\n<!channel>\n```",
	} {
		t.Run(name, func(t *testing.T) {
			d := slackdouble.New(t)
			s := bot(t, d)
			for i, n := range []*sink.Notice{
				notice(sink.Finished, withResult(text), func(n *sink.Notice) { n.View.Tasks[0].Name, n.CI["cirepo"], n.View.Model = text, text, text }),
				notice("", waiting(approval("a1", text, map[string]string{"command": text}))),
				notice("", waiting(question("a1", run.AskQuestion{ID: "q", Header: text, Text: text, Options: []run.AskOption{{Label: text, Description: text}}}))),
				{ID: "digest/1", Kind: sink.Digest, At: time.Now(), Note: text, Digest: []sink.Line{{Kind: sink.Failed, Run: text, Verdict: text, Text: text, Link: text}}},
			} {
				n.Run = fmt.Sprintf("run-%d", i)
				o := send(t, s, n)
				if o.Note != "" {
					t.Errorf("%d: %s", i, o.Note)
				}
				if o.Ref != nil {
					send(t, s, notice(sink.Finished, withResult(text), func(n *sink.Notice) { n.Run, n.Updates, n.ID = fmt.Sprintf("run-%d", i), o.Ref, fmt.Sprint("x/", i) }))
				}
			}
			for _, m := range append(d.Messages("C0CI"), d.Thread("C0CI", d.Messages("C0CI")[0].TS)...) {
				for _, special := range m.Specials() {
					if !strings.HasSuffix(special, "|Open the run>") && !strings.HasSuffix(special, "|CI job>") {
						t.Errorf("Slack makes something of %s", special)
					}
				}
				for _, shown := range m.Texts() {
					if strings.ContainsAny(shown, "\x1b\x07\u200b\u2028") {
						t.Errorf("a control character is in %q", shown)
					}
				}
			}
		})
	}
}
