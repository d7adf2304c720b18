package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/cbcast/cbcast/internal/event"
)

const (
	idxMagic = "cbcasidx"

	kindHeads = 3
	kindRuns  = 4
	kindPages = 5

	idxHead    = 32
	idxPage    = 128 << 10 // bytes of run entries in a frame, about
	maxPages   = 1 << 20
	maxIdxRaw  = 64 << 20 // bytes of heads or of the list of pages
	fan        = 16       // heads, or indexes, in an index of the next size
	maxIndexed = fan * fan * fan * fan
)

// A runEntry says what one segment has of one run.
type runEntry struct {
	run               string
	number            uint64 // of the head
	firstSeq, lastSeq uint64
	lastPart          event.Part
	records           uint64
	bytes             uint64 // of its blocks
	first, last       int64  // times stored
}

const runFixed = 2 + 8*7 + 8

func (e *runEntry) append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint16(dst, uint16(len(e.run)))
	dst = append(dst, e.run...)
	for _, n := range []uint64{e.number, e.firstSeq, e.lastSeq, e.records, e.bytes, uint64(e.first), uint64(e.last)} {
		dst = le.AppendUint64(dst, n)
	}
	dst = le.AppendUint32(dst, uint32(e.lastPart.I))
	return le.AppendUint32(dst, uint32(e.lastPart.N))
}

// splitEntry takes the first entry off b.
func splitEntry(b []byte) (e runEntry, rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < runFixed || len(b) < runFixed+int(le.Uint16(b)) {
		return e, nil, fmt.Errorf("%w: entry of a run is cut", errDamaged)
	}
	n := 2 + int(le.Uint16(b))
	e.run, b = string(b[2:n]), b[n:]
	for i, p := range []*uint64{&e.number, &e.firstSeq, &e.lastSeq, &e.records, &e.bytes} {
		*p = le.Uint64(b[8*i:])
	}
	e.first, e.last = int64(le.Uint64(b[40:])), int64(le.Uint64(b[48:]))
	e.lastPart = event.Part{I: int(le.Uint32(b[56:])), N: int(le.Uint32(b[60:]))}
	return e, b[64:], nil
}

func (e *runEntry) compare(o *runEntry) int {
	if c := strings.Compare(e.run, o.run); c != 0 {
		return c
	}
	switch {
	case e.number < o.number:
		return -1
	case e.number > o.number:
		return 1
	}
	return 0
}

// entries sums the blocks of a segment up by run, sorted.
func (d *directory) entries(number uint64) []runEntry {
	at := map[string]int{}
	var out []runEntry
	for i := range d.blocks {
		b := &d.blocks[i]
		j, ok := at[b.run]
		if !ok {
			j = len(out)
			at[b.run] = j
			out = append(out, runEntry{run: b.run, number: number, first: b.first, last: b.last})
		}
		e := &out[j]
		e.records += uint64(b.records)
		e.bytes += uint64(b.size)
		e.first, e.last = min(e.first, b.first), max(e.last, b.last)
		if b.firstSeq == 0 {
			continue
		}
		if e.firstSeq == 0 || b.firstSeq < e.firstSeq {
			e.firstSeq = b.firstSeq
		}
		if b.lastSeq >= e.lastSeq {
			e.lastSeq, e.lastPart = b.lastSeq, b.lastPart
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].run < out[j].run })
	return out
}

// An idxPageInfo says where a page of entries is, and with which it begins.
type idxPageInfo struct {
	first string
	off   int64
	size  int64
	count uint32
}

// An idxWriter writes an index: feed it heads, then sorted entries.
type idxWriter struct {
	w     io.Writer
	c     *coder
	off   int64
	page  []byte
	first string
	count uint32
	pages []idxPageInfo
}

