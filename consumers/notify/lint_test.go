package notify_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
)

func nothing(context.Context, []string, []string, []byte) (int, []byte, error) { return 0, nil, nil }

// What goes wrong for sure is said before anything is sent.
func TestFindings(t *testing.T) {
	r, err := notify.Load([]byte(`version: 1
destinations:
  form: {type: webhook, url: "https://example.com/", secrets: ["plain-4711", env:GOOD, env:BAD]}
  gone: {type: webhook, url: env:NONE, secrets: [env:BAD]}
  inside: {type: slack_webhook, url: "http://10.1.2.3/x"}
  mine: {type: webhook, url: "http://localhost:9000/"}
  allowed: {type: webhook, url: "http://127.0.0.1:9000/", allow: [127.0.0.1]}
  mailer: {type: email, host: 192.168.1.1, from: a@example.com, to: b@example.com}
  tool: {type: command, argv: [no-such-tool]}
  sh: {type: command, argv: [sh]}
  passwd: {type: command, argv: [/etc/passwd]}
rules:
  - {name: long, match: {duration: {min: 2h, max: 1h}}, to: [form]}
  - {name: dear, match: {cost: {min: 2, max: 1}}, to: [form]}
  - {name: many, match: {kind: failed}, to: [form], group: {wait: 5m, interval: 1m}}
  - {name: on, to: [form], continue: true}
  - {name: all, to: [form]}
  - {name: late, match: {kind: lost}, to: [form]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"GOOD": "whsec_" + strings.Repeat("AAAA", 8), "BAD": "whsec_x-4711", "PATH": "/bin:/usr/bin"}[name]
		return v, ok
	}
	var got []string
	for _, f := range r.Findings(notify.Options{Env: env, Exec: nothing}) {
		word := "wrong: "
		if f.Here {
			word = "not here: "
		}
		got = append(got, word+f.Text)
	}
	want := []string{
		"wrong: line 3, column 64: destination form: secret 1: it must begin with whsec_ or whsk_",
		"wrong: line 3, column 88: destination form: secret 3: what follows the prefix is no base64",
		"not here: line 4, column 30: destination gone: env:NONE stands for nothing here: the variable NONE is not set: set it where cbcast notify runs",
		"wrong: line 4, column 50: destination gone: secret 1: what follows the prefix is no base64",
		`wrong: line 5, column 38: destination inside: 10.1.2.3 is refused: the address is not a public one: it is private (the rules can allow it): allow: ["10.1.2.3"]`,
		`wrong: line 8, column 31: destination mailer: 192.168.1.1 is refused: the address is not a public one: it is private (the rules can allow it): allow: ["192.168.1.1"]`,
		`wrong: line 6, column 30: destination mine: localhost is refused: the address is not a public one: it is this machine's own (the rules can allow it): allow: ["localhost"]`,
		"not here: line 11, column 33: destination passwd: argv: /etc/passwd is no program",
		"not here: line 9, column 31: destination tool: argv: there is no program no-such-tool in PATH",
		"wrong: line 13, column 36: rule long: duration: min is over max: nothing is matched",
		"wrong: line 14, column 32: rule dear: cost: min is over max: nothing is matched",
		"wrong: line 15, column 60: rule many: group: interval is less than wait: it does nothing",
		"wrong: line 18, column 5: rule late: is never reached: all before it takes every notice, and does not say continue",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}

// A rule that no sample is for gets one of its own.
func TestSamplesOfRules(t *testing.T) {
	r, err := notify.Load([]byte(head+`
rules:
  - {name: acme, match: {tenant: "acme-*", kind: [waiting, failed]}, to: [hook]}
  - {name: web, match: {ci: {repo: "org/we?"}, verdict: denied}, to: [hook]}
  - {name: long, match: {duration: {min: 2h}, cost: {max: 0.1}, dialect: codex}, to: [hook]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Samples() {
		if s.Says != "no rule" {
			got = append(got, s.What+": "+s.Says)
		}
	}
	want := []string{
		"waiting, claude, tenant acme-x: acme → hook",
		"finished, claude, denied, repo org/wex: web → hook",
		"finished, codex, success, 2h0m0s, $0.10: long → hook",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if s := notify.Assumed(); !strings.Contains(s, "tenant default") || !strings.Contains(s, "repo acme/web") || !strings.Contains(s, "$0.50") {
		t.Errorf("assumed: %s", s)
	}
}
