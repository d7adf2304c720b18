package event

import (
	"encoding/binary"
	"fmt"
	"time"
)

// metaVersion is the first byte of an encoded meta. It changes when the form
// does; the spool of an older cbcast is then refused with a clear error.
const metaVersion = 1

// AppendMeta appends the compact form of everything in e except Tenant, Run,
// Seq and Data, which the spool keeps itself: a version byte, the time, and
// then pairs of length-prefixed names and values.
func AppendMeta(dst []byte, e *Event) []byte {
	dst = append(dst, metaVersion)
	dst = binary.AppendVarint(dst, e.Time.UnixNano())
	dst = appendString(dst, e.Type)
	dst = appendString(dst, string(e.Kind))
	dst = appendString(dst, e.ContentType)
	e.extensions(func(name, value string) {
		dst = appendString(dst, name)
		dst = appendString(dst, value)
	})
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// DecodeMeta reverses [AppendMeta] into e, leaving the other fields alone.
func DecodeMeta(b []byte, e *Event) error {
	var d MetaDecoder
	return d.Decode(b, e)
}

// A MetaDecoder decodes metas of one run after the other. Most have the same
// texts as the one before: those cost nothing. The zero MetaDecoder is ready.
type MetaDecoder struct {
	texts [32]string // by their place in the last meta that had so many
	place int
}

// Decode is [DecodeMeta].
func (d *MetaDecoder) Decode(b []byte, e *Event) error {
	if len(b) == 0 || b[0] != metaVersion {
		return fmt.Errorf("%w: meta of another version", ErrAttribute)
	}
	b = b[1:]
	nanos, n := binary.Varint(b)
	if n <= 0 {
		return fmt.Errorf("%w: meta time", ErrAttribute)
	}
	b = b[n:]
	e.Time = time.Unix(0, nanos).UTC()
	d.place = 0
	var ok [3]bool
	var kind string
	e.Type, b, ok[0] = d.next(b)
	kind, b, ok[1] = d.next(b)
	e.ContentType, b, ok[2] = d.next(b)
	e.Kind = Kind(kind)
	if ok != [3]bool{true, true, true} {
		return errMetaCut
	}
	for len(b) > 0 {
		var name, value string
		name, b, ok[0] = d.next(b)
		value, b, ok[1] = d.next(b)
		if !ok[0] || !ok[1] {
			return errMetaCut
		}
		if err := e.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

var errMetaCut = fmt.Errorf("%w: meta is cut", ErrAttribute)

// next takes the text that b begins with and returns what follows it.
func (d *MetaDecoder) next(b []byte) (text string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	raw, rest := b[n:n+int(size)], b[n+int(size):]
	if d.place == len(d.texts) || len(raw) > maxKept {
		return string(raw), rest, true
	}
	last := &d.texts[d.place]
	d.place++
	if *last != string(raw) {
		*last = string(raw)
	}
	return *last, rest, true
}

// maxKept bounds the texts that a [MetaDecoder] keeps, in bytes.
const maxKept = 256
