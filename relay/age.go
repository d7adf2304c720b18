package relay

import (
	"iter"
	"slices"

	"github.com/cbcast/cbcast/internal/bus"
)

// byAge has the entries of the registry in the order of the list, the newest last:
// new runs are put at its end, old ones leave at its beginning, so that both cost
// little however many there are. The zero value holds nothing and takes nothing.
type byAge struct {
	built bool
	list  []*bus.RunInfo
}

func older(a, b *bus.RunInfo) int { return newer(b, a) }

// build takes all entries at once.
func (o *byAge) build(runs map[string]*bus.RunInfo) {
	o.built, o.list = true, make([]*bus.RunInfo, 0, len(runs)+len(runs)/8)
	for _, i := range runs {
		o.list = append(o.list, i)
	}
	slices.SortFunc(o.list, older)
}

// put takes an entry in the place of an earlier one of its run, which may be nil.
func (o *byAge) put(old, now *bus.RunInfo) {
	if !o.built {
		return
	}
	if old != nil && newer(old, now) == 0 {
		if at, ok := slices.BinarySearchFunc(o.list, now, older); ok {
			o.list[at] = now
			return
		}
	}
	o.remove(old)
	at, _ := slices.BinarySearchFunc(o.list, now, older)
	o.list = slices.Insert(o.list, at, now)
}

// remove lets an entry go, which may be nil.
func (o *byAge) remove(old *bus.RunInfo) {
	if !o.built || old == nil {
		return
	}
	if at, ok := slices.BinarySearchFunc(o.list, old, older); ok {
		o.list = slices.Delete(o.list, at, at+1)
	}
}

// from yields the entries behind one, the newest first, or all where it is nil.
func (o *byAge) from(behind *bus.RunInfo) iter.Seq[*bus.RunInfo] {
	end := len(o.list)
	if behind != nil {
		end, _ = slices.BinarySearchFunc(o.list, behind, older)
	}
	return func(yield func(*bus.RunInfo) bool) {
		for _, i := range slices.Backward(o.list[:end]) {
			if !yield(i) {
				return
			}
		}
	}
}
