package bus

import (
	"errors"
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
	hdrTimeStamp   = "Nats-Time-Stamp"
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
// the next call. Most events of a run have the same attributes as the one
// before, so the headers stay and get other values.
type encoder struct {
	msg   nats.Msg
	attrs []string // names of what is set, as given to set, in order
	names []string // of their headers
	vals  []string // the header's values are slices of it
	n     int      // set in this message
	head  int      // bytes of the headers on the wire
	id    string   // ce-id
}

// headerFrame is what a block of headers takes without any: the line before it
// and the empty one after it.
const headerFrame = len("NATS/1.0\r\n") + len("\r\n")

// encode begins a message. More headers may be set; done ends it.
func (c *encoder) encode(e *event.Event, subj string) {
	if c.msg.Header == nil {
		c.msg.Header = make(nats.Header, 24)
	}
	c.n, c.head = 0, headerFrame
	c.msg.Subject, c.msg.Reply, c.msg.Data = subj, "", e.Data
	e.Attributes(func(name, value string) {
		if name == "id" {
			c.id = value
		}
		c.put(name, event.EncodeValue(value), true)
	})
}

// set sets a header that is not set yet.
func (c *encoder) set(name, value string) { c.put(name, value, false) }

// put sets the header of an attribute, or the header name itself.
func (c *encoder) put(name, value string, attribute bool) {
	i := c.n
	c.n++
	if i == len(c.attrs) || c.attrs[i] != name {
		c.diverge(i)
		header := name
		if attribute {
			header = headerName(name)
		}
		from := i
		if len(c.vals) == cap(c.vals) {
			from = 0 // vals moves
		}
		c.attrs, c.names, c.vals = append(c.attrs, name), append(c.names, header), append(c.vals, "")
		c.bind(from)
	}
	c.vals[i] = value
	c.head += len(c.names[i]) + len(": ") + len(value) + len("\r\n")
}

// diverge forgets the headers from the i-th on.
func (c *encoder) diverge(i int) {
	for _, name := range c.names[i:] {
		delete(c.msg.Header, name)
	}
	c.attrs, c.names, c.vals = c.attrs[:i], c.names[:i], c.vals[:i]
}

func (c *encoder) bind(from int) {
	for i := from; i < len(c.names); i++ {
		c.msg.Header[c.names[i]] = c.vals[i : i+1 : i+1]
	}
}

// done takes away what is left of the message before and returns the message.
// What is set afterwards is of this message alone.
func (c *encoder) done() *nats.Msg {
	if c.n < len(c.attrs) {
		c.diverge(c.n)
		c.bind(0) // a name that stood twice
	}
	return &c.msg
}

// size is what the message counts against the server's max_payload.
func (c *encoder) size() int { return c.head + len(c.msg.Data) }

// encode is for messages sent one at a time.
func encode(e *event.Event, subj string) *nats.Msg {
	var c encoder
	c.encode(e, subj)
	return c.done()
}

// eventSubject is the subject of e in partition p.
func eventSubject(p int, e *event.Event) string {
	return subject.Event{Partition: p, Tenant: e.Tenant, Run: e.Run, Session: e.Session, Task: e.Task, Kind: string(e.Kind)}.String()
}

// decodeStored is [decoder.decode] of what a stream has.
func decodeStored(s *stored) (*event.Event, error) {
	var d decoder
	return d.stored(s)
}

// stored is [decoder.decode] of what a stream has; what is no event of ours is [ErrForeign]. So is
// a copy that the server was made to write, whatever it says: a client may name any
// subject as the place for an answer, also one that it may not publish to.
func (d *decoder) stored(s *stored) (*event.Event, error) {
	if s.copied {
		return nil, fmt.Errorf("%w: message %d on %s is the answer to a request", ErrForeign, s.seq, s.subject)
	}
	e, err := d.decode(s.subject, s.header, s.data)
	if err != nil && !errors.Is(err, ErrForeign) {
		err = fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return e, err
}

// A decoder remembers the subject it parsed last: a run's events come in rows
// with the same one.
type decoder struct {
	subj string
	at   subject.Event
}

// decode reads a message of any of our streams. It takes binary mode in the
// spelling of the binding and in that of the CloudEvents Go SDK (other letter
// case, values not encoded, content-type instead of ce-datacontenttype), and
// structured mode. Tenant and run are those of the subject, which is what a
// publisher's permissions are about; so is the kind. The event keeps data.
func (d *decoder) decode(subj string, h nats.Header, data []byte) (*event.Event, error) {
	e := &event.Event{Data: data}
	contentType, err := decodeHeaders(e, h)
	if len(contentType) >= len(structuredType) && strings.EqualFold(contentType[:len(structuredType)], structuredType) {
		e, err = event.ParseJSON(data)
	} else if err == nil && e.ContentType == "" {
		e.ContentType = contentType
	}
	if err == nil && e.Type == "" {
		err = fmt.Errorf("%w: no CloudEvent among %v", event.ErrAttribute, slices.Sorted(maps.Keys(h)))
	}
	if err == nil {
		err = d.place(e, subj)
	}
	if err != nil {
		return nil, fmt.Errorf("message on %s: %w", subj, err)
	}
	return e, nil
}

// decodeHeaders sets e's attributes and returns the content-type header, which
// is none of them.
func decodeHeaders(e *event.Event, h nats.Header) (contentType string, err error) {
	const n = len(event.HeaderPrefix)
	for name, vs := range h {
		switch {
		case len(vs) == 0:
		case len(name) > n && strings.EqualFold(name[:n], event.HeaderPrefix):
			if serr := e.Set(name[n:], event.DecodeValue(vs[0])); serr != nil {
				err = serr
			}
		case strings.EqualFold(name, "content-type"):
			contentType = vs[0]
		}
	}
	return contentType, err
}

// place sets what follows from the subject.
func (d *decoder) place(e *event.Event, subj string) error {
	if subj != d.subj {
		at, err := subject.ParseEvent(subj)
		if err != nil {
			return placeFact(e, subj)
		}
		d.subj, d.at = subj, at
	}
	if err := about(e, d.at.Tenant, d.at.Run); err != nil {
		return err
	}
	e.Kind = event.Kind(d.at.Kind)
	if e.Seq == 0 {
		return fmt.Errorf("%w: no sequence", event.ErrAttribute)
	}
	return nil
}

// about says whose e is. One that names another run as its source was written there,
// and the server was made to write it here.
func about(e *event.Event, tenant, run string) error {
	if e.Run != "" && (e.Run != run || e.Tenant != tenant) {
		return fmt.Errorf("%w: its source is run %s of %s", ErrForeign, e.Run, e.Tenant)
	}
	e.Tenant, e.Run = tenant, run
	return nil
}

// placeFact does the same for what is outside the sequence: commands and
// control facts.
func placeFact(e *event.Event, subj string) error {
	tenant, run, what, err := subject.ParseControl(subj)
	if err != nil {
		if tenant, run, what, err = subject.ParseCommand(subj); err != nil {
			return err
		}
	}
	if err := about(e, tenant, run); err != nil {
		return err
	}
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
