package ingest_test

import (
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest"
)

// A policy that two readers could read in two ways, or that says less than it
// seems to, is refused.
func TestPolicyStrict(t *testing.T) {
	for text, want := range map[string]string{
		`{"rules":[{"tool":"Bash","then":"ask","then":"allow"}]}`:                                   "twice",
		`{"rules":[{"tool":"Bash","then":"ask","Then":"allow"}]}`:                                   "twice",
		`{"rules":[{"tool":"X","then":"deny"}],"rules":[{"then":"allow"}]}`:                         "twice",
		`{"timeouts":{"approval":{"after":"1h","then":"deny"},"approval":{"after":"2h"}}}`:          "twice",
		`{"timeouts":{"approval":{"after":"1h","then":"deny","interrupt":false,"interrupt":true}}}`: "twice",
		`{"rules":[{"command":"","then":"allow"}]}`:                                                 "command is empty",
		`{"rules":[{"tool":"Bash","repo":"","then":"allow"}]}`:                                      "repo is empty",
		`{"rules":[{"tool":null,"then":"allow"}]}`:                                                  "tool is empty",
		`{"rules":[{"tool":"Bash","command":"ls)|(?:","then":"allow"}]}`:                            "command",
		`null`: "object",
		`[]`:   "cannot unmarshal",
		`{} `:  "",
		`{"rules":[{"tool":"Bash","command":"(ls|pwd)","then":"allow"}]}`: "",
		`{"rules":[{"then":"deny"}]}`:                                     "",
	} {
		_, err := ingest.ParsePolicy([]byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a rule matches, and what only looks so.
func TestPolicyReach(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for _, tt := range []struct{ name, rule, tool, input, want string }{
		{"a slash in a name", `{"tool":"*","then":"deny"}`, "a/b", `{}`, "a1 a/b deny rule 1"},
		{"more than the command", `{"tool":"Bash","command":"git status","then":"allow"}`, "Bash", `{"command":"git status","dangerouslyDisableSandbox":true}`, ""},
		{"the command alone", `{"tool":"Bash","command":"git status","then":"allow"}`, "Bash", `{"command":"git status","dangerouslyDisableSandbox":false}`, "a1 Bash allow rule 1"},
		{"all of the tool", `{"tool":"Bash","then":"allow"}`, "Bash", `{"command":"git status","dangerouslyDisableSandbox":true}`, "a1 Bash allow rule 1"},
		{"too long to be denied", `{"command":".*rm.*","then":"deny"},{"tool":"Bash","then":"allow"}`, "Bash", `{"command":"rm ` + long + `"}`, ""},
		{"too long to be allowed", `{"command":".*","then":"allow"}`, "Bash", `{"command":"` + long + `"}`, ""},
		{"long, of another tool", `{"tool":"Read","command":".*","then":"deny"},{"tool":"Bash","then":"allow"}`, "Bash", `{"command":"` + long + `"}`, "a1 Bash allow rule 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.Replace(tt.want, "rule 1", "rule x", 1)
			rule := tt.rule[:strings.LastIndexByte(tt.rule, '{')] + `{"name":"x",` + tt.rule[strings.LastIndexByte(tt.rule, '{')+1:]
			p := played(t, `{"rules":[`+rule+`]}`)
			p.Say(ask(`"q1"`, tt.tool, tt.input))
			got := decisions(t, p.End())
			if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
