package dialect

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth bounds the nesting of a frame, as encoding/json does. A line that is
// nested deeper is no frame; the scanner never recurses, so it costs no stack.
const MaxDepth = 10_000

// A Value is the text of one JSON value inside a valid frame, as the child
// wrote it: numbers keep their digits, strings their escapes. nil is "no such
// value". Its methods never fail on a value of another kind, they return zero.
type Value []byte

// nesting remembers for each open level whether it is an object.
type nesting struct {
	depth int
	bits  [(MaxDepth + 63) / 64]uint64
}

func (n *nesting) push(object bool) bool {
	if n.depth == MaxDepth {
		return false
	}
	if bit := uint64(1) << (n.depth & 63); object {
		n.bits[n.depth>>6] |= bit
	} else {
		n.bits[n.depth>>6] &^= bit
	}
	n.depth++
	return true
}

// object reports whether the innermost open level is an object.
func (n *nesting) object() bool {
	return n.bits[(n.depth-1)>>6]&(1<<((n.depth-1)&63)) != 0
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain returns the index of the first byte at or after i that a JSON string
// cannot simply contain: a quote, a backslash or a control character.
func plain(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, back := w^(ones*'"'), w^(ones*'\\')
		// The lowest set bit is exact; higher ones may be borrow and are not used.
		m := ((quote - ones) & ^quote) | ((back - ones) & ^back) | ((w - ones*0x20) & ^w)
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// scanString checks the string whose opening quote is before i and returns the
// index after its closing quote, or -1. Bytes that are no UTF-8 and lone
// surrogates are let through: children write both.
func scanString(b []byte, i int) (end int, escaped bool) {
	for {
		i = plain(b, i)
		if i >= len(b) || b[i] < 0x20 {
			return -1, escaped
		}
		if b[i] == '"' {
			return i + 1, escaped
		}
		escaped = true
		if i+1 >= len(b) {
			return -1, escaped
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) || !hex4(b[i+2:i+6]) {
				return -1, escaped
			}
			i += 6
		default:
			return -1, escaped
		}
	}
}

func hex4(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// scanNumber checks the number at i and returns the index after it, or -1.
func scanNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	j := digits(b, i)
	if j == i || b[i] == '0' && j > i+1 {
		return -1
	}
	if i = j; i < len(b) && b[i] == '.' {
		if j = digits(b, i+1); j == i+1 {
			return -1
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if j = digits(b, i); j == i {
			return -1
		}
		i = j
	}
	return i
}

func scanWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// scanScalar checks the string, number or word at i; -1 also where a { or [ is.
func scanScalar(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := scanString(b, i+1)
		return end
	case 't':
		return scanWord(b, i, "true")
	case 'f':
		return scanWord(b, i, "false")
	case 'n':
		return scanWord(b, i, "null")
	default:
		return scanNumber(b, i)
	}
}

// scanKey checks `"key" :` at i and returns the index where its value begins.
func scanKey(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	end, _ := scanString(b, i+1)
	if end < 0 {
		return -1
	}
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return -1
	}
	return skipSpace(b, i+1)
}

// scanValue checks the whole value at i and returns the index after it, or -1.
// depth is how many levels are open around it.
func scanValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	if b[i] != '{' && b[i] != '[' {
		return scanScalar(b, i)
	}
	var open nesting
	for {
		// A value begins at i.
		if i < len(b) && (b[i] == '{' || b[i] == '[') {
			object := b[i] == '{'
			if open.depth+depth >= MaxDepth || !open.push(object) {
				return -1
			}
			i = skipSpace(b, i+1)
			closing := byte(']')
			if object {
				closing = '}'
			}
			if i < len(b) && b[i] == closing {
				i++
				open.depth--
			} else {
				if object {
					if i = scanKey(b, i); i < 0 {
						return -1
					}
				}
				continue
			}
		} else if i = scanScalar(b, i); i < 0 {
			return -1
		}
		// A value ended before i: close what ends with it, or go to the next one.
		for {
			if open.depth == 0 {
				return i
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return -1
			}
			object := open.object()
			if b[i] == ',' {
				i = skipSpace(b, i+1)
				if object {
					if i = scanKey(b, i); i < 0 {
						return -1
					}
				}
				break
			}
			if object && b[i] != '}' || !object && b[i] != ']' {
				return -1
			}
			i++
			open.depth--
		}
	}
}

// skip returns the index after the value at i. The text is known to be valid.
func skip(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i, _ = scanString(b, i+1); i < 0 {
				return len(b)
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n', ':':
			if depth == 0 {
				return i
			}
		}
		i++
		if depth == 0 && i < len(b) && (b[i] == '}' || b[i] == ']') {
			return i
		}
	}
	return i
}

// Fields calls yield for each member of an object, in the order of the text,
// with the key's raw text (no quotes, escapes kept). It is an iterator.
func (v Value) Fields(yield func(key []byte, value Value) bool) {
	if len(v) == 0 || v[0] != '{' {
		return
	}
	i := skipSpace(v, 1)
	for i < len(v) && v[i] == '"' {
		end, _ := scanString(v, i+1)
		if end < 0 {
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

// Get returns the member key of an object: the exact key, the last one where it
// is there twice (as JSON.parse has it), nil where it is not.
func (v Value) Get(key string) Value {
	var found Value
	for k, value := range v.Fields {
		if keyIs(k, key) {
			found = value
		}
	}
	return found
}

func keyIs(raw []byte, key string) bool {
	if string(raw) == key {
		return true
	}
	if len(raw) <= len(key) { // an escape is longer than what it stands for
		return false
	}
	for _, c := range raw {
		if c == '\\' {
			return unescape(raw) == key
		}
	}
	return false
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

// Int returns the value as an integer, 0 where it is none that fits.
func (v Value) Int() int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return int64(v.Float())
	}
	return n
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

// unescape decodes the inside of a valid JSON string.
func unescape(b []byte) string {
	clean := true
	for i := 0; i < len(b) && clean; i++ {
		clean = b[i] != '\\' && b[i] < utf8.RuneSelf
	}
	if clean {
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
