package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

// A Log is one of the streams that a record comes from: a partition of the
// events by its number, [Control] or [Command].
type Log int

// The logs beside the partitions.
const (
	Control Log = -1
	Command Log = -2
)

// String is the name of the stream.
func (l Log) String() string {
	switch {
	case l == Control:
		return subject.ControlStream
	case l == Command:
		return subject.CommandStream
	}
	return subject.EventStream(int(l))
}

func (l Log) valid() bool { return l >= Command && l < 1<<20 }

// A Record is one message as a stream of the bus has it.
type Record struct {
	Tenant string
	Run    string
	Log    Log

	StreamSeq uint64    // in its stream
	Stored    time.Time // by the stream's clock; it decides the day

	Subject string
	Header  [][2]string // in the order given
	Data    []byte

	Seq  uint64     // within the run; 0 for what has none: CTL, CMD, what is no event
	Part event.Part // of an event in several messages, all with one Seq
}

// NewRecord makes a record of a message. e is the event that it holds, nil where it
// holds none: tenant and run are then those of the subject, as far as it has them.
func NewRecord(l Log, e *event.Event, subj string, header [][2]string, data []byte, streamSeq uint64, stored time.Time) *Record {
	r := &Record{Log: l, Subject: subj, Header: header, Data: data, StreamSeq: streamSeq, Stored: stored.UTC()}
	if e != nil {
		r.Tenant, r.Run, r.Seq, r.Part = e.Tenant, e.Run, e.Seq, e.Part
		if l < 0 {
			r.Seq, r.Part = 0, event.Part{}
		}
		return r
	}
	if at, err := subject.ParseEvent(subj); err == nil {
		r.Tenant, r.Run = at.Tenant, at.Run
	} else if tenant, run, _, err := subject.ParseControl(subj); err == nil {
		r.Tenant, r.Run = tenant, run
	} else if tenant, run, _, err := subject.ParseCommand(subj); err == nil {
		r.Tenant, r.Run = tenant, run
	}
	return r
}

// Event decodes what the message holds. It takes binary and structured mode, as the
// bus does; tenant, run and kind follow from the subject. The event keeps r.Data.
func (r *Record) Event() (*event.Event, error) {
	e := &event.Event{Data: r.Data}
	var contentType string
	for _, h := range r.Header {
		const n = len(event.HeaderPrefix)
		switch name := h[0]; {
		case len(name) > n && strings.EqualFold(name[:n], event.HeaderPrefix):
			if err := e.Set(name[n:], event.DecodeValue(h[1])); err != nil {
				return nil, fmt.Errorf("record %s: %w", r.place(), err)
			}
		case strings.EqualFold(name, "content-type"):
			contentType = h[1]
		}
	}
	const structured = "application/cloudevents"
	if len(contentType) >= len(structured) && strings.EqualFold(contentType[:len(structured)], structured) {
		var err error
		if e, err = event.ParseJSON(r.Data); err != nil {
			return nil, fmt.Errorf("record %s: %w", r.place(), err)
		}
	} else if e.ContentType == "" {
		e.ContentType = contentType
	}
	if e.Type == "" {
		return nil, fmt.Errorf("record %s: %w: no CloudEvent", r.place(), event.ErrAttribute)
	}
	return e, r.locate(e)
}

// typ is the event's type where a header says it, else "".
func (r *Record) typ() string {
	for i := range r.Header {
		if strings.EqualFold(r.Header[i][0], event.HeaderPrefix+"type") {
			return r.Header[i][1]
		}
	}
	return ""
}

// locate sets what follows from the subject.
func (r *Record) locate(e *event.Event) error {
	e.Tenant, e.Run = r.Tenant, r.Run
	if at, err := subject.ParseEvent(r.Subject); err == nil {
		if e.Kind = event.Kind(at.Kind); e.Seq == 0 {
			return fmt.Errorf("record %s: %w: no sequence", r.place(), event.ErrAttribute)
		}
		return nil
	}
	_, _, what, err := subject.ParseControl(r.Subject)
	if err != nil {
		if _, _, what, err = subject.ParseCommand(r.Subject); err != nil {
			return fmt.Errorf("record %s: %w", r.place(), err)
		}
	}
	if e.Ref == "" {
		e.Ref = what
	}
	e.Kind = event.Cmd
	if e.Type == event.TypeLost || e.Type == event.TypeResumed {
		e.Kind = event.Life
	}
	return nil
}

func (r *Record) place() string { return fmt.Sprintf("%s/%d", r.Log, r.StreamSeq) }

// size is what r takes in memory and in a block.
func (r *Record) size() int {
	n := recordFixed + len(r.Subject) + len(r.Data)
	for _, h := range r.Header {
		n += 6 + len(h[0]) + len(h[1])
	}
	return n
}

