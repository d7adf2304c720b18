package trace

import "github.com/prometheus/client_golang/prometheus"

// counts are the program's own metrics.
type counts struct {
	spans, rejected, dead, requests, failures, unsampled, runs, rebuilds prometheus.Counter
	seconds                                                              prometheus.Histogram
	held, waiting, lost                                                  prometheus.Gauge
}

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "cbcast", Subsystem: "trace", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "cbcast", Subsystem: "trace", Name: name, Help: help})
	}
	return &counts{
		spans:     counter("spans_total", "Spans that the collector has taken."),
		rejected:  counter("spans_rejected_total", "Spans that the collector did not take of a request that it took."),
		dead:      counter("spans_dead_total", "Spans that the collector refused for good; they are dead letters."),
		requests:  counter("requests_total", "Requests to the collector."),
		failures:  counter("request_failures_total", "Requests that the collector did not take."),
		unsampled: counter("runs_unsampled_total", "Runs that ended and are not traced: whoever began their trace does not record it."),
		runs:      counter("runs_total", "Runs whose trace is complete."),
		rebuilds:  counter("rebuilds_total", "Runs that were read again from the bus."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "cbcast", Subsystem: "trace", Name: "request_duration_seconds", Help: "How long a request to the collector took.",
			Buckets: []float64{.005, .02, .1, .5, 2, 10}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		held:    gauge("runs_held", "Runs whose open spans are in memory."),
		waiting: gauge("spans_waiting", "Spans that wait for the collector."),
		lost:    gauge("runs_lost", "Lost runs that may come back; their traces are not complete."),
	}
}

func (n *counts) all() []prometheus.Collector {
	return []prometheus.Collector{
		n.spans, n.rejected, n.dead, n.requests, n.failures, n.unsampled, n.runs, n.rebuilds, n.seconds, n.held, n.waiting, n.lost,
	}
}
