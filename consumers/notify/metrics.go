package notify

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what notify tells of itself. Labels are names of destinations from the
// rules, kinds and fixed words: none is of a run.
type metrics struct {
	reg        *prometheus.Registry
	total      *prometheus.CounterVec
	failed     *prometheus.CounterVec
	requests   *prometheus.CounterVec
	suppressed *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	decided    *prometheus.CounterVec
	queue      *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	breakers   *prometheus.GaugeVec
	disabled   *prometheus.GaugeVec
	held       prometheus.Gauge
	open       prometheus.Gauge
	letters    prometheus.Gauge
	told       prometheus.Gauge
	reload     *prometheus.CounterVec
	reloadOK   prometheus.Gauge
}

func newMetrics() *metrics {
	const ns = "cbcast_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: ns + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: ns + name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: ns + name, Help: help})
	}
	m := &metrics{
		reg:        prometheus.NewRegistry(),
		total:      counter("notifications_total", "Notices by what became of them.", "destination", "kind", "outcome"),
		failed:     counter("notifications_failed_total", "Attempts that did not deliver, by reason.", "destination", "reason"),
		requests:   counter("notification_requests_total", "Attempts.", "destination"),
		suppressed: counter("notifications_suppressed_total", "What was not told, by reason.", "reason"),
		decided:    counter("notifications_decided_total", "Notices that a rule sends to a destination.", "destination", "kind"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: ns + "notification_latency_seconds", Help: "From the decision to the delivery.",
			Buckets:                     []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 36000},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"destination"}),
		queue:    gauge("notification_queue_length", "Notices that wait in a destination's queue.", "destination"),
		oldest:   gauge("notification_queue_oldest_seconds", "Age of the oldest of them.", "destination"),
		breakers: gauge("notification_breaker_state", "0 closed, 1 half open, 2 open.", "destination"),
		disabled: gauge("notification_destination_disabled", "1 where the destination said that it is gone.", "destination"),
		held:     one("notifications_held", "Notices held back by groups and quiet hours."),
		open:     one("notification_watches", "Open asks and lost runs that are told again by the clock."),
		letters:  one("notification_dead_letters", "Notices that were given up and can be sent again."),
		told:     one("notification_runs_remembered", "Runs of which it is known what was told."),
		reload:   counter("notification_rules_reloads_total", "Readings of the rules file.", "outcome"),
		reloadOK: one("notification_rules_last_reload_successful", "0 while older rules are in use than the file has."),
	}
	m.reg.MustRegister(m.total, m.failed, m.requests, m.suppressed, m.decided, m.latency, m.reload, m.reloadOK)
	m.reloadOK.Set(1)
	return m
}

func (m *metrics) suppress(reason string) { m.suppressed.WithLabelValues(reason).Inc() }

func (m *metrics) ended(it *item, how string) {
	m.total.WithLabelValues(it.Target.Dest, string(it.Kind), how).Inc()
}

func (m *metrics) delivered(it *item, now time.Time) {
	m.ended(it, "delivered")
	m.latency.WithLabelValues(it.Target.Dest).Observe(now.Sub(it.Made).Seconds())
}

// gauges are what the desk shows of now, when it is asked.
type gauges struct{ d *desk }

func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g.d.m.gauges() {
		c.Describe(ch)
	}
}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	g.d.m.observe(g.d)
	for _, c := range g.d.m.gauges() {
		c.Collect(ch)
	}
}

func (m *metrics) gauges() []prometheus.Collector {
	return []prometheus.Collector{m.queue, m.oldest, m.breakers, m.disabled, m.held, m.open, m.letters, m.told}
}

// observe sets the gauges.
func (m *metrics) observe(d *desk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	length, oldest, state := map[string]int{}, map[string]time.Duration{}, map[string]int{}
	for _, l := range d.lanes {
		length[l.dest] += len(l.items)
		state[l.dest] = max(state[l.dest], l.breaker.state(now))
		for _, it := range l.items {
			oldest[l.dest] = max(oldest[l.dest], now.Sub(it.Made))
		}
	}
	waiting := 0
	for _, it := range d.st.items {
		if it.lane == nil {
			waiting++
		}
	}
	for name := range d.rules.Destinations {
		m.queue.WithLabelValues(name).Set(float64(length[name]))
		m.oldest.WithLabelValues(name).Set(oldest[name].Seconds())
		m.breakers.WithLabelValues(name).Set(float64(state[name]))
		gone := 0.0
		if d.st.dests[name].Disabled {
			gone = 1
		}
		m.disabled.WithLabelValues(name).Set(gone)
	}
	m.held.Set(float64(waiting))
	m.open.Set(float64(len(d.st.watches)))
	m.letters.Set(float64(d.dead.count()))
	m.told.Set(float64(d.told.runs()))
}

// forget drops the series of destinations that are in the rules no more.
func (m *metrics) forget(dest string) {
	l := prometheus.Labels{"destination": dest}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.queue, m.oldest, m.breakers, m.disabled} {
		v.DeletePartialMatch(l)
	}
}
