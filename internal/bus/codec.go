package bus

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// Headers with a meaning to the server.
const (
	hdrMsgID       = "Nats-Msg-Id"
	hdrTTL         = "Nats-TTL"
	hdrExpect      = "Nats-Expected-Last-Subject-Sequence"
	hdrExpectOn    = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrMarker      = "Nats-Marker-Reason"
	hdrKVOperation = "KV-Operation"
	structuredType = "application/cloudevents"
)

// headerNames saves the concatenation for the attributes that most events have.
var headerNames = func() map[string]string {
	m := map[string]string{}
	for _, n := range []string{
		"specversion", "id", "source", "type", "time", "datacontenttype", "subject", "sequence", "ref", "session",
		"task", "parent", "stream", "chunk", "part", "cut", "traceparent", "redacted", "rawlength", "rawhash",
	} {
		m[n] = event.HeaderPrefix + n
	}
	return m
}()

func headerName(attribute string) string {
	if h, ok := headerNames[attribute]; ok {
		return h
	}
	return event.HeaderPrefix + attribute
}

// An encoder turns events into messages of the CloudEvents NATS binding, binary
// mode: one lower-case "ce-" header for each attribute, percent-encoded values,
// the data as it is. It reuses one message: what encode returns is valid until
// the next call.
type encoder struct {
	msg  nats.Msg
	vals []string
}

func (c *encoder) encode(e *event.Event, subj string) *nats.Msg {
	if c.msg.Header == nil {
		c.msg.Header = make(nats.Header, 24)
	}
	clear(c.msg.Header)
	c.vals = c.vals[:0]
	c.msg.Subject, c.msg.Reply, c.msg.Data = subj, "", e.Data
	e.Attributes(func(name, value string) { c.set(headerName(name), event.EncodeValue(value)) })
	return &c.msg
}

func (c *encoder) set(name, value string) {
	c.vals = append(c.vals, value)
	n := len(c.vals)
	c.msg.Header[name] = c.vals[n-1 : n : n]
}

// size is what m counts against the server's max_payload.
func size(m *nats.Msg) int { return headerSize(m.Header) + len(m.Data) }

func headerSize(h nats.Header) int {
	n := len("NATS/1.0\r\n") + 2
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(": ") + len(v) + len("\r\n")
		}
	}
	return n
}

// encode is for messages sent one at a time.
func encode(e *event.Event, subj string) *nats.Msg {
	var c encoder
	return c.encode(e, subj)
}

// eventSubject is the subject of e in partition p.
func eventSubject(p int, e *event.Event) string {
	return subject.Event{Partition: p, Tenant: e.Tenant, Run: e.Run, Session: e.Session, Task: e.Task, Kind: string(e.Kind)}.String()
}

// decode reads a message of any of our streams. It takes binary mode in the
// spelling of the binding and in that of the CloudEvents Go SDK (other letter
// case, values not encoded, content-type instead of ce-datacontenttype), and
// structured mode. Tenant and run are those of the subject, which is what a
// publisher's permissions are about; so is the kind. The event keeps data.
func decode(subj string, h nats.Header, data []byte) (*event.Event, error) {
	e := &event.Event{}
	contentType := ""
	for name, vs := range h {
		if strings.EqualFold(name, "content-type") && len(vs) > 0 {
			contentType = vs[0]
		}
	}
	if strings.HasPrefix(strings.ToLower(contentType), structuredType) {
		var err error
		if e, err = event.ParseJSON(data); err != nil {
			return nil, fmt.Errorf("message on %s: %w", subj, err)
		}
	} else {
		e.ContentType, e.Data = contentType, data
		if err := decodeHeaders(e, h); err != nil {
			return nil, fmt.Errorf("message on %s: %w", subj, err)
		}
	}
	if err := place(e, subj); err != nil {
		return nil, err
	}
	return e, nil
}

func decodeHeaders(e *event.Event, h nats.Header) error {
	seen := false
	for name, vs := range h {
		n := len(event.HeaderPrefix)
		if len(name) <= n || !strings.EqualFold(name[:n], event.HeaderPrefix) || len(vs) == 0 {
			continue
		}
		seen = true
		if err := e.Set(name[n:], event.DecodeValue(vs[0])); err != nil {
			return err
		}
	}
	if !seen || e.Type == "" {
		return fmt.Errorf("%w: no CloudEvent among %v", event.ErrAttribute, slices.Sorted(maps.Keys(h)))
	}
	return nil
}

// place sets what follows from the subject.
func place(e *event.Event, subj string) error {
	if s, err := subject.ParseEvent(subj); err == nil {
		e.Tenant, e.Run, e.Kind = s.Tenant, s.Run, event.Kind(s.Kind)
		if e.Seq == 0 {
			return fmt.Errorf("message on %s: %w: no sequence", subj, event.ErrAttribute)
		}
		return nil
	}
	tenant, run, what, err := subject.ParseControl(subj)
	if err != nil {
		if tenant, run, what, err = subject.ParseCommand(subj); err != nil {
			return err
		}
	}
	e.Tenant, e.Run = tenant, run
	if e.Ref == "" {
		e.Ref = what
	}
	switch e.Type {
	case event.TypeLost, event.TypeResumed:
		e.Kind = event.Life
	default:
		e.Kind = event.Cmd
	}
	return nil
}
