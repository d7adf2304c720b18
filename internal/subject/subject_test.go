package subject_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/subject"
)

var safe = regexp.MustCompile(`^[A-Za-z0-9_=-]{1,128}$`)

// hostile are the ids of the subject-injection case and its siblings.
var hostile = []string{
	"a.b", "x y", "*", ">", "", "_", "a..b", "é", strings.Repeat("x", 300), strings.Repeat("é", 300),
	"$JS.API.STREAM.DELETE.EVENTS", "a\r\nb", "\x00", "=5F", "a=2Eb", "\xff\xfe", strings.Repeat("x", 128),
	strings.Repeat("x", 129), strings.Repeat("y", 129), strings.Repeat(".", 42), strings.Repeat(".", 43),
}

func TestTokenIsSafeAndInjective(t *testing.T) {
	seen := map[string]string{}
	for _, id := range hostile {
		tok := subject.Token(id)
		if !safe.MatchString(tok) {
			t.Errorf("Token(%q) = %q is not one safe token", id, tok)
		}
		if other, dup := seen[tok]; dup {
			t.Errorf("Token(%q) = Token(%q) = %q", id, other, tok)
		}
		seen[tok] = id
		if back, ok := subject.Untoken(tok); ok && back != id {
			t.Errorf("Untoken(Token(%q)) = %q", id, back)
		} else if !ok && !strings.Contains(tok, "=h") {
			t.Errorf("Untoken(%q) refused a token that was not cut", tok)
		}
	}
}

func TestEventRoundTrip(t *testing.T) {
	for _, id := range hostile {
		e := subject.Event{Partition: 3, Tenant: "acme", Run: "r1", Session: id, Task: id, Kind: "msg"}
		s := e.String()
		if !strings.HasPrefix(s, strings.TrimSuffix(subject.RunFilter(3, "acme", "r1"), ">")) {
			t.Errorf("%q is outside its run's prefix", s)
		}
		if n := strings.Count(s, "."); n != 7 {
			t.Errorf("%q has %d dots, want 7", s, n)
		}
		got, err := subject.ParseEvent(s)
		if err != nil {
			t.Errorf("ParseEvent(%q): %v", s, err)
		}
		if got != e && !strings.Contains(s, "=h") {
			t.Errorf("ParseEvent(%q) = %+v, want %+v", s, got, e)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", "cbc.ev.", "cbc.ev.0.t.r.s.k", "cbc.ev.01.t.r.s.k.msg", "cbc.ev.-1.t.r.s.k.msg",
		"cbc.ev.0.t._.s.k.msg", "cbc.ev.0.t.r.s.k._", "cbc.ev.0.t.r.s.k.msg.more", "cbc.cmd.t.r.c",
		"cbc.ev.0.t.*.s.k.msg", "cbc.ev.0.t.>.s.k.msg", "cbc.ev.0.t.r.*.k.msg", "cbc.ev.0.t.r.s.>.msg", "cbc.ev.0.t..s.k.msg",
	} {
		if e, err := subject.ParseEvent(s); err == nil {
			t.Errorf("ParseEvent(%q) = %+v, want an error", s, e)
		}
	}
}

func TestCommandAndControl(t *testing.T) {
	tn, r, id, err := subject.ParseCommand(subject.Command("acme", "r.1", "c 1"))
	if tn != "acme" || r != "r.1" || id != "c 1" || err != nil {
		t.Errorf("ParseCommand = %q %q %q %v", tn, r, id, err)
	}
	tn, r, id, err = subject.ParseControl(subject.Control("acme", "r1", subject.Audit("c1")))
	if tn != "acme" || r != "r1" || id != "audit-c1" || err != nil {
		t.Errorf("ParseControl = %q %q %q %v", tn, r, id, err)
	}
}

func FuzzToken(f *testing.F) {
	for _, id := range hostile {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		tok := subject.Token(id)
		if !safe.MatchString(tok) {
			t.Fatalf("Token(%q) = %q", id, tok)
		}
		if back, ok := subject.Untoken(tok); ok && back != id {
			t.Fatalf("Untoken(Token(%q)) = %q", id, back)
		}
		if back, ok := subject.Untoken(id); ok && subject.Token(back) != id {
			t.Fatalf("Untoken(%q) = %q, whose token differs", id, back)
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	f.Add("cbc.ev.0.acme.r1.s1._.msg")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := subject.ParseEvent(s)
		if err == nil && !strings.Contains(s, "=h") && e.String() != s {
			t.Fatalf("ParseEvent(%q).String() = %q", s, e.String())
		}
	})
}
