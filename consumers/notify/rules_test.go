package notify_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
)

const head = "version: 1\ndestinations:\n  hook: {type: webhook, url: env:HOOK}\n"

var ruleErrors = []struct{ name, file, want string }{
	{"no YAML", "version: [", "line 1, column 1: this is no YAML: did not find expected node content"},
	{"empty", "", "line 1, column 1: the file is empty"},
	{"two documents", head + "rules: [{name: a, to: [hook]}]\n---\nx: 1\n", "line 5, column 1: a second document begins here: put everything into one"},
	{"unknown key", head + "rules:\n  - {name: a, to: [hook], mentoin: x}\n", `line 5, column 27: "mentoin" is no key of rules[0]: remove it, or see cbcast notify --schema for those there are`},
	{"unknown key of a destination", "version: 1\ndestinations:\n  hook: {type: webhook, url: x, token: y}\nrules: [{name: a, to: [hook]}]\n", `line 3, column 33: "token" is no key of destinations.hook: remove it, or see cbcast notify --schema for those there are`},
	{"key twice", head + "rules:\n  - {name: a, to: [hook], name: b}\n", `line 5, column 27: "name" stands here for the second time: remove one`},
	{"missing", head + "rules:\n  - {name: a}\n", "line 5, column 5: rules[0] lacks to: add it"},
	{"type", head + "rules:\n  - {name: a, to: [hook], digest: 30}\n", "line 5, column 35: rules[0].digest is a number here: write a string (a duration has a unit, like 30s; other texts stand in quotes)"},
	{"duration", head + "rules:\n  - {name: a, to: [hook], digest: soon}\n", `line 5, column 35: rules[0].digest is "soon": write a duration like 30s, 15m, 2h or 1d`},
	{"version", "version: 2\n" + head[len("version: 1\n"):] + "rules: [{name: a, to: [hook]}]\n", "line 1, column 10: version is 2: write 1"},
	{"type of a destination", "version: 1\ndestinations:\n  a: {type: pager}\nrules: [{name: a, to: [a]}]\n", "line 3, column 13: destinations.a.type is pager: write one of slack, slack_webhook, webhook, email, command, log"},
	{"no such destination", head + "rules:\n  - {name: a, to: [hook, chat]}\n", `line 5, column 26: there is no destination "chat": it is one of hook`},
	{"no such kind", head + "rules:\n  - {name: a, to: [hook], match: {kind: done}}\n", `line 5, column 41: "done" is not known here: it is one of finished, failed, lost, waiting, stalled, interrupted, answered`},
	{"no such label", head + "rules:\n  - name: a\n    to: [hook]\n    match:\n      ci:\n        branch: main\n", `line 9, column 9: "branch" is no label of a CI job: it is one of provider, repo, ref, sha, workflow, job, run, attempt, event, actor, url`},
	{"no such zone", head + "quiet: {night: {zone: Mars/One, from: \"22:00\", to: \"07:00\"}}\nrules: [{name: a, to: [hook]}]\n", `line 4, column 23: quiet.night: time zone "Mars/One" is not known: write one like Europe/Berlin or UTC`},
	{"time", head + "quiet: {night: {zone: UTC, from: \"25:00\", to: \"07:00\"}}\nrules: [{name: a, to: [hook]}]\n", `line 4, column 34: quiet.night.from is "25:00": write a time of day like "07:30"`},
	{"no such quiet", head + "rules: [{name: a, to: [hook], quiet: [day]}]\n", `line 4, column 39: there are no quiet hours "day": define them under quiet`},
	{"same name", head + "rules:\n  - {name: a, to: [hook]}\n  - {name: a, to: [hook]}\n", `line 6, column 12: there is a rule "a" already: give this one another name`},
	{"reminders", head + "rules:\n  - {name: a, to: [hook], waiting: {remind: [1h, 30m]}}\n", "line 5, column 50: times of reminders count from the first notice and rise: put them in order"},
	{"alias within itself", "version: &a [*a]\n", "line 1, column 10: the file has too many entries, aliases counted as often as they stand"},
	{"name", head + "  A b: {type: log}\nrules: [{name: a, to: [hook]}]\n", `line 4, column 3: "A b" cannot be a name in destinations: use a-z, 0-9, - and _ (of users: ids like U012)`},
	{"name of a user", head + "  chat: {type: slack, token: t, channel: C1, users: {me: [answer]}}\nrules: [{name: a, to: [hook]}]\n", `line 4, column 54: "me" cannot be a name in destinations.chat.users: use a-z, 0-9, - and _ (of users: ids like U012)`},
	{"aliases of aliases", bomb(), "line 2, column 5: the file has too many entries, aliases counted as often as they stand"},
}

