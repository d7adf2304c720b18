package main

import "testing"

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"a\x1b[2Jb\r\n\x7f":            "a␛[2Jb␍␊␡",
		"\u009b31m \u2028\u202e\u2066": "\ufffd31m \ufffd\ufffd\ufffd",
		"rm\u200b \u200f\u061c\u00ad/": "rm\ufffd \ufffd\ufffd\ufffd/",
		"\U000e0041\ufeffé😀":           "\ufffd\ufffdé😀",
	} {
		if got := printable(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
