package spool

import "sort"

const (
	// chunkSize is the memory that the newest records are written into, one
	// piece at a time: about 200 records of 512 B, and what an idle run keeps.
	chunkSize = 128 << 10
	// maxFree is how many chunks are kept for use again.
	maxFree = 16
)

// A chunk is memory that holds consecutive records in the form they have on
// disk. Bytes below a published record's end do not change while the chunk is in
// the tail or a reader may look at it.
type chunk struct {
	first uint64 // number of the record at offs[0]
	mem   []byte
	fill  int // owned by the writer: where the next record goes

	// Guarded by Spool.mu.
	offs []uint32 // where each published record begins
	end  int      // end of the last one
	kept bool     // somebody has slices of it for good
}

// last is the number of the last record.
func (c *chunk) last() uint64 { return c.first + uint64(len(c.offs)) - 1 }

// tail is the newest records in memory, bounded by the capacity of its chunks;
// the newest chunk is always kept. Guarded by Spool.mu.
type tail struct {
	chunks []*chunk
	held   int
	lent   [2]*chunk // of the records that were borrowed last
	read   uint64    // the highest record that was borrowed
	free   []*chunk  // to be used again; their bytes count as held
}

// add publishes the record of n bytes at off of c.
func (t *tail) add(c *chunk, seq uint64, off, n, limit int) {
	if len(c.offs) == 0 {
		c.first = seq
		t.chunks = append(t.chunks, c)
		t.held += len(c.mem)
		t.drop(limit)
	}
	c.offs = append(c.offs, uint32(off))
	c.end = off + n
}

// drop takes chunks out, oldest first: those that the publisher has passed, and
// others past limit. Its next reading of them, if the bus lost something, is from
// disk.
func (t *tail) drop(limit int) {
	n := 0
	for ; n < len(t.chunks)-1; n++ {
		c := t.chunks[n]
		if t.held <= limit && c.last()+1 >= t.read {
			break
		}
		t.chunks[n] = nil
		if c.kept || c == t.lent[0] || c == t.lent[1] || len(t.free) == maxFree {
			t.held -= len(c.mem) // the collector's
			continue
		}
		c.offs, c.end, c.fill = c.offs[:0], 0, 0
		t.free = append(t.free, c)
	}
	t.chunks = t.chunks[n:]
	for t.held > limit && len(t.free) > 0 {
		t.held -= len(t.free[0].mem)
		t.free = append(t.free[:0], t.free[1:]...)
	}
}

// reuse returns a chunk with room for n bytes that nobody looks at any more, or
// nil. Memory that was used before costs no page faults and no collection.
func (t *tail) reuse(n int) *chunk {
	for i, c := range t.free {
		if len(c.mem) >= n && len(c.mem) <= max(2*n, chunkSize) {
			t.held -= len(c.mem)
			t.free = append(t.free[:i], t.free[i+1:]...)
			return c
		}
	}
	return nil
}

// record returns record seq as it is on disk, and its chunk, or nil.
func (t *tail) record(seq uint64) ([]byte, *chunk) {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].first > seq }) - 1
	if i < 0 {
		return nil, nil
	}
	c := t.chunks[i]
	k := seq - c.first
	if k >= uint64(len(c.offs)) {
		return nil, nil
	}
	end := c.end
	if k+1 < uint64(len(c.offs)) {
		end = int(c.offs[k+1])
	}
	return c.mem[c.offs[k]:end:end], c
}

// lend notes that record seq of c (nil: it came from disk) is being looked at.
func (t *tail) lend(seq uint64, c *chunk) {
	t.lent[0], t.lent[1] = t.lent[1], c
	t.read = max(t.read, seq)
}
