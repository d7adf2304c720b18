package redact_test

import (
	"strings"
	"testing"

	"github.com/cbcast/cbcast/ingest/redact"
	"github.com/cbcast/cbcast/internal/event"
)

// A key that is printed as text comes line by line.
func TestPEMOverLines(t *testing.T) {
	r, err := redact.New(redact.Config{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	secret := []string{"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ", "Proc-Type: 4,ENCRYPTED", "QUJDREVGR0g="}
	in := append(append([]string{"before", "-----BEGIN OPENSSH PRIVATE KEY-----"}, secret...), "", "-----END OPENSSH PRIVATE KEY-----", "after QUJDREVGR0g=")
	for _, stream := range []event.Stream{event.Out, event.Err} {
		var out []string
		for _, l := range in {
			res := r.Frame(stream, []byte(l), false)
			if !redact.Matches([]byte(l), res.Data, res.Spans) {
				t.Errorf("%q became %q outside of %v", l, res.Data, res.Spans)
			}
			out = append(out, string(res.Data))
		}
		for _, s := range secret {
			if strings.Contains(strings.Join(out[:len(out)-1], "\n"), s) {
				t.Errorf("%s: %q is in the clear:\n%s", stream, s, strings.Join(out, "\n"))
			}
		}
		if out[0] != "before" || out[len(out)-1] != in[len(in)-1] {
			t.Errorf("%s: other lines changed: %q", stream, out)
		}
	}
	// A text that only names a key ends it at the first line that is none.
	r.Frame(event.Out, []byte("it begins with -----BEGIN RSA PRIVATE KEY-----"), false)
	if res := r.Frame(event.Out, []byte("and then, as you see, a sentence."), false); res.Changed() {
		t.Errorf("a sentence was masked: %q", res.Data)
	}
}

// The value of a flag that names a secret is masked where the child repeats it.
func TestArgvIsRemembered(t *testing.T) {
	r, err := redact.New(redact.Config{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	r.MaskArgv([]string{"claude", "--api-key", "ARGVKEY12345678", "--auth-token=OTHERKEY12345678", "-p", "say hello to everyone"})
	for _, v := range []string{"ARGVKEY12345678", "OTHERKEY12345678"} {
		if res := r.Frame(event.Out, []byte(`{"text":"`+v+`"}`), false); strings.Contains(string(res.Data), v) {
			t.Errorf("%s is in the clear", v)
		}
	}
	if res := r.Frame(event.Out, []byte("say hello to everyone"), false); res.Changed() {
		t.Errorf("a prompt was remembered: %q", res.Data)
	}
}
