package workflow

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
)

// What is joined at most: deltas of [MergeWindow] from the first one on, or of
// [MergeBytes] as they stand in JSON; the one that reaches it is the last.
const (
	MergeWindow = 50 * time.Millisecond
	MergeBytes  = 1 << 10
)

// A Merger joins deltas that follow one on another, of one node run and channel.
// Any other envelope ends what is open; so does [MergeBytes]. The caller keeps
// [MergeWindow]: it knows when they came. The zero Merger is ready.
type Merger struct {
	Off bool // nothing is joined

	open *Merged
}

// Add takes the next envelope and returns what it completes, in order.
func (m *Merger) Add(e Envelope) []Merged {
	next := single(e)
	if m.Off || !next.joins() {
		done := m.Flush()
		return append(done, next)
	}
	var done []Merged
	if m.open != nil && !m.open.takes(next) {
		done = m.Flush()
	}
	if m.open == nil {
		m.open = &next
	} else {
		m.open.add(next)
	}
	if len(m.open.text) >= MergeBytes {
		done = append(done, m.Flush()...)
	}
	return done
}

// Flush completes what is open.
func (m *Merger) Flush() []Merged {
	if m.open == nil {
		return nil
	}
	done := *m.open
	m.open = nil
	return []Merged{done}
}

// Open is what the next delta may still join, as far as it has come. It stays as
// it is when more comes.
func (m *Merger) Open() (Merged, bool) {
	if m.open == nil {
		return Merged{}, false
	}
	return *m.open, true
}

// A Merged is one envelope, or several deltas as one.
type Merged struct {
	First, Last uint64 // seqs that it covers

	e           Envelope
	parts       []part // of a delta, at least one
	text        []byte // of all parts, as it stands between the quotes
	begin, rest []byte // what stands around the text in data
}

// A part is one of the deltas.
type part struct {
	seq uint64
	at  time.Time
	end int // of its text
}

// single is e alone. Where its delta can be told apart from the rest of its data,
// others may join it.
func single(e Envelope) Merged {
	m := Merged{First: e.Seq, Last: e.Seq, e: e}
	if e.Event != NodeOutputDelta {
		return m
	}
	begin, text, rest, ok := cutDelta(e.Data)
	if ok {
		m.begin, m.text, m.rest = begin, slices.Clip(text), rest
		m.parts = []part{{e.Seq, e.Timestamp, len(text)}}
	}
	return m
}

func (m *Merged) joins() bool { return len(m.parts) > 0 }

// takes reports whether n may follow m in one envelope: both say the same but for
// the text, the seq and the time.
func (m *Merged) takes(n Merged) bool {
	a, b := m.e, n.e
	return a.RunID == b.RunID && a.WorkflowID == b.WorkflowID && a.VersionID == b.VersionID &&
		a.NodeID == b.NodeID && a.NodeRunID == b.NodeRunID && bytes.Equal(m.begin, n.begin) && bytes.Equal(m.rest, n.rest)
}

func (m *Merged) add(n Merged) {
	m.text = append(m.text, n.text...)
	m.Last = n.Last
	m.parts = append(m.parts, part{n.Last, n.e.Timestamp, len(m.text)})
}

// After is what a client whose cursor is at seq has not got yet; ok is false where
// that is nothing. Deltas keep the seq of the last and the time of the first one.
func (m *Merged) After(seq uint64) (e Envelope, ok bool) {
	if seq >= m.Last {
		return Envelope{}, false
	}
	if len(m.parts) < 2 {
		return m.e, true
	}
	from := 0
	for len(m.parts[from:]) > 1 && m.parts[from].seq <= seq {
		from++
	}
	text := m.text
	if from > 0 {
		text = text[m.parts[from-1].end:]
	}
	e = m.e
	e.Seq, e.Timestamp = m.Last, m.parts[from].at
	e.Data = slices.Concat(m.begin, text, m.rest)
	return e, true
}

// cutDelta cuts the data of a delta, {"channel":"…","delta":"…"} and nothing else,
// around its text. The text stays escaped: halves of a surrogate pair that came in two
// deltas are one character again when they are joined.
func cutDelta(data json.RawMessage) (begin, text, rest []byte, ok bool) {
	const channel, delta, end = `{"channel":"`, `","delta":"`, `"}`
	named, ok := bytes.CutPrefix(data, []byte(channel))
	if !ok {
		return nil, nil, nil, false
	}
	i := bytes.IndexByte(named, '"')
	if i < 0 || !bytes.HasPrefix(named[i:], []byte(delta)) {
		return nil, nil, nil, false
	}
	i += len(channel) + len(delta)
	n := closing(data[i:])
	if n < 0 || string(data[i+n:]) != end {
		return nil, nil, nil, false
	}
	return data[:i], data[i : i+n], data[i+n:], true
}

// closing is where the JSON string ends that b is inside of, -1 without an end.
func closing(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
