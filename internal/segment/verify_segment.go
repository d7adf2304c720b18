package segment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
)

// verifySegment checks the segment of a head.
func (c *verifyChain) verifySegment(ctx context.Context, h *Head, strays map[string][]string) error {
	s := h.Segment
	f := Finding{Number: h.Number, Object: s.Name, Of: s.Records}
	if c.uids[s.UID] != h.Number {
		c.skip[h.Number] = true
		return nil // a double, told already
	}
	o, err := c.o.Store.Open(ctx, s.Name)
	if by := c.gone[h.Number]; by != 0 {
		if err == nil {
			o.Close()
			c.note(Finding{Code: Unfinished, Number: h.Number, Object: s.Name, Text: fmt.Sprintf("head %d says it is deleted; it is still there", by)})
		} else {
			c.note(Finding{Code: FromRetain, Number: h.Number, Object: s.Name, Text: fmt.Sprintf("deleted by retention, head %d", by)})
		}
		return nil
	}
	if isNotExist(err) {
		if keys := strays[s.UID]; len(keys) > 0 {
			f.Code, f.Of, f.Text = SegmentRenamed, 0, "it is there as "+keys[0]
			c.bad(f)
			f.Of = s.Records
			delete(strays, s.UID)
			if o, err = c.o.Store.Open(ctx, keys[0]); err != nil {
				return err
			}
		} else {
			f.Code, f.Text = SegmentMissing, "the segment is not there"
			c.bad(f)
			c.skip[h.Number] = true
			return nil
		}
	} else if err != nil {
		return err
	}
	defer o.Close()
	return c.verifyFile(ctx, h, o, o.Size(), f)
}

// verifyFile checks the bytes of a segment. f is what a finding begins with.
func (c *verifyChain) verifyFile(ctx context.Context, h *Head, o io.ReaderAt, size int64, f Finding) error {
	s := h.Segment
	head, rawHead, err := readHeader(o, size)
	switch {
	case err != nil && !errors.Is(err, errDamaged):
		return err
	case err != nil && size < segHead+int64(len(c.tenant)):
		f.Code, f.Text = SegmentTruncated, fmt.Sprintf("%d bytes of %d are there: no whole block", size, s.Bytes)
	case err != nil:
		f.Code, f.Text = SegmentDamaged, err.Error()
	case head.tenant != c.tenant:
		f.Code, f.Text = SegmentForeign, fmt.Sprintf("it is a segment of tenant %q", head.tenant)
	case hex.EncodeToString(head.uid[:]) != s.UID:
		f.Code, f.Text = SegmentSwapped, "it is another segment"
		if n := c.uids[hex.EncodeToString(head.uid[:])]; n != 0 {
			f.Text = fmt.Sprintf("it is the segment of head %d", n)
		}
	}
	if f.Code != "" && f.Code != SegmentRenamed {
		c.bad(f)
		c.skip[h.Number] = true
		return nil
	}
	f.Code = ""
	w := c.walk(o, size, int64(len(rawHead)))
	file, err := openFile(&c.coder, o, size)
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	blocks, whole := w.blocks, false
	switch {
	case err == nil && file.root.String() == s.Root && size == s.Bytes:
		// The directory is what was signed. It says which blocks are not.
		blocks = c.badBlocks(file, w, f)
		whole = len(blocks) == len(file.blocks)
	case err == nil:
		f.Code, f.Records, f.Text = SegmentChanged, w.records, "it is well formed, but not what the head says"
	case size < s.Bytes:
		f.Code, f.Offset, f.Records = SegmentTruncated, w.off, w.records
		f.Text = fmt.Sprintf("%d bytes of %d are there; whole blocks up to %d hold %d records of %d", size, s.Bytes, w.off, w.records, s.Records)
	case w.err == nil:
		// All frames are good, the end is not.
		f.Code, f.Offset, f.Records, f.Text = SegmentDamaged, w.off, w.records, err.Error()
	default:
		f.Code, f.Offset, f.Records, f.Text = SegmentDamaged, w.off, w.records, w.err.Error()
	}
	if f.Code != "" {
		c.bad(f)
	}
	if whole {
		c.rep.Segments++
	} else {
		c.skip[h.Number] = true
	}
	c.rep.Bytes += size
	c.facts(h, blocks)
	c.recent = append(c.recent, (&directory{blocks}).entries(h.Number)...)
	if c.o.Deep {
		return c.deep(ctx, h, o, blocks)
	}
	return nil
}

// A walked is what reading a segment from its beginning to its end gave.
type walked struct {
	blocks  []entry
	records int64
	off     int64 // where the first bad frame begins, or the end of the good ones
	err     error
}

