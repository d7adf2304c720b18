package event

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SpecVersion is the version of CloudEvents that cbcast speaks.
const SpecVersion = "1.0"

// HeaderPrefix begins the name of every attribute's NATS header.
const HeaderPrefix = "ce-"

// seqDigits pads ce-sequence so that it also sorts as text.
const seqDigits = 12

// maxSpans bounds the spans that one event names; see [LimitSpans].
const maxSpans = 64

// ErrAttribute is returned when an event's attributes cannot be read.
var ErrAttribute = errors.New("bad event attribute")

// Attributes calls yield for each CloudEvents attribute of e, names without
// [HeaderPrefix] and values as they are (not percent-encoded), in a fixed order.
func (e *Event) Attributes(yield func(name, value string)) {
	yield("specversion", SpecVersion)
	yield("id", e.ID())
	yield("source", e.Source())
	yield("type", e.Type)
	yield("time", e.Time.UTC().Format(time.RFC3339Nano))
	ct := e.ContentType
	if ct == "" {
		ct = Binary
	}
	yield("datacontenttype", ct)
	if e.Task != "" {
		yield("subject", e.Session+"/"+e.Task)
	} else if e.Session != "" {
		yield("subject", e.Session)
	}
	if e.Seq != 0 {
		yield("sequence", padSeq(e.Seq))
	}
	e.extensions(yield)
}

// Content types of an event's data.
const (
	JSON   = "application/json"
	NDJSON = "application/x-ndjson"
	Binary = "application/octet-stream"
)

// extensions yields the extension attributes except sequence.
func (e *Event) extensions(yield func(name, value string)) {
	str := func(name, v string) {
		if v != "" {
			yield(name, v)
		}
	}
	str("ref", e.Ref)
	str("session", e.Session)
	str("task", e.Task)
	str("parent", e.Parent)
	str("stream", string(e.Stream))
	if !e.Chunk.IsZero() {
		yield("chunk", e.Chunk.String())
	}
	if !e.Part.IsZero() {
		yield("part", e.Part.String())
	}
	if e.Cut {
		yield("cut", "true")
	}
	str("traceparent", e.TraceParent)
	if len(e.Redacted) > 0 {
		yield("redacted", formatSpans(e.Redacted))
	}
	if e.RawLen > 0 {
		yield("rawlength", strconv.Itoa(e.RawLen))
	}
	str("rawhash", e.RawHash)
	if len(e.Ext) == 0 {
		return
	}
	names := make([]string, 0, len(e.Ext))
	for n := range e.Ext {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		yield(n, e.Ext[n])
	}
}

func padSeq(n uint64) string {
	s := strconv.FormatUint(n, 10)
	if len(s) < seqDigits {
		s = "000000000000"[:seqDigits-len(s)] + s
	}
	return s
}

// own lists the attribute names that Event has fields for.
var own = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "time": true, "datacontenttype": true,
	"dataschema": true, "subject": true, "data": true, "sequence": true, "ref": true, "session": true,
	"task": true, "parent": true, "stream": true, "chunk": true, "part": true, "cut": true,
	"traceparent": true, "redacted": true, "rawlength": true, "rawhash": true,
}