// newIdxWriter writes the header and the heads from to to, in order.
func newIdxWriter(w io.Writer, c *coder, from, to uint64, heads []*Head) (*idxWriter, error) {
	le := binary.LittleEndian
	head := append([]byte(idxMagic), 0, 0, 0, 0, 0, 0, 0, 0)
	le.PutUint32(head[8:], version)
	head = le.AppendUint64(head, from)
	head = le.AppendUint64(head, to)
	x := &idxWriter{w: w, c: c}
	if err := x.write(head); err != nil {
		return nil, err
	}
	var raw []byte
	for _, h := range heads {
		raw = append(append(raw, h.Encode()...), '\n')
	}
	_, err := x.frame(kindHeads, raw)
	return x, err
}

func (x *idxWriter) write(b []byte) error {
	n, err := x.w.Write(b)
	x.off += int64(n)
	return err
}

// frame writes a compressed frame and returns its size.
func (x *idxWriter) frame(kind byte, raw []byte) (int64, error) {
	if len(raw) > maxIdxRaw {
		return 0, fmt.Errorf("part of an index of %d bytes", len(raw))
	}
	enc, err := encoder()
	if err != nil {
		return 0, err
	}
	b := append(make([]byte, frameHead), kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(raw)))
	b = finishFrame(enc.EncodeAll(raw, b))
	return int64(len(b)), x.write(b)
}

func (x *idxWriter) add(e *runEntry) error {
	if len(x.page) == 0 {
		x.first = e.run
	}
	x.page = e.append(x.page)
	if x.count++; len(x.page) < idxPage {
		return nil
	}
	return x.flush()
}

func (x *idxWriter) flush() error {
	if x.count == 0 {
		return nil
	}
	at := x.off
	n, err := x.frame(kindRuns, x.page)
	if err != nil {
		return err
	}
	x.pages = append(x.pages, idxPageInfo{x.first, at, n, x.count})
	x.page, x.count = x.page[:0], 0
	return nil
}

// finish writes the list of pages and the end.
func (x *idxWriter) finish() error {
	if err := x.flush(); err != nil {
		return err
	}
	le := binary.LittleEndian
	var raw []byte
	for _, p := range x.pages {
		raw = le.AppendUint16(raw, uint16(len(p.first)))
		raw = append(raw, p.first...)
		raw = le.AppendUint64(raw, uint64(p.off))
		raw = le.AppendUint32(raw, uint32(p.size))
		raw = le.AppendUint32(raw, p.count)
	}
	at := x.off
	if _, err := x.frame(kindPages, raw); err != nil {
		return err
	}
	return x.write(tail(at, x.off+segTail, len(x.pages)))
}

// An index is open to read.
type index struct {
	r        io.ReaderAt
	size     int64
	from, to uint64
	pages    []idxPageInfo
	heads    []*Head // nil for one that could not be built: none
}

// openIndex reads the heads and the list of pages.
func openIndex(c *coder, r io.ReaderAt, size int64) (*index, error) {
	le := binary.LittleEndian
	if size < idxHead+frameHead+segTail {
		return nil, fmt.Errorf("%w: index is cut", errDamaged)
	}
	head, end := make([]byte, idxHead), make([]byte, segTail)
	if err := readFull(r, head, 0); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	if err := readFull(r, end, size-segTail); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	if string(head[:8]) != idxMagic || le.Uint32(head[8:]) != version || le.Uint32(head[12:]) != 0 {
		return nil, fmt.Errorf("%w: not an index", errDamaged)
	}
	x := &index{r: r, size: size, from: le.Uint64(head[16:]), to: le.Uint64(head[24:])}
	if x.from == 0 || x.to < x.from || x.to-x.from >= maxIndexed {
		return nil, fmt.Errorf("%w: index of heads %d to %d", errDamaged, x.from, x.to)
	}
	off, pages, err := parseTail(end, size)
	if err != nil {
		return nil, err
	}
	raw, n, err := x.frame(c, idxHead, kindHeads)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		h, err := ParseHead(line)
		if err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		x.heads = append(x.heads, h)
	}
	if uint64(len(x.heads)) != x.to-x.from+1 {
		return nil, fmt.Errorf("%w: index has %d heads", errDamaged, len(x.heads))
	}
	list, m, err := x.frame(c, off, kindPages)
	if err != nil {
		return nil, err
	}
	if off+m+segTail != size {
		return nil, fmt.Errorf("%w: index has more than its list of pages", errDamaged)
	}
	if err := x.parsePages(list, idxHead+n, off); err != nil {
		return nil, err
	}
	if len(x.pages) != pages {
		return nil, fmt.Errorf("%w: index has %d pages", errDamaged, len(x.pages))
	}
	return x, nil
}