// walk reads all frames of a segment up to the first bad one.
func (c *verifyChain) walk(o io.ReaderAt, size, start int64) (out walked) {
	out.blocks, out.off, out.err = readBlocks(o, size, start)
	for i := range out.blocks {
		out.records += int64(out.blocks[i].records)
	}
	return out
}

// badBlocks compares each block with the hash that the signed directory has, and returns
// the good ones.
func (c *verifyChain) badBlocks(f *file, w walked, base Finding) []entry {
	if w.err == nil && len(w.blocks) == len(f.blocks) {
		same := true
		for i := range w.blocks {
			same = same && w.blocks[i].hash == f.blocks[i].hash
		}
		if same {
			return f.blocks
		}
	}
	var good []entry
	var records int64
	var bad []*entry
	for i := range f.blocks {
		e := &f.blocks[i]
		if _, err := f.block(e); err != nil {
			bad = append(bad, e)
			continue
		}
		good = append(good, *e)
		records += int64(e.records)
	}
	for _, e := range bad {
		g := base
		g.Code, g.Offset, g.Run, g.Records = SegmentDamaged, e.off, e.run, records
		g.First, g.Last = e.firstSeq, e.lastSeq
		g.Text = fmt.Sprintf("the block at %d is not what was sealed: %d records of run %s", e.off, e.records, e.run)
		c.bad(g)
	}
	return good
}

// facts checks what the blocks say in clear: the day, and that each run goes on where it ended.
func (c *verifyChain) facts(h *Head, blocks []entry) {
	for i := range blocks {
		e := &blocks[i]
		c.rep.Blocks++
		c.rep.Records += int64(e.records)
		if first, last := dayName(dayOf(e.first)), dayName(dayOf(e.last)); first != h.Segment.Day || last != h.Segment.Day {
			c.bad(Finding{Code: DayWrong, Number: h.Number, Object: h.Segment.Name, Offset: e.off, Run: e.run, Text: fmt.Sprintf(
				"stored %s to %s in a segment of %s", time.Unix(0, e.first).UTC().Format(time.RFC3339Nano),
				time.Unix(0, e.last).UTC().Format(time.RFC3339Nano), h.Segment.Day)})
		}
		c.follow(h, e)
	}
}

// follow checks that a block goes on where its run was.
func (c *verifyChain) follow(h *Head, e *entry) {
	id := sum(sha256.Sum256([]byte(e.run)))
	at, known := c.runs[id]
	if e.firstSeq == 0 {
		if !known {
			c.runs[id] = at
		}
		return
	}
	f := Finding{Number: h.Number, Object: h.Segment.Name, Run: e.run, Offset: e.off}
	first := position{e.firstSeq, e.firstPart}
	switch {
	case at.next(first):
	case !at.before(first):
		f.Code, f.First, f.Last = Doubled, e.firstSeq, min(e.lastSeq, at.seq)
		f.Text = span("event", f.First, f.Last) + " there twice"
		c.bad(f)
	default:
		c.hole(f, at, first)
	}
	if want := e.lastSeq - e.firstSeq + 1; uint64(e.distinct) < want {
		g := f
		g.Code, g.First, g.Last, g.Bad = Hole, e.firstSeq, e.lastSeq, true
		g.Text = fmt.Sprintf("%d of the events %d to %d are missing", want-uint64(e.distinct), e.firstSeq, e.lastSeq)
		c.explain(g)
	}
	if last := (position{e.lastSeq, e.lastPart}); at.before(last) {
		c.runs[id] = last
	}
}

// hole says what is missing between two positions of a run.
func (c *verifyChain) hole(f Finding, at, next position) {
	f.Code, f.First, f.Last, f.Bad = Hole, at.seq+1, next.seq-1, true
	if at.seq > 0 && at.part.I < at.part.N {
		f.First = at.seq // its later parts
	}
	if next.part.I > 1 {
		f.Last = next.seq // its first parts
	}
	f.Text = span("event", f.First, f.Last) + " missing"
	if c.ends[f.Run] >= f.Last || c.more && at.seq == 0 {
		f.Bad = false
		f.Text += "; retention deleted them"
	}
	c.explain(f)
}

// explain adds a hole, which is not bad where a statement says that the bus did not have them.
func (c *verifyChain) explain(f Finding) {
	for _, s := range c.missing {
		if s.Run == f.Run && s.FirstSeq <= f.First && s.LastSeq >= f.Last {
			f.Bad = false
			f.Text += fmt.Sprintf("; the bus did not have them: %s", s.Why)
			break
		}
	}
	f.Tenant = c.tenant
	c.find(f)
}
