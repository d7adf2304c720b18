package sink

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes every character of a text one that is seen: controls, overrides of
// the writing direction and characters without a width stand there as [U+202E].
// Newlines stay and tabs become spaces, as every sink shows them. What is not UTF-8
// is U+FFFD.
func visible(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	var before rune
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ")
		case hidden(r) && !(joins(r) && pictograph(before)):
			fmt.Fprintf(&b, "[U+%04X]", r)
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

// hidden reports whether a character is not seen, or changes how others are seen.
func hidden(r rune) bool {
	switch {
	case r < 0x80:
		return r < ' ' && r != '\n' || r == 0x7f
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
		return true
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true
	}
	return r == '\u2800' // a blank that is no space
}

// joins reports whether a character makes one pictograph of several: behind one it
// hides nothing.
func joins(r rune) bool { return r == '\u200d' || r == '\ufe0f' }

func pictograph(r rune) bool {
	return r >= 0x2190 && r < 0x2800 || r >= 0x2900 && r < 0x3000 || r >= 0x1f000 && r < 0x1fb00 || r == '\ufe0f'
}

// oneLine is a text in one line: every run of white space is one space.
func oneLine(s string) string { return visible(strings.Join(strings.Fields(s), " ")) }

// units counts a text as Slack may: in UTF-16 code units, of which no text has fewer
// than characters.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// A budget bounds a text: by UTF-16 units and by bytes of UTF-8. 0 is no bound.
type budget struct{ units, bytes int }

// ellipsis ends what was cut.
const ellipsis = "…"

// cutText escapes a text and cuts it to a budget, which counts what is sent: between
// characters, and never inside of what stands for one. left is how many characters
// of the text are not in it; then it ends with an ellipsis, if that fits.
func cutText(s string, most budget, escape func(rune) string) (out string, left int) {
	s = strings.ToValidUTF8(s, "\ufffd")
	var b strings.Builder
	over := func(units, bytes int) bool {
		return most.units > 0 && units > most.units || most.bytes > 0 && bytes > most.bytes
	}
	size, end, taken := 0, 0, 0 // in units; up to where an ellipsis fits behind it, here and in s
	room := !over(1, len(ellipsis))
	for i, r := range s {
		piece := escape(r)
		if over(size+units(piece), b.Len()+len(piece)) {
			out = b.String()[:end]
			if room {
				out += ellipsis
			}
			return out, utf8.RuneCountInString(s[taken:])
		}
		b.WriteString(piece)
		if size += units(piece); !over(size+1, b.Len()+len(ellipsis)) {
			end, taken = b.Len(), i+utf8.RuneLen(r)
		}
	}
	return b.String(), 0
}

// plain escapes nothing.
func plain(r rune) string { return string(r) }

// short is a text of outside in one line, for errors and logs.
func short(s string, most int) string {
	out, _ := cutText(oneLine(s), budget{units: most}, plain)
	return out
}

// counted is a number with its noun: 1 task, 2 tasks.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
