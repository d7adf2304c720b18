package relay

import (
	"net/http"
	"strconv"
	"strings"
)

// parseCursor reads a seq: decimal digits that fit 64 bits, and nothing else.
func parseCursor(s string) (uint64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// cursorOf finds where a request wants to go on: the header Last-Event-ID, else
// the parameters after or after_seq, else 0, the beginning. What is there but is
// no seq is an error, also when it is empty: a client that lost its cursor must
// not be given a part as if it were the whole.
func cursorOf(q *http.Request) (uint64, *apiErr) {
	name, values := "Last-Event-ID", q.Header.Values("Last-Event-ID")
	for _, param := range []string{"after", "after_seq"} {
		if len(values) == 0 {
			name, values = param, q.URL.Query()[param]
		}
	}
	if len(values) == 0 {
		return 0, nil
	}
	n, ok := parseCursor(values[0])
	if !ok || len(values) > 1 {
		return 0, fail(CodeBadCursor, name+" must be one event number: decimal, at most 2^64-1").with("parameter", name)
	}
	return n, nil
}
