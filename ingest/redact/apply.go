package redact

import (
	"bytes"
	"encoding/json"
	"sort"

	"github.com/cbcast/cbcast/internal/event"
)

// A span is bytes of the frame in hand to mask.
type span struct {
	start, end int
	rule       string
	whole      bool // a JSON value as a whole, its quotes included
}

// merge sorts the spans, widens them to whole JSON escapes and joins those that
// touch the same bytes.
func (r *Redactor) merge(data []byte) {
	for i := range r.spans {
		if s := &r.spans[i]; !s.whole {
			s.start, s.end = widen(data, s.start, s.end)
		}
	}
	sort.SliceStable(r.spans, func(i, j int) bool {
		a, b := r.spans[i], r.spans[j]
		if a.start != b.start {
			return a.start < b.start
		}
		return a.end > b.end
	})
	out := r.spans[:0]
	for _, s := range r.spans {
		if s.end <= s.start {
			continue
		}
		n := len(out)
		if n == 0 || s.start >= out[n-1].end {
			out = append(out, s)
			continue
		}
		p := &out[n-1]
		if s.whole && !p.whole {
			p.rule, p.whole = s.rule, true
		}
		p.end = max(p.end, s.end)
	}
	r.spans = out
}

// widen moves both ends of a mask out of JSON escapes: "\" left before it, or
// a quote that lost its "\", would change what the rest means. In text that is
// no JSON it masks at most 5 bytes more at an end.
func widen(data []byte, start, end int) (int, int) {
	// \uXXXX, with the mask beginning at u or one of the digits
	for back := 1; back <= 5 && start-back >= 0; back++ {
		i := start - back
		if data[i] == '\\' {
			if odd(data, i) && (back == 1 || data[i+1] == 'u') {
				start = i
			}
			break
		}
	}
	i := start
	for i < end {
		switch {
		case data[i] != '\\':
			i++
		case i+1 < len(data) && data[i+1] == 'u':
			i += 6
		default:
			i += 2
		}
	}
	return start, min(max(i, end), len(data))
}

// odd reports whether the backslash at i begins an escape: the number of
// backslashes up to it is odd.
func odd(data []byte, i int) bool {
	n := 0
	for i >= 0 && data[i] == '\\' {
		n++
		i--
	}
	return n%2 == 1
}

// apply masks the merged spans.
func (r *Redactor) apply(data []byte) Result {
	if len(r.spans) == 0 {
		return Result{Data: data}
	}
	out, spans := mask(data, r.spans)
	if !r.stays(data, out) {
		// A value with quotes in it was found across the borders of strings.
		out, spans = mask(data, []span{{0, len(data), "frame", true}})
	}
	for _, s := range spans {
		r.counts[s.Rule]++
	}
	limited, few := event.LimitSpans(out, spans, event.MaskBegins+"many]")
	if len(few) < len(spans) && !r.stays(data, limited) {
		limited, few = mask(data, []span{{0, len(data), "frame", true}})
	}
	return Result{Data: limited, Spans: few, RawLen: len(data), RawHash: r.Hash(data)}
}

// stays reports whether masking kept JSON that was valid.
func (r *Redactor) stays(data, out []byte) bool {
	return json.Valid(out) || !json.Valid(data)
}

func mask(data []byte, spans []span) ([]byte, []event.Span) {
	out := make([]byte, 0, len(data)+32*len(spans))
	named := make([]event.Span, 0, len(spans))
	at := 0
	for _, s := range spans {
		out = append(out, data[at:s.start]...)
		off := len(out)
		if s.whole {
			out = append(out, '"')
		}
		out = append(out, event.MaskBegins...)
		out = append(out, s.rule...)
		out = append(out, ']')
		if s.whole {
			out = append(out, '"')
		}
		named = append(named, event.Span{Rule: s.rule, Off: off, Len: len(out) - off, RawLen: s.end - s.start})
		at = s.end
	}
	return append(out, data[at:]...), named
}

// Matches reports whether published is raw with the bytes that spans name
// replaced, and every other byte as it was.
func Matches(raw, published []byte, spans []event.Span) bool {
	for _, s := range spans {
		if s.Off < 0 || s.Len < 0 || s.RawLen < 0 {
			return false
		}
	}
	r, p := 0, 0
	for _, s := range spans {
		keep := s.Off - p
		if keep < 0 || s.Off+s.Len > len(published) || r+keep+s.RawLen > len(raw) ||
			!bytes.Equal(raw[r:r+keep], published[p:s.Off]) {
			return false
		}
		r, p = r+keep+s.RawLen, s.Off+s.Len
	}
	return bytes.Equal(raw[r:], published[p:])
}
