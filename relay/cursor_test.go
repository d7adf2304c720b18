package relay

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cbcast/cbcast/internal/event"
)

// A cursor is a number of 64 bits in decimal or an error, never something else.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "0", "1", "abc", "-1", "+1", " 1", "1 ", "18446744073709551615", "18446744073709551616", "1e3", "0x10", "١", "1_000", "00"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, header bool) {
		q := httptest.NewRequest("GET", "/v1/runs/r/stream", nil)
		if header {
			q.Header = http.Header{"Last-Event-Id": {s}}
			q.URL.RawQuery = "after=7"
		} else {
			v := q.URL.Query()
			v.Set("after", s)
			q.URL.RawQuery = v.Encode()
		}
		n, err := cursorOf(q)
		digits := s != ""
		for _, c := range []byte(s) {
			digits = digits && c >= '0' && c <= '9'
		}
		want, perr := strconv.ParseUint(s, 10, 64)
		switch {
		case digits && perr == nil:
			if err != nil || n != want {
				t.Fatalf("%q: %d, %v", s, n, err)
			}
		case err == nil || err.code != CodeBadCursor:
			t.Fatalf("%q: %d, %v", s, n, err)
		}
	})
}

func FuzzListCursor(f *testing.F) {
	f.Add("MjAyNg")
	f.Fuzz(func(t *testing.T, s string) {
		if i := parseListCursor(s); i != nil && i.Run == "" {
			t.Fatalf("%q names no run", s)
		}
	})
}

func TestCommandState(t *testing.T) {
	now := time.Now()
	at := func(f event.Fact, by string, ago time.Duration) Fact { return Fact{Fact: f, By: by, At: now.Add(-ago)} }
	accepted := at(event.Accepted, "bus", time.Minute)
	for _, c := range []struct {
		facts []Fact
		state string
		final bool
	}{
		{[]Fact{accepted}, "accepted", false},
		{[]Fact{accepted, at(event.Written, "edge", time.Second)}, "written", false},
		{[]Fact{accepted, at(event.Written, "edge", 5*time.Second)}, "sent_not_acked", false},
		{[]Fact{accepted, at(event.Written, "edge", 9*time.Second), at(event.Acked, "edge", 8*time.Second)}, "acked", false},
		// The second interrupt of one command to cbc.
		{[]Fact{accepted, at(event.Written, "edge", 19*time.Second), at(event.Acked, "edge", 18*time.Second), at(event.Written, "edge", 9*time.Second)}, "written", false},
		{[]Fact{accepted, at(event.UnknownF, "relay", 9*time.Second)}, "unknown", true},
		// The edge's word holds, whenever it comes.
		{[]Fact{accepted, at(event.UnknownF, "relay", 9*time.Second), at(event.Settled, "edge", 20*time.Second)}, "settled", true},
		{[]Fact{accepted, at(event.Refused, "edge", 9*time.Second), at(event.Expired, "relay", time.Second)}, "refused", true},
	} {
		state, final := commandState(cmdInterrupt, c.facts, now)
		if d := cmp.Diff([]any{c.state, c.final}, []any{state, final}); d != "" {
			t.Errorf("%v: %s", c.facts, d)
		}
	}
}
