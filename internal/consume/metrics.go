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

func newCommits() commits {
	return commits{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cbcast_consumer_commit_seconds", Help: "Time of commits that succeeded.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cbcast_consumer_commit_failures_total", Help: "Commits that failed and were tried again.",
		}),
	}
}

func (c *Consumer) committed(d time.Duration, err error) {
	if err != nil {
		c.failed.Inc()
		return
	}
	c.seconds.Observe(d.Seconds())
}
