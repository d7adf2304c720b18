package metrics

import (
	"math"
	"slices"
	"strings"
	"time"
)

// maxSeries bounds the series of one metric. Past it a count goes to the series whose
// labels are all other.
const maxSeries = 4000

// A series is one metric with one set of labels.
type series struct {
	labels  []string
	n       int64 // units
	h       *hist
	created time.Time
}

// A family is all series of one metric.
type family struct {
	def    *def
	series map[string]*series
}

// A book holds all counts. It is not safe for concurrent use.
type book struct {
	families map[*def]*family
	now      func() time.Time
	key      []byte // scratch
	mute     bool   // nothing is counted: a run is looked at again
}

func newBook(now func() time.Time) *book {
	b := &book{families: map[*def]*family{}, now: now}
	for _, d := range catalog {
		b.families[d] = &family{def: d, series: map[string]*series{}}
	}
	return b
}

// at finds or makes a series.
func (b *book) at(d *def, labels ...string) *series {
	b.key = b.key[:0]
	for _, l := range labels {
		b.key = append(append(b.key, l...), 0xff) // in no label
	}
	f := b.families[d]
	if s := f.series[string(b.key)]; s != nil {
		return s
	}
	limit := d.limit
	if limit == 0 {
		limit = maxSeries
	}
	if len(f.series) >= limit {
		b.at(mFull).n++
		labels = slices.Repeat([]string{other}, len(labels))
		b.key = append(b.key[:0], strings.Repeat(other+"\xff", len(labels))...)
		if s := f.series[string(b.key)]; s != nil {
			return s
		}
	}
	return f.add(labels, b.now())
}

func (f *family) add(labels []string, created time.Time) *series {
	s := &series{labels: make([]string, len(labels)), created: created}
	for i, l := range labels {
		s.labels[i] = strings.Clone(l)
	}
	if f.def.kind == histogram {
		s.h = newHist(f.def.buckets)
	}
	f.series[key(s.labels)] = s
	return s
}

func key(labels []string) string {
	var k strings.Builder
	for _, l := range labels {
		k.WriteString(l)
		k.WriteByte(0xff)
	}
	return k.String()
}

// add counts n units. A count stays at the largest number: what agents say of themselves
// may be anything, and a counter never falls.
func (b *book) add(d *def, n int64, labels ...string) {
	if n > 0 && !b.mute {
		s := b.at(d, labels...)
		s.n = plus(s.n, n)
	}
}

// plus adds what is not negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (b *book) inc(d *def, labels ...string) { b.add(d, 1, labels...) }

// measure adds a duration to a histogram. One below zero, from clocks that differ, is zero.
func (b *book) measure(d *def, v time.Duration, ex exemplar, labels ...string) {
	if !b.mute {
		b.at(d, labels...).h.observe(max(v, 0), ex)
	}
}

// sorted lists the series in the order of their labels.
func (f *family) sorted() []*series {
	list := make([]*series, 0, len(f.series))
	for _, s := range f.series {
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y *series) int { return slices.Compare(x.labels, y.labels) })
	return list
}
