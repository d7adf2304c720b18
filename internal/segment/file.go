package segment

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

const (
	segMagic = "cbcasseg"
	endMagic = "cbcasend"
	version  = 1

	segHead = 44 // a segment's header without the tenant
	segTail = 36

	maxBlocks    = 1 << 18  // in a segment
	maxRuns      = 1 << 17  // in a segment
	maxDirectory = 64 << 20 // bytes, before compression
)

// A segHeader begins a segment.
type segHeader struct {
	uid    [16]byte
	day    int32 // since 1970-01-01
	tenant string
}

func (h *segHeader) append(dst []byte) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = append(dst, segMagic...)
	dst = le.AppendUint32(dst, version)
	dst = le.AppendUint32(dst, uint32(segHead+len(h.tenant)))
	dst = append(dst, h.uid[:]...)
	dst = le.AppendUint32(dst, uint32(h.day))
	dst = le.AppendUint16(dst, uint16(len(h.tenant)))
	dst = le.AppendUint16(dst, 0)
	dst = append(dst, h.tenant...)
	return le.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func readHeader(r io.ReaderAt, size int64) (h segHeader, raw []byte, err error) {
	le := binary.LittleEndian
	if size < segHead {
		return h, nil, fmt.Errorf("%w: header is cut", errDamaged)
	}
	raw = make([]byte, segHead)
	if _, err := r.ReadAt(raw, 0); err != nil && err != io.EOF {
		return h, nil, fmt.Errorf("read segment header: %w", err)
	}
	if string(raw[:8]) != segMagic {
		return h, nil, fmt.Errorf("%w: not a segment", errDamaged)
	}
	if v := le.Uint32(raw[8:]); v != version {
		return h, nil, fmt.Errorf("segment of version %d, this program reads %d", v, version)
	}
	n := int64(le.Uint32(raw[12:]))
	if n < segHead || n > segHead+maxID || n > size || int64(le.Uint16(raw[36:])) != n-segHead {
		return h, nil, fmt.Errorf("%w: header is cut", errDamaged)
	}
	raw = make([]byte, n)
	if _, err := r.ReadAt(raw, 0); err != nil && err != io.EOF {
		return h, nil, fmt.Errorf("read segment header: %w", err)
	}
	if crc32.Checksum(raw[:n-4], castagnoli) != le.Uint32(raw[n-4:]) {
		return h, nil, fmt.Errorf("%w: header's checksum is wrong", errDamaged)
	}
	copy(h.uid[:], raw[16:])
	h.day, h.tenant = int32(le.Uint32(raw[32:])), string(raw[40:n-4])
	return h, raw, nil
}

// dayOf is the UTC day of a time, and dayName its name.
func dayOf(unixNano int64) int32 {
	const day = int64(24 * time.Hour)
	d := unixNano / day
	if unixNano%day < 0 {
		d--
	}
	return int32(d)
}

func dayName(day int32) string {
	return time.Unix(int64(day)*86400, 0).UTC().Format("2006-01-02Z")
}

// An entry is one block in a segment's directory.
type entry struct {
	blockInfo
	off  int64
	size int64
	hash sum
}

// A directory is the end of a segment: where its blocks are, and what they hash to.
type directory struct {
	blocks []entry // in the order of the file
}

const entryFixed = 8 + 4 + 4 + blockFact + 32

// encode makes the directory's frame.
func (d *directory) encode(c *coder) ([]byte, error) {
	le := binary.LittleEndian
	index, runs := map[string]uint32{}, []string(nil)
	for i := range d.blocks {
		if r := d.blocks[i].run; index[r] == 0 {
			runs = append(runs, r)
			index[r] = uint32(len(runs))
		}
	}
	var raw []byte
	raw = le.AppendUint32(raw, uint32(len(runs)))
	for _, r := range runs {
		raw = le.AppendUint16(raw, uint16(len(r)))
		raw = append(raw, r...)
	}
	raw = le.AppendUint32(raw, uint32(len(d.blocks)))
	for i := range d.blocks {
		b := &d.blocks[i]
		raw = le.AppendUint64(raw, uint64(b.off))
		raw = le.AppendUint32(raw, uint32(b.size))
		raw = le.AppendUint32(raw, index[b.run]-1)
		raw = b.appendFacts(raw)
		raw = append(raw, b.hash[:]...)
	}
	if len(raw) > maxDirectory {
		return nil, fmt.Errorf("directory of %d bytes", len(raw))
	}
	enc, err := encoder()
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, frameHead), kindDirectory, 0, 0, 0)
	out = le.AppendUint32(out, uint32(len(raw)))
	return finishFrame(enc.EncodeAll(raw, out)), nil
}

