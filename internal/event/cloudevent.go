package event

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	ce "github.com/cloudevents/sdk-go/v2/event"
)

// AppendJSON appends e in the CloudEvents JSON format, on one line. Data that
// is a JSON value is embedded byte for byte, never re-encoded: whoever takes
// the raw text of "data" has the child's bytes. Data that this could not
// promise for (no JSON, space around the value, CR or LF inside, bytes that are
// no UTF-8) goes into "data_base64".
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	e.Attributes(func(name, value string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = appendJSONString(dst, value)
	})
	switch {
	case len(e.Data) == 0:
	case e.embeds():
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	default:
		dst = append(dst, `,"data_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, e.Data)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// embeds reports whether Data can stand as it is inside a line of JSON.
func (e *Event) embeds() bool {
	if e.ContentType != JSON || !e.Chunk.IsZero() || !e.Part.IsZero() {
		return false
	}
	d := e.Data
	return !space(d[0]) && !space(d[len(d)-1]) && bytes.IndexByte(d, '\r') < 0 && bytes.IndexByte(d, '\n') < 0 &&
		utf8.Valid(d) && json.Valid(d)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func appendJSONString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string always marshals
		panic(err)
	}
	return append(dst, b...)
}

// ParseJSON reads one event in the CloudEvents JSON format, as [Event.AppendJSON]
// writes it. Kind is not an attribute: it is found from the type.
func ParseJSON(b []byte) (*Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, fmt.Errorf("parse event: %w", err)
	}
	e := &Event{}
	for name, raw := range fields {
		switch name {
		case "data":
			e.Data = append([]byte(nil), raw...)
			continue
		case "data_base64":
			if err := json.Unmarshal(raw, &e.Data); err != nil {
				return nil, fmt.Errorf("parse event data: %w", err)
			}
			continue
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("parse event attribute %s: %w", name, err)
		}
		if err := e.Set(name, s); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// CloudEvent converts e to the CloudEvents SDK's event, for code that speaks to
// other CloudEvents software. The SDK validates it.
func (e *Event) CloudEvent(ctx context.Context) (*ce.Event, error) {
	out, err := binding.ToEvent(ctx, (*message)(e))
	if err != nil {
		return nil, fmt.Errorf("convert event %s: %w", e.ID(), err)
	}
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("validate event %s: %w", e.ID(), err)
	}
	return out, nil
}

// message is an Event as a binary-mode message of the SDK's binding package.
type message Event

var versions = spec.WithPrefix(HeaderPrefix)

func (m *message) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (m *message) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *message) ReadBinary(ctx context.Context, w binding.BinaryWriter) error {
	version := versions.Version(SpecVersion)
	var err error
	(*Event)(m).Attributes(func(name, value string) {
		if err != nil || name == "specversion" {
			return
		}
		if a := version.Attribute(HeaderPrefix + name); a != nil {
			err = w.SetAttribute(a, value)
		} else {
			err = w.SetExtension(name, value)
		}
	})
	if err != nil {
		return err
	}
	if len(m.Data) == 0 {
		return nil
	}
	return w.SetData(io.NopCloser(bytes.NewReader(m.Data)))
}

func (m *message) Finish(error) error { return nil }

// GetAttribute and GetExtension make the message's metadata readable; the
// binding package asks for them of every binary message.
func (m *message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	a := versions.Version(SpecVersion).AttributeFromKind(kind)
	if a == nil {
		return nil, nil
	}
	return a, m.value(strings.TrimPrefix(a.PrefixedName(), HeaderPrefix))
}

func (m *message) GetExtension(name string) any { return m.value(name) }

func (m *message) value(want string) any {
	var got any
	(*Event)(m).Attributes(func(name, value string) {
		if name == want {
			got = value
		}
	})
	return got
}

var _ binding.MessageMetadataReader = (*message)(nil)
