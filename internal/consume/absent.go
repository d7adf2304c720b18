package consume

import "github.com/prometheus/client_golang/prometheus"

// Absent shows a consumer that does not run as one that is not ready, so that an alert on
// cbcast_consumer_ready sees it.
func Absent(name string) prometheus.Collector { return absent{seriesOf(name)[0].desc} }

type absent struct{ ready *prometheus.Desc }

func (a absent) Describe(ch chan<- *prometheus.Desc) { ch <- a.ready }

func (a absent) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(a.ready, prometheus.GaugeValue, 0)
}