// parseDirectory reads the frame of a directory that stands at off.
func parseDirectory(c *coder, b []byte, start, off int64) (*directory, error) {
	le := binary.LittleEndian
	if len(b) < frameHead+8 || b[8] != kindDirectory {
		return nil, fmt.Errorf("%w: not a directory", errDamaged)
	}
	n := le.Uint32(b[12:])
	if n > maxDirectory {
		return nil, fmt.Errorf("%w: directory of %d bytes", errDamaged, n)
	}
	raw, err := c.unpack(b[16:], int(n))
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	cut := fmt.Errorf("%w: directory is cut", errDamaged)
	if len(raw) < 4 {
		return nil, cut
	}
	count := le.Uint32(raw)
	raw = raw[4:]
	if count > maxRuns || uint64(count)*2 > uint64(len(raw)) {
		return nil, cut
	}
	runs := make([]string, count)
	for i := range runs {
		if len(raw) < 2 || len(raw)-2 < int(le.Uint16(raw)) {
			return nil, cut
		}
		n := 2 + int(le.Uint16(raw))
		runs[i], raw = string(raw[2:n]), raw[n:]
	}
	if len(raw) < 4 {
		return nil, cut
	}
	count = le.Uint32(raw)
	raw = raw[4:]
	if count > maxBlocks || uint64(count)*entryFixed != uint64(len(raw)) {
		return nil, cut
	}
	d := &directory{blocks: make([]entry, count)}
	for i := range d.blocks {
		e := &d.blocks[i]
		run := le.Uint32(raw[12:])
		if run >= uint32(len(runs)) {
			return nil, fmt.Errorf("%w: directory names a run that it does not have", errDamaged)
		}
		if e.blockInfo, err = parseFacts(raw[16:]); err != nil {
			return nil, err
		}
		e.run, e.off, e.size = runs[run], int64(le.Uint64(raw)), int64(le.Uint32(raw[8:]))
		copy(e.hash[:], raw[16+blockFact:])
		if e.off != start || e.size < blockHead || e.size > maxFrame {
			return nil, fmt.Errorf("%w: directory's blocks do not follow each other", errDamaged)
		}
		start += e.size
		raw = raw[entryFixed:]
	}
	if start != off {
		return nil, fmt.Errorf("%w: directory does not have all blocks", errDamaged)
	}
	return d, nil
}

// tail makes the last bytes of a segment whose directory begins at off.
func tail(off, size int64, blocks int) []byte {
	le := binary.LittleEndian
	var b []byte
	b = le.AppendUint64(b, uint64(off))
	b = le.AppendUint64(b, uint64(size))
	b = le.AppendUint32(b, uint32(blocks))
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, endMagic...)
}

// parseTail gives the offset of the directory.
func parseTail(b []byte, size int64) (off int64, blocks int, err error) {
	le := binary.LittleEndian
	if len(b) != segTail || string(b[28:]) != endMagic || crc32.Checksum(b[:24], castagnoli) != le.Uint32(b[24:]) {
		return 0, 0, fmt.Errorf("%w: no end", errDamaged)
	}
	off, blocks = int64(le.Uint64(b)), int(le.Uint32(b[16:]))
	if int64(le.Uint64(b[8:])) != size || off < segHead || off > size-segTail-frameHead || blocks > maxBlocks {
		return 0, 0, fmt.Errorf("%w: its end is of another file", errDamaged)
	}
	return off, blocks, nil
}

// A file is a sealed segment, open to read.
type file struct {
	segHeader
	directory
	r    io.ReaderAt
	size int64
	root sum // over the hashes that the directory has: a block proves itself against its own
	dir  int64
}