const (
	recordFixed = 48
	// MaxRecord bounds what a record takes in a block, in bytes: more than any
	// message of a NATS server (max_payload is 64 MiB at most).
	MaxRecord = 65 << 20
)

// ErrRecord is wrapped by what [Archive.Append] returns for a record that no archive
// can take.
var ErrRecord = errors.New("bad record")

// check says whether r can be written.
func (r *Record) check() error {
	switch {
	case !r.Log.valid():
		return fmt.Errorf("%w: log %d", ErrRecord, int(r.Log))
	case len(r.Tenant) > maxID || len(r.Run) > maxID:
		return fmt.Errorf("%w: id of more than %d bytes", ErrRecord, maxID)
	case !utf8.ValidString(r.Tenant) || !utf8.ValidString(r.Run):
		return fmt.Errorf("%w: the id of its tenant or run is not UTF-8, which no head can name", ErrRecord)
	case len(r.Subject) > 1<<16-1, len(r.Header) > 1<<16-1:
		return fmt.Errorf("%w: subject or headers too long", ErrRecord)
	case r.size() > MaxRecord:
		return fmt.Errorf("%w: more than %d bytes", ErrRecord, MaxRecord)
	case r.Stored.IsZero() || r.Stored.Year() < 1970 || r.Stored.Year() > 2200:
		return fmt.Errorf("%w: stored at %v", ErrRecord, r.Stored)
	case r.Part.I < 0 || r.Part.N < 0 || r.Part.I > 1<<31-1 || r.Part.N > 1<<31-1:
		return fmt.Errorf("%w: part %v", ErrRecord, r.Part)
	}
	for _, h := range r.Header {
		if len(h[0]) > 1<<16-1 {
			return fmt.Errorf("%w: header name of %d bytes", ErrRecord, len(h[0]))
		}
	}
	return nil
}

// appendRecord appends r as a block holds it; see the package's documentation.
func appendRecord(dst []byte, r *Record) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(r.size()-4))
	dst = le.AppendUint64(dst, r.StreamSeq)
	dst = le.AppendUint64(dst, uint64(r.Stored.UnixNano()))
	dst = le.AppendUint64(dst, r.Seq)
	dst = le.AppendUint32(dst, uint32(r.Part.I))
	dst = le.AppendUint32(dst, uint32(r.Part.N))
	dst = le.AppendUint16(dst, uint16(len(r.Subject)))
	dst = le.AppendUint16(dst, uint16(len(r.Header)))
	dst = le.AppendUint32(dst, uint32(len(r.Data)))
	dst = le.AppendUint32(dst, 0)
	dst = append(dst, r.Subject...)
	for _, h := range r.Header {
		dst = le.AppendUint16(dst, uint16(len(h[0])))
		dst = le.AppendUint32(dst, uint32(len(h[1])))
		dst = append(dst, h[0]...)
		dst = append(dst, h[1]...)
	}
	return append(dst, r.Data...)
}

// splitRecord takes the first record off b. It keeps b.
func splitRecord(b []byte) (r *Record, rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < recordFixed {
		return nil, nil, fmt.Errorf("%w: cut", ErrRecord)
	}
	n := uint64(le.Uint32(b)) + 4
	if n < recordFixed || n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: length %d", ErrRecord, n)
	}
	b, rest = b[:n], b[n:]
	r = &Record{
		StreamSeq: le.Uint64(b[4:]), Stored: time.Unix(0, int64(le.Uint64(b[12:]))).UTC(), Seq: le.Uint64(b[20:]),
		Part: event.Part{I: int(le.Uint32(b[28:])), N: int(le.Uint32(b[32:]))},
	}
	subj, headers, data := int(le.Uint16(b[36:])), int(le.Uint16(b[38:])), int(le.Uint32(b[40:]))
	b = b[recordFixed:]
	if subj > len(b) {
		return nil, nil, fmt.Errorf("%w: subject is cut", ErrRecord)
	}
	r.Subject, b = string(b[:subj]), b[subj:]
	if headers*6 > len(b) {
		return nil, nil, fmt.Errorf("%w: headers are cut", ErrRecord)
	}
	if headers > 0 {
		r.Header = make([][2]string, 0, headers)
	}
	for range headers {
		if len(b) < 6 {
			return nil, nil, fmt.Errorf("%w: headers are cut", ErrRecord)
		}
		k, v := int(le.Uint16(b)), int(le.Uint32(b[2:]))
		if b = b[6:]; k+v > len(b) {
			return nil, nil, fmt.Errorf("%w: header is cut", ErrRecord)
		}
		r.Header = append(r.Header, [2]string{string(b[:k]), string(b[k : k+v])})
		b = b[k+v:]
	}
	if data != len(b) {
		return nil, nil, fmt.Errorf("%w: %d bytes of data, %d said", ErrRecord, len(b), data)
	}
	r.Data = b[:data:data]
	return r, rest, nil
}
