package child

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// TapMax bounds the bytes that wait in a tap, a stream. It is what an edge may
// hold while its disk stalls: seconds of the fastest output there is, hours of
// an agent's.
const TapMax = 64 << 20

const (
	// entryCost is added to each chunk, so that one-byte reads are bounded too.
	entryCost = 128
	// handOver is the size from which a read's buffer itself is queued. Below,
	// a copy of the right size is cheaper to hold.
	handOver = readSize / 4
	// idleEntries is the largest queue that is kept while it is empty.
	idleEntries = 1024
	// spares is how many read buffers are kept for use again.
	spares = 4
)

// Stream names one of a child's three streams.
type Stream string

// The streams. Their names are those of event.Stream.
const (
	Out Stream = "out"
	Err Stream = "err"
	In  Stream = "in"
)

// A Chunk is the bytes of one read, or of one injected line.
type Chunk struct {
	Stream Stream
	Data   []byte // valid until the next call of Next
	At     time.Time
	// Injected says that Data is a line of ours (stream In). It stands between
	// lines of the parent.
	Injected bool
	// Dropped bytes, DroppedLines LFs among them, are missing before Data.
	Dropped, DroppedLines int64
	// EOF says that nothing follows on this stream but injected lines. Data may
	// be empty then.
	EOF bool
}

// A Tap is the queue between the pumps and one reader: all streams in the order
// in which their bytes came. It never blocks a pump. Past its bound bytes are
// dropped, until it is half empty, and counted.
type Tap struct {
	max  int
	off  bool
	wake chan struct{} // 1: at most one reader waits

	mu    sync.Mutex // guards what follows
	queue []entry
	head  int
	ended bool
	lane  map[Stream]*lane
	spare [][]byte
	lent  []byte // the reader's
}

type entry struct {
	Chunk
	whole []byte // Data's buffer, if it is a read buffer
	cost  int
}

// lane is what the tap knows of one stream.
type lane struct {
	held                  int
	dropping              bool
	dropped, droppedLines int64 // not yet told to the reader
	total, totalLines     int64
	writing               []byte // a buffer in the queue that its pump still writes from
}

func newTap(limit int, off bool) *Tap {
	if limit <= 0 {
		limit = TapMax
	}
	return &Tap{
		max: limit, off: off, wake: make(chan struct{}, 1),
		lane: map[Stream]*lane{Out: {}, Err: {}, In: {}},
	}
}

// Next waits for the next chunk. It returns io.EOF after the last one, when the
// run is over, or the cause of ctx's end.
func (t *Tap) Next(ctx context.Context) (Chunk, error) {
	for {
		t.mu.Lock()
		t.takeBack(t.lent)
		t.lent = nil
		if t.head < len(t.queue) {
			e := t.queue[t.head]
			t.queue[t.head] = entry{}
			t.head++
			if t.head == len(t.queue) {
				t.queue, t.head = t.queue[:0], 0
				if cap(t.queue) > idleEntries {
					t.queue = nil
				}
			}
			t.lane[e.Stream].held -= e.cost
			t.lent = e.whole
			t.mu.Unlock()
			return e.Chunk, nil
		}
		ended := t.ended
		t.mu.Unlock()
		if ended {
			return Chunk{}, io.EOF
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return Chunk{}, context.Cause(ctx)
		}
	}
}

// buffer returns a read buffer.
func (t *Tap) buffer() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.spare); n > 0 {
		b := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return b
	}
	return make([]byte, readSize)
}

// takeBack keeps a read buffer for use again, unless a pump is still writing
// from it. t.mu is held.
func (t *Tap) takeBack(b []byte) {
	if b == nil || len(t.spare) >= spares {
		return
	}
	for _, l := range t.lane {
		if l.writing != nil && &l.writing[0] == &b[0] {
			return
		}
	}
	t.spare = append(t.spare, b)
}

// written says that the buffer last passed is no longer written from.
func (t *Tap) written(s Stream) {
	if t.off {
		return
	}
	t.mu.Lock()
	t.lane[s].writing = nil
	t.mu.Unlock()
}

// pass queues the first n bytes of the read buffer buf and returns the buffer
// to read into next. Until written is called the caller may still read buf.
func (t *Tap) pass(s Stream, buf []byte, n int) []byte {
	if t.off {
		return buf
	}
	if n < handOver {
		t.add(Chunk{Stream: s, Data: buf[:n]}, nil)
		return buf
	}
	t.mu.Lock()
	t.lane[s].writing = buf
	kept := t.locked(Chunk{Stream: s, Data: buf[:n]}, buf)
	t.mu.Unlock()
	if !kept {
		return buf
	}
	return t.buffer()
}

// add queues c, with a copy of its data unless the tap gets the read buffer it
// lies in. It reports false where the bytes were dropped.
func (t *Tap) add(c Chunk, whole []byte) bool {
	if t.off {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(c, whole)
}

// addIf queues c if try returns true. No other chunk comes between. try must
// not block.
func (t *Tap) addIf(c Chunk, try func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if try() && !t.off {
		t.locked(c, nil)
	}
}

func (t *Tap) locked(c Chunk, whole []byte) bool {
	c.At = time.Now()
	cost := len(c.Data) + entryCost
	if whole != nil {
		cost = len(whole) + entryCost
	}
	l := t.lane[c.Stream]
	if t.ended {
		return false
	}
	if l.dropping = l.dropping && l.held > t.max/2 || l.held+cost > t.max; l.dropping && !c.Injected && len(c.Data) > 0 {
		lines := int64(bytes.Count(c.Data, lf))
		l.dropped, l.droppedLines = l.dropped+int64(len(c.Data)), l.droppedLines+lines
		l.total, l.totalLines = l.total+int64(len(c.Data)), l.totalLines+lines
		if !c.EOF {
			return false
		}
		c.Data, whole, cost = nil, nil, entryCost
	}
	if whole == nil {
		c.Data = bytes.Clone(c.Data)
	}
	if !c.Injected {
		c.Dropped, c.DroppedLines = l.dropped, l.droppedLines
		l.dropped, l.droppedLines = 0, 0
	}
	t.push(entry{c, whole, cost})
	l.held += cost
	return true
}

// push appends e; t.mu is held.
func (t *Tap) push(e entry) {
	if t.head > 64 && t.head > len(t.queue)/2 {
		n := copy(t.queue, t.queue[t.head:])
		clear(t.queue[n:])
		t.queue, t.head = t.queue[:n], 0
	}
	t.queue = append(t.queue, e)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// eof ends one stream.
func (t *Tap) eof(s Stream) { t.add(Chunk{Stream: s, EOF: true}, nil) }

// close ends the tap: its reader gets io.EOF after what is queued.
func (t *Tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// drops returns what did not fit, in all.
func (t *Tap) drops(s Stream) (n, lines int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lane[s].total, t.lane[s].totalLines
}

var lf = []byte{'\n'}