func (x *index) parsePages(b []byte, start, end int64) error {
	le := binary.LittleEndian
	cut := fmt.Errorf("%w: list of pages is cut", errDamaged)
	for len(b) > 0 {
		if len(b) < 18 || len(b) < 18+int(le.Uint16(b)) {
			return cut
		}
		n := 2 + int(le.Uint16(b))
		p := idxPageInfo{string(b[2:n]), int64(le.Uint64(b[n:])), int64(le.Uint32(b[n+8:])), le.Uint32(b[n+12:])}
		if p.off != start || p.count == 0 || len(x.pages) >= maxPages ||
			len(x.pages) > 0 && p.first < x.pages[len(x.pages)-1].first {
			return cut
		}
		start += p.size
		x.pages = append(x.pages, p)
		b = b[n+16:]
	}
	if start != end {
		return cut
	}
	return nil
}

// frame reads and unpacks the frame at off, and gives its size.
func (x *index) frame(c *coder, off int64, kind byte) (raw []byte, size int64, err error) {
	head := make([]byte, frameHead)
	if err := readFull(x.r, head, off); err != nil {
		return nil, 0, fmt.Errorf("read index: %w", err)
	}
	n, err := frameLen(head)
	if err != nil {
		return nil, 0, err
	}
	if n < frameHead+8 || n > x.size-off || n > maxIdxRaw+1<<20 {
		return nil, 0, fmt.Errorf("%w: index is cut", errDamaged)
	}
	b := make([]byte, n)
	if err := readFull(x.r, b, off); err != nil {
		return nil, 0, fmt.Errorf("read index: %w", err)
	}
	if err := checkFrame(b); err != nil {
		return nil, 0, fmt.Errorf("index: %w", err)
	}
	rawLen := binary.LittleEndian.Uint32(b[12:])
	if b[8] != kind || rawLen > maxIdxRaw {
		return nil, 0, fmt.Errorf("%w: index has another part where %d belongs", errDamaged, kind)
	}
	raw, err = c.unpack(b[16:], int(rawLen))
	return raw, n, err
}

// readFull reads exactly len(b) bytes.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: cut", errDamaged)
	}
	return err
}

// page reads the entries of a page.
func (x *index) page(c *coder, i int) ([]runEntry, error) {
	p := &x.pages[i]
	raw, n, err := x.frame(c, p.off, kindRuns)
	if err != nil {
		return nil, err
	}
	if n != p.size || uint64(p.count)*runFixed > uint64(len(raw)) {
		return nil, fmt.Errorf("%w: page of an index is another", errDamaged)
	}
	out := make([]runEntry, p.count)
	for i := range out {
		if out[i], raw, err = splitEntry(raw); err != nil {
			return nil, err
		}
		if i > 0 && out[i].compare(&out[i-1]) <= 0 {
			return nil, fmt.Errorf("%w: page of an index is not sorted", errDamaged)
		}
	}
	if len(raw) != 0 || out[0].run != p.first {
		return nil, fmt.Errorf("%w: page of an index is another", errDamaged)
	}
	return out, nil
}

// find returns the entries of a run.
func (x *index) find(c *coder, run string) ([]runEntry, error) {
	// The run may begin in the page before the first that begins with it.
	i := sort.Search(len(x.pages), func(i int) bool { return x.pages[i].first >= run })
	var out []runEntry
	for i = max(i-1, 0); i < len(x.pages) && x.pages[i].first <= run; i++ {
		entries, err := x.page(c, i)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.run == run {
				out = append(out, e)
			}
		}
	}
	return out, nil
}
