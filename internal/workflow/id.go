package workflow

import (
	"errors"
	"fmt"
	"strings"
)

// ID names a stream: a run, or one task of it.
type ID struct {
	Run  string
	Task string // "" is the whole run
}

// ErrID is returned by [ParseID] for what names no stream.
var ErrID = errors.New("no workflow run id")

// maxID bounds the text of an ID in bytes. Ids of tasks are at most 200, three times
// as long when all of it is encoded.
const maxID = 1024

// String is the ID as it stands in a path and in "runId": the run, or the run, a
// colon and the task. A byte outside [A-Za-z0-9_-] is "=" and two upper-case hex
// digits, so that it needs no further escapes in a URL.
func (id ID) String() string {
	if id.Task == "" {
		return token(id.Run)
	}
	return token(id.Run) + ":" + token(id.Task)
}

// ParseID reads what [ID.String] writes.
func ParseID(s string) (ID, error) {
	if len(s) > maxID {
		return ID{}, fmt.Errorf("%w: %d bytes", ErrID, len(s))
	}
	run, task, two := strings.Cut(s, ":")
	id := ID{}
	var ok, okTask bool
	id.Run, ok = untoken(run)
	id.Task, okTask = untoken(task)
	if !ok || id.Run == "" || two && (!okTask || id.Task == "") {
		return ID{}, fmt.Errorf("%w: %.100q", ErrID, s)
	}
	return id, nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

const hexDigits = "0123456789ABCDEF"

// token writes an id with bytes outside [A-Za-z0-9_-] as "=XX".
func token(s string) string {
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '=', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// untoken reverses token; what token would not write is none.
func untoken(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if plain(s[i]) {
			b = append(b, s[i])
			continue
		}
		if s[i] != '=' || i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", false
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), true
}
