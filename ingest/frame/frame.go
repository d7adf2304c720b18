// Package frame cuts a byte stream into frames: what stands between two LFs.
//
// LF alone ends a frame. CR, BOM, NUL, invalid UTF-8 and U+2028 are bytes like
// any other, and an empty line is a frame of no bytes. Where the reads were cut
// does not matter. Nothing is thrown away: the data of all frames, with an LF
// after each that is not cut, is the stream again.
package frame

import "bytes"

// Max is the longest line that is one frame, in bytes without its LF. No agent
// writes such lines; the bound keeps one from filling the memory. A longer line
// is given out in pieces of this size.
const Max = 64 << 20

// keep is the largest buffer that a Splitter holds on to between frames. One
// large frame must not cost its size for the rest of the run.
const keep = 2 << 20

// firstBuf is the least buffer; most frames fit.
const firstBuf = 4 << 10

// A Frame is one unit of a stream, or a hole in it.
type Frame struct {
	// Data is the frame without its LF. It lies in a buffer of the Splitter or
	// in the slice given to Write, and is valid until emit returns; that of a
	// whole line until the next call of Write, Drop or Close, as long as the
	// slice is.
	Data []byte
	// Offset is where Data begins in the stream, counted from 0. Bytes that
	// were dropped count too.
	Offset int64
	// Cut says that no LF followed: the tail at the end of the stream, a piece
	// of a line longer than the bound that is not its last, or what came of a
	// frame before a hole.
	Cut bool
	// Cont says that Data goes on a line whose beginning was given out before.
	Cont bool

	// Gap is the size of a hole: so many bytes are missing at Offset, GapLines
	// LFs among them. Data is empty then. What follows begins a new line.
	Gap, GapLines int64
}

// Whole reports whether f is one complete line.
func (f *Frame) Whole() bool { return !f.Cut && !f.Cont && f.Gap == 0 }

// A Splitter cuts one stream. It is not safe for concurrent use.
type Splitter struct {
	max  int
	emit func(Frame)

	buf  []byte // beginning of the current line, from earlier writes
	used []byte // the buffer before it: what was given out last may lie there
	off  int64  // where the next written byte stands in the stream
	cont bool   // pieces of the current line were given out

	// skip: bytes were dropped, the rest of the line they fell into is too.
	skip          bool
	gap, gapLines int64
}

// New returns a Splitter that calls emit for each frame, in order, from within
// Write, Drop and Close. max bounds a line; 0 means [Max].
func New(max int, emit func(Frame)) *Splitter {
	if max <= 0 {
		max = Max
	}
	return &Splitter{max: max, emit: emit}
}

// Write takes the next bytes of the stream. It does not keep p and never fails.
func (s *Splitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		switch {
		case end < 0 && s.skip:
			s.gap += int64(len(p))
			s.off += int64(len(p))
			return n, nil
		case end < 0:
			s.part(p)
			return n, nil
		case s.skip:
			s.gap += int64(end) + 1
			s.off += int64(end) + 1
			s.gapLines++
			s.endGap()
		default:
			s.line(p[:end])
		}
		p = p[end+1:]
	}
	return n, nil
}

// Drop says that the next n bytes of the stream, lines LFs among them, are
// gone. What was held of the current frame is given out as cut; the bytes up to
// the LF that follows the hole are counted to the hole, which is given out then.
func (s *Splitter) Drop(n, lines int64) {
	if n <= 0 {
		return
	}
	s.tail()
	s.cont = false
	s.skip = true
	s.gap += n
	s.gapLines += lines
	s.off += n
}

// Close gives out what is left at the end of the stream: a tail without LF, or
// a hole that no LF ended.
func (s *Splitter) Close() {
	if s.skip {
		s.endGap()
	}
	s.tail()
	s.buf, s.used, s.cont = nil, nil, false
}

// line gives out the current line, which ends with p and an LF.
func (s *Splitter) line(p []byte) {
	p = s.pieces(p)
	if len(s.buf) > 0 {
		s.hold(p)
		s.off += int64(len(p))
		s.give(s.buf, false)
		s.reset()
	} else {
		s.off += int64(len(p))
		s.give(p, false)
	}
	s.off++
	s.cont = false
}

// part keeps p, which goes on the current line.
func (s *Splitter) part(p []byte) {
	p = s.pieces(p)
	s.hold(p)
	s.off += int64(len(p))
}

// pieces gives out pieces of max bytes while the current line with p is longer
// than that, and returns the rest of p.
func (s *Splitter) pieces(p []byte) []byte {
	for len(s.buf)+len(p) > s.max {
		n := s.max - len(s.buf)
		s.off += int64(n)
		if len(s.buf) == 0 {
			s.give(p[:n], true)
		} else {
			s.hold(p[:n])
			s.give(s.buf, true)
			s.reset()
		}
		s.cont = true
		p = p[n:]
	}
	return p
}

// hold appends p to the buffer, which doubles: a long line is copied about
// twice, however small the reads are.
func (s *Splitter) hold(p []byte) {
	if need := len(s.buf) + len(p); need > cap(s.buf) {
		buf := make([]byte, len(s.buf), max(need, 2*cap(s.buf), firstBuf))
		copy(buf, s.buf)
		s.buf = buf
	}
	s.buf = append(s.buf, p...)
}

// tail gives out the beginning of a line that nothing more of will come.
func (s *Splitter) tail() {
	if len(s.buf) > 0 {
		s.give(s.buf, true)
		s.reset()
	}
}

func (s *Splitter) endGap() {
	s.emit(Frame{Offset: s.off - s.gap, Gap: s.gap, GapLines: s.gapLines})
	s.skip, s.gap, s.gapLines = false, 0, 0
}

// give emits data, which ends at s.off.
func (s *Splitter) give(data []byte, cut bool) {
	s.emit(Frame{Data: data, Offset: s.off - int64(len(data)), Cut: cut, Cont: s.cont})
}

// reset begins the next line in the other buffer.
func (s *Splitter) reset() {
	if cap(s.buf) > keep {
		s.buf = nil
	}
	s.buf, s.used = s.used[:0], s.buf
}
