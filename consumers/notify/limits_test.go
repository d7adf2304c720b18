package notify_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/consumers/notify"
)

// Values that nobody means are refused, with where they stand and what can be there.
func TestAbsurdValues(t *testing.T) {
	const rule = "rules: [{name: a, to: [hook]%s}]\n"
	file := func(dest, of, more string) string {
		return "version: 1\n" + of + "destinations:\n  hook: {type: email, host: mx, from: a@b.test, to: c@d.test" + dest + "}\n" + strings.Replace(rule, "%s", more, 1)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"long":             {file("", "", ", digest: 99999999999999999h"), `line 4: rules[0].digest is "99999999999999999h": that is too long, at most 3650d can be`},
		"many digits":      {file("", "", ", digest: "+strings.Repeat("9", 400)+"h"), `line 4: rules[0].digest is "a text of 401 characters": that is too long, at most 3650d can be`},
		"ten years and up": {file("", "", ", digest: 3651d"), `line 4: rules[0].digest is "3651d": that is too long, at most 3650d can be`},
		"days and hours":   {file("", "", ", digest: 3650d24h"), `line 4: rules[0].digest is "3650d24h": that is too long, at most 3650d can be`},
		"negative":         {file("", "", ", digest: -5m"), `line 4: rules[0].digest is "-5m": write a duration like 30s, 15m, 2h or 1d`},
		"none":             {file("", "", ", digest: 0s"), `line 4: rules[0].digest is "0s": it must be more than 0; remove it to have the default`},
		"less than any":    {file("", "", ", digest: 0.0000001ms"), `line 4: rules[0].digest is "0.0000001ms": it must be more than 0; remove it to have the default`},
		"age":              {file("", "max_age: 0h\n", ""), `line 2: max_age is "0h": it must be more than 0; remove it to have the default`},
		"timeout":          {file(", timeout: 99999h", "", ""), `line 3: destinations.hook.timeout is "99999h": that is too long, at most 1h can be`},
		"no timeout":       {file(", timeout: 0s", "", ""), `line 3: destinations.hook.timeout is "0s": it must be more than 0; remove it to have the default`},
		"rate":             {file(", rate: {every: 2d}", "", ""), `line 3: destinations.hook.rate.every is "2d": that is too long, at most 1d can be`},
		"rate of none":     {file(", rate: {every: 0s, burst: 0}", "", ""), "line 3: destinations.hook.rate.every is \"0s\": it must be more than 0; remove it to have the default\nline 3: destinations.hook.rate.burst is 0: that is too small, it must be at least 1"},
		"burst":            {file(", rate: {every: 1s, burst: 1e300}", "", ""), "line 3: destinations.hook.rate.burst is 1e+300: that is too large, it may be at most 10000"},
		"ladder":           {file(", retry: {ladder: [5s, 0s]}", "", ""), `line 3: destinations.hook.retry.ladder[1] is "0s": it must be more than 0; remove it to have the default`},
		"cost":             {file("", "", ", match: {cost: {min: 1e300}}"), "line 4: rules[0].match.cost.min is 1e+300: that is too large, it may be at most 1000000000"},
		"cost below":       {file("", "", ", match: {cost: {max: -1}}"), "line 4: rules[0].match.cost.max is -1: that is too small, it must be at least 0"},
		"cost that is no number": {
			file("", "", ", match: {cost: {max: .nan}}"), "line 4: rules[0].match.cost.max: .nan is no number that can be used here",
		},
		"cost without end": {file("", "", ", match: {cost: {max: .inf}}"), "line 4: rules[0].match.cost.max: .inf is no number that can be used here"},
		"queue":            {file(", queue: -3", "", ""), "line 3: destinations.hook.queue is -3: that is too small, it must be at least 1"},
		"port":             {file(", port: 70000", "", ""), "line 3: destinations.hook.port is 70000: that is too large, it may be at most 65535"},
		"remind":           {file("", "", ", waiting: {remind: [0s]}"), `line 4: rules[0].waiting.remind[0] is "0s": it must be more than 0; remove it to have the default`},
		"at": {
			file("", "", "")[:len(file("", "", ""))-len("hook]}]\n")] + "{destination: hook, at: nobody}]}]\n",
			`line 4: rules[0].to[0].at: "nobody" is no address: write a@example.com, or Name <a@example.com> with a name that has more than letters, digits and spaces in double quotes`,
		},
		"a secret in a wrong place": {file(", tls: xoxb-SECRET-1", "", ""), "line 3: destinations.hook.tls is a text of 13 characters: write one of starttls, tls, none"},
		"a secret as a key":         {file(", xoxb-SECRET-1: 1", "", ""), `line 3: "a text of 13 characters" is no key of destinations.hook: remove it, or see cbcast notify --schema for those there are`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := notify.Load([]byte(tc.file), "")
			if err == nil {
				t.Fatalf("it is taken:\n%s", tc.file)
			}
			got := regexp.MustCompile(", column [0-9]+").ReplaceAllString(err.Error(), "")
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("error (-want +got):\n%s\nof\n%s", d, tc.file)
			}
		})
	}
	// What is 0 and says something.
	if _, err := notify.Load([]byte(file("", "", ", match: {duration: {min: 0s}}, group: {by: [repo], wait: 0s, interval: 3650d}")), ""); err != nil {
		t.Error(err)
	}
}
