package segment

import "math/bits"

// buffers keeps memory for the records of runs between its uses, by size: a run that
// says little has a small buffer, and one that says much gets the next size when it
// needs it. What is kept is bounded.
type buffers struct {
	free  [maxClass][][]byte
	bytes int // kept
}

const (
	minClass   = 12 // 4 KiB
	maxClass   = 25 // 16 MiB, not included
	maxBuffers = 16 << 20
)

// get gives an empty buffer with room for n bytes at least.
func (p *buffers) get(n int) []byte {
	c := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if c >= maxClass {
		return make([]byte, 0, n)
	}
	if k := len(p.free[c]); k > 0 {
		b := p.free[c][k-1]
		p.free[c] = p.free[c][:k-1]
		p.bytes -= cap(b)
		return b
	}
	return make([]byte, 0, 1<<c)
}

// put takes a buffer back.
func (p *buffers) put(b []byte) {
	c := bits.Len(uint(cap(b))) - 1
	if c < minClass || c >= maxClass || cap(b) != 1<<c || p.bytes+cap(b) > maxBuffers {
		return
	}
	p.free[c] = append(p.free[c], b[:0])
	p.bytes += cap(b)
}
