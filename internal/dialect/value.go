package dialect

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Value is the text of one JSON value inside a valid frame, as the child
// wrote it: numbers keep their digits, strings their escapes. nil is "no such
// value". Its methods never fail on a value of another kind, they return zero.
type Value []byte

// Fields calls yield for each member of an object, in the order of the text,
// with the key's raw text (no quotes, escapes kept). It is an iterator.
func (v Value) Fields(yield func(key []byte, value Value) bool) {
	if len(v) == 0 || v[0] != '{' {
		return
	}
	i := skipSpace(v, 1)
	for i < len(v) && v[i] == '"' {
		end := skipString(v, i+1)
		if end >= len(v) {
			return
		}
		key := v[i+1 : end-1]
		i = skipSpace(v, end)
		i = skipSpace(v, i+1)
		if i >= len(v) {
			return
		}
		end = skip(v, i)
		if !yield(key, v[i:end:end]) {
			return
		}
		if i = skipSpace(v, end); i >= len(v) || v[i] != ',' {
			return
		}
		i = skipSpace(v, i+1)
	}
}

// Items calls yield for each element of an array, in order. It is an iterator.
func (v Value) Items(yield func(Value) bool) {
	if len(v) == 0 || v[0] != '[' {
		return
	}
	i := skipSpace(v, 1)
	for i < len(v) && v[i] != ']' {
		end := skip(v, i)
		if end <= i || !yield(v[i:end:end]) {
			return
		}
		if i = skipSpace(v, end); i >= len(v) || v[i] != ',' {
			return
		}
		i = skipSpace(v, i+1)
	}
}

// Get returns the member key of an object, matched exactly. It is nil where the
// key is not there, and where it is there with two different values: which one a
// reader takes must not decide what a frame means.
func (v Value) Get(key string) Value {
	var found Value
	for k, value := range v.Fields {
		if !keyIs(k, key) {
			continue
		}
		if found != nil && !bytes.Equal(found, value) {
			return nil
		}
		found = value
	}
	return found
}

// Pick is [Value.Get] for several keys, in one pass over the object: out[i] becomes the
// member keys[i].
func (v Value) Pick(out []Value, keys ...string) {
	clear(out)
	torn := 0 // bit i: keys[i] has two different values
	for k, value := range v.Fields {
		for i, key := range keys {
			if !keyIs(k, key) {
				continue
			}
			if out[i] != nil && !bytes.Equal(out[i], value) {
				torn |= 1 << i
			}
			out[i] = value
		}
	}
	for i := range keys {
		if torn&(1<<i) != 0 {
			out[i] = nil
		}
	}
}

func keyIs(raw []byte, key string) bool {
	if string(raw) == key {
		return true
	}
	if len(raw) <= len(key) { // an escape is longer than what it stands for
		return false
	}
	return slices.Contains(raw, '\\') && unescape(raw) == key
}

// Null reports whether there is no value or it is null.
func (v Value) Null() bool { return len(v) == 0 || v[0] == 'n' }

// True reports whether the value is true.
func (v Value) True() bool { return string(v) == "true" }

// IsString, IsArray and IsObject report the value's kind.
func (v Value) IsString() bool { return len(v) > 0 && v[0] == '"' }

// IsArray reports whether the value is an array.
func (v Value) IsArray() bool { return len(v) > 0 && v[0] == '[' }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return len(v) > 0 && v[0] == '{' }

// inner is a string's text between the quotes, escapes kept.
func (v Value) inner() []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	return v[1 : len(v)-1]
}

// Text returns the string that the value is, "" for any other kind. What is no
// UTF-8 becomes U+FFFD, so the result may be shown and re-encoded.
func (v Value) Text() string { return unescape(v.inner()) }

// Says reports whether the value is a string that is text, space around it aside.
// text is of letters and spaces. It decodes no string that cannot be it.
func (v Value) Says(text string) bool {
	raw := v.inner()
	if !bytes.Contains(raw, []byte(text)) && !bytes.Contains(raw, []byte(`\u`)) {
		return false
	}
	return strings.TrimSpace(v.Text()) == text
}

// Int returns the value as an integer, the largest or the least where it is beyond,
// 0 where it is no number.
func (v Value) Int() int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err == nil {
		return n
	}
	switch f := v.Float(); {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(f)
	}
}

// Float returns the value as a float, 0 where it is no finite number.
func (v Value) Float() float64 {
	if len(v) == 0 || v[0] != '-' && v[0]-'0' > 9 {
		return 0
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return 0
	}
	return f
}

// clean reports whether b is ASCII without escapes.
func clean(b []byte) bool {
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		if (w|((w^ones*'\\')-ones))&highs != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unescape decodes the inside of a valid JSON string.
func unescape(b []byte) string {
	if clean(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		switch {
		case b[i] == '\\' && i+1 < len(b):
			var r rune
			r, i = unescapeOne(b, i)
			out = utf8.AppendRune(out, r)
		case b[i] < utf8.RuneSelf:
			out = append(out, b[i])
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return string(out)
}

func unescapeOne(b []byte, i int) (r rune, next int) {
	switch c := b[i+1]; c {
	case 'b':
		return '\b', i + 2
	case 'f':
		return '\f', i + 2
	case 'n':
		return '\n', i + 2
	case 'r':
		return '\r', i + 2
	case 't':
		return '\t', i + 2
	case 'u':
		r = unhex(b, i)
		if r < 0 {
			return utf8.RuneError, len(b)
		}
		i += 6
		if !utf16.IsSurrogate(r) {
			return r, i
		}
		if i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u' {
			if low := unhex(b, i); low >= 0 {
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					return both, i + 6
				}
			}
		}
		return utf8.RuneError, i
	default:
		return rune(c), i + 2
	}
}

func unhex(b []byte, i int) rune {
	if i+6 > len(b) {
		return -1
	}
	n, err := strconv.ParseUint(string(b[i+2:i+6]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}
