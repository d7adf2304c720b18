package health

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Gatherer and Gatherers are those of the Prometheus library.
type (
	Gatherer  = prometheus.Gatherer
	Gatherers = prometheus.Gatherers
)

// Process are the metrics of the Go runtime and of the process.
func Process() Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
