package metrics

import (
	"cmp"
	"slices"

	"github.com/cbcast/cbcast/internal/bus"
)

// isNew reports whether a place was not counted before.
func (c *tally) isNew(log bus.Log, at bus.Place) bool {
	if at.Seq > c.places[log].Seq || c.holes[log].has(at.Seq) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inc(mRepeated)
	return false
}

// passed notes that a log was read up to at. What was skipped is of a run that is held up:
// it comes later.
func (c *tally) passed(log bus.Log, at bus.Place, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, h := c.places[log].Seq, c.holes[log]
	if h == nil {
		h = &holes{}
		c.holes[log] = h
	}
	if at.Seq > last {
		h.add(last+1, at.Seq-1)
		if err != nil {
			h.add(at.Seq, at.Seq)
		}
		c.places[log] = at
	} else if err == nil {
		h.remove(at.Seq)
	}
	if at.Time.After(c.newest) {
		c.newest = at.Time
	}
}

// begun is told that what lies up to after is acked: nothing of it comes again.
func (c *tally) begun(log bus.Log, after bus.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holes[log].forget(after.Seq)
}

// A hole is a row of places, first and last.
type hole [2]uint64

// holes are the places of a log that were passed and not counted, in their order. Places
// at which there is no message may be among them.
type holes struct{ list []hole }

func (h *holes) all() []hole {
	if h == nil {
		return nil
	}
	return h.list
}

// find is the index of the hole that seq is in, or would be before.
func (h *holes) find(seq uint64) (int, bool) {
	i, ok := slices.BinarySearchFunc(h.list, seq, func(x hole, s uint64) int { return cmp.Compare(x[1], s) })
	return i, ok || i < len(h.list) && h.list[i][0] <= seq
}

func (h *holes) has(seq uint64) bool {
	if h == nil || len(h.list) == 0 {
		return false
	}
	_, ok := h.find(seq)
	return ok
}

// add appends a row behind all others. Past the bound the first ones are forgotten.
func (h *holes) add(first, last uint64) {
	if first > last {
		return
	}
	if n := len(h.list); n > 0 && h.list[n-1][1]+1 == first {
		h.list[n-1][1] = last
		return
	}
	if len(h.list) >= maxHoles {
		h.list = slices.Delete(h.list, 0, maxHoles/10)
	}
	h.list = append(h.list, hole{first, last})
}

func (h *holes) remove(seq uint64) {
	i, ok := h.find(seq)
	if !ok {
		return
	}
	switch x := h.list[i]; {
	case x[0] == x[1]:
		h.list = slices.Delete(h.list, i, i+1)
	case x[0] == seq:
		h.list[i][0]++
	case x[1] == seq:
		h.list[i][1]--
	default:
		h.list[i][1] = seq - 1
		h.list = slices.Insert(h.list, i+1, hole{seq + 1, x[1]})
	}
}

// forget drops what lies up to seq.
func (h *holes) forget(seq uint64) {
	if h == nil || len(h.list) == 0 {
		return
	}
	i, in := h.find(seq)
	h.list = slices.Delete(h.list, 0, i)
	if in {
		if h.list[0][0] = seq + 1; h.list[0][0] > h.list[0][1] {
			h.list = slices.Delete(h.list, 0, 1)
		}
	}
}