// openFile reads the header and the directory of a sealed segment.
func openFile(c *coder, r io.ReaderAt, size int64) (*file, error) {
	h, rawHead, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	if size < int64(len(rawHead))+frameHead+segTail {
		return nil, fmt.Errorf("%w: no end", errDamaged)
	}
	end := make([]byte, segTail)
	if _, err := r.ReadAt(end, size-segTail); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read segment's end: %w", err)
	}
	off, blocks, err := parseTail(end, size)
	if err != nil {
		return nil, err
	}
	n := size - segTail - off
	if n > maxDirectory+1<<20 {
		return nil, fmt.Errorf("%w: directory of %d bytes", errDamaged, n)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, off); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	if m, err := frameLen(raw); err != nil || m != n {
		return nil, fmt.Errorf("%w: directory is cut", errDamaged)
	}
	if err := checkFrame(raw); err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	d, err := parseDirectory(c, raw, int64(len(rawHead)), off)
	if err != nil {
		return nil, err
	}
	if len(d.blocks) != blocks {
		return nil, fmt.Errorf("%w: directory of another segment", errDamaged)
	}
	return &file{segHeader: h, directory: *d, r: r, size: size, dir: off, root: d.root(rawHead, raw, end)}, nil
}

// root is the Merkle root of a segment: over its header, its blocks, its directory and
// its end.
func (d *directory) root(head, dir, end []byte) sum {
	leaves := make([]sum, 0, len(d.blocks)+3)
	leaves = append(leaves, leaf(head))
	for i := range d.blocks {
		leaves = append(leaves, d.blocks[i].hash)
	}
	return root(append(leaves, leaf(dir), leaf(end)))
}

// block reads a block and checks it against its hash.
func (f *file) block(e *entry) ([]byte, error) {
	b := make([]byte, e.size)
	if _, err := f.r.ReadAt(b, e.off); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read block at %d: %w", e.off, err)
	}
	if leaf(b) != e.hash {
		return nil, fmt.Errorf("block at %d: %w: it is not what was sealed", e.off, errDamaged)
	}
	return b, nil
}

// sealed is what a head says of the segment.
func (f *file) sealed(name string) *Sealed {
	s := &Sealed{
		Name: name, UID: hex.EncodeToString(f.uid[:]), Day: dayName(f.day), Root: f.root.String(), Bytes: f.size,
		Blocks: len(f.blocks),
	}
	runs := map[string]bool{}
	var first, last int64
	for i := range f.blocks {
		b := &f.blocks[i]
		runs[b.run] = true
		s.Records += int64(b.records)
		if i == 0 {
			first, last = b.first, b.last
		}
		first, last = min(first, b.first), max(last, b.last)
	}
	s.Runs, s.First, s.Last = len(runs), time.Unix(0, first).UTC(), time.Unix(0, last).UTC()
	return s
}

// of returns the blocks of a run, in the order of the file.
func (d *directory) of(run string) (out []*entry) {
	for i := range d.blocks {
		if d.blocks[i].run == run {
			out = append(out, &d.blocks[i])
		}
	}
	return out
}

// A walk reads the frames of a segment one after the other without its directory, for
// a file that has none or a wrong one.
type walk struct {
	r    io.ReaderAt
	size int64
	off  int64
	buf  []byte
}

// next returns the next frame, good until the next call, and where it began. At the end of
// the file the error is io.EOF; where no whole frame is, it is something else, and off
// stays there.
func (w *walk) next() (b []byte, off int64, err error) {
	left := w.size - w.off
	if left == 0 {
		return nil, w.off, io.EOF
	}
	var head [frameHead]byte
	if left < frameHead {
		return nil, w.off, fmt.Errorf("%w: %d bytes are no frame", errDamaged, left)
	}
	if _, err := w.r.ReadAt(head[:], w.off); err != nil && err != io.EOF {
		return nil, w.off, err
	}
	n, err := frameLen(head[:])
	if err != nil {
		return nil, w.off, err
	}
	if n > left {
		return nil, w.off, fmt.Errorf("%w: frame is cut: %d bytes of %d", errDamaged, left, n)
	}
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	w.buf = w.buf[:n]
	if _, err := w.r.ReadAt(w.buf, w.off); err != nil && err != io.EOF {
		return nil, w.off, err
	}
	if err := checkFrame(w.buf); err != nil {
		return nil, w.off, err
	}
	off = w.off
	w.off += n
	return w.buf, off, nil
}
