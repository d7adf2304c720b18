package dialect

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// MaxDepth bounds the nesting of a frame, as encoding/json does. A line that is
// nested deeper is no frame; the scanner never recurses, so it costs no stack.
const MaxDepth = 10_000

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

// special has a high bit set for each byte of w that a JSON string cannot simply
// contain: a quote, a backslash or a control character. The lowest is exact;
// higher ones may be borrow. Turning the second bit moves the quote next to the
// control characters and leaves those together.
func special(w uint64) uint64 {
	return (((w ^ ones*0x02) - ones*0x21) | ((w ^ ones*'\\') - ones)) &^ w & highs
}

// plain returns the index of the first special byte at or after i.
func plain(b []byte, i int) int {
	for ; i+16 <= len(b); i += 16 {
		s := b[i : i+16 : i+16]
		m := special(binary.LittleEndian.Uint64(s))
		n := special(binary.LittleEndian.Uint64(s[8:]))
		if m|n == 0 {
			continue
		}
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		return i + 8 + bits.TrailingZeros64(n)/8
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
		if i = scanEscape(b, i); i < 0 {
			return -1, escaped
		}
	}
}

// scanEscape checks the escape whose backslash is at i and returns the index
// after it, or -1.
func scanEscape(b []byte, i int) int {
	if i+1 >= len(b) {
		return -1
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 > len(b) || !hex4(b[i+2:i+6]) {
			return -1
		}
		return i + 6
	}
	return -1
}

// skipString returns the index after the closing quote of the string whose
// opening quote is before i, len(b) where it has none. The text is known to be
// valid.
func skipString(b []byte, i int) int {
	for from := i; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n + 1
		// An even number of backslashes before it are escapes of their own.
		back := i - 2
		for back >= from && b[back] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			return i
		}
		from = i // what is before it belongs to no later quote
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
// open is scratch, depth is how many levels are open around the value.
func scanValue(b []byte, i, depth int, open *nesting) int {
	if i >= len(b) {
		return -1
	}
	if b[i] != '{' && b[i] != '[' {
		return scanScalar(b, i)
	}
	open.depth = 0
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
			if i = skipString(b, i+1); depth == 0 {
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