// ValidExtension reports whether name may be a key of [Event.Ext]: 1 to 20 of
// [a-z0-9] (CloudEvents 1.0, naming conventions) and no attribute of our own.
func ValidExtension(name string) bool {
	if name == "" || len(name) > 20 || own[name] {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Set gives e the attribute name (without [HeaderPrefix], any case) the decoded
// value. Attributes that follow from others (id, subject) are ignored, unknown
// ones land in Ext. It is the reverse of [Event.Attributes].
func (e *Event) Set(name, value string) error {
	var err error
	switch name = strings.ToLower(name); name {
	case "specversion":
		if value != SpecVersion {
			err = fmt.Errorf("%q is not %s", value, SpecVersion)
		}
	case "id", "subject", "dataschema":
	case "source":
		tenant, run, ok := cutSource(value)
		if !ok {
			err = fmt.Errorf("%q is not /cbcast/<tenant>/<run>", value)
			break
		}
		e.Tenant, e.Run = tenant, run
	case "type":
		e.Type = value
	case "time":
		e.Time, err = time.Parse(time.RFC3339Nano, value)
	case "datacontenttype":
		e.ContentType = value
	case "sequence":
		e.Seq, err = strconv.ParseUint(value, 10, 64)
	case "ref":
		e.Ref = value
	case "session":
		e.Session = value
	case "task":
		e.Task = value
	case "parent":
		e.Parent = value
	case "stream":
		e.Stream = Stream(value)
	case "chunk":
		e.Chunk, err = parsePart(value)
	case "part":
		e.Part, err = parsePart(value)
	case "cut":
		e.Cut = value == "true"
	case "traceparent":
		e.TraceParent = value
	case "redacted":
		e.Redacted, err = parseSpans(value)
	case "rawlength":
		e.RawLen, err = strconv.Atoi(value)
	case "rawhash":
		e.RawHash = value
	default:
		if ValidExtension(name) {
			if e.Ext == nil {
				e.Ext = map[string]string{}
			}
			e.Ext[name] = value
		}
	}
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrAttribute, name, err)
	}
	return nil
}

func cutSource(s string) (tenant, run string, ok bool) {
	s, ok = strings.CutPrefix(s, "/cbcast/")
	if !ok {
		return "", "", false
	}
	i := strings.LastIndexByte(s, '/')
	if i <= 0 || i == len(s)-1 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

func formatSpans(spans []Span) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%d:%d:%d", s.Rule, s.Off, s.Len, s.RawLen)
	}
	return b.String()
}

func parseSpans(s string) ([]Span, error) {
	var spans []Span
	for f := range strings.SplitSeq(s, ",") {
		p := strings.Split(f, ":")
		if len(p) != 4 || p[0] == "" {
			return nil, fmt.Errorf("span %q is not rule:off:len:rawlen", f)
		}
		var n [3]int
		for i := range n {
			v, err := strconv.Atoi(p[i+1])
			if err != nil || v < 0 {
				return nil, fmt.Errorf("span %q: %q is no length", f, p[i+1])
			}
			n[i] = v
		}
		spans = append(spans, Span{p[0], n[0], n[1], n[2]})
	}
	return spans, nil
}

// EncodeValue percent-encodes an attribute value as the CloudEvents NATS
// binding says (section 3.1.3.2, as in HTTP): space, double quote, percent and
// everything outside U+0021–U+007E.
func EncodeValue(v string) string {
	n := 0
	for i := range len(v) {
		if escaped(v[i]) {
			n++
		}
	}
	if n == 0 {
		return v
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(v)+2*n)
	for i := range len(v) {
		if c := v[i]; escaped(c) {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func escaped(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' }

// DecodeValue reverses [EncodeValue]. A "%" that begins no escape stays as it
// is: sdk-go's NATS binding does not percent-encode.
func DecodeValue(v string) string {
	if !strings.Contains(v, "%") {
		return v
	}
	b := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if n, err := strconv.ParseUint(v[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(n))
				i += 2
				continue
			}
		}
		b = append(b, v[i])
	}
	return string(b)
}

// LimitSpans returns spans with at most 64 entries, so that they fit a header:
// the last one then covers everything up to the end of the last span given.
// spans must be sorted and not overlap. mask replaces the bytes of the covering
// span in data and returns the new data.
func LimitSpans(data []byte, spans []Span, mask string) ([]byte, []Span) {
	if len(spans) <= maxSpans {
		return data, spans
	}
	first, last := spans[maxSpans-1], spans[len(spans)-1]
	end := last.Off + last.Len
	raw := end - first.Off
	for _, s := range spans[maxSpans-1:] {
		raw += s.RawLen - s.Len
	}
	out := make([]byte, 0, len(data)-(end-first.Off)+len(mask))
	out = append(out, data[:first.Off]...)
	out = append(out, mask...)
	out = append(out, data[end:]...)
	kept := append([]Span(nil), spans[:maxSpans-1]...)
	return out, append(kept, Span{Rule: "many", Off: first.Off, Len: len(mask), RawLen: raw})
}
