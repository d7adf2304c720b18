package spool

import "sort"

// chunkSize is the memory that the newest records are written into, one piece
// at a time: about 200 records of 512 B, and what an idle run keeps.
const chunkSize = 128 << 10

// A chunk is memory that holds consecutive records in the form they have on
// disk. Bytes below a published record's end never change again, so readers
// keep slices of them as long as they like.
type chunk struct {
	first uint64 // number of the record at offs[0]
	mem   []byte
	fill  int // owned by the writer: where the next record goes

	offs []uint32 // guarded by Spool.mu: where each published record begins
	end  int      // guarded by Spool.mu: end of the last one
}

// tail is the newest records in memory, bounded by the capacity of its chunks;
// the newest chunk is always kept. Guarded by Spool.mu.
type tail struct {
	chunks []*chunk
	held   int
}

// add publishes the record of n bytes at off of c.
func (t *tail) add(c *chunk, seq uint64, off, n, limit int) {
	if len(c.offs) == 0 {
		c.first = seq
		t.chunks = append(t.chunks, c)
		t.held += len(c.mem)
		drop := 0
		for t.held > limit && drop < len(t.chunks)-1 {
			t.held -= len(t.chunks[drop].mem)
			t.chunks[drop] = nil
			drop++
		}
		t.chunks = t.chunks[drop:]
	}
	c.offs = append(c.offs, uint32(off))
	c.end = off + n
}

// record returns record seq as it is on disk, or nil.
func (t *tail) record(seq uint64) []byte {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].first > seq }) - 1
	if i < 0 {
		return nil
	}
	c := t.chunks[i]
	k := seq - c.first
	if k >= uint64(len(c.offs)) {
		return nil
	}
	end := c.end
	if k+1 < uint64(len(c.offs)) {
		end = int(c.offs[k+1])
	}
	return c.mem[c.offs[k]:end:end]
}
