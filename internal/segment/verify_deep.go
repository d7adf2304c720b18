package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/cbcast/cbcast/internal/event"
)

// deep opens the blocks of a segment and compares their records with what they say in clear.
func (c *verifyChain) deep(ctx context.Context, h *Head, o io.ReaderAt, blocks []entry) error {
	f := Finding{Number: h.Number, Object: pageKey(c.tenant, h.Segment.UID)}
	p, err := loadPage(ctx, c.o.Keys, c.tenant, h.Segment.UID, c.o.Wrap)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Code, f.Text = KeysMissing, "the keys of the segment are gone"
	case errors.Is(err, errPage) || errors.Is(err, errDamaged):
		f.Code, f.Text = KeysDamaged, err.Error()
	case err != nil:
		return err
	}
	if f.Code != "" {
		c.bad(f)
		return nil
	}
	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.deepBlock(h, o, p, &blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *verifyChain) deepBlock(h *Head, o io.ReaderAt, p *page, e *entry) error {
	f := Finding{Number: h.Number, Object: h.Segment.Name, Offset: e.off, Run: e.run}
	key := p.find(e.run)
	if key != nil && key.erased {
		if c.erased[e.run] == 0 {
			f.Code, f.Text = KeysMissing, "the run's key is gone, without a statement"
			c.bad(f)
		}
		return nil
	}
	b := make([]byte, e.size)
	if err := readFull(o, b, e.off); err != nil {
		return err
	}
	raw, err := []byte(nil), fmt.Errorf("%w: the run has no key", errDamaged)
	if key != nil {
		raw, err = c.coder.open(b, &p.uid, &key.key)
	}
	if err != nil {
		f.Code, f.Text = Undecipher, err.Error()
		c.bad(f)
		return nil
	}
	got := blockInfo{run: e.run, log: e.log, raw: uint32(len(raw))}
	good := eachRecord(raw, c.tenant, &e.blockInfo, func(r *Record) bool {
		if r.Seq != 0 && got.lastSeq != 0 && !(position{got.lastSeq, got.lastPart}).next(position{r.Seq, r.Part}) {
			g := f
			g.Code, g.First, g.Last, g.Bad = Hole, got.lastSeq+1, r.Seq-1, true
			g.Text = fmt.Sprintf("behind event %d comes %d", got.lastSeq, r.Seq)
			c.explain(g)
		}
		got.add(r)
		c.life(r)
		return true
	}, func(err error) {
		f.Code, f.Text = FactsWrong, err.Error()
		c.bad(f)
	})
	if good && got != e.blockInfo {
		f.Code, f.Text = FactsWrong, "the records are not what the block says of them in clear"
		c.bad(f)
	}
	return nil
}

// life notes whether a run has ended.
func (c *verifyChain) life(r *Record) {
	if r.Log == Command {
		return
	}
	if c.lives == nil {
		c.lives = map[string]life{}
	}
	switch at := c.lives[r.Run]; r.typ() {
	case event.TypeExited:
		c.lives[r.Run] = lifeOver
	case event.TypeLost:
		c.lives[r.Run] = max(at, lifeLost)
	default:
		c.lives[r.Run] = at
	}
}

// A life is how far a run has come, as far as its records say.
type life int

const (
	lifeOpen life = iota // it goes on
	lifeLost             // a relay says that its edge is gone
	lifeOver
)

// maxOpenRuns bounds how many runs without an end are named, for each tenant.
const maxOpenRuns = 100

// openRuns says which runs have no end in the archive.
func (c *verifyChain) openRuns() {
	more := 0
	said := 0
	for _, run := range slices.Sorted(maps.Keys(c.lives)) {
		f := Finding{Code: RunOpen, Run: run, Text: "it has no event that says how it ended: it goes on, its edge was killed, or its end is not archived yet"}
		switch c.lives[run] {
		case lifeOver:
			continue
		case lifeLost:
			f.Text = "it has no event that says how it ended, and a relay says that its edge is gone"
		case lifeOpen:
		}
		if said++; said > maxOpenRuns {
			more++
			continue
		}
		c.note(f)
	}
	if more > 0 {
		c.note(Finding{Code: RunOpen, Text: fmt.Sprintf("%d more runs have no event that says how they ended", more)})
	}
}
