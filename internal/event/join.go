package event

import "fmt"

// A Joiner puts frames together again that were split over several events or
// messages. Feed it a run's events in order. It is not safe for concurrent use.
type Joiner struct {
	// Max bounds the bytes held for one unfinished frame. A frame that grows
	// past it is returned in the pieces it came in. 0 means 64 MiB.
	Max int

	head *Event // first event of the unfinished frame
	last uint64 // Seq of its last event
	want Part   // the position that must come next
	held int
}

const defaultJoin = 64 << 20

// Add takes the next event and returns the frame that it completes, or nil. The
// frame is e itself when e was not split, and when e is a later piece of a frame
// whose beginning was not fed (it keeps its Chunk and Part then). A joined frame has the attributes of
// its first event, no Chunk and no Part, and Seq of its first event; last is
// the Seq of its last one. An unfinished frame that e does not continue is
// returned as broken, with what had come of it and Cut set.
func (j *Joiner) Add(e *Event) (whole *Event, last uint64, broken *Event) {
	if j.head != nil && !j.continues(e) {
		broken = j.Flush()
	}
	if e.Chunk.IsZero() && e.Part.IsZero() || j.head == nil && (e.Chunk.I > 1 || e.Part.I > 1) {
		return e, e.Seq, broken
	}
	if j.head == nil {
		head := *e
		head.Data = append([]byte(nil), e.Data...)
		j.head = &head
	} else {
		j.head.Data = append(j.head.Data, e.Data...)
		j.head.Cut = e.Cut
	}
	j.last, j.held = e.Seq, j.held+len(e.Data)
	j.want = next(e)
	limit := j.Max
	if limit == 0 {
		limit = defaultJoin
	}
	if !e.Complete() && j.held <= limit {
		return nil, 0, broken
	}
	whole = j.head
	whole.Chunk, whole.Part = Part{}, Part{}
	whole.Cut = whole.Cut || !e.Complete()
	last = j.last
	j.reset()
	return whole, last, broken
}

// Flush returns the unfinished frame, marked as cut, or nil.
func (j *Joiner) Flush() *Event {
	h := j.head
	if h != nil {
		h.Chunk, h.Part, h.Cut = Part{}, Part{}, true
	}
	j.reset()
	return h
}

func (j *Joiner) reset() { j.head, j.held, j.want, j.last = nil, 0, Part{}, 0 }

// next is what must follow e inside its frame: I is the chunk, N the part.
func next(e *Event) Part {
	if e.Part.I < e.Part.N {
		return Part{e.Chunk.I, e.Part.I + 1}
	}
	return Part{e.Chunk.I + 1, 0}
}

func (j *Joiner) continues(e *Event) bool {
	if e.Part.I > 1 {
		return e.Seq == j.last && e.Chunk.I == j.want.I && e.Part.I == j.want.N
	}
	return e.Seq == j.last+1 && j.want.N == 0 && e.Chunk.I > 1 && e.Chunk.I == j.want.I
}

// Split cuts data into pieces of at most size bytes, one for empty data.
func Split(data []byte, size int) [][]byte {
	if size <= 0 {
		panic(fmt.Sprintf("event.Split: size %d", size))
	}
	n := max(1, (len(data)+size-1)/size)
	out := make([][]byte, 0, n)
	for len(data) > size {
		out = append(out, data[:size:size])
		data = data[size:]
	}
	return append(out, data)
}
