package redact

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/cbcast/cbcast/internal/event"
)

// maxPEM bounds the lines that a key may go on for: the longest in use have some
// 130 of 64 bytes.
const maxPEM = 200

// pemBody is what a line inside a PEM block can be: base64, a header, or nothing.
var pemBody = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*([A-Za-z0-9+/=]*|[A-Za-z-]+: [\x20-\x7e]*)\s*$`)
})

// pemBegins notes that a private key begins on this line of plain text and does
// not end on it: its body comes on lines of its own.
func (r *Redactor) pemBegins(stream event.Stream, data []byte) {
	last := r.spans[len(r.spans)-1]
	if last.rule == "private_key" && last.end == len(data) && !bytes.Contains(data[last.start:], []byte("-----END ")) && plain(data) {
		r.pem[stream] = maxPEM
	}
}

// pemLine masks a line inside such a key; false when it is none.
func (r *Redactor) pemLine(stream event.Stream, data []byte) (Result, bool) {
	if r.pem[stream] == 0 {
		return Result{}, false
	}
	r.pem[stream]--
	if bytes.Contains(data, []byte("-----END ")) || !pemBody().Match(data) {
		r.pem[stream] = 0 // the END line is no secret
		return Result{}, false
	}
	if len(data) == 0 {
		return Result{Data: data}, true
	}
	r.spans = append(r.spans[:0], span{0, len(data), "private_key", false})
	return r.apply(data), true
}

// plain reports whether a line is text and no frame.
func plain(data []byte) bool { return !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) }
