package metrics

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// descs are the descriptions of the catalog for the client library, made when first asked
// for.
var descs = sync.OnceValue(func() map[*def]*prometheus.Desc {
	m := map[*def]*prometheus.Desc{}
	for _, d := range catalog {
		m[d] = prometheus.NewDesc(prefix+d.name, d.help, d.labels, nil)
	}
	return m
})

// A sample is one series as Prometheus takes it.
type sample struct {
	desc *prometheus.Desc
	out  *dto.Metric
}

func (s sample) Desc() *prometheus.Desc { return s.desc }

func (s sample) Write(m *dto.Metric) error {
	proto.Merge(m, s.out)
	return nil
}

// Describe is for [prometheus.Collector].
func (c *tally) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range catalog {
		ch <- descs()[d]
	}
}

// Collect is for [prometheus.Collector]: all series as of one moment.
func (c *tally) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.samples() {
		ch <- s
	}
}

func (c *tally) samples() (list []sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range catalog {
		for _, s := range c.families[d].sorted() {
			list = append(list, s.sample(d))
		}
	}
	return append(list, c.gauges()...)
}

func (s *series) sample(d *def) sample {
	m := &dto.Metric{}
	for i, name := range d.labels {
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(name), Value: proto.String(s.labels[i])})
	}
	switch d.kind {
	case histogram:
		m.Histogram = s.h.write(s.created)
	default:
		m.Counter = &dto.Counter{Value: proto.Float64(d.value(s.n)), CreatedTimestamp: timestamppb.New(s.created)}
	}
	return sample{descs()[d], m}
}

// value is so many units in the metric's own.
func (d *def) value(n int64) float64 {
	switch d.unit {
	case 0:
		return float64(n)
	case nano:
		return float64(n) / 1e9 // exact where the product is not
	}
	return float64(n) * d.unit
}

// gauges are looked up when somebody asks.
func (c *tally) gauges() (list []sample) {
	set := func(d *def, v float64, labels ...string) {
		m := &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(v)}}
		for i, name := range d.labels {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(name), Value: proto.String(labels[i])})
		}
		list = append(list, sample{descs()[d], m})
	}
	now := c.now()
	active := map[string]map[string]int{}
	waiting, oldest := newAges(askKinds), newAges(cmdNames)
	for t := range c.tenants() {
		active[t] = map[string]int{}
	}
	for _, l := range c.live {
		s := l.State
		switch {
		case !l.Lost.IsZero():
			s = "lost"
		case s == "":
			s = "starting"
		}
		if active[l.Who] == nil {
			active[l.Who] = map[string]int{}
		}
		active[l.Who][s]++
		for _, w := range l.Waits {
			waiting.add(w.Kind, w.Since)
		}
		for _, k := range l.Cmds {
			if !k.Final && !k.Written.IsZero() {
				oldest.add(k.Name, k.Written)
			}
		}
	}
	for t, byState := range active {
		for _, s := range append(states[:len(states):len(states)], other) {
			if n := byState[s]; n > 0 || s != other {
				set(mActive, float64(n), t, s)
			}
		}
	}
	for kind := range waiting.n {
		set(mWaiting, float64(waiting.n[kind]), kind)
		set(mOldest, waiting.age(kind, now), kind)
	}
	for name := range oldest.n {
		set(mPending, float64(oldest.n[name]), name)
		set(mPendingOld, oldest.age(name, now), name)
	}
	set(mLastEvent, seconds(c.newest))
	set(mSnapshot, seconds(c.saved))
	set(mHeld, float64(c.folds.n))
	set(mInfo, 1, clean(c.opt.Version), clean(c.opt.Revision), runtime.Version())
	return list
}

// tenants are the tenants that have a series.
func (c *tally) tenants() map[string]bool {
	m := map[string]bool{}
	for _, d := range []*def{mStarted, mFinished} {
		for _, s := range c.families[d].series {
			m[s.labels[0]] = true
		}
	}
	return m
}

// seconds is a time in Unix seconds, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

// ages count things by kind, and know the oldest of each.
type ages struct {
	n     map[string]int
	first map[string]time.Time
}

func newAges(kinds []string) ages {
	a := ages{map[string]int{}, map[string]time.Time{}}
	for _, k := range append(kinds[:len(kinds):len(kinds)], other) {
		a.n[k] = 0
	}
	return a
}

func (a ages) add(kind string, since time.Time) {
	a.n[kind]++
	if f := a.first[kind]; f.IsZero() || since.Before(f) {
		a.first[kind] = since
	}
}

func (a ages) age(kind string, now time.Time) float64 {
	if f := a.first[kind]; !f.IsZero() {
		return max(0, now.Sub(f).Seconds())
	}
	return 0
}
