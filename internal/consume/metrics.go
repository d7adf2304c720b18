package consume

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// commits measures the commits.
type commits struct {
	seconds prometheus.Histogram
	failed  prometheus.Counter
}

func newCommits(consumer string) commits {
	labels := prometheus.Labels{"consumer": consumer}
	return commits{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cbcast_consumer_commit_seconds", Help: "Time of commits that succeeded.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cbcast_consumer_commit_failures_total", Help: "Commits that failed and were tried again.", ConstLabels: labels,
		}),
	}
}

func (c *Consumer) committed(d time.Duration, err error) {
	if err != nil {
		c.commits.failed.Inc()
		return
	}
	c.commits.seconds.Observe(d.Seconds())
}

// A series is one value of a [Status].
type series struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Status) float64
}

// seriesOf lists what a consumer shows. The label consumer is its name.
func seriesOf(name string) []series {
	labels := prometheus.Labels{"consumer": name}
	of := func(kind prometheus.ValueType, name, help string, value func(*Status) float64) series {
		return series{prometheus.NewDesc("cbcast_consumer_"+name, help, nil, labels), kind, value}
	}
	gauge := func(name, help string, value func(*Status) float64) series {
		return of(prometheus.GaugeValue, name, help, value)
	}
	count := func(name, help string, value func(*Status) float64) series {
		return of(prometheus.CounterValue, name, help, value)
	}
	return []series{
		gauge("ready", "1 while it reads or stands by and nothing is in its way.", func(s *Status) float64 { return truth(s.Ready) }),
		gauge("standby", "1 while another instance reads.", func(s *Status) float64 { return truth(s.Standby) }),
		gauge("lag_messages", "Messages stored and not acked, as the server said last.", func(s *Status) float64 { return float64(s.Lag) }),
		gauge("unacked", "Messages given by the server and not acked.", func(s *Status) float64 { return float64(s.Unacked) }),
		gauge("parked_runs", "Runs held up by an entry that could not be handled.", func(s *Status) float64 { return float64(s.Parked) }),
		gauge("parked_bytes", "Bytes of entries that wait for their run.", func(s *Status) float64 { return float64(s.ParkedBytes) }),
		gauge("oldest_seconds", "Age of the oldest entry that waits for its run, 0 without one.", func(s *Status) float64 {
			if s.Oldest.IsZero() {
				return 0
			}
			return max(0, now().Sub(s.Oldest).Seconds())
		}),
		gauge("dead_letters", "Dead letters on the disk.", func(s *Status) float64 { return float64(s.Dead) }),
		count("dead_total", "Entries that became dead letters.", func(s *Status) float64 { return float64(s.Buried) }),
		count("handled_total", "Entries handled, those that came again included.", func(s *Status) float64 { return float64(s.Handled) }),
		count("redelivered_total", "Messages that the server gave again.", func(s *Status) float64 { return float64(s.Redelivered) }),
		count("missed_total", "Messages that retention took before they were read.", func(s *Status) float64 { return float64(s.Missed) }),
		count("rebuilt_total", "Times that a log was not the one that was read before.", func(s *Status) float64 { return float64(s.Rebuilt) }),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe and Collect make a consumer a [prometheus.Collector].
func (c *Consumer) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range c.series {
		ch <- s.desc
	}
	c.commits.seconds.Describe(ch)
	c.commits.failed.Describe(ch)
}

// Collect gives the values of now.
func (c *Consumer) Collect(ch chan<- prometheus.Metric) {
	st := c.Status()
	for _, s := range c.series {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(&st))
	}
	c.commits.seconds.Collect(ch)
	c.commits.failed.Collect(ch)
}
