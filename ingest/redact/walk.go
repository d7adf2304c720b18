package redact

import (
	"bytes"
	"encoding/json"
)

// space passes over white space.
func (w *walker) space() {
	for w.i < len(w.data) && bytes.IndexByte([]byte(" \t\r\n"), w.data[w.i]) >= 0 {
		w.i++
	}
}

// string passes over the string at i and returns what it says.
func (w *walker) string() string {
	start := w.i
	w.skip()
	raw := w.data[start:w.i]
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return string(raw[min(1, len(raw)):])
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	}
	return string(raw[1 : len(raw)-1])
}

// skip passes over one value without looking into it, to the end of data when
// it is cut. It needs no memory, however deep the value is.
func (w *walker) skip() {
	depth := 0
	for w.i < len(w.data) {
		switch w.data[w.i] {
		case '"':
			w.i = stringEnd(w.data, w.i+1)
			if w.i < len(w.data) {
				w.i++
			}
		case '{', '[':
			depth++
			w.i++
		case '}', ']':
			if depth == 0 {
				return // the end of what the value stands in
			}
			depth--
			w.i++
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
			w.i++
			continue
		default:
			for w.i < len(w.data) && bytes.IndexByte([]byte("\"{}[],: \t\r\n"), w.data[w.i]) < 0 {
				w.i++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// stringEnd is where the JSON string ends whose content goes on at i: the place
// of its quote, or the end of data.
func stringEnd(data []byte, i int) int {
	for i < len(data) && data[i] != '"' {
		if data[i] == '\\' {
			i++
		}
		i++
	}
	return min(i, len(data))
}
