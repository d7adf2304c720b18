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
	var err error
	next := func() string {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			err = fmt.Errorf("%w: meta is cut", ErrAttribute)
			return ""
		}
		s := string(b[n : n+int(size)])
		b = b[n+int(size):]
		return s
	}
	e.Type, e.Kind, e.ContentType = next(), Kind(next()), next()
	for err == nil && len(b) > 0 {
		name, value := next(), next()
		if err == nil {
			err = e.Set(name, value)
		}
	}
	return err
}
