package sink_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify/sink"
	"github.com/cbcast/cbcast/internal/run"
	"github.com/cbcast/cbcast/test/slackdouble"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain text\n":         "plain text\n",
		"a\r\nb\rc":            "a\nb[U+000D]c",
		"tab\there":            "tab    here",
		"\x1b[31mred\x07":      "[U+001B][31mred[U+0007]",
		"\u202egnp.exe":        "[U+202E]gnp.exe",
		"a\u200bb\u2066c":      "a[U+200B]b[U+2066]c",
		"\U000e0041tag":        "[U+E0041]tag",
		"\u3164\u115f\u2800":   "[U+3164][U+115F][U+2800]",
		"\ufeffbom":            "[U+FEFF]bom",
		"no\xffutf8":           "no\ufffdutf8",
		"\u2028\u0085":         "[U+2028][U+0085]",
		"👩‍👧 ❤️ ok":            "👩‍👧 ❤️ ok",
		"r\u200dm":             "r[U+200D]m",
		"a\ufe0fb":             "a[U+FE0F]b",
		"\u00e9 \u4e2d \u05d0": "\u00e9 \u4e2d \u05d0",
	} {
		if got := sink.Visible(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMentionAndLink(t *testing.T) {
	for in, want := range map[string]string{
		"<@U012ABC>": "<@U012ABC>", "<!subteam^S012>": "<!subteam^S012>", "<!here>": "<!here>", "<@U1A> evil": "&lt;@U1A&gt; evil",
		"<@U1AB> <@W2BC>": "<@U1AB> <@W2BC>", "<https://evil.example|x>": "&lt;https://evil.example|x&gt;", "team <!channel>": "team &lt;!channel&gt;", "on-call": "on-call",
	} {
		if got := sink.Mention(in); got != want {
			t.Errorf("mention %q: %q, want %q", in, got, want)
		}
	}
	for in, ok := range map[string]bool{
		"https://ci.example/a?b=c#/d": true, "http://x/": true, "": false, "javascript:alert(1)": false, "//x/": false, "https://u:p@x/": false, "https://x/a b": false,
		"https://x/>|evil": false, "https://x/\u00fc": false, "https://": false, "https://x/" + strings.Repeat("a", 3000): false,
	} {
		if got := sink.SafeLink(in) != ""; got != ok {
			t.Errorf("link %.40q: %v", in, got)
		}
	}
}

// What an ask asks for is shown whole, and a member of it cannot pass for another.
func TestAskedShowsAll(t *testing.T) {
	a := approval("a1", "Bash", json.RawMessage(`{"description":"list files\ncommand: ls","command":"rm -rf /w","nested":{"x":[1,2]},"sandbox":false}`))
	a.Title, a.Form.Message = "rm -rf /w", "cleans up"
	want := "cleans up\n\ndescription:\n  list files\n  command: ls\ncommand: rm -rf /w\nnested: {\n  \"x\": [\n    1,\n    2\n  ]\n}\nsandbox: false"
	if d := cmp.Diff(want, sink.Asked(&a)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Through a relay's JSON it is the same ask; with another input it is none.
	raw, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var b run.AskView
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	if sink.AskHash(&a) != sink.AskHash(&b) {
		t.Error("the hash is another one after JSON")
	}
	amp := approval("a1", "Bash", map[string]string{"command": "a && b <c>"})
	raw, _ = json.Marshal(amp) // escapes & < >
	b = run.AskView{}
	if err := json.Unmarshal(raw, &b); err != nil || sink.AskHash(&amp) != sink.AskHash(&b) {
		t.Errorf("escapes of JSON change the hash: %v", err)
	}
	odd := question("a1", run.AskQuestion{ID: "q", Text: "no\xffutf8 <&>"})
	odd.Title, odd.Form.Choices, odd.Form.Input = "no\xffutf8", []json.RawMessage{}, json.RawMessage(`{"a":1.50, "b":"\u00e9"}`)
	raw, _ = json.Marshal(odd)
	b = run.AskView{}
	if err := json.Unmarshal(raw, &b); err != nil || sink.AskHash(&odd) != sink.AskHash(&b) {
		t.Errorf("JSON changes the hash: %v", err)
	}
	for name, change := range map[string]func(*run.AskView){
		"input":    func(a *run.AskView) { a.Form.Input = json.RawMessage(`{"command":"a && c"}`) },
		"tool":     func(a *run.AskView) { a.Tool = "Write" },
		"call":     func(a *run.AskView) { a.ToolUseID = "other" },
		"kind":     func(a *run.AskView) { a.Kind = "plan" },
		"id":       func(a *run.AskView) { a.ID = "a2" },
		"message":  func(a *run.AskView) { a.Form.Message = "x" },
		"question": func(a *run.AskView) { a.Form.Questions = []run.AskQuestion{{ID: "q"}} },
		"choice":   func(a *run.AskView) { a.Form.Choices = []json.RawMessage{[]byte(`"accept"`)} },
	} {
		c := amp
		form := *amp.Form
		c.Form = &form
		change(&c)
		if sink.AskHash(&c) == sink.AskHash(&amp) {
			t.Errorf("another %s has the same hash", name)
		}
	}
}

var corpus = []string{
	"", "a", "<", "&amp;", "<!channel>", "<https://e|x>", strings.Repeat("<", 40), strings.Repeat("\U0001F389", 30), "\xff\xfe", "a\u202eb\x1b[2J", "\u2028\u200b", "x\n\ny",
	strings.Repeat("y", 20) + "<&>", strings.Repeat("\u4e2d", 30), "```", "|", "\r\n\t",
}

// FuzzCut: what is cut is within its limits, what is seen of it is the beginning of
// the text, and what is left out is counted.
func FuzzCut(f *testing.F) {
	for _, s := range corpus {
		f.Add(s, 10, 30)
		f.Add(s, 1, 0)
		f.Add(s, 0, 3)
	}
	f.Fuzz(func(t *testing.T, s string, units, bytes int) {
		if units < 0 || bytes < 0 || units > 1<<20 || bytes > 1<<20 {
			return
		}
		whole := sink.Visible(s)
		for _, escaped := range []bool{true, false} {
			var out string
			var left int
			if escaped {
				out, left = sink.CutMrkdwn(whole, units, bytes)
			} else {
				out, left = sink.CutPlain(whole, units)
			}
			if units > 0 && sink.Units(out) > units || escaped && bytes > 0 && len(out) > bytes {
				t.Errorf("%q over %d units or %d bytes", out, units, bytes)
			}
			shown := out
			if escaped {
				if strings.ContainsAny(out, "<>") {
					t.Errorf("%q has an angle bracket", out)
				}
				shown = slackdouble.Unescape(out)
			}
			if left > 0 {
				shown = strings.TrimSuffix(shown, "…")
			}
			if !strings.HasPrefix(whole, shown) || utf8.RuneCountInString(shown)+left != utf8.RuneCountInString(whole) {
				t.Errorf("%q of %q, %d left", shown, whole, left)
			}
			if escaped && strings.Count(out, "&") != strings.Count(out, "&amp;")+strings.Count(out, "&lt;")+strings.Count(out, "&gt;") {
				t.Errorf("an entity is cut in %q", out)
			}
		}
		for _, r := range whole {
			if r != '\n' && r != '\u200d' && r != '\ufe0f' && unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Errorf("%q is seen as %q", s, whole)
			}
		}
		parts := sink.Sections(whole)
		if got := slackdouble.Unescape(strings.Join(parts, "")); got != whole {
			t.Errorf("sections lose something: %q of %q", got, whole)
		}
	})
}

// FuzzSlackMessage: whatever a run says, Slack takes the message as it is, and makes
// nothing of it but our links.
func FuzzSlackMessage(f *testing.F) {
	for _, s := range corpus {
		f.Add(s, s, 3)
	}
	d := slackdouble.New(f)
	s := bot(f, d)
	in, err := sink.NewIncoming(sink.IncomingConfig{Name: "in", URL: d.IncomingURL(), Guard: loopback})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, one, two string, times int) {
		text := strings.Repeat(one, max(1, min(times, 3000)))
		d.Forget()
		for _, n := range []*sink.Notice{
			notice(sink.Finished, withResult(text), func(n *sink.Notice) { n.View.Tasks[0].Name, n.Note = two, text }),
			notice("", waiting(approval("a1", two, map[string]string{"command": text, two: one}), approval("a2", "Bash", map[string]string{"command": text}), question("a3", run.AskQuestion{ID: "q", Text: text, Header: two}))),
			{ID: "d/1", Kind: sink.Digest, At: time.Now(), Note: two, Digest: []sink.Line{{Kind: sink.Failed, Run: one, Verdict: two, Text: text, Link: two}}},
		} {
			for _, to := range []sink.Sink{s, in} {
				if o := to.Send(t.Context(), n); o.Verdict != sink.Delivered || o.Note != "" {
					t.Errorf("%+v", o)
				}
			}
		}
		for _, m := range d.Messages("C0CI") {
			for _, special := range m.Specials() {
				if !strings.HasSuffix(special, "|Open the run>") && !strings.HasSuffix(special, "|CI job>") && !strings.HasPrefix(special, "<"+two+"|") {
					t.Errorf("Slack makes something of %q", special)
				}
			}
		}
	})
}
