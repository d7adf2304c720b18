package notify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
)

// Whatever is wrong with a file is told at once: of its text, its schema, its names, its
// destinations and its rules, in the order of the file.
func TestInspectAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n.yaml")
	text := `version: 7
max_age: 99999999h
public_url: https://user:SECRET@x
destinations:
  twice: {type: log, type: log}
  pager: {type: pager}
  hook: {type: webhook, url: env:NONE, secrets: [plain-4711], headers: {"x y": a}}
  inside: {type: slack_webhook, url: "http://10.1.2.3/x", ca: /no/such/file}
  mail: {type: email, host: "smtp://mx", tls: none, password: env:NONE, from: "a@b.test, c@d.test", to: nobody}
  chat: {type: slack, token: env:NONE, users: {U1: [answer]}}
  both: {type: email, host: mx, from: nobody, to: [], port: 0}
  url: {type: webhook, url: "", headers: {Host: x}}
  tool: {type: command, argv: [no-such-tool]}
quiet:
  night: {zone: Mars/One, from: "22:00", to: "07:00"}
rules:
  - {name: a, to: [pager, gone, twice], digest: 0s}
  - {name: b, to: [hook], match: {kind: done}, quiet: [night, day]}
  - {name: c, to: [hook], match: {cost: {min: 2, max: 1}}}
  - {name: d, to: [hook]}
  - {name: e, to: [inside]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := notify.Options{Env: func(string) (string, bool) { return "", false }, Exec: nothing, Config: notify.Config{Rules: file, ToldAge: -1, Addr: ":99999", RelayURL: "relay:8420"}}
	r, all := notify.Inspect(file, o)
	if r != nil {
		t.Error("the rules are taken")
	}
	var got []string
	for _, f := range all {
		word := "wrong: "
		if f.Here {
			word = "not here: "
		}
		text := strings.TrimPrefix(f.Text, file+": ")
		if _, rest, ok := strings.Cut(text, ", column "); ok {
			_, what, _ := strings.Cut(rest, ": ")
			line, _, _ := strings.Cut(text, ",")
			text = line + ": " + what
		}
		got = append(got, word+text)
	}
	want := []string{
		"wrong: CBCAST_NOTIFY_TOLD_AGE is -1ns: write how long it is remembered what was told, like 2160h (at most 3650d)",
		`wrong: CBCAST_NOTIFY_ADDR is ":99999": write an address and a port, like 127.0.0.1:8422`,
		"wrong: CBCAST_NOTIFY_RELAY_URL must begin with http:// or https:// and name a host",
		"wrong: line 1: version is 7: write 1",
		`wrong: line 2: max_age is "99999999h": that is too long, at most 3650d can be`,
		"wrong: line 3: public_url has a user in it, whom everybody would see: remove user and password",
		`wrong: line 5: "type" stands here for the second time: remove one`,
		"wrong: line 6: destinations.pager.type is pager: write one of slack, slack_webhook, webhook, email, command, log",
		"not here: line 7: destination hook: env:NONE stands for nothing here: the variable NONE is not set: set it where cbcast notify runs",
		`wrong: line 7: destination hook: "x y" is no name of a header`,
		"wrong: line 7: destination hook: secret 1: it must begin with whsec_ or whsk_",
		"wrong: line 8: destination inside: read its authorities: open /no/such/file: no such file or directory",
		`wrong: line 8: destination inside: 10.1.2.3 is refused: the address is not a public one: it is private (the rules can allow it): allow: ["10.1.2.3"]`,
		"not here: line 9: destination mail: env:NONE stands for nothing here: the variable NONE is not set: set it where cbcast notify runs",
		`wrong: line 9: destination mail: host is "smtp://mx": it must be the name of a mail server, and nothing else (its port stands in port)`,
		"wrong: line 9: destination mail: from has 2 addresses: it must be one",
		`wrong: line 9: destination mail: to: "nobody" is no address: write a@example.com, or Name <a@example.com> with a name that has more than letters, digits and spaces in double quotes`,
		"not here: line 10: destination chat: env:NONE stands for nothing here: the variable NONE is not set: set it where cbcast notify runs",
		"wrong: line 10: destination chat: users does nothing without app_token or signing_secret: clicks have no way here, so there are no buttons",
		"wrong: line 11: destinations.both.to is empty: fill it in, or remove it",
		`wrong: line 11: destinations.both.port is 0: that is too small, it must be at least 1`,
		`wrong: line 11: destination both: from: "nobody" is no address: write a@example.com, or Name <a@example.com> with a name that has more than letters, digits and spaces in double quotes`,
		"wrong: line 12: destinations.url.url is empty: fill it in, or remove it",
		"wrong: line 12: destination url: the header Host is cbcast's own: remove it",
		"not here: line 13: destination tool: argv: there is no program no-such-tool in PATH",
		`wrong: line 15: quiet.night: time zone "Mars/One" is not known: write one like Europe/Berlin or UTC`,
		`wrong: line 17: rules[0].digest is "0s": it must be more than 0; remove it to have the default`,
		`wrong: line 18: "done" is not known here: it is one of finished, failed, lost, waiting, stalled, interrupted, answered`,
		`wrong: line 18: there are no quiet hours "day": define them under quiet`,
		"wrong: line 19: rule c: cost: min is over max: nothing is matched",
		"wrong: line 21: rule e: is never reached: d before it takes every notice, and does not say continue",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
	// What keeps it from running is told at the start, all of it, too.
	err := notify.Check(o)
	if err == nil {
		t.Fatal("it would run")
	}
	for _, part := range []string{"TOLD_AGE", "version is 7", "env:NONE", "no name of a header", "no such file", "from has 2 addresses", "Mars/One", `"done" is not known`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in\n%v", part, err)
		}
	}
}
