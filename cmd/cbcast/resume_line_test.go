package main

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// The line is one that a shell takes apart as it was meant.
func TestResumeLine(t *testing.T) {
	q := run.ResumeAsk{ID: "q1", Kind: "question", Questions: []run.AskQuestion{{ID: "Is it Bob's?", Text: "Is it Bob's?"}}}
	v := run.View{Run: "0190-x", Dialect: "claude", Cwd: "/srv/my proj", Argv: []string{"/opt/claude", "-p"}}
	for _, tc := range []struct {
		cwd  string
		a    event.Answer
		want []string
	}{
		{"/srv/my proj", q.Answer([]string{"it's $HOME"}), []string{"cbcast", "run", "--resume", "0190-x", "--prompt", "Answer to \"Is it Bob's?\": it's $HOME", "--", "/opt/claude"}},
		{"/", event.Answer{Decision: event.Deny, Message: "a\nb"}, []string{"cd", "/srv/my proj", "&&", "cbcast", "run", "--resume", "0190-x", "--prompt", "The question is declined: a\nb", "--", "/opt/claude"}},
		{"/srv/my proj", event.Answer{Decision: event.Answers, Message: "@file"}, []string{"cbcast", "run", "--resume", "0190-x", "--prompt", " @file", "--", "/opt/claude"}},
	} {
		line := resumeLine(v, q, tc.a, tc.cwd)
		out, err := exec.Command("sh", "-c", "cd() { printf '%s\\0' cd \"$@\" '&&'; }; cbcast() { printf '%s\\0' cbcast \"$@\"; }; "+line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if d := cmp.Diff(tc.want, splitNul(out)); d != "" {
			t.Errorf("%s (-want +got)\n%s", line, d)
		}
	}
}

func splitNul(b []byte) (words []string) {
	start := 0
	for i, c := range b {
		if c == 0 {
			words = append(words, string(b[start:i]))
			start = i + 1
		}
	}
	return words
}