// Errors say where, what is wrong, and what to do.
func TestRulesErrors(t *testing.T) {
	for _, tc := range ruleErrors {
		t.Run(tc.name, func(t *testing.T) {
			_, err := notify.Load([]byte(tc.file), "")
			if err == nil {
				t.Fatal("it is taken")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("error (-want +got):\n%s", d)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 x\n")
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		prev := string(rune(n[0] - 1))
		b.WriteString("a" + n + ": &a" + n + " [" + strings.TrimSuffix(strings.Repeat("*a"+prev+", ", 10), ", ") + "]\n")
	}
	return b.String()
}

// All of what is wrong is said at once, in the order of the file.
func TestRulesManyErrors(t *testing.T) {
	_, err := notify.Load([]byte("version: 1\nx: 1\ndestinations: {}\nrules: [{name: A, to: []}]\n"), "f.yaml")
	if err == nil {
		t.Fatal("it is taken")
	}
	want := `f.yaml: line 2, column 1: "x" is no key of the file: remove it, or see cbcast notify --schema for those there are
f.yaml: line 3, column 15: destinations is empty: fill it in, or remove it
f.yaml: line 4, column 16: rules[0].name is "A": use a-z, 0-9, - and _, at most 63 of them
f.yaml: line 4, column 23: rules[0].to is empty: fill it in, or remove it`
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

// The first rule that matches is the last, unless it goes on; --check says which.
func TestRulesOrder(t *testing.T) {
	r, err := notify.Load([]byte(head+`
  chat: {type: slack, token: env:T, channel: C1}
rules:
  - {name: dear, match: {cost: {min: 0.4}, kind: [finished]}, except: {verdict: denied}, to: [hook], continue: true}
  - {name: web, match: {ci: {repo: "acme/*", ciref: [main, "release/?"]}, duration: {min: 5m, max: 1h}, workflow: "re*"}, except: {kind: [waiting, stalled]}, to: [{destination: chat, at: C9}]}
  - {name: claude, match: {dialect: claude, tenant: "def*"}, to: [chat]}
  - {name: never, to: [hook]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Samples() {
		got = append(got, s.What+": "+s.Says)
	}
	want := []string{
		"finished, claude, success: dear → hook; web → chat|C9",
		"finished, cbc, incomplete: dear → hook; web → chat|C9",
		"finished, claude, denied: web → chat|C9",
		"failed, claude, failed: web → chat|C9",
		"interrupted, codex, interrupted: web → chat|C9",
		"lost, claude, lost: web → chat|C9",
		"waiting, claude: claude → chat",
		"stalled, claude: claude → chat",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	none := func(string) (string, bool) { return "", false }
	if all := r.Findings(notify.Options{Env: none}); len(all) != 2 || !all[0].Here || !all[1].Here {
		t.Errorf("missing secrets: %v", all)
	}
}

// The rules that come with cbcast are right, and so are those that docs and help show.
func TestSampleRules(t *testing.T) {
	r, err := notify.LoadFile("../../deploy/notify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Samples() {
		got = append(got, s.What+": "+s.Says)
	}
	want := []string{
		"finished, claude, success: programs → hook; rest → mail",
		"finished, cbc, incomplete: programs → hook; rest → mail",
		"finished, claude, denied: programs → hook; rest → mail",
		"failed, claude, failed: programs → hook; main → chat",
		"interrupted, codex, interrupted: programs → hook",
		"lost, claude, lost: programs → hook; main → chat",
		"waiting, claude: programs → hook; asks → chat",
		"stalled, claude: programs → hook; main → chat",
		"finished, claude, success, $5.00: programs → hook; dear → chat",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	doc, err := os.ReadFile("../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for block := range strings.SplitSeq(string(doc), "```") {
		if text, ok := strings.CutPrefix(block, "yaml\n"); ok {
			n++
			if _, err := notify.Load([]byte(text), "docs/notify.md"); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
		}
	}
	if n == 0 {
		t.Error("docs/notify.md shows no rules")
	}
}
