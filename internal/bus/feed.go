package bus

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	// maxMessage bounds a message whatever the server allows: servers warn
	// above 8 MiB and their files hold no record over 32 MiB.
	maxMessage = 8 << 20

	// maxHeaders bounds the headers of a message. A stream refuses 64 KiB.
	maxHeaders = 60 << 10

	// minPiece is the least room for data that a split is worth. Where the
	// headers leave less, the event cannot be sent.
	minPiece = 1 << 10

	// minLimit is how far the limit may be lowered by a stream that refuses
	// messages for their size.
	minLimit = 4 << 10
)

// A feed makes the messages of a run, in order, from its source. An event that
// is larger than a message becomes several, its parts; one that fits no message
// becomes a gap event in its place.
type feed struct {
	src   Source
	ref   Ref
	stats *stats
	enc   encoder
	limit int // of a message, in bytes
	fence int // what the fence adds to a message

	next pos          // the message that take makes; parts as far as known
	ev   *event.Event // the event it is of, nil if not loaded
	hint int          // parts of the first event, where the stream has some already

	gap    bool   // make makes the gap event that stands for another
	giveUp uint64 // an event that the stream refuses for its size
	retry  pos    // a message that needs another id …
	tries  int    // … and how often it needed one

	last struct{ session, task, kind, subject string } // the subject made last
}

func (f *feed) init(p *Publisher) {
	f.src, f.ref, f.stats = p.Source, p.Ref, &p.stats
	f.limit = maxMessage
	f.fence = len(hdrExpect) + len(hdrExpectOn) + 2*len(": \r\n") + len(f.ref.filter()) + 20
}

// seek makes the message after at the next one.
func (f *feed) seek(at pos) {
	f.ev, f.hint = nil, 0
	if at.part < at.parts {
		f.next, f.hint = pos{seq: at.seq, part: at.part + 1}, at.parts
		return
	}
	f.next = pos{seq: at.seq + 1}
}

// load gets the event of the next message. It may be called again.
func (f *feed) load() (bool, error) {
	if f.ev != nil {
		return true, nil
	}
	e, ok, err := f.src.Event(f.next.seq)
	if err != nil {
		return false, &sourceError{err}
	}
	if !ok {
		return false, nil
	}
	if e.Seq != f.next.seq || e.Run != f.ref.Run || e.Tenant != f.ref.Tenant {
		return false, &sourceError{fmt.Errorf("event %d of run %s is not event %d of %s", e.Seq, e.Run, f.next.seq, f.ref.Run)}
	}
	f.ev = e
	return true, nil
}

// take makes the next message and moves on. The message is valid until the
// next call. load must have returned true.
func (f *feed) take() (*nats.Msg, pos) {
	e := f.ev
	m := f.make(e)
	// A whole event that fits is by far the most frequent.
	if f.next.part == 0 && f.enc.size()+f.fence <= f.limit && f.enc.head+f.fence <= maxHeaders && e.Seq != f.giveUp {
		at := pos{seq: e.Seq}
		f.ev, f.next = nil, pos{seq: e.Seq + 1}
		return m, at
	}
	return f.split(e)
}

func (f *feed) make(e *event.Event) *nats.Msg {
	f.enc.encode(e, f.subject(e))
	id := msgID(f.enc.id, e)
	switch {
	case f.tries > 0 && f.retry.seq == e.Seq && f.retry.part == e.Part.I:
		id = fmt.Sprintf("%s~%d", id, f.tries)
	case f.gap:
		id += "~gap" // a part of the event may have used the plain id
	}
	f.enc.set(hdrMsgID, id)
	return f.enc.done()
}

// msgID is the id by which a stream knows an event again: the event's own, and its
// time. The stream looks at nothing else, whoever sends it. So whoever knows a run must
// not know its ids, or could send them first, and the run's events were duplicates.
func msgID(id string, e *event.Event) string {
	return id + "." + strconv.FormatInt(e.Time.UnixNano(), 36)
}

// subject is cached: most events of a run follow one with the same subject.
func (f *feed) subject(e *event.Event) string {
	l := &f.last
	if l.subject == "" || l.session != e.Session || l.task != e.Task || l.kind != string(e.Kind) {
		l.session, l.task, l.kind = e.Session, e.Task, string(e.Kind)
		l.subject = eventSubject(f.ref.Partition, e)
	}
	return l.subject
}

// split makes one part of e, or the gap event that stands for it. The encoder
// holds e whole.
func (f *feed) split(e *event.Event) (*nats.Msg, pos) {
	const partHeader = len("ce-part: 99999999/99999999\r\n") + 2*len(".99999999")
	head := f.enc.head + f.fence + partHeader
	room := f.limit - head
	parts := f.hint
	if parts == 0 && room >= minPiece {
		parts = (len(e.Data) + room - 1) / room
	}
	i := max(f.next.part, 1)
	if head > maxHeaders || e.Seq == f.giveUp || parts < 2 || (len(e.Data)+parts-1)/parts > room {
		return f.replace(e)
	}
	if i == 1 {
		f.stats.split.Add(1)
	}
	part := *e
	part.Part = event.Part{I: i, N: parts}
	part.Data = e.Data[len(e.Data)*(i-1)/parts : len(e.Data)*i/parts]
	if i > 1 {
		part.Redacted = nil // as for chunks, the first one has them
	}
	at := pos{e.Seq, i, parts}
	if i == parts {
		f.ev, f.hint, f.next = nil, 0, pos{seq: e.Seq + 1}
	} else {
		f.hint, f.next = parts, pos{seq: e.Seq, part: i + 1}
	}
	return f.make(&part), at
}

// replace makes the gap event that takes the place, and the number, of an event
// that cannot be sent.
func (f *feed) replace(e *event.Event) (*nats.Msg, pos) {
	f.stats.replaced.Add(1)
	data, err := json.Marshal(event.Gap{
		Frames: 1, Bytes: int64(len(e.Data)), Reason: "oversize", FromStream: string(e.Stream),
		Detail: fmt.Sprintf("does not fit a message of %d bytes", f.limit),
	})
	if err != nil { // plain fields always marshal
		panic(err)
	}
	gap := &event.Event{
		Tenant: e.Tenant, Run: e.Run, Seq: e.Seq, Time: e.Time, Type: event.TypeGap, Kind: event.Life,
		Stream: event.Edge, ContentType: event.JSON, Data: data,
	}
	f.ev, f.hint, f.next = nil, 0, pos{seq: e.Seq + 1}
	f.gap = true
	m := f.make(gap)
	f.gap = false
	return m, pos{seq: e.Seq}
}

// again asks for another id for the message at at, which the server takes for
// a duplicate of one that it does not have.
func (f *feed) again(at pos) {
	if f.retry.seq != at.seq || f.retry.part != at.part {
		f.retry, f.tries = at, 0
	}
	f.tries++
}

// fenceOn adds the condition that the run's last message is at stream sequence
// sseq.
func (f *feed) fenceOn(sseq uint64) {
	f.enc.set(hdrExpect, formatSeq(sseq))
	f.enc.set(hdrExpectOn, f.ref.filter())
}
